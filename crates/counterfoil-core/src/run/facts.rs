//! What is known of a run: a fold of its entries, and nothing else.
//!
//! `apply` is one total match: an entry that the run does not allow is a typed error, never ignored. Where the run stands in its plan is the [`Flow`]'s,
//! which is fed the same entries here, so that the two never differ. A run without a plan (a client drives it, or a Rust function) has no flow.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use super::confirm::{Confirmed, Judgement, Occasion};
use super::entry::{Awaited, Began, RunEnd, RunEntry, Signalled, Started, StepEnd, Undone};
use super::flow::{Fate, Flow, FlowError};
use super::saga::Saga;
use crate::codec::{self, CodecError};
use crate::effect::WorldSemantics;
use crate::ids::{EffectKey, Fence, StepPath, ToolName, WorkerId};
use crate::outcome::Failure;
use crate::summary::{StreamKind, Summary};
use crate::time::Timestamp;
use crate::veil::Veil;

#[derive(Debug, Clone)]
pub struct Run {
    /// Records folded so far: what a compare-and-append expects.
    pub version: u64,
    pub started: Arc<Started>,
    pub owner: Option<Owner>,
    pub fence: Fence,
    /// When to look at it although nobody is at it.
    due: Option<Timestamp>,
    /// In the order in which they began.
    pub order: Vec<StepPath>,
    steps: HashMap<StepPath, Step>,
    /// Begun, and not ended.
    pub running: BTreeSet<StepPath>,
    /// When steps that sleep or wait are to be looked at.
    alarms: BTreeSet<(Timestamp, StepPath)>,
    /// Steps that did something that can be undone, or may have, in the order in which that was recorded.
    pub committed: Vec<StepPath>,
    /// Not taken by any step yet.
    pub signals: Vec<Signalled>,
    seen: HashMap<String, Signalled>,
    pub cancel: Option<Cancel>,
    /// How the client that drives it says that it ended.
    pub finish: Option<RunEnd>,
    /// When it was last let go, or its client last heard of.
    pub parked: Option<Timestamp>,
    /// It must be held against the world before anything more of it begins, and why.
    pub unconfirmed: Option<Occasion>,
    /// The last time that it was, and how many times in a row it could not be asked.
    pub confirmed: Option<Confirmed>,
    pub asked_again: u32,
    /// What a person last said about that.
    pub decided: Option<bool>,
    held_up: bool,
    given_up: Option<Failure>,
    pub sagas: Vec<Saga>,
    pub end: Option<(Timestamp, RunEnd)>,
    /// What its records are stored under: of the reader, not of the entries.
    pub veil: Option<Arc<Veil>>,
    flow: Option<Flow>,
}

/// The worker that is at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub worker: WorkerId,
    pub fence: Fence,
    pub until: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cancel {
    pub at: Timestamp,
    pub by: String,
    pub why: String,
    pub undo: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// `None`: it ended without having begun anything outside.
    pub what: Option<Began>,
    pub began: Timestamp,
    pub state: StepState,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepState {
    Running,
    Ended { at: Timestamp, how: StepEnd },
}

/// Where a run stands, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunState {
    Running,
    /// Nobody need be at it: it sleeps, or waits for something.
    Waiting,
    Cancelling,
    Compensating,
    Completed,
    Failed,
    Cancelled,
    /// It failed or was cancelled, and what it did is undone.
    Compensated,
    /// Likewise, and something could not be undone.
    CompensationFailed,
}

impl RunState {
    pub fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Cancelling => "cancelling",
            Self::Compensating => "compensating",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Compensated => "compensated",
            Self::CompensationFailed => "compensation_failed",
        }
    }

    pub fn is_end(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled | Self::Compensated | Self::CompensationFailed)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RunFoldError {
    #[error("the first record of a run says how it started, and this one does not")]
    NotStarted,
    #[error("record {version}: {entry} cannot follow: {why}")]
    Illegal { version: u64, entry: &'static str, why: String },
    #[error("record {version}: {source}")]
    Codec { version: u64, source: CodecError },
}

/// Whether a stored record is one of a run: no entry of a run is called as one of an effect.
pub fn is_run(body: &str) -> bool {
    let tag = body.get(1..).and_then(|json| json.strip_prefix("[{\"")).and_then(|rest| rest.split('"').next());
    tag.is_some_and(|tag| WORDS.contains(&tag))
}

/// The name of a signal that is a person's answer. Nobody else's signal may have it.
pub const APPROVAL: &str = "counterfoil.approval";

/// How long a worker that says nothing is believed to be alive.
pub const OWNER_LEASE: Duration = Duration::from_secs(30);

impl Run {
    /// From its first record. The plan, where it has one, is that of `started.definition`.
    pub fn begun(body: &str) -> Result<(Arc<Started>, Vec<RunEntry>), RunFoldError> {
        let entries: Vec<RunEntry> = decode(body, 1)?;
        let mut entries = entries.into_iter();
        match entries.next() {
            Some(RunEntry::RunStarted(started)) => Ok((Arc::from(started), entries.collect())),
            _ => Err(RunFoldError::NotStarted),
        }
    }

    /// As it is right after it started: version 1 once that is recorded.
    pub fn new(started: Arc<Started>, flow: Option<Flow>) -> Self {
        Self {
            version: 0,
            due: Some(started.at),
            started,
            owner: None,
            fence: Fence(0),
            order: Vec::new(),
            steps: HashMap::new(),
            running: BTreeSet::new(),
            alarms: BTreeSet::new(),
            committed: Vec::new(),
            signals: Vec::new(),
            seen: HashMap::new(),
            cancel: None,
            finish: None,
            parked: None,
            unconfirmed: None,
            confirmed: None,
            asked_again: 0,
            decided: None,
            held_up: false,
            given_up: None,
            sagas: Vec::new(),
            end: None,
            veil: None,
            flow,
        }
    }

    pub fn flow(&self) -> Option<&Flow> {
        self.flow.as_ref()
    }

    pub fn step(&self, path: &StepPath) -> Option<&Step> {
        self.steps.get(path)
    }

    /// The saga that is under way.
    pub fn saga(&self) -> Option<&Saga> {
        self.sagas.iter().find(|saga| !saga.is_over())
    }

    /// A signal that was received under this id.
    pub fn received(&self, id: &str) -> Option<&Signalled> {
        self.seen.get(id)
    }

    /// The oldest signal that `step`, which waits for `on`, may take.
    pub fn signal_for(&self, step: &StepPath, on: &Awaited) -> Option<&Signalled> {
        self.signals.iter().find(|signal| match on {
            Awaited::Signal { name, correlation } => signal.name == *name && (correlation.is_none() || signal.correlation == *correlation),
            Awaited::Approval { .. } => signal.name == APPROVAL && signal.correlation.as_deref() == Some(step.as_str()),
        })
    }

    /// The next step that sleeps or waits, and until when.
    pub fn next_alarm(&self) -> Option<(Timestamp, &StepPath)> {
        self.alarms.first().map(|(at, step)| (*at, step))
    }

    /// When time next changes something.
    pub fn next_time(&self) -> Option<Timestamp> {
        let deadline = self.started.deadline.filter(|_| self.flow.as_ref().is_none_or(|flow| !flow.is_closing()));
        let step = self.flow.as_ref().and_then(|flow| flow.next_deadline()).map(|(at, _)| at);
        [deadline, step, self.next_alarm().map(|(at, _)| at)].into_iter().flatten().min()
    }

    pub fn state(&self) -> RunState {
        let of_run = self.sagas.iter().rev().find(|saga| saga.scope.is_none());
        match &self.end {
            None if self.saga().is_some() => RunState::Compensating,
            None if self.cancel.is_some() => RunState::Cancelling,
            None if self.owner.is_none() && self.due.is_none_or(|due| due > self.started.at) => RunState::Waiting,
            None => RunState::Running,
            Some(_) if of_run.is_some_and(|saga| !saga.is_over()) => RunState::Compensating,
            Some(_) if of_run.is_some_and(|saga| saga.failed().next().is_some()) => RunState::CompensationFailed,
            Some(_) if of_run.is_some_and(|saga| !saga.of.is_empty()) => RunState::Compensated,
            Some((_, RunEnd::Completed { .. })) => RunState::Completed,
            Some((_, RunEnd::Failed { .. })) => RunState::Failed,
            Some((_, RunEnd::Cancelled)) => RunState::Cancelled,
        }
    }

    /// What is to be undone of `scope`, the newest first. `None`: of the whole run. What was dealt with before is not in it.
    pub fn to_undo(&self, scope: Option<&StepPath>) -> Vec<StepPath> {
        let dealt = |step: &StepPath| self.sagas.iter().any(|saga| matches!(saga.dealt.get(step), Some(Ok(_))));
        let inside = |step: &StepPath| match (scope, &self.flow) {
            (Some(scope), Some(flow)) => flow.is_within(step, scope),
            (Some(scope), None) => step.as_str().strip_prefix(scope.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
            (None, _) => true,
        };
        self.committed.iter().rev().filter(|step| inside(step) && !dealt(step)).cloned().collect()
    }

    /// What the caller's world looks like after a step.
    pub fn semantics(&self, path: &StepPath) -> WorldSemantics {
        let undone = self.sagas.iter().rev().find_map(|saga| saga.dealt.get(path));
        let Some(step) = self.steps.get(path) else { return WorldSemantics::Undecided };
        let pure = !matches!(step.what, Some(Began::Effect { pure: false, .. } | Began::Child { .. }));
        match (&step.state, undone) {
            (_, Some(Ok(_))) => WorldSemantics::Compensated,
            (StepState::Running, _) => WorldSemantics::Undecided,
            (StepState::Ended { how: StepEnd::Done { .. }, .. }, _) if pure => WorldSemantics::Pure,
            (StepState::Ended { how: StepEnd::Done { .. }, .. }, Some(Err(_))) => WorldSemantics::CompensatableFailure,
            (StepState::Ended { how: StepEnd::Done { .. }, .. }, None) => WorldSemantics::SideEffectCommitted,
            (StepState::Ended { how: StepEnd::Failed { doubt: true, .. } | StepEnd::Cancelled { doubt: true }, .. }, _) => {
                WorldSemantics::InDoubt
            }
            (StepState::Ended { how: StepEnd::Failed { failure, .. }, .. }, _) if failure.retriable => WorldSemantics::RetryableFailure,
            (StepState::Ended { how: StepEnd::Failed { .. }, .. }, _) => WorldSemantics::PermanentFailure,
            (StepState::Ended { how: StepEnd::Cancelled { .. }, .. }, _) => WorldSemantics::Undecided,
        }
    }

    /// The effect of a step.
    pub fn effect(&self, path: &StepPath) -> Option<EffectKey> {
        match &self.steps.get(path)?.what {
            Some(Began::Effect { key, pure: false, .. }) => Some(*key),
            _ => None,
        }
    }

    /// Entries of a record that is being made: [`Self::recorded`] when it is complete.
    pub fn note(&mut self, entry: &RunEntry) -> Result<(), RunFoldError> {
        self.apply_one(entry)
    }

    /// The entries since the last record are one.
    pub fn recorded(&mut self) {
        self.version += 1;
    }

    /// One record.
    pub fn apply_body(&mut self, body: &str) -> Result<(), RunFoldError> {
        let entries: Vec<RunEntry> = decode(body, self.version + 1)?;
        self.apply(&entries)
    }

    /// The entries of one record.
    pub fn apply(&mut self, entries: &[RunEntry]) -> Result<(), RunFoldError> {
        entries.iter().try_for_each(|entry| self.apply_one(entry))?;
        self.recorded();
        Ok(())
    }

    fn apply_one(&mut self, entry: &RunEntry) -> Result<(), RunFoldError> {
        let version = self.version + 1;
        let illegal = |why: String| RunFoldError::Illegal { version, entry: word(entry), why };
        let after_end = matches!(
            entry,
            RunEntry::Owned { .. }
                | RunEntry::Parked { .. }
                | RunEntry::Stirred { .. }
                | RunEntry::CompensationTriggered { .. }
                | RunEntry::CompensationCompleted { .. }
                | RunEntry::CompensationFailed { .. }
        );
        if self.end.is_some() && !after_end {
            return Err(illegal(format!("the run is {}", self.state().word())));
        }
        if let Some(flow) = &mut self.flow {
            flow.apply(entry).map_err(|error: FlowError| illegal(error.to_string()))?;
        }
        self.apply_fact(entry)?;
        if let (RunEntry::ConfirmDecided { at, accepted: false, .. }, Some(failure)) = (entry, self.given_up.clone())
            && let Some(flow) = &mut self.flow
        {
            flow.fail_whole(failure, *at);
        }
        Ok(())
    }

    fn apply_fact(&mut self, entry: &RunEntry) -> Result<(), RunFoldError> {
        let version = self.version + 1;
        let illegal = |why: String| RunFoldError::Illegal { version, entry: word(entry), why };
        match entry {
            RunEntry::RunStarted(_) => return Err(illegal("it has started already".into())),
            RunEntry::Owned { worker, fence, lease_until, .. } => {
                if *fence <= self.fence {
                    return Err(illegal(format!("its fence is {}, and {} was given before", fence.0, self.fence.0)));
                }
                self.fence = *fence;
                self.taken_on(worker);
                self.owner = Some(Owner { worker: worker.clone(), fence: *fence, until: *lease_until });
            }
            RunEntry::Parked { at, due, unconfirmed } => {
                if !self.held_up && !unconfirmed {
                    self.unconfirmed = None;
                }
                self.owner = None;
                self.due = *due;
                self.parked = Some(*at);
            }
            RunEntry::StepBegan { at, step, what } => {
                let begun = Step { what: Some(what.clone()), began: *at, state: StepState::Running };
                if self.steps.insert(step.clone(), begun).is_some() {
                    return Err(illegal(format!("the step {step} has begun already")));
                }
                self.order.push(step.clone());
                // A map's end is its last item's.
                if !matches!(what, Began::Map { .. }) {
                    self.running.insert(step.clone());
                }
                self.alarms.extend(what.until().map(|until| (until, step.clone())));
                self.alive(*at);
            }
            RunEntry::StepEnded { at, step, how } => {
                self.ended(step, how, *at).map_err(illegal)?;
                self.alive(*at);
            }
            RunEntry::TimedOut { at, .. } => self.alive(*at),
            RunEntry::Signalled(signal) => {
                if self.seen.insert(signal.id.clone(), signal.clone()).is_some() {
                    return Err(illegal(format!("the signal {:?} was received already", signal.id)));
                }
                self.signals.push(signal.clone());
                self.stir(signal.at);
            }
            RunEntry::CancelAsked { at, by, why, step, undo } => {
                if step.is_none() && self.cancel.is_none() {
                    self.cancel = Some(Cancel { at: *at, by: by.clone(), why: why.clone(), undo: *undo });
                }
                self.stir(*at);
            }
            RunEntry::Stirred { at, resumed } => {
                // Whoever is at it goes on anyway; if nobody is left, the next one takes it over.
                if *resumed && self.owner.is_none() && !self.order.is_empty() {
                    self.unconfirmed.get_or_insert(Occasion::Resumed);
                }
                self.stir(*at);
            }
            RunEntry::Confirmed(confirmed) => {
                let judged = confirmed.judged();
                self.asked_again = if judged == Judgement::AsksAgain { self.asked_again + 1 } else { 0 };
                self.held_up = judged.holds_up();
                self.decided = None;
                if !self.held_up {
                    self.unconfirmed = None;
                }
                self.confirmed = Some(confirmed.clone());
                self.alive(confirmed.at);
            }
            RunEntry::ConfirmDecided { at, by, why, accepted } => {
                if !self.held_up {
                    return Err(illegal("nobody was asked".into()));
                }
                self.held_up = false;
                self.decided = Some(*accepted);
                self.unconfirmed = None;
                self.asked_again = 0;
                if !accepted {
                    self.given_up = self.confirmed.as_ref().map(|confirmed| confirmed.failure_by(by, why));
                }
                self.stir(*at);
            }
            RunEntry::FinishAsked { at, how } => {
                if self.finish.is_some() {
                    return Err(illegal("it was said before".into()));
                }
                self.finish = Some(how.clone());
                self.stir(*at);
            }
            RunEntry::CompensationTriggered { at, scope, by, why, of } => {
                self.sagas.push(Saga::new(scope.clone(), by.clone(), why.clone(), of.clone()));
                self.stir(*at);
                self.settle_sagas(*at);
            }
            RunEntry::CompensationCompleted { at, step, how } => self.dealt(step, Ok(how.clone()), *at).map_err(illegal)?,
            RunEntry::CompensationFailed { at, step, failure } => self.dealt(step, Err(failure.clone()), *at).map_err(illegal)?,
            RunEntry::RunEnded { at, how } => {
                self.end = Some((*at, how.clone()));
                self.owner = None;
                self.due = None;
            }
        }
        Ok(())
    }

    /// A worker took it on. One that finds another's name there takes over what that one left in the middle.
    fn taken_on(&mut self, worker: &WorkerId) {
        let occasion = match &self.owner {
            Some(owner) if owner.worker == *worker => return,
            Some(_) => Occasion::TakenOver,
            None => Occasion::PickedUp,
        };
        match self.unconfirmed {
            _ if self.order.is_empty() || self.end.is_some() => {}
            Some(Occasion::Resumed | Occasion::TakenOver) if occasion == Occasion::PickedUp => {}
            _ => self.unconfirmed = Some(occasion),
        }
    }

    /// What it was found to be, if it goes no further until it is asked again or a person decides.
    pub fn held_up(&self) -> Option<(&Confirmed, Judgement)> {
        let confirmed = self.confirmed.as_ref().filter(|_| self.held_up)?;
        Some((confirmed, confirmed.judged()))
    }

    /// It fails because the world no longer agrees with what it did. (A run with a plan fails by its flow.)
    pub fn drifted(&self) -> Option<Failure> {
        let failed = || self.confirmed.as_ref().filter(|confirmed| confirmed.judged() == Judgement::Fails).map(Confirmed::failure);
        self.given_up.clone().or_else(failed)
    }

    fn ended(&mut self, path: &StepPath, how: &StepEnd, at: Timestamp) -> Result<(), String> {
        let ended = StepState::Ended { at, how: how.clone() };
        let taken = match self.steps.get_mut(path) {
            Some(Step { state: StepState::Ended { .. }, .. }) => return Err(format!("the step {path} has ended already")),
            Some(step) => {
                step.state = ended;
                self.running.remove(path);
                if let Some(until) = step.what.as_ref().and_then(Began::until) {
                    self.alarms.remove(&(until, path.clone()));
                }
                let acts = matches!(step.what, Some(Began::Effect { pure: false, .. } | Began::Child { .. }));
                let acted = matches!(
                    how,
                    StepEnd::Done { undo: true, .. } | StepEnd::Failed { doubt: true, .. } | StepEnd::Cancelled { doubt: true }
                );
                if acts && acted {
                    self.committed.push(path.clone());
                }
                if let Some(Began::Wait { on, .. }) = &step.what { Some(on.clone()) } else { None }
            }
            None => {
                self.steps.insert(path.clone(), Step { what: None, began: at, state: ended });
                self.order.push(path.clone());
                None
            }
        };
        // A signal is used once, by who was given it.
        let given = match how {
            StepEnd::Done { .. } => true,
            StepEnd::Failed { .. } => matches!(taken, Some(Awaited::Approval { .. })),
            StepEnd::Cancelled { .. } => false,
        };
        if let Some(on) = taken.filter(|_| given)
            && let Some(id) = self.signal_for(path, &on).map(|signal| signal.id.clone())
        {
            self.signals.retain(|signal| signal.id != id);
        }
        Ok(())
    }

    fn dealt(&mut self, step: &StepPath, how: Result<Undone, Failure>, at: Timestamp) -> Result<(), String> {
        // Of a scope and of the run around it: what is dealt with is so for both.
        let mut known = false;
        for saga in self.sagas.iter_mut().filter(|saga| !saga.is_over()) {
            known |= saga.deal(step, how.clone());
        }
        if !known && !self.sagas.iter_mut().rev().any(|saga| saga.deal(step, how.clone())) {
            return Err(format!("the step {step} is not to be undone"));
        }
        self.alive(at);
        self.settle_sagas(at);
        if self.end.is_some() && self.saga().is_none() {
            // It was only taken on to be undone.
            self.owner = None;
            self.due = None;
        }
        Ok(())
    }

    /// A scope whose saga is over lets go of what follows it.
    fn settle_sagas(&mut self, at: Timestamp) {
        let Some(flow) = &mut self.flow else { return };
        let undoing: Vec<StepPath> = flow.undoing().cloned().collect();
        for scope in undoing {
            if self.sagas.iter().any(|saga| saga.scope.as_ref() == Some(&scope) && saga.is_over()) {
                flow.undone(&scope, at);
            }
        }
    }

    /// Its owner wrote.
    fn alive(&mut self, at: Timestamp) {
        if let Some(owner) = &mut self.owner {
            owner.until = owner.until.max(at + OWNER_LEASE);
        }
    }

    /// Something came from outside: whoever sees that nobody is at it goes on with it.
    fn stir(&mut self, at: Timestamp) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// When to look at it, though nobody asks.
    pub fn due(&self) -> Option<Timestamp> {
        match &self.owner {
            Some(owner) => Some(owner.until),
            None => self.due,
        }
    }

    pub fn summary(&self) -> Summary {
        let state = self.state();
        let ended = self.end.as_ref().filter(|_| state.is_end()).map(|(at, _)| *at);
        Summary {
            kind: StreamKind::Run,
            tenant: self.started.tenant.clone(),
            state: state.word(),
            // The column that names are listed by.
            tool: ToolName::new(self.started.workflow.as_str()).ok(),
            run: Some(self.started.run.clone()),
            open: ended.is_none(),
            due: self.due(),
            expires: ended.map(|at| at + Duration::from_millis(self.started.retain_ms)),
        }
    }

    /// How the plan came to its end, if it has and the run has not.
    pub fn fate(&self) -> Option<&Fate> {
        self.flow.as_ref().and_then(Flow::fate)
    }
}

fn decode(body: &str, version: u64) -> Result<Vec<RunEntry>, RunFoldError> {
    codec::decode(body).map_err(|source| RunFoldError::Codec { version, source })
}

/// Every word that [`word`] gives.
const WORDS: [&str; 16] = [
    "confirmed",
    "confirm_decided",
    "finish_asked",
    "run_started",
    "owned",
    "parked",
    "step_began",
    "step_ended",
    "timed_out",
    "signalled",
    "cancel_asked",
    "stirred",
    "compensation_triggered",
    "compensation_completed",
    "compensation_failed",
    "run_ended",
];

/// The name of an entry as people may write it: in capitals, too.
pub fn entry_word(text: &str) -> Option<&'static str> {
    WORDS.into_iter().find(|word| word.eq_ignore_ascii_case(text))
}

/// An entry's name, as it is stored.
pub fn word(entry: &RunEntry) -> &'static str {
    match entry {
        RunEntry::RunStarted(_) => "run_started",
        RunEntry::Owned { .. } => "owned",
        RunEntry::Parked { .. } => "parked",
        RunEntry::StepBegan { .. } => "step_began",
        RunEntry::StepEnded { .. } => "step_ended",
        RunEntry::TimedOut { .. } => "timed_out",
        RunEntry::Signalled(_) => "signalled",
        RunEntry::CancelAsked { .. } => "cancel_asked",
        RunEntry::Stirred { .. } => "stirred",
        RunEntry::FinishAsked { .. } => "finish_asked",
        RunEntry::Confirmed(_) => "confirmed",
        RunEntry::ConfirmDecided { .. } => "confirm_decided",
        RunEntry::CompensationTriggered { .. } => "compensation_triggered",
        RunEntry::CompensationCompleted { .. } => "compensation_completed",
        RunEntry::CompensationFailed { .. } => "compensation_failed",
        RunEntry::RunEnded { .. } => "run_ended",
    }
}
