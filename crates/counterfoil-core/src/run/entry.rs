//! Recorded facts of a run: what it was given, what began and how it ended, what came from outside.
//!
//! An entry says what happened, never what should follow. Which step is next is [`crate::run::flow`]'s to find, from the plan and these facts; so a
//! run that is taken over stands exactly where it stood.

use serde::{Deserialize, Serialize};

use super::confirm::Confirmed;
use crate::canonical::{CanonicalJson, Json};
use crate::ids::{Caller, Digest32, EffectKey, Fence, RunId, StepPath, Tenant, ToolName, WorkerId, WorkflowName};
use crate::outcome::Failure;
use crate::time::Timestamp;

/// One fact about one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunEntry {
    /// Always the first.
    RunStarted(Box<Started>),
    /// A worker took it on.
    Owned {
        at: Timestamp,
        worker: WorkerId,
        fence: Fence,
        lease_until: Timestamp,
    },
    /// Its owner let go: nobody need look at it before `due`, or until something comes.
    Parked {
        at: Timestamp,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        due: Option<Timestamp>,
        /// Before the world was asked whether it still agrees: whoever goes on with it asks.
        #[serde(default, skip_serializing_if = "is_false")]
        unconfirmed: bool,
    },
    StepBegan {
        at: Timestamp,
        step: StepPath,
        what: Began,
    },
    StepEnded {
        at: Timestamp,
        step: StepPath,
        how: StepEnd,
    },
    /// Its time is up; `None`: that of the whole run. What is inside is stopped.
    TimedOut {
        at: Timestamp,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<StepPath>,
    },
    Signalled(Signalled),
    /// A person, or another run, wants it to stop: all of it, or one step with all that is inside.
    CancelAsked {
        at: Timestamp,
        by: String,
        why: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<StepPath>,
        /// What was done is to be undone.
        #[serde(default, skip_serializing_if = "is_false")]
        undo: bool,
    },
    /// The client that drives it says that it is over, and how. What it did is undone first, if it failed.
    FinishAsked {
        at: Timestamp,
        how: RunEnd,
    },
    /// Something it waits for has changed: look again.
    Stirred {
        at: Timestamp,
        /// A person wants it to go on: what it did is held against the world first.
        #[serde(default, skip_serializing_if = "is_false")]
        resumed: bool,
    },
    /// What it did was held against the world before it went on. What follows is [`Confirmed::judged`].
    Confirmed(Confirmed),
    /// A person decided about a run that the world no longer agrees with, or could not be asked about.
    ConfirmDecided {
        at: Timestamp,
        by: String,
        why: String,
        /// It goes on as recorded; if not, it fails.
        accepted: bool,
    },
    /// What these steps did is to be undone, in this order. `scope`: they are all inside it; `None`: the whole run.
    CompensationTriggered {
        at: Timestamp,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scope: Option<StepPath>,
        by: String,
        why: String,
        of: Vec<StepPath>,
    },
    CompensationCompleted {
        at: Timestamp,
        step: StepPath,
        how: Undone,
    },
    CompensationFailed {
        at: Timestamp,
        step: StepPath,
        failure: Failure,
    },
    RunEnded {
        at: Timestamp,
        how: RunEnd,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    pub at: Timestamp,
    pub tenant: Tenant,
    pub run: RunId,
    pub caller: Caller,
    /// What it runs by: its name.
    pub workflow: WorkflowName,
    #[serde(default, skip_serializing_if = "By::is_plan")]
    pub by: By,
    /// Of what it runs by: it keeps the one it began with.
    pub definition: Digest32,
    pub input: CanonicalJson,
    /// The run and the step that wait for this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// The run that this one has its beginning from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked: Option<Forked>,
    /// What the runs around this one allow it to use; `None`: everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<ToolName>>,
    /// When it must have ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// How long the client that drives it may be silent before it is taken for lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    pub retain_ms: u64,
}

/// Who says what follows what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// The plan of a workflow file.
    #[default]
    Plan,
    /// A Rust function, which is run again from its beginning and given what is recorded.
    Function,
    /// A client, which asks for permits and says when it is over.
    Client,
}

impl By {
    fn is_plan(&self) -> bool {
        *self == Self::Plan
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forked {
    pub run: RunId,
    /// The first step that is not the other's.
    pub at: StepPath,
    pub by: String,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    pub run: RunId,
    pub step: StepPath,
    /// How many runs this one is inside of.
    pub depth: u32,
}

/// What a step began to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Began {
    Effect {
        tool: ToolName,
        key: EffectKey,
        /// Nothing is recorded of a pure tool but its result here.
        #[serde(default, skip_serializing_if = "is_false")]
        pure: bool,
    },
    Sleep {
        until: Timestamp,
    },
    Wait {
        on: Awaited,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// Once for each item.
    Map {
        items: Vec<Json>,
    },
    Child {
        run: RunId,
    },
}

impl Began {
    /// When it ends by itself, or is given up.
    pub fn until(&self) -> Option<Timestamp> {
        match self {
            Self::Sleep { until } => Some(*until),
            Self::Wait { until, .. } => *until,
            Self::Effect { .. } | Self::Map { .. } | Self::Child { .. } => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Awaited {
    Signal {
        name: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        correlation: Option<String>,
    },
    Approval {
        message: String,
    },
}

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepEnd {
    Done {
        result: Json,
        /// By which of its ways, where it has several.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        way: Option<u32>,
        /// There is a call that would undo it.
        #[serde(default, skip_serializing_if = "is_false")]
        undo: bool,
    },
    Failed {
        failure: Failure,
        #[serde(default, skip_serializing_if = "is_false")]
        doubt: bool,
    },
    /// It was stopped. `doubt`: it may have acted.
    Cancelled {
        #[serde(default, skip_serializing_if = "is_false")]
        doubt: bool,
    },
}

/// What came of undoing a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Undone {
    Undone,
    /// It had not happened after all.
    NothingToUndo,
    /// A person says that it is dealt with.
    Skipped {
        by: String,
        why: String,
    },
}

impl Undone {
    pub fn word(&self) -> &'static str {
        match self {
            Self::Undone => "undone",
            Self::NothingToUndo => "nothing_to_undo",
            Self::Skipped { .. } => "skipped",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signalled {
    pub at: Timestamp,
    /// The sender's: the same signal sent twice is one.
    pub id: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation: Option<String>,
    pub payload: Json,
    pub by: String,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunEnd {
    Completed { output: Json },
    Failed { failure: Failure },
    Cancelled,
}

fn is_false(b: &bool) -> bool {
    !b
}
