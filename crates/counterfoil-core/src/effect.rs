//! The state of one call: a fold of its entries, and nothing else.
//!
//! `apply` is one total match: an entry that a state does not allow is a typed error, never ignored. Live calls, recovery and replay all
//! come through here; there is no second way to build an effect.
//!
//! | from ↓ / entry →   | leads to |
//! |---|---|
//! | absent             | opened → ready |
//! | ready              | approval_asked → waiting_approval; claimed → running; cancelled |
//! | waiting_approval   | approved → ready; denied → failed; cancelled |
//! | running            | extended → running; released → ready; finished → done, failed, retrying, in_doubt; lost → in_doubt; cancelled; late (of an older claim) |
//! | retrying           | claimed → running; reopened → ready; cancelled; late |
//! | in_doubt           | late → done, retrying; probed → done, retrying, in_doubt; resolved → done, ready, failed; claimed → running (repeatable tools) |
//! | failed             | reopened → ready; late |
//! | done               | undo_started → undoing; late |
//! | undoing            | undo_finished → undone, undo_failed; late |
//! | undo_failed        | undo_started → undoing; late |
//! | cancelled          | late; undo_started (of a late result) |
//! | undone             | late |

use std::time::Duration;

use thiserror::Error;

use crate::canonical::Json;
use crate::codec::{self, CodecError};
use crate::entry::{Claim, Ended, Entry, Late, LateOutcome, Opened, Probed, UndoCall, Verdict};
use crate::ids::{EffectKey, Fence};
use crate::outcome::{Failure, Flag};
use crate::receipt::ReceiptId;
use crate::summary::{StreamKind, Summary};
use crate::time::Timestamp;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    pub key: EffectKey,
    /// Records folded so far: what a compare-and-append expects.
    pub version: u64,
    /// Pruned: only its identity is left.
    pub expired: bool,
    pub opened: Option<Opened>,
    pub state: State,
    /// Claims so far that may have been dispatched.
    pub attempts: u32,
    /// Of the newest claim.
    pub fence: Fence,
    pub approved: bool,
    /// What lost workers reported afterwards.
    pub late: Vec<Late>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    Absent,
    /// Taken on; may be claimed.
    Ready,
    WaitingApproval {
        asked: Timestamp,
        expires: Timestamp,
    },
    Running(Claim),
    Done(Done),
    /// Failed for now: certainly not done, and may be tried again.
    Retrying(Retrying),
    /// Failed for good: certainly not done.
    Failed {
        failure: Failure,
        at: Timestamp,
        attempt: u32,
        receipt: ReceiptId,
    },
    InDoubt(Doubt),
    /// `late`: it acted all the same; kept, not delivered, can be undone.
    Cancelled {
        at: Timestamp,
        by: String,
        why: String,
        receipt: ReceiptId,
        late: Option<Done>,
    },
    Undoing {
        done: Done,
        undo: EffectKey,
        since: Timestamp,
    },
    Undone {
        done: Done,
        undo: EffectKey,
        at: Timestamp,
    },
    UndoFailed {
        done: Done,
        undo: EffectKey,
        failure: Failure,
        at: Timestamp,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    pub at: Timestamp,
    pub attempt: u32,
    pub started: Timestamp,
    pub result: Json,
    pub flags: Vec<Flag>,
    pub undo: Option<UndoCall>,
    pub receipt: ReceiptId,
    pub how: How,
}

/// How it is known that it was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    Reported,
    ReportedLate,
    Probed,
    Resolved,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retrying {
    pub failure: Failure,
    pub at: Timestamp,
    pub attempt: u32,
    pub not_before: Timestamp,
    /// Set when a series of attempts ended here.
    pub receipt: Option<ReceiptId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doubt {
    pub since: Timestamp,
    pub attempt: u32,
    pub fence: Fence,
    pub failure: Failure,
    pub not_before: Timestamp,
    pub probes: u32,
    pub probed_at: Option<Timestamp>,
    /// What the last probe could not tell, and why.
    pub probe_said: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FoldError {
    #[error("record {version}: the entry {entry} cannot follow the state {state}")]
    Illegal { version: u64, entry: &'static str, state: &'static str },
    #[error("record {version}: {source}")]
    Codec { version: u64, source: CodecError },
}

/// What the caller's world looks like after an effect's state: seed words, shown wherever a step is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorldSemantics {
    Pure,
    SideEffectCommitted,
    RetryableFailure,
    PermanentFailure,
    CompensatableFailure,
    Compensated,
    InDoubt,
    /// Nothing has been tried yet, or an attempt is under way.
    Undecided,
}

impl WorldSemantics {
    pub fn word(self) -> &'static str {
        match self {
            Self::Pure => "pure",
            Self::SideEffectCommitted => "side_effect_committed",
            Self::RetryableFailure => "retryable_failure",
            Self::PermanentFailure => "permanent_failure",
            Self::CompensatableFailure => "compensatable_failure",
            Self::Compensated => "compensated",
            Self::InDoubt => "in_doubt",
            Self::Undecided => "undecided",
        }
    }
}

impl Effect {
    pub fn absent(key: EffectKey) -> Self {
        Self {
            key,
            version: 0,
            expired: false,
            opened: None,
            state: State::Absent,
            attempts: 0,
            fence: Fence(0),
            approved: false,
            late: Vec::new(),
        }
    }

    /// Folds one stored record.
    pub fn apply_body(&mut self, body: &str) -> Result<(), FoldError> {
        let version = self.version + 1;
        let entries: Vec<Entry> = codec::decode(body).map_err(|source| FoldError::Codec { version, source })?;
        self.apply(entries)
    }

    /// Folds the entries of one record.
    pub fn apply(&mut self, entries: impl IntoIterator<Item = Entry>) -> Result<(), FoldError> {
        self.version += 1;
        entries.into_iter().try_for_each(|entry| self.apply_entry(entry))
    }

    fn apply_entry(&mut self, entry: Entry) -> Result<(), FoldError> {
        let illegal = FoldError::Illegal { version: self.version, entry: entry_word(&entry), state: self.state.word() };
        let state = std::mem::replace(&mut self.state, State::Absent);
        self.state = match (state, entry) {
            (State::Absent, Entry::Opened(opened)) if self.opened.is_none() => {
                self.opened = Some(opened);
                State::Ready
            }
            (State::Ready, Entry::ApprovalAsked { at, expires }) => State::WaitingApproval { asked: at, expires },
            (State::WaitingApproval { .. }, Entry::Approved { .. }) => {
                self.approved = true;
                State::Ready
            }
            (State::WaitingApproval { .. }, Entry::Denied { at, by, why, receipt }) => {
                let failure = Failure::new("approval_denied", format!("denied by {by}: {why}"));
                State::Failed { failure, at, attempt: self.attempts, receipt }
            }
            (State::Ready | State::Retrying(_) | State::InDoubt(_), Entry::Claimed(claim)) if claim.fence > self.fence => {
                self.fence = claim.fence;
                self.attempts = claim.attempt;
                State::Running(claim)
            }
            (State::Running(claim), Entry::Extended { fence, lease_until }) if fence == claim.fence => {
                State::Running(Claim { lease_until, ..claim })
            }
            (State::Running(claim), Entry::Released { fence, .. }) if fence == claim.fence => {
                // Nothing was dispatched, so this attempt does not count.
                self.attempts = claim.attempt.saturating_sub(1);
                State::Ready
            }
            (State::Running(claim), Entry::Finished(finished)) if finished.fence == claim.fence => {
                finished_state(&claim, finished.started, finished.ended, finished.outcome)
            }
            (State::Running(claim), Entry::Lost { fence, at, why }) if fence == claim.fence => {
                let failure = Failure::of_dependency("worker_lost", why);
                State::InDoubt(Doubt::new(&claim, at, failure, at))
            }
            (State::InDoubt(doubt), Entry::Probed { at, answer }) => probed_state(doubt, at, answer),
            (State::InDoubt(doubt), Entry::Resolved { at, verdict, receipt, by, why }) => match verdict {
                Verdict::Happened { result, undo } => State::Done(doubt.done(at, result, undo, receipt, How::Resolved)),
                Verdict::DidNotHappen => State::Ready,
                Verdict::GaveUp => {
                    let failure = Failure::new("resolved_did_not_happen", format!("{by}: {why}"));
                    State::Failed { failure, at, attempt: doubt.attempt, receipt }
                }
            },
            (
                State::Ready | State::WaitingApproval { .. } | State::Retrying(_) | State::Running(_),
                Entry::Cancelled { at, by, why, receipt },
            ) => State::Cancelled { at, by, why, receipt, late: None },
            (State::Failed { .. } | State::Retrying(_), Entry::Reopened { .. }) => State::Ready,
            (State::Done(done), Entry::UndoStarted { at, undo, .. })
            | (State::UndoFailed { done, .. }, Entry::UndoStarted { at, undo, .. })
            | (State::Cancelled { late: Some(done), .. }, Entry::UndoStarted { at, undo, .. }) => State::Undoing { done, undo, since: at },
            (State::Undoing { done, undo, .. }, Entry::UndoFinished { at, failure: None, .. }) => State::Undone { done, undo, at },
            (State::Undoing { done, undo, .. }, Entry::UndoFinished { at, failure: Some(failure), .. }) => {
                State::UndoFailed { done, undo, failure, at }
            }
            (state, Entry::Late(late)) if self.opened.is_some() => {
                let state = late_state(state, &late);
                self.late.push(late);
                state
            }
            (state, _) => {
                self.state = state;
                return Err(illegal);
            }
        };
        Ok(())
    }

    /// What a store may know of it.
    pub fn summary(&self) -> Summary {
        let opened = self.opened.as_ref().expect("a summary is made with a write, and the first write opens the effect");
        let (open, due) = match &self.state {
            State::Absent => (false, None),
            // Approved and not yet claimed: whoever looks for work may run it.
            State::Ready => (true, self.approved.then_some(Timestamp::ZERO)),
            State::WaitingApproval { expires, .. } => (true, Some(*expires)),
            State::Running(claim) => (true, Some(claim.lease_until)),
            State::Retrying(_) => (true, None),
            State::InDoubt(doubt) => (true, opened.settles.then(|| doubt.next_look())),
            State::Undoing { since, .. } => (true, Some(*since)),
            State::UndoFailed { .. } => (true, None),
            State::Done(_) | State::Failed { .. } | State::Cancelled { .. } | State::Undone { .. } => (false, None),
        };
        Summary {
            kind: StreamKind::Effect,
            tenant: opened.tenant.clone(),
            state: self.state.word(),
            tool: Some(opened.tool.clone()),
            run: opened.run.clone(),
            open,
            due,
            expires: self.expires(),
        }
    }

    /// From when on it answers no more. Effects that are not at rest, or may still have to be undone, never expire.
    pub fn expires(&self) -> Option<Timestamp> {
        let retain = Duration::from_millis(self.opened.as_ref()?.retain_ms);
        match &self.state {
            State::Done(done) => Some(done.at + retain),
            State::Failed { at, .. } | State::Cancelled { at, late: None, .. } | State::Undone { at, .. } => Some(*at + retain),
            _ => None,
        }
    }

    pub fn world(&self) -> WorldSemantics {
        match &self.state {
            State::Absent | State::Ready | State::WaitingApproval { .. } | State::Running(_) => WorldSemantics::Undecided,
            State::Done(_) => WorldSemantics::SideEffectCommitted,
            State::Retrying(_) => WorldSemantics::RetryableFailure,
            State::Failed { .. } | State::Cancelled { late: None, .. } => WorldSemantics::PermanentFailure,
            State::InDoubt(_) => WorldSemantics::InDoubt,
            State::Cancelled { late: Some(_), .. } | State::Undoing { .. } | State::UndoFailed { .. } => {
                WorldSemantics::CompensatableFailure
            }
            State::Undone { .. } => WorldSemantics::Compensated,
        }
    }
}

impl State {
    /// The glossary's word, as in summaries, tables and the API.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Ready => "ready",
            Self::WaitingApproval { .. } => "waiting_approval",
            Self::Running(_) => "running",
            Self::Done(_) => "done",
            Self::Retrying(_) => "retrying",
            Self::Failed { .. } => "failed",
            Self::InDoubt(_) => "in_doubt",
            Self::Cancelled { .. } => "cancelled",
            Self::Undoing { .. } => "undoing",
            Self::Undone { .. } => "undone",
            Self::UndoFailed { .. } => "undo_failed",
        }
    }
}

/// A doubt that was not settled is looked at again after this long, doubling each time.
const LOOK_AGAIN_FIRST: Duration = Duration::from_secs(5);
const LOOK_AGAIN_DOUBLINGS_MAX: u32 = 9;

impl Doubt {
    fn new(claim: &Claim, since: Timestamp, failure: Failure, not_before: Timestamp) -> Self {
        Self { since, attempt: claim.attempt, fence: claim.fence, failure, not_before, probes: 0, probed_at: None, probe_said: None }
    }

    /// When the runtime looks at it again by itself: at once the first time, then ever more rarely.
    pub fn next_look(&self) -> Timestamp {
        let looks = self.probes.max(self.attempt.saturating_sub(1));
        if looks == 0 {
            return self.since;
        }
        self.probed_at.unwrap_or(self.since).max(self.since) + LOOK_AGAIN_FIRST * 2u32.pow((looks - 1).min(LOOK_AGAIN_DOUBLINGS_MAX))
    }

    fn done(&self, at: Timestamp, result: Json, undo: Option<UndoCall>, receipt: ReceiptId, how: How) -> Done {
        Done { at, attempt: self.attempt, started: self.since, result, flags: Vec::new(), undo, receipt, how }
    }
}

fn finished_state(claim: &Claim, started: Timestamp, ended: Timestamp, outcome: Ended) -> State {
    let attempt = claim.attempt;
    match outcome {
        Ended::Done { success, undo, receipt } => State::Done(Done {
            at: ended,
            attempt,
            started,
            result: success.result,
            flags: success.flags,
            undo,
            receipt,
            how: How::Reported,
        }),
        Ended::Failed { failure, receipt } => State::Failed { failure, at: ended, attempt, receipt },
        Ended::Retry { failure, not_before, receipt } => State::Retrying(Retrying { failure, at: ended, attempt, not_before, receipt }),
        Ended::Unknown { failure, not_before } => State::InDoubt(Doubt::new(claim, ended, failure, not_before)),
    }
}

fn probed_state(doubt: Doubt, at: Timestamp, answer: Probed) -> State {
    match answer {
        Probed::Happened { result, undo, receipt } => State::Done(doubt.done(at, result, undo, receipt, How::Probed)),
        Probed::DidNotHappen => State::Retrying(Retrying {
            failure: Failure {
                retriable: true,
                ..Failure::new("did_not_happen", format!("after {}, a probe showed that it did not happen", doubt.failure.code))
            },
            at,
            attempt: doubt.attempt,
            not_before: at,
            receipt: None,
        }),
        Probed::CannotTell(why) => State::InDoubt(Doubt { probes: doubt.probes + 1, probed_at: Some(at), probe_said: Some(why), ..doubt }),
    }
}

fn late_state(state: State, late: &Late) -> State {
    match (state, &late.outcome) {
        // The report of the very attempt that is in doubt closes the doubt.
        (State::InDoubt(doubt), LateOutcome::Done { result, undo }) => {
            State::Done(doubt.done(late.at, result.clone(), undo.clone(), late.receipt, How::ReportedLate))
        }
        (State::InDoubt(doubt), LateOutcome::NotDone(failure)) if late.fence == doubt.fence => State::Retrying(Retrying {
            failure: failure.clone(),
            at: late.at,
            attempt: doubt.attempt,
            not_before: late.at,
            receipt: Some(late.receipt),
        }),
        (State::Cancelled { at, by, why, receipt, late: None }, LateOutcome::Done { result, undo }) => {
            let done = Done {
                at: late.at,
                attempt: 0,
                started: at,
                result: result.clone(),
                flags: Vec::new(),
                undo: undo.clone(),
                receipt: late.receipt,
                how: How::ReportedLate,
            };
            State::Cancelled { at, by, why, receipt, late: Some(done) }
        }
        // Evidence only.
        (state, _) => state,
    }
}

fn entry_word(entry: &Entry) -> &'static str {
    match entry {
        Entry::Opened(_) => "opened",
        Entry::ApprovalAsked { .. } => "approval_asked",
        Entry::Approved { .. } => "approved",
        Entry::Denied { .. } => "denied",
        Entry::Claimed(_) => "claimed",
        Entry::Extended { .. } => "extended",
        Entry::Released { .. } => "released",
        Entry::Finished(_) => "finished",
        Entry::Lost { .. } => "lost",
        Entry::Late(_) => "late",
        Entry::Probed { .. } => "probed",
        Entry::Resolved { .. } => "resolved",
        Entry::Cancelled { .. } => "cancelled",
        Entry::Reopened { .. } => "reopened",
        Entry::UndoStarted { .. } => "undo_started",
        Entry::UndoFinished { .. } => "undo_finished",
    }
}
