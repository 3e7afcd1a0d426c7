//! Dry confirmation: a run as it is recorded, each of its effects held against the world as it is now.
//!
//! What must stay true: no tool is called, nothing is recorded, and nothing of the run changes; so it may be asked of any run at any time, also long after
//! it ended, and by whoever does not drive it.

use counterfoil_core::effect::State;
use counterfoil_core::run::confirm::Finding;
use counterfoil_core::run::entry::{Began, StepEnd};
use counterfoil_core::run::{Run, StepState};
use counterfoil_core::{EffectClass, EffectKey, RunId, StepPath, Tenant};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde::Serialize;

use super::diverge::{Divergence, diverges};
use super::{RunError, book};
use crate::runtime::Runtime;
use crate::shown::time;
use crate::workflow::Workflow;

/// Verifiers that are asked at once.
const AT_ONCE_MAX: usize = 8;

#[derive(Debug, Clone, Serialize)]
pub struct ReplayView {
    pub run: String,
    pub workflow: String,
    pub state: &'static str,
    /// When it was asked.
    pub at: String,
    /// `agrees`: nothing that could be asked says otherwise. `drifted`; `diverged`; `unknown`: something could not be asked, or is in doubt.
    pub verdict: &'static str,
    pub counts: Counts,
    /// In the order in which they began.
    pub steps: Vec<ReplayStep>,
    /// Where another definition was given: how far the record goes by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub divergence: Option<Divergence>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    pub recorded: u64,
    pub verified: u64,
    pub drifted: u64,
    pub unverified: u64,
    pub in_doubt: u64,
    pub unavailable: u64,
    pub undone: u64,
}

#[derive(Debug, Clone, Serialize)]
pub struct ReplayStep {
    pub step: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
    /// A child run: replayed by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// `recorded` (nothing to ask about: its result is injected), `verified`, `drifted`, `unverified`, `in_doubt`, `unavailable`, `undone`.
    pub finding: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl Runtime {
    /// Replays a run dry. With another `workflow`, the record is also held against that.
    pub async fn replay_run(&self, tenant: &Tenant, run: &RunId, workflow: Option<&Workflow>) -> Result<ReplayView, RunError> {
        let (facts, own) = book::read(&self.inner, tenant, run).await?;
        let divergence = match workflow {
            Some(other) if other.digest != own.digest => {
                self.salt_for(tenant, other).await?;
                Some(diverges(self, &facts, &self.recorded_entries(tenant, run).await?, other))
            }
            _ => None,
        };
        let asking = stream::iter(facts.order.clone()).map(|step| self.replay_step(&facts, step)).buffered(AT_ONCE_MAX);
        let steps: Vec<ReplayStep> = asking.try_collect().await?;
        let counts = counted(&steps);
        Ok(ReplayView {
            run: run.to_string(),
            workflow: facts.started.workflow.to_string(),
            state: facts.state().word(),
            at: time(self.now()),
            verdict: match () {
                () if counts.drifted > 0 => "drifted",
                () if divergence.as_ref().is_some_and(Divergence::is_one) => "diverged",
                () if counts.in_doubt + counts.unavailable > 0 => "unknown",
                () => "agrees",
            },
            counts,
            steps,
            divergence,
        })
    }

    async fn replay_step(&self, run: &Run, step: StepPath) -> Result<ReplayStep, RunError> {
        let known = run.step(&step).expect("it is in the order");
        let mut view = ReplayStep {
            step: step.to_string(),
            tool: None,
            effect: run.effect(&step).map(|key| key.to_string()),
            run: None,
            finding: "recorded",
            expected: None,
            found: None,
            why: None,
        };
        match &known.what {
            Some(Began::Effect { tool, key, pure }) => {
                view.tool = Some(tool.to_string());
                if !pure {
                    let finding = self.replay_effect(run, *key, &known.state).await?;
                    finding.shown(&mut view);
                }
            }
            Some(Began::Child { run }) => view.run = Some(run.to_string()),
            _ => {}
        }
        Ok(view)
    }

    async fn replay_effect(&self, run: &Run, key: EffectKey, state: &StepState) -> Result<Seen, RunError> {
        let effect = self.inner.ledger.load(key).await?;
        if effect.state == State::Absent && !effect.expired {
            // Its tool was in mode off: the run alone knows of it.
            let doubt =
                matches!(state, StepState::Ended { how: StepEnd::Failed { doubt: true, .. } | StepEnd::Cancelled { doubt: true }, .. });
            return Ok(if doubt { Seen::Asked(Finding::InDoubt) } else { Seen::Recorded });
        }
        let tool = effect.opened.as_ref().and_then(|opened| self.inner.tools.get(&run.started.tenant, &opened.tool));
        let looks_only = tool.is_some_and(|tool| tool.policy.effect != EffectClass::Write && !tool.tool.can_verify());
        match self.held_against_the_world(&effect).await? {
            Some(Finding::Unverified { .. }) if looks_only => Ok(Seen::Recorded),
            Some(finding) => Ok(Seen::Asked(finding)),
            None if matches!(effect.state, State::Undoing { .. } | State::Undone { .. } | State::UndoFailed { .. }) => Ok(Seen::Undone),
            None => Ok(Seen::Recorded),
        }
    }
}

/// What is said of one step.
enum Seen {
    Recorded,
    Undone,
    Asked(Finding),
}

impl Seen {
    fn shown(self, view: &mut ReplayStep) {
        let finding = match self {
            Self::Recorded => return,
            Self::Undone => {
                view.finding = "undone";
                return;
            }
            Self::Asked(finding) => finding,
        };
        view.finding = finding.word();
        match finding {
            Finding::Drifted { expected, found } => (view.expected, view.found) = (Some(expected), Some(found)),
            Finding::Unavailable { why } | Finding::Unverified { why } => view.why = Some(why),
            Finding::Verified | Finding::InDoubt => {}
        }
    }
}

fn counted(steps: &[ReplayStep]) -> Counts {
    let count = |word: &str| steps.iter().filter(|step| step.finding == word).count() as u64;
    Counts {
        recorded: count("recorded"),
        verified: count("verified"),
        drifted: count("drifted"),
        unverified: count("unverified"),
        in_doubt: count("in_doubt"),
        unavailable: count("unavailable"),
        undone: count("undone"),
    }
}
