//! Recorded facts: the only thing ever persisted as truth.
//!
//! An entry says what happened, never what should follow: that is `decide`'s. Entries are stored as JSON text behind a version
//! character (see [`crate::codec`]); a change of a field's meaning is a new version, golden files hold the old ones.

use serde::{Deserialize, Serialize};

use crate::canonical::{CanonicalJson, Json};
use crate::ids::{Caller, EffectKey, Fence, Fingerprint, RunId, StepPath, Tenant, ToolName, WorkerId};
use crate::outcome::{Failure, Flag, Outcome, StateChanged, Success};
use crate::receipt::ReceiptId;
use crate::time::Timestamp;

/// One fact about one effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// The call was taken on. Always the first entry, and the first after a flush.
    Opened(Opened),
    /// A person must agree first.
    ApprovalAsked {
        at: Timestamp,
        expires: Timestamp,
    },
    Approved {
        at: Timestamp,
        by: String,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        why: String,
    },
    /// A person said no, or nobody said yes in time.
    Denied {
        at: Timestamp,
        by: String,
        why: String,
        receipt: ReceiptId,
    },
    /// One attempt has the permit.
    Claimed(Claim),
    /// The permit's holder is alive.
    Extended {
        fence: Fence,
        lease_until: Timestamp,
    },
    /// The claim was given back: nothing was dispatched under it.
    Released {
        fence: Fence,
        at: Timestamp,
        why: String,
    },
    /// The attempt ended and said this.
    Finished(Finished),
    /// The permit's holder fell silent: what it did is unknown.
    Lost {
        fence: Fence,
        at: Timestamp,
        why: String,
    },
    /// A worker that had lost its permit reported after all. Evidence; it closes a doubt that is still open.
    Late(Late),
    /// The world was asked.
    Probed {
        at: Timestamp,
        answer: Probed,
    },
    /// A person closed the doubt.
    Resolved {
        at: Timestamp,
        by: String,
        why: String,
        verdict: Verdict,
        receipt: ReceiptId,
    },
    Cancelled {
        at: Timestamp,
        by: String,
        why: String,
        receipt: ReceiptId,
    },
    /// A person lets a final failure be tried again.
    Reopened {
        at: Timestamp,
        by: String,
        why: String,
    },
    UndoStarted {
        at: Timestamp,
        by: String,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        why: String,
        undo: EffectKey,
    },
    UndoFinished {
        at: Timestamp,
        undo: EffectKey,
        failure: Option<Failure>,
        receipt: ReceiptId,
    },
    /// A person freed the key of an effect that has ended: the next call with it is a new one.
    Flushed {
        at: Timestamp,
        by: String,
        why: String,
        receipt: ReceiptId,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    pub at: Timestamp,
    pub tenant: Tenant,
    pub caller: Caller,
    pub tool: ToolName,
    /// As far as they may be stored: redacted members are salted digests.
    pub args: CanonicalJson,
    pub fingerprint: Fingerprint,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<StepPath>,
    /// The arguments here are not all that was given: only a caller who has them can run it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub redacted: bool,
    /// A doubt about it can be settled without a person: the tool has a probe, or may be repeated.
    #[serde(default, skip_serializing_if = "is_false")]
    pub settles: bool,
    /// Its client runs it, under a permit that is lent: nobody here can.
    #[serde(default, skip_serializing_if = "is_false")]
    pub lent: bool,
    /// How long the finished effect answers.
    pub retain_ms: u64,
}

fn is_false(b: &bool) -> bool {
    !b
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    pub at: Timestamp,
    pub attempt: u32,
    pub fence: Fence,
    pub worker: WorkerId,
    pub lease_until: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    pub fence: Fence,
    pub attempt: u32,
    pub started: Timestamp,
    pub ended: Timestamp,
    pub outcome: Ended,
    /// Set where it was done: with this, the record alone answers a repeat of the call (see [`crate::settled`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<Answers>,
}

/// Whom a finished effect answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answers {
    /// Calls with these arguments.
    pub fingerprint: Fingerprint,
    /// Up to then.
    pub until: Timestamp,
}

/// An [`Outcome`] with what the ledger made of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    Done {
        success: Success,
        /// The call that would undo it, resolved now, while arguments and result are at hand.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        undo: Option<UndoCall>,
        receipt: ReceiptId,
    },
    /// Certainly not done, and not to be tried again.
    Failed { failure: Failure, receipt: ReceiptId },
    /// Certainly not done; the same key may be claimed again from `not_before`. With a receipt when the series ended here, and
    /// no earlier attempt is in doubt: where one is, the effect is still in doubt after this, and that is no end.
    Retry {
        failure: Failure,
        not_before: Timestamp,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        receipt: Option<ReceiptId>,
    },
    /// It may have happened. `not_before` is when a repeatable tool may be dispatched again; by `sent` it had been dispatched.
    Unknown {
        failure: Failure,
        not_before: Timestamp,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sent: Option<Timestamp>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoCall {
    pub tool: ToolName,
    pub args: CanonicalJson,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Late {
    pub fence: Fence,
    pub at: Timestamp,
    pub outcome: LateOutcome,
    pub receipt: ReceiptId,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LateOutcome {
    Done {
        result: Json,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        flags: Vec<Flag>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state_changed: Option<Box<StateChanged>>,
        undo: Option<UndoCall>,
    },
    NotDone(Failure),
    Unknown(Failure),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Probed {
    Happened { result: Json, undo: Option<UndoCall>, receipt: ReceiptId },
    DidNotHappen,
    CannotTell(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Happened {
        result: Json,
        undo: Option<UndoCall>,
    },
    /// It did not happen: the same key may run.
    DidNotHappen,
    /// It did not happen, and it shall not: the effect ends failed.
    GaveUp,
}

impl From<Outcome> for LateOutcome {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done(Success { result, flags, state_changed }) => Self::Done { result, flags, state_changed, undo: None },
            Outcome::NotDone(failure) => Self::NotDone(failure),
            Outcome::Unknown(failure) => Self::Unknown(failure),
        }
    }
}
