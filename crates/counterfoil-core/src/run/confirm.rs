//! Whether the world still agrees with what a run recorded: what a look at it found, and what that means for the run.
//!
//! Pure: the questions are asked elsewhere. What must stay true: only a clear yes is `Verified`; a question that could not be asked is neither that nor a
//! drift; and whatever was found, nothing is done again because of it.

use serde::{Deserialize, Serialize};

use crate::canonical::Json;
use crate::ids::{EffectKey, StepPath, ToolName};
use crate::outcome::Failure;
use crate::time::Timestamp;

/// The code of a run that failed because the world no longer agrees with it.
pub const WORLD_DRIFTED: &str = "world_drifted";

/// Checks that are written down of one look. Those that matter come first; the rest is counted.
pub const CHECKS_MAX: usize = 1000;
/// Mismatches that a message names; all of them are in its detail.
const NAMED_MAX: usize = 5;

/// When what an effect did is held against the world again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum When {
    Never,
    /// When a run goes on after its worker was lost, or by a person's word.
    #[default]
    OnRecovery,
    /// Each time that a worker takes the run up, also after a sleep or a wait.
    Always,
}

/// What follows if it no longer agrees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnDrift {
    /// The run fails.
    #[default]
    Strict,
    /// It is counted, and the run goes on.
    Warn,
    /// The run waits for a person.
    Human,
}

/// What a step, a workflow or a tool says about it; what it does not say, the next one does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Confirm {
    pub when: Option<When>,
    pub on_drift: Option<OnDrift>,
}

impl Confirm {
    /// The first word counts, for each of the two by itself.
    pub fn or(self, other: Self) -> Self {
        Self { when: self.when.or(other.when), on_drift: self.on_drift.or(other.on_drift) }
    }

    pub fn when(&self) -> When {
        self.when.unwrap_or_default()
    }

    pub fn on_drift(&self) -> OnDrift {
        self.on_drift.unwrap_or_default()
    }
}

/// Why a run is looked at before it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Occasion {
    /// Its worker was lost in the middle of it.
    TakenOver,
    /// A person wants it to go on.
    Resumed,
    /// It slept or waited, and somebody takes it up.
    PickedUp,
}

impl Occasion {
    pub fn asks(self, when: When) -> bool {
        match (self, when) {
            (_, When::Never) => false,
            (Self::TakenOver | Self::Resumed, _) | (Self::PickedUp, When::Always) => true,
            (Self::PickedUp, When::OnRecovery) => false,
        }
    }
}

/// What one look at the world found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// It is as it was recorded. What was removed is still gone.
    Verified,
    /// It is not.
    Drifted { expected: String, found: String },
    /// It could not be asked: nothing is known. Asking again may help.
    Unavailable { why: String },
    /// There is nothing to ask, or nothing to hold an answer against.
    Unverified { why: String },
    /// Whether it happened is not known in the first place: nothing was asked.
    InDoubt,
}

impl Finding {
    pub fn word(&self) -> &'static str {
        match self {
            Self::Verified => "verified",
            Self::Drifted { .. } => "drifted",
            Self::Unavailable { .. } => "unavailable",
            Self::Unverified { .. } => "unverified",
            Self::InDoubt => "in_doubt",
        }
    }
}

/// One effect that was held against the world.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    pub step: StepPath,
    pub effect: EffectKey,
    pub tool: ToolName,
    pub mode: OnDrift,
    pub finding: Finding,
}

/// A run was held against the world before it went on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirmed {
    pub at: Timestamp,
    pub occasion: Occasion,
    /// How many, also of those that are not listed.
    pub verified: u64,
    pub unverified: u64,
    /// Every one that drifted, could not be asked or is in doubt, in the order of the run; then others, as far as there is room.
    pub checks: Vec<Check>,
}

/// What follows for the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    Agrees,
    /// Something drifted, and it goes on all the same.
    Warned,
    /// Something could not be asked: it waits, and asks again.
    AsksAgain,
    NeedsPerson,
    Fails,
}

impl Judgement {
    pub fn word(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::Warned => "warned",
            Self::AsksAgain => "asks_again",
            Self::NeedsPerson => "needs_person",
            Self::Fails => "failed",
        }
    }

    /// The run does not go on by itself.
    pub fn holds_up(self) -> bool {
        matches!(self, Self::AsksAgain | Self::NeedsPerson)
    }
}

impl Confirmed {
    /// Of all checks, in the order of the run.
    pub fn of(at: Timestamp, occasion: Occasion, checks: Vec<Check>) -> Self {
        let count = |word: &str| checks.iter().filter(|check| check.finding.word() == word).count() as u64;
        let (verified, unverified) = (count("verified"), count("unverified"));
        let (mut matter, others): (Vec<_>, Vec<_>) = checks.into_iter().partition(Check::matters);
        let room = CHECKS_MAX.saturating_sub(matter.len());
        matter.extend(others.into_iter().take(room));
        Self { at, occasion, verified, unverified, checks: matter }
    }

    /// What is worst decides. A strict mismatch is certain, whatever else could not be asked; before a person is asked, all was.
    pub fn judged(&self) -> Judgement {
        let drifted = |mode| self.drifted().any(|check| check.mode == mode);
        let unavailable = self.checks.iter().any(|check| matches!(check.finding, Finding::Unavailable { .. }));
        match () {
            () if drifted(OnDrift::Strict) => Judgement::Fails,
            () if drifted(OnDrift::Human) => Judgement::NeedsPerson,
            () if unavailable => Judgement::AsksAgain,
            () if drifted(OnDrift::Warn) => Judgement::Warned,
            () => Judgement::Agrees,
        }
    }

    pub fn drifted(&self) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(|check| matches!(check.finding, Finding::Drifted { .. }))
    }

    /// The failure of a run that did not pass: names every mismatch.
    pub fn failure(&self) -> Failure {
        self.failure_because("the world no longer agrees with what the run did; nothing was done again")
    }

    /// The same, where a person decided.
    pub fn failure_by(&self, by: &str, why: &str) -> Failure {
        let why = if why.is_empty() { String::new() } else { format!(": {why}") };
        self.failure_because(&format!("{by} said that the run must not go on{why}; nothing was done again"))
    }

    fn failure_because(&self, because: &str) -> Failure {
        let named: Vec<String> = self.drifted().take(NAMED_MAX).map(Check::told).collect();
        let more = match self.drifted().count() - named.len() {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        let list = if named.is_empty() { String::new() } else { format!(": {}{more}", named.join("; ")) };
        let detail: Vec<&Check> = self.drifted().collect();
        let detail = Json::from_value(&serde_json::json!({ "drifted": detail }));
        Failure::new(WORLD_DRIFTED, format!("{because}{list}")).with_detail(detail)
    }
}

impl Check {
    fn matters(&self) -> bool {
        !matches!(self.finding, Finding::Verified | Finding::Unverified { .. })
    }

    fn told(&self) -> String {
        match &self.finding {
            Finding::Drifted { expected, found } => format!("step {} ({}): expected {expected}, found {found}", self.step, self.tool),
            finding => format!("step {} ({}): {}", self.step, self.tool, finding.word()),
        }
    }
}
