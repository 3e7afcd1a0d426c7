//! The state of one call: a fold of its entries, and nothing else.
//!
//! `apply` is one total match: an entry that a state does not allow is a typed error, never ignored. Live calls, recovery and replay all
//! come through here; there is no second way to build an effect.
//!
//! | from ↓ / entry →   | leads to |
//! |---|---|
//! | absent             | opened → ready |
//! | flushed            | opened → ready; late |
//! | ready              | approval_asked → waiting_approval; claimed → running; cancelled; late → done |
//! | waiting_approval   | approved (in time) → ready; denied → failed; cancelled; late → done |
//! | running            | extended → running; released → what the claim was made on; finished → done, failed, retrying, in_doubt; lost → in_doubt; cancelled; late → done |
//! | retrying           | claimed → running; reopened → ready; cancelled; late → done; flushed (its series is over) |
//! | in_doubt           | late → done, retrying, failed; probed → done, retrying, in_doubt; resolved → done, ready, failed; claimed → running (repeatable tools) |
//! | failed             | reopened → ready; late → done; flushed |
//! | done               | undo_started → undoing; late; flushed |
//! | undoing            | undo_finished → undone, undo_failed; late |
//! | undo_failed        | undo_started → undoing; late |
//! | cancelled          | late; probed and resolved (when cancelled under way); undo_started (of a late result); flushed (unless it acted) |
//! | undone             | late; flushed |
//!
//! Entries that name a claim must name the right one: extended, released, finished and lost the running claim, late a claim that fell
//! silent. A late entry stays in its state where the table names no other. What happened is never run again: a late "done" makes the
//! effect done whatever a probe or a person believed before.
//!
//! A flush frees the key, so it is allowed only where nothing is open: see [`Facts::flushable`]. What follows it is a new life of the same stream:
//! all is as if nothing had been recorded, but versions and fences go on, and the world is told another key ([`Facts::sent_key`]). Claims of
//! an earlier life can still report late: evidence, which changes nothing.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::call;
use crate::canonical::Json;
use crate::codec::{self, CodecError};
use crate::entry::{Answers, Claim, Ended, Entry, Finished, Late, LateOutcome, Opened, Probed, UndoCall, Verdict};
use crate::ids::{EffectKey, Fence};
use crate::outcome::{Failure, Flag, StateChanged, Success};
use crate::receipt::ReceiptId;
use crate::summary::{StreamKind, Summary};
use crate::time::Timestamp;
use crate::veil::Veil;

/// One effect as its entries tell of it. A handle, for it is passed on at each step of its call: a clone costs nothing until it is changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect(Arc<Facts>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    pub key: EffectKey,
    /// Records folded so far: what a compare-and-append expects.
    pub version: u64,
    /// Pruned: only its identity is left.
    pub expired: bool,
    /// Shared by all that the effect was and is.
    pub opened: Option<Arc<Opened>>,
    pub state: State,
    /// Claims so far that may have been dispatched.
    pub attempts: u32,
    /// Of the newest claim.
    pub fence: Fence,
    pub approved: bool,
    /// What lost workers reported afterwards.
    pub late: Vec<Late>,
    /// Claims that ended without a word on whether they acted, oldest first. Only these can report late.
    pub silent: Vec<Claim>,
    /// A probe or a person said that no claim up to this one acted.
    pub disproven: Fence,
    /// The record that last flushed it, 0 for none. Claims up to it belong to lives that are over.
    pub flushed: u64,
    /// Silent claims of those lives. What they report is kept and changes nothing.
    pub past: Vec<Fence>,
    /// What the running claim was made on, unless that was ready: a release goes back to it, and a doubt in it is not closed by an attempt that did
    /// nothing.
    pub before: Option<Box<State>>,
    /// Who cancelled it. It did happen, and was undone: its callers are told the same as before that.
    pub cancelled: Option<Box<Cancel>>,
    /// What its records are stored under: of the reader, not of the entries.
    pub veil: Option<Arc<Veil>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cancel {
    pub by: String,
    pub why: String,
    pub receipt: ReceiptId,
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
    /// The key is free. `last` is the call it was used for.
    Flushed {
        at: Timestamp,
        by: String,
        why: String,
        last: Arc<Opened>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    pub at: Timestamp,
    pub attempt: u32,
    pub started: Timestamp,
    pub result: Json,
    pub flags: Vec<Flag>,
    /// Unless a probe or a person said that it was done.
    pub state_changed: Option<Box<StateChanged>>,
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
    /// When the attempt in doubt was claimed: it was dispatched after that.
    pub claimed: Timestamp,
    /// By when it was dispatched, if whoever did it could still say so.
    pub sent: Option<Timestamp>,
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
        Facts::absent(key).into()
    }
}

impl From<Facts> for Effect {
    fn from(facts: Facts) -> Self {
        Self(Arc::new(facts))
    }
}

impl Deref for Effect {
    type Target = Facts;
    fn deref(&self) -> &Facts {
        &self.0
    }
}

impl DerefMut for Effect {
    fn deref_mut(&mut self) -> &mut Facts {
        Arc::make_mut(&mut self.0)
    }
}

impl Facts {
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
            silent: Vec::new(),
            disproven: Fence(0),
            flushed: 0,
            past: Vec::new(),
            before: None,
            cancelled: None,
            veil: None,
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
        let flushable = self.flushable();
        let state = std::mem::replace(&mut self.state, State::Absent);
        self.state = match (state, entry) {
            (State::Absent | State::Flushed { .. }, Entry::Opened(opened)) if self.opened.is_none() => {
                self.opened = Some(Arc::new(opened));
                State::Ready
            }
            (State::Ready, Entry::ApprovalAsked { at, expires }) => State::WaitingApproval { asked: at, expires },
            // An approval that comes too late is none, whether or not the clock's denial is recorded yet.
            (State::WaitingApproval { expires, .. }, Entry::Approved { at, .. }) if at < expires => {
                self.approved = true;
                State::Ready
            }
            (State::WaitingApproval { .. }, Entry::Denied { at, by, why, receipt }) => {
                let failure = Failure::new("approval_denied", format!("denied by {by}: {why}"));
                State::Failed { failure, at, attempt: self.attempts, receipt }
            }
            (state @ (State::Ready | State::Retrying(_) | State::InDoubt(_)), Entry::Claimed(claim)) if claim.fence > self.fence => {
                self.before = (state != State::Ready).then(|| Box::new(state));
                self.fence = claim.fence;
                self.attempts = claim.attempt;
                State::Running(claim)
            }
            (State::Running(claim), Entry::Extended { fence, lease_until }) if fence == claim.fence => {
                State::Running(Claim { lease_until, ..claim })
            }
            (State::Running(claim), Entry::Released { fence, .. }) if fence == claim.fence => {
                // Nothing was dispatched, so this attempt does not count, and all is as it was before it: a doubt is still a doubt.
                self.attempts = claim.attempt.saturating_sub(1);
                self.before.take().map_or(State::Ready, |before| *before)
            }
            (State::Running(claim), Entry::Finished(finished)) if finished.fence == claim.fence => self.finished_state(claim, finished),
            (State::Running(claim), Entry::Lost { fence, at, why }) if fence == claim.fence => {
                let failure = Failure::of_dependency("worker_lost", why);
                let doubt = Doubt::new(&claim, at, failure, at);
                self.doubt_state(claim, doubt)
            }
            (State::InDoubt(doubt), Entry::Probed { at, answer }) => self.probed_state(doubt, at, answer),
            (State::InDoubt(doubt), Entry::Resolved { at, verdict, receipt, by, why }) => match verdict {
                Verdict::Happened { result, undo } => {
                    State::Done(self.done(Word { at, result, flags: Vec::new(), state_changed: None, undo, receipt, how: How::Resolved }))
                }
                Verdict::DidNotHappen => {
                    self.disproven = self.fence;
                    State::Ready
                }
                Verdict::GaveUp => {
                    self.disproven = self.fence;
                    let failure = Failure::new("gave_up", format!("{by}: {why}"));
                    State::Failed { failure, at, attempt: doubt.attempt, receipt }
                }
            },
            (
                state @ (State::Ready | State::WaitingApproval { .. } | State::Retrying(_) | State::Running(_)),
                Entry::Cancelled { at, by, why, receipt },
            ) => {
                self.before = None;
                if let State::Running(claim) = state {
                    self.silent.push(claim);
                }
                State::Cancelled { at, by, why, receipt, late: None }
            }
            (state @ State::Cancelled { late: None, .. }, Entry::Probed { at, answer }) if self.doubtful() => match answer {
                Probed::Happened { result, undo, receipt } => cancelled_late(
                    state,
                    self.done(Word { at, result, flags: Vec::new(), state_changed: None, undo, receipt, how: How::Probed }),
                ),
                Probed::DidNotHappen => {
                    self.disproven = self.fence;
                    state
                }
                Probed::CannotTell(_) => state,
            },
            (state @ State::Cancelled { late: None, .. }, Entry::Resolved { at, verdict, receipt, .. }) if self.doubtful() => match verdict
            {
                Verdict::Happened { result, undo } => cancelled_late(
                    state,
                    self.done(Word { at, result, flags: Vec::new(), state_changed: None, undo, receipt, how: How::Resolved }),
                ),
                Verdict::DidNotHappen | Verdict::GaveUp => {
                    self.disproven = self.fence;
                    state
                }
            },
            (State::Failed { .. } | State::Retrying(_), Entry::Reopened { .. }) => State::Ready,
            (State::Done(done), Entry::UndoStarted { at, undo, .. })
            | (State::UndoFailed { done, .. }, Entry::UndoStarted { at, undo, .. }) => State::Undoing { done, undo, since: at },
            (State::Cancelled { late: Some(done), by, why, receipt, .. }, Entry::UndoStarted { at, undo, .. }) => {
                self.cancelled = Some(Box::new(Cancel { by, why, receipt }));
                State::Undoing { done, undo, since: at }
            }
            (State::Undoing { done, undo, .. }, Entry::UndoFinished { at, undo: finished, failure, .. }) if finished == undo => {
                match failure {
                    None => State::Undone { done, undo, at },
                    Some(failure) => State::UndoFailed { done, undo, failure, at },
                }
            }
            (state, Entry::Late(late)) if self.silent.iter().any(|claim| claim.fence == late.fence) => {
                let state = self.late_state(state, &late);
                self.late.push(late);
                state
            }
            (state, Entry::Late(late)) if self.past.contains(&late.fence) => {
                self.past.retain(|fence| *fence != late.fence);
                self.late.push(late);
                state
            }
            (_, Entry::Flushed { at, by, why, .. }) if flushable => self.flushed_state(at, by, why),
            (state, _) => {
                self.state = state;
                return Err(illegal);
            }
        };
        Ok(())
    }

    /// Some attempt may have acted, and nothing heard since says whether it did.
    pub fn doubtful(&self) -> bool {
        self.silent.iter().any(|claim| claim.fence > self.disproven)
    }

    /// It has ended, and nobody is left who may act or may have acted unnoticed: its key may be freed. Where a probe or a person said that it
    /// happened, that speaks for every silent attempt. What was cancelled and acted all the same has to be undone first.
    pub fn flushable(&self) -> bool {
        match &self.state {
            State::Done(done) | State::Undone { done, .. } => matches!(done.how, How::Probed | How::Resolved) || !self.doubtful(),
            State::Failed { .. } | State::Cancelled { late: None, .. } => !self.doubtful(),
            State::Retrying(failed) => failed.receipt.is_some() && !self.doubtful(),
            _ => false,
        }
    }

    /// The key that the world is told: its own, or after a flush one that nobody there has seen yet.
    pub fn sent_key(&self) -> EffectKey {
        if self.flushed == 0 { self.key } else { call::renewed_key(&self.key, self.flushed) }
    }

    /// No claim was made since it was opened.
    pub fn unclaimed(&self) -> bool {
        self.fence.0 <= self.flushed
    }

    /// The call it is about, or was about until it was flushed.
    pub fn latest(&self) -> Option<&Arc<Opened>> {
        match &self.state {
            State::Flushed { last, .. } => Some(last),
            _ => self.opened.as_ref(),
        }
    }

    fn flushed_state(&mut self, at: Timestamp, by: String, why: String) -> State {
        let last = self.opened.take().expect("only what was opened has ended");
        let mut past = std::mem::take(&mut self.past);
        past.extend(self.silent.iter().map(|claim| claim.fence));
        let (version, expired, fence, veil) = (self.version, self.expired, self.fence, self.veil.take());
        *self = Self { version, expired, fence, flushed: version, past, veil, ..Self::absent(self.key) };
        State::Flushed { at, by, why, last }
    }

    fn finished_state(&mut self, claim: Claim, finished: Finished) -> State {
        let Finished { started, ended, outcome, .. } = finished;
        let attempt = claim.attempt;
        match (outcome, self.before.take().map(|before| *before)) {
            (Ended::Done { success, undo, receipt }, _) => {
                let Success { result, flags, state_changed } = success;
                State::Done(Done { at: ended, attempt, started, result, flags, state_changed, undo, receipt, how: How::Reported })
            }
            // A refusal of the repeat says nothing about the attempt before it whose answer was lost.
            (Ended::Failed { .. }, Some(State::InDoubt(doubt))) => State::InDoubt(Doubt { not_before: ended, ..doubt }),
            (Ended::Failed { failure, receipt }, _) => State::Failed { failure, at: ended, attempt, receipt },
            // This attempt did nothing; whether the one before it acted is as open as it was.
            (Ended::Retry { not_before, .. }, Some(State::InDoubt(doubt))) => State::InDoubt(Doubt { not_before, ..doubt }),
            (Ended::Retry { failure, not_before, receipt }, _) => {
                State::Retrying(Retrying { failure, at: ended, attempt, not_before, receipt })
            }
            (Ended::Unknown { failure, not_before, sent }, _) => {
                let doubt = Doubt { sent, ..Doubt::new(&claim, ended, failure, not_before) };
                self.doubt_state(claim, doubt)
            }
        }
    }

    fn doubt_state(&mut self, claim: Claim, doubt: Doubt) -> State {
        self.before = None;
        self.silent.push(claim);
        State::InDoubt(doubt)
    }

    fn probed_state(&mut self, doubt: Doubt, at: Timestamp, answer: Probed) -> State {
        match answer {
            Probed::Happened { result, undo, receipt } => {
                State::Done(self.done(Word { at, result, flags: Vec::new(), state_changed: None, undo, receipt, how: How::Probed }))
            }
            Probed::DidNotHappen => {
                self.disproven = self.fence;
                let message = format!("after {}, a probe showed that it did not happen", doubt.failure.code);
                let failure = Failure { retriable: true, ..Failure::new("did_not_happen", message) };
                State::Retrying(Retrying { failure, at, attempt: doubt.attempt, not_before: at, receipt: None })
            }
            Probed::CannotTell(why) => {
                State::InDoubt(Doubt { probes: doubt.probes + 1, probed_at: Some(at), probe_said: Some(why), ..doubt })
            }
        }
    }

    fn late_state(&mut self, state: State, late: &Late) -> State {
        let place = self.silent.iter().position(|claim| claim.fence == late.fence).expect("only a silent claim reports late");
        match &late.outcome {
            LateOutcome::Done { result, flags, state_changed, undo } => {
                let claim = self.silent.remove(place);
                let (result, flags, state_changed, undo) = (result.clone(), flags.clone(), state_changed.clone(), undo.clone());
                let word = Word { at: late.at, result, flags, state_changed, undo, receipt: late.receipt, how: How::ReportedLate };
                let done = word.done(&claim);
                self.late_done_state(state, done)
            }
            LateOutcome::NotDone(failure) => {
                let claim = self.silent.remove(place);
                match state {
                    State::InDoubt(doubt) => self.settled_state(doubt, &claim, late, failure),
                    State::Running(running) => {
                        let before = self.before.take().map(|before| match *before {
                            State::InDoubt(doubt) => self.settled_state(doubt, &claim, late, failure),
                            other => other,
                        });
                        self.before = before.map(Box::new);
                        State::Running(running)
                    }
                    state => state,
                }
            }
            // It has reported and knows no more than we do: evidence only.
            LateOutcome::Unknown(_) => state,
        }
    }

    fn late_done_state(&mut self, state: State, done: Done) -> State {
        match state {
            state @ State::Cancelled { late: None, .. } => cancelled_late(state, done),
            State::Running(newer) => {
                // The newer claim lost its reason. Should it act all the same, its report is late in turn and proves the double.
                self.before = None;
                self.silent.push(newer);
                State::Done(done)
            }
            State::Ready | State::WaitingApproval { .. } | State::Retrying(_) | State::InDoubt(_) | State::Failed { .. } => {
                State::Done(done)
            }
            // Evidence of a double, or of what is known already.
            state => state,
        }
    }

    /// A doubt after one silent claim said that it did nothing: closed, unless another claim is as silent as before.
    fn settled_state(&self, doubt: Doubt, claim: &Claim, late: &Late, failure: &Failure) -> State {
        if self.doubtful() {
            return State::InDoubt(doubt);
        }
        if !failure.retriable {
            return State::Failed { failure: failure.clone(), at: late.at, attempt: claim.attempt, receipt: late.receipt };
        }
        let not_before = late.at + Duration::from_millis(failure.retry_after_ms.unwrap_or(0));
        // No receipt: the late report has one of its own, and it ends no series of attempts.
        State::Retrying(Retrying { failure: failure.clone(), at: late.at, attempt: claim.attempt, not_before, receipt: None })
    }

    /// Done, as someone else than the attempt itself says: of the silent claims the newest.
    fn done(&self, word: Word) -> Done {
        word.done(self.silent.last().expect("a doubt is about a silent claim"))
    }

    /// What the record of an attempt that ended so says of whom it answers.
    pub fn answers(&self, outcome: &Ended, ended: Timestamp) -> Option<Answers> {
        let opened = self.opened.as_ref().filter(|_| matches!(outcome, Ended::Done { .. }))?;
        Some(Answers { fingerprint: opened.fingerprint, until: ended + Duration::from_millis(opened.retain_ms) })
    }

    /// What a store may know of it.
    pub fn summary(&self) -> Summary {
        let opened = self.latest().expect("a summary is made with a write, and the first write opens the effect");
        let (open, due) = match &self.state {
            State::Absent | State::Flushed { .. } => (false, None),
            // Approved and not yet claimed: whoever looks for work may run it, if the arguments are all there and it is run here.
            State::Ready => (true, (self.approved && !opened.redacted && !opened.lent).then_some(Timestamp::ZERO)),
            State::WaitingApproval { expires, .. } => (true, Some(*expires)),
            State::Running(claim) => (true, Some(claim.lease_until)),
            State::Retrying(_) => (true, None),
            State::InDoubt(doubt) => (true, opened.settles.then(|| doubt.next_look(self.attempts))),
            State::Undoing { since, .. } => (true, Some(*since)),
            State::UndoFailed { .. } => (true, None),
            State::Cancelled { late: None, .. } => (self.doubtful(), None),
            State::Done(_) | State::Failed { .. } | State::Cancelled { .. } | State::Undone { .. } => (false, None),
        };
        Summary {
            kind: StreamKind::Effect,
            tenant: opened.tenant.clone(),
            // Whether it happened is as open as for any doubt: it is in the same list.
            state: if open && matches!(self.state, State::Cancelled { .. }) { "in_doubt" } else { self.state.word() },
            tool: Some(opened.tool.clone()),
            run: opened.run.clone(),
            open,
            due,
            expires: self.expires(),
        }
    }

    /// From when on it answers no more. Effects that are not at rest, or may still have to be undone, never expire.
    pub fn expires(&self) -> Option<Timestamp> {
        let retain = Duration::from_millis(self.latest()?.retain_ms);
        match &self.state {
            // A key that nobody used again goes the way of every other; until then it is free.
            State::Flushed { at, .. } => Some(*at + retain),
            State::Done(done) => Some(done.at + retain),
            State::Cancelled { late: None, .. } if self.doubtful() => None,
            State::Failed { at, .. } | State::Cancelled { at, late: None, .. } | State::Undone { at, .. } => Some(*at + retain),
            _ => None,
        }
    }

    pub fn world(&self) -> WorldSemantics {
        match &self.state {
            State::Absent | State::Flushed { .. } | State::Ready | State::WaitingApproval { .. } | State::Running(_) => {
                WorldSemantics::Undecided
            }
            State::Done(_) => WorldSemantics::SideEffectCommitted,
            State::Retrying(_) => WorldSemantics::RetryableFailure,
            // Cancelled under way: the attempt may have acted before it was told.
            State::Cancelled { late: None, .. } if self.doubtful() => WorldSemantics::InDoubt,
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
            Self::Flushed { .. } => "flushed",
        }
    }
}

/// A doubt that was not settled is looked at again after this long, doubling each time.
const LOOK_AGAIN_FIRST: Duration = Duration::from_secs(5);
const LOOK_AGAIN_DOUBLINGS_MAX: u32 = 9;

impl Doubt {
    fn new(claim: &Claim, since: Timestamp, failure: Failure, not_before: Timestamp) -> Self {
        Self {
            since,
            claimed: claim.at,
            sent: None,
            attempt: claim.attempt,
            fence: claim.fence,
            failure,
            not_before,
            probes: 0,
            probed_at: None,
            probe_said: None,
        }
    }

    /// When the runtime looks at it again by itself: at once the first time, then ever more rarely.
    /// `attempts` counts the repeats that could not settle it.
    pub fn next_look(&self, attempts: u32) -> Timestamp {
        let looks = self.probes.max(attempts.saturating_sub(1));
        if looks == 0 {
            return self.since;
        }
        self.probed_at.unwrap_or(self.since).max(self.since) + LOOK_AGAIN_FIRST * 2u32.pow((looks - 1).min(LOOK_AGAIN_DOUBLINGS_MAX))
    }
}

/// Word that it happened, from whoever brought it.
struct Word {
    at: Timestamp,
    result: Json,
    flags: Vec<Flag>,
    state_changed: Option<Box<StateChanged>>,
    undo: Option<UndoCall>,
    receipt: ReceiptId,
    how: How,
}

impl Word {
    fn done(self, claim: &Claim) -> Done {
        let Self { at, result, flags, state_changed, undo, receipt, how } = self;
        Done { at, attempt: claim.attempt, started: claim.at, result, flags, state_changed, undo, receipt, how }
    }
}

fn cancelled_late(state: State, done: Done) -> State {
    match state {
        State::Cancelled { at, by, why, receipt, .. } => State::Cancelled { at, by, why, receipt, late: Some(done) },
        state => state,
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
        Entry::Flushed { .. } => "flushed",
    }
}
