//! The loop that drives one run: advance, record, call, and again with what came of it.
//!
//! One loop for a run that was just started, taken over after a crash, or woken by time or a signal: it begins by reading the run, and what it finds
//! begun and not ended it sees through. When nothing is left to do but wait, it lets go of the run: nobody need be at one that sleeps.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::effect::{State, WorldSemantics};
use counterfoil_core::run::ending::step_end;
use counterfoil_core::run::entry::{Began, RunEntry, StepEnd};
use counterfoil_core::run::flow::Progress;
use counterfoil_core::run::{Run, RunFoldError};
use counterfoil_core::{Effect, EffectKey, Failure, Json, RunId, StepPath, Tenant, Timestamp};
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::RunError;
use super::advance::{Advanced, advance};
use super::book::Book;
use super::confirm::Confirming;
use super::drivers::Rest;
use super::follow::Follow;
use super::step::{NotNow, Prepared};
use super::stop::Stopped;
use super::unwind::{self, Unwound, left_alone, operator_of};
use crate::answer::{Answer, AnswerError, Status};
use crate::drive::STEP_STOPPED;
use crate::ledger::LedgerError;
use crate::mode::Mode;
use crate::observe;
use crate::runtime::Runtime;
use crate::undropped::Undropped;
use crate::workflow::{StepSpec, Workflow};

/// A wait that is shorter is waited out here; for a longer one the run is let go.
const NAP_MAX: Duration = Duration::from_secs(2);
/// How long until a step that was not let through (a breaker, a limit) is tried again: at least, and at most.
pub(super) const AGAIN_MIN: Duration = Duration::from_millis(200);
const AGAIN_MAX: Duration = Duration::from_secs(30);
/// How long until a step that a person must decide about is looked at again. Their word stirs the run before that.
const HELD_LOOK: Duration = Duration::from_secs(60);
/// How often a driver whose steps run looks whether others wrote to its run.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What a step's future ends with.
struct Said {
    step: StepPath,
    what: What,
}

pub(super) enum What {
    Ended(StepEnd),
    /// Not yet: look again then.
    Held {
        until: Timestamp,
        why: String,
    },
    Undone(Unwound),
    /// It is recorded already.
    Recorded,
    /// It was told to stop, and says itself how it ended, if it is still at it.
    Told(StepEnd),
    NotTold {
        error: RunError,
        alone: bool,
    },
    /// The ledger failed; nothing is known that was not before.
    Failed(RunError),
    UndoFailed(RunError),
}

pub(super) struct Live {
    runtime: Runtime,
    book: Arc<Book>,
    stirred: Arc<Notify>,
    steps: FuturesUnordered<BoxFuture<'static, Said>>,
    in_hand: HashSet<StepPath>,
    /// Steps that are not to be tried before then.
    held: HashMap<StepPath, (Timestamp, String)>,
    /// What steps said that is not recorded yet.
    said: Vec<(StepPath, What)>,
    /// The undo that is next is not to be tried before then.
    undo_held: Option<Timestamp>,
    /// Steps whose effects were told to stop.
    told: HashSet<StepPath>,
    /// The last record lost its race with a claim in it: the next goes without.
    no_ahead: bool,
    /// The world was asked, where it had to be, before anything begins.
    confirmed: bool,
}

impl Live {
    pub(super) fn new(runtime: Runtime, book: Arc<Book>, stirred: Arc<Notify>) -> Self {
        Self {
            runtime,
            book,
            stirred,
            steps: FuturesUnordered::new(),
            in_hand: HashSet::new(),
            held: HashMap::new(),
            said: Vec::new(),
            undo_held: None,
            told: HashSet::new(),
            no_ahead: false,
            confirmed: false,
        }
    }

    pub(super) async fn drive(mut self) -> Result<Rest, RunError> {
        if self.over() {
            return Ok(Rest::Ended);
        }
        if !self.book.own(&self.runtime).await? {
            return Ok(Rest::Elsewhere);
        }
        self.runtime.salt_for(&self.book.tenant, &self.book.workflow).await?;
        loop {
            self.look().await?;
            if self.over() {
                observe::run_ended(self.book.lock().run.state().word());
                self.tell_parent().await?;
                return Ok(Rest::Ended);
            }
            if !self.book.lock().owned() {
                return Ok(Rest::Elsewhere);
            }
            self.book.keep(&self.runtime).await?;
            if self.book.lock().busy {
                // A step's outcome is on its way, and with it what it means for the run: whatever is due waits for that.
                self.wait_for(LOOK_EVERY).await;
                continue;
            }
            if !self.confirmed {
                match self.runtime.confirm(&self.book).await? {
                    Confirming::GoesOn => self.confirmed = true,
                    Confirming::Again => continue,
                    Confirming::Held { due } => return Ok(Rest::Parked { due }),
                }
                if self.over() {
                    continue;
                }
            }
            let resting = self.runtime.inner.lives.resting();
            let Some(advanced) = self.advance(resting).await? else { continue };
            if self.over() {
                continue;
            }
            self.begin_new(advanced);
            if resting {
                if self.steps.is_empty() && self.said.is_empty() && self.let_go(Some(self.runtime.now())).await? {
                    return Ok(Rest::Parked { due: Some(self.runtime.now()) });
                }
                self.wait().await;
                continue;
            }
            self.begin_found();
            self.stop();
            self.unwind();
            if self.steps.is_empty() && self.said.is_empty() {
                let due = self.next_look();
                let now = self.runtime.now();
                if due.is_none_or(|due| due.since(now) > NAP_MAX) {
                    if self.let_go(due).await? {
                        return Ok(Rest::Parked { due });
                    }
                    continue;
                }
            }
            self.wait().await;
        }
    }

    /// Reads what others wrote. A turn of the loop that follows a record of its own need not look: a read for each step is dear.
    async fn look(&mut self) -> Result<(), RunError> {
        let (stale, newest) = {
            let mut pages = self.book.lock();
            (pages.stale, std::mem::take(&mut pages.newest))
        };
        if stale || (!newest && self.book.moved(&self.runtime).await?) {
            self.book.renew(&self.runtime).await?;
        }
        Ok(())
    }

    /// Nobody is at it any more. `false`: somebody wrote; look again first.
    async fn let_go(&mut self, due: Option<Timestamp>) -> Result<bool, RunError> {
        let parked = RunEntry::Parked { at: self.runtime.now(), due, unconfirmed: false };
        self.book.record(&self.runtime, |run| run.note(&parked).map(|()| vec![parked])).await
    }

    /// Whoever waits for this run looks again.
    async fn tell_parent(&mut self) -> Result<(), RunError> {
        let parent = self.book.lock().run.started.parent.as_ref().map(|parent| parent.run.clone());
        match parent {
            Some(parent) => self.runtime.stir_run(&self.book.tenant, &parent).await,
            None => Ok(()),
        }
    }

    fn over(&self) -> bool {
        self.book.lock().over()
    }

    /// Records what steps said and, unless this process is about to end, all that follows from it. `None`: someone else wrote; read the run again first.
    async fn advance(&mut self, resting: bool) -> Result<Option<Advanced>, RunError> {
        let now = self.runtime.now();
        let (runtime, book) = (self.runtime.clone(), self.book.clone());
        let mut advanced = Advanced::default();
        let (ahead, written) = {
            let mut pages = book.lock();
            if !pages.writable() {
                return Ok(None);
            }
            let say = |run: &mut Run| {
                let mut entries = news(run, &self.said, now)?;
                if !resting {
                    advanced = advance(&runtime, run, &book.workflow, now)?;
                    entries.append(&mut advanced.entries);
                }
                Ok(entries)
            };
            let Some(write) = pages.write(&book, now, say).map_err(|source| book.unreadable(source))? else {
                self.said.clear();
                return Ok(Some(advanced));
            };
            // Several steps at once claim each for itself.
            let alone = self.in_hand.is_empty() && !std::mem::take(&mut self.no_ahead);
            let (ahead, claiming) = alone.then(|| runtime.ahead(&advanced)).flatten().unzip();
            (ahead, runtime.inner.ledger.append_claiming(vec![write], claiming))
        };
        match (written.await, ahead) {
            (Ok(permit), ahead) => {
                book.lock().arrived();
                if let (Some(ahead), Some(call)) = (ahead, advanced.calls.first_mut()) {
                    ahead.arrived(permit, call);
                }
            }
            (Err(error), ahead) => {
                book.lock().lost();
                if let Some(ahead) = ahead {
                    ahead.lost(&runtime, &error);
                    self.no_ahead = true;
                }
                return if let LedgerError::Conflict = error { Ok(None) } else { Err(error.into()) };
            }
        }
        self.said.clear();
        Ok(Some(advanced))
    }

    /// Begins what was just recorded as begun. Some of it is claimed already: it is seen through, whatever else is to come.
    fn begin_new(&mut self, advanced: Advanced) {
        let follows = std::mem::take(&mut self.book.lock().follows);
        let now = self.runtime.now();
        for advanced in follows.into_iter().chain([advanced]) {
            for call in advanced.calls {
                self.call(call);
            }
            for (step, run) in advanced.children {
                self.child(step, run);
            }
            for (step, why) in advanced.barred {
                self.held.insert(step, (now + AGAIN_MAX, why));
            }
        }
    }

    /// Begins what was found begun, and nobody is at.
    fn begin_found(&mut self) {
        let now = self.runtime.now();
        let found: Vec<(StepPath, Began)> = {
            let pages = self.book.lock();
            // What has ended waits for nothing.
            self.held.retain(|step, _| {
                let progress = pages.run.flow().and_then(|flow| flow.progress(step));
                matches!(progress, Some(Progress::Ready | Progress::Busy))
            });
            let waiting = |step: &&StepPath| {
                let held = self.held.get(*step).is_some_and(|(until, _)| now < *until);
                let stopping = pages.run.flow().and_then(|flow| flow.progress(step)) == Some(Progress::Stopping);
                !self.in_hand.contains(*step) && !held && !stopping
            };
            let what = |step: &StepPath| Some((step.clone(), pages.run.step(step)?.what.clone()?));
            pages.run.running.iter().filter(waiting).filter_map(what).collect()
        };
        for (step, what) in found {
            match what {
                Began::Effect { key, .. } => self.again(step, key),
                Began::Child { run } => self.child(step, run),
                Began::Sleep { .. } | Began::Wait { .. } | Began::Map { .. } => {}
            }
        }
    }

    /// A step that was begun, perhaps by another worker: the same call, and so the same effect.
    fn again(&mut self, step: StepPath, key: EffectKey) {
        let (book, now) = (self.book.clone(), self.runtime.now());
        let prepared = {
            let pages = book.lock();
            let node = pages.run.flow().and_then(|flow| flow.node(&step));
            let Some(StepSpec::Tool(spec)) = node.map(|node| book.workflow.step(node)) else { return };
            self.runtime.prepare(&pages.run, &book.workflow, &step, spec)
        };
        match prepared {
            Ok(prepared) if prepared.task.key == key => self.call(prepared),
            Ok(prepared) => {
                let message = format!(
                    "the step was begun as the effect {key}, and is now the effect {}: the tool's key or redaction changed under the run",
                    prepared.task.key
                );
                self.said.push((step, What::Ended(StepEnd::Failed { failure: Failure::new("diverged", message), doubt: true })));
            }
            Err(NotNow::Failed(failure)) => self.said.push((step, What::Ended(StepEnd::Failed { failure, doubt: true }))),
            Err(NotNow::NotHere(tool)) => {
                self.held.insert(step, (now + AGAIN_MAX, format!("the tool {tool} is not registered here")));
            }
        }
    }

    fn call(&mut self, mut prepared: Prepared) {
        let step = prepared.step.clone();
        self.held.remove(&step);
        self.in_hand.insert(step.clone());
        prepared.task.follow = Some(Follow { runtime: self.runtime.clone(), book: self.book.clone(), step: step.clone() });
        let (runtime, book) = (self.runtime.clone(), self.book.clone());
        self.steps.push(Box::pin(async move {
            let what = runtime.call_step(&book, prepared).await;
            Said { step, what }
        }));
    }

    fn child(&mut self, step: StepPath, run: RunId) {
        self.held.remove(&step);
        self.in_hand.insert(step.clone());
        let (runtime, book) = (self.runtime.clone(), self.book.clone());
        self.steps.push(Box::pin(async move {
            let what = runtime.child_step(&book, &step, run).await.unwrap_or_else(What::Failed);
            Said { step, what }
        }));
    }

    /// Tells what runs and is not wanted any more to stop. What is in hand says itself how it ended; of anything else the ledger knows.
    fn stop(&mut self) {
        let stopping: Vec<(StepPath, Began)> = {
            let pages = self.book.lock();
            let flow = pages.run.flow().into_iter().flat_map(|flow| flow.stopping());
            flow.filter_map(|step| Some((step.clone(), pages.run.step(step)?.what.clone()?))).collect()
        };
        for (step, what) in stopping {
            if !self.told.insert(step.clone()) {
                continue;
            }
            let (runtime, book, alone) = (self.runtime.clone(), self.book.clone(), !self.in_hand.contains(&step));
            self.in_hand.insert(step.clone());
            self.steps.push(Box::pin(async move {
                let what = match runtime.stop_step(&book, &step, what).await {
                    Err(error) => {
                        // The ledger, most likely: it is given a moment.
                        tokio::time::sleep(AGAIN_MIN).await;
                        What::NotTold { error, alone }
                    }
                    // What was under way says itself how it ended; what only waited need not be waited for.
                    Ok(Stopped { how, ran: true }) if !alone => What::Told(how),
                    Ok(Stopped { how, .. }) => What::Ended(how),
                };
                Said { step, what }
            }));
        }
    }

    /// Undoes what is next to be undone.
    fn unwind(&mut self) {
        let next = {
            let pages = self.book.lock();
            let running = pages.run.flow().is_some_and(|flow| flow.stopping().next().is_some());
            let next = pages.run.saga().and_then(|saga| saga.next()).filter(|_| !running).cloned();
            next.and_then(|step| {
                let what = pages.run.step(&step)?.what.clone()?;
                Some((step.clone(), what, operator_of(&pages.run, &step), left_alone(&pages.run, &step)))
            })
        };
        let Some((step, what, operator, left_alone)) = next else { return };
        let held = self.undo_held.is_some_and(|until| self.runtime.now() < until);
        if held || !self.in_hand.insert(step.clone()) {
            return;
        }
        self.undo_held = None;
        let (runtime, tenant) = (self.runtime.clone(), self.book.tenant.clone());
        self.steps.push(Box::pin(async move {
            let what = match left_alone {
                Some(failure) => What::Undone(Unwound::Dealt(Err(failure))),
                None => runtime.unwind(tenant, what, operator).await.map_or_else(What::UndoFailed, What::Undone),
            };
            Said { step, what }
        }));
    }

    /// When to look again, if nothing comes.
    fn next_look(&self) -> Option<Timestamp> {
        let held = self.held.values().map(|(until, _)| *until).min();
        [self.book.lock().run.next_time(), held, self.undo_held].into_iter().flatten().min()
    }

    /// Until a step says something, its time is up, or somebody wrote to the run.
    async fn wait(&mut self) {
        let now = self.runtime.now();
        self.wait_for(self.next_look().map_or(LOOK_EVERY, |due| due.since(now).min(LOOK_EVERY))).await;
    }

    async fn wait_for(&mut self, nap: Duration) {
        tokio::select! {
            biased;
            Some(said) = self.steps.next(), if !self.steps.is_empty() => self.heard(said),
            () = self.stirred.notified() => {
                self.held.clear();
                self.undo_held = None;
                // Somebody wrote, perhaps after the last record of ours.
                self.book.lock().newest = false;
            }
            () = tokio::time::sleep(nap) => self.book.lock().newest = false,
        }
        // Others may have said something as well: one record for all.
        while let Some(Some(said)) = futures_util::FutureExt::now_or_never(self.steps.next()) {
            self.heard(said);
        }
    }

    fn heard(&mut self, said: Said) {
        let Said { step, what } = said;
        match what {
            What::Told(how) => {
                if !self.in_hand.contains(&step) {
                    // It left off before it was told: nobody else says how it ended.
                    self.said.push((step, What::Ended(how)));
                }
                return;
            }
            What::NotTold { error, alone } => {
                tracing::error!(run = %self.book.id, %step, %error, "the step could not be told to stop");
                self.told.remove(&step);
                if alone {
                    self.in_hand.remove(&step);
                }
                return;
            }
            _ => {}
        }
        self.in_hand.remove(&step);
        match what {
            What::Held { until, why } => {
                tracing::info!(run = %self.book.id, %step, why, "the step waits");
                // One that was told to stop does not wait: it is told again, now that nothing of it is under way.
                self.told.remove(&step);
                self.held.insert(step, (until, why));
            }
            What::Undone(Unwound::Held { until, why }) => {
                tracing::info!(run = %self.book.id, %step, why, "the undo waits");
                self.undo_held = Some(until);
            }
            What::Failed(error) => {
                tracing::error!(run = %self.book.id, %step, %error, "the step could not go on");
                self.told.remove(&step);
                self.held.insert(step, (self.runtime.now() + AGAIN_MIN, error.to_string()));
            }
            What::UndoFailed(error) => {
                tracing::error!(run = %self.book.id, %step, %error, "the undo could not go on");
                self.undo_held = Some(self.runtime.now() + AGAIN_MIN);
            }
            What::Recorded => drop(self.held.remove(&step)),
            what => {
                self.held.remove(&step);
                self.said.push((step, what));
            }
        }
    }
}

/// What a call that outlives its driver says is its effect's alone: the run is somebody else's to go on with.
impl Drop for Live {
    fn drop(&mut self) {
        self.book.lock().fence = None;
    }
}

impl Runtime {
    /// Secrets are digested while a step is prepared, which waits for nothing: so their salt is fetched before.
    pub(super) async fn salt_for(&self, tenant: &Tenant, workflow: &Workflow) -> Result<(), RunError> {
        let redacts = workflow.steps.iter().any(|step| match step {
            StepSpec::Tool(step) => self.inner.tools.get(tenant, &step.tool).is_some_and(|tool| !tool.policy.redact.is_empty()),
            _ => false,
        });
        if redacts {
            self.inner.salt(tenant).await?;
        }
        Ok(())
    }

    /// Makes a step's call, and says what came of it as far as the run does not know yet.
    pub(super) async fn call_step(&self, book: &Arc<Book>, prepared: Prepared) -> What {
        let started = Instant::now();
        let Prepared { step, mut task } = prepared;
        let (key, tool) = (task.key, task.tool.clone());
        let meters = self.inner.meters.of(&tool.name);
        // In a run nothing is let through that would have been stopped: shadow enforces.
        let off = tool.is_pure() || self.inner.modes.of(&tool.name).await == Mode::Off;
        if off {
            let told = self.unrecorded(&tool, &task.call, None).await;
            let answer = self.counted(&meters, started, told);
            return What::Ended(unrecorded_end(answer));
        }
        let effect = match &task.held {
            Some(held) => held.permit.effect(),
            None => match self.inner.ledger.load(key).await {
                Ok(effect) => effect,
                Err(error) => return What::Failed(error.into()),
            },
        };
        // Its series ended before the run heard of it: it is not tried anew.
        if let State::Retrying(failed) = &effect.state
            && failed.receipt.is_some()
            && let Some(how) = step_end(&effect)
        {
            return self.given_up(book, step, &effect, how).await;
        }
        task.trace = self.inner.below(None);
        let told = match task.held {
            Some(_) => Undropped::new(self.inner.beyond(), Box::pin(self.inner.clone().see_through(task, effect))).await,
            None => self.settle(task, effect).await,
        };
        let answer = self.counted(&meters, started, told);
        if book.lock().knows_end(&step) {
            return What::Recorded;
        }
        match self.inner.ledger.load(key).await {
            Ok(effect) => match self.step_said(&effect, answer, tool.policy.retry.attempts) {
                What::Ended(how) if matches!(effect.state, State::Retrying(_) | State::Ready) => {
                    self.given_up(book, step, &effect, how).await
                }
                what => what,
            },
            Err(error) => What::Failed(error.into()),
        }
    }

    async fn given_up(&self, book: &Arc<Book>, step: StepPath, effect: &Effect, how: StepEnd) -> What {
        Follow { runtime: self.clone(), book: book.clone(), step }.give_up(effect, how).await
    }

    /// What the effect and the answer mean for the step.
    fn step_said(&self, effect: &Effect, answer: Answer, attempts_max: u32) -> What {
        let now = self.now();
        let error = answer.error.unwrap_or_else(|| AnswerError::new("not_ended", "the call has not ended"));
        let again = |why: String| {
            let after = error.retry_after_ms.map_or(AGAIN_MIN, Duration::from_millis).clamp(AGAIN_MIN, AGAIN_MAX);
            What::Held { until: now + after, why }
        };
        match &effect.state {
            // There will be another attempt; of a series that was broken off, by a crash or by the breaker, no more than there would have been.
            State::Retrying(failed) if failed.receipt.is_none() && error.code != "retry_exhausted" && effect.attempts < attempts_max => {
                What::Held { until: failed.not_before.max(now + AGAIN_MIN), why: failed.failure.message.clone() }
            }
            State::WaitingApproval { expires, .. } => What::Held {
                until: (*expires).min(now + HELD_LOOK),
                why: format!("it waits for approval: counterfoil effects approve {}", effect.key),
            },
            State::InDoubt(_) => What::Held {
                until: unwind::look_at_doubt(effect, now),
                why: format!("it is not known whether it happened: counterfoil effects resolve {}", effect.key),
            },
            State::Running(_) => again("another worker is at it".into()),
            _ => match step_end(effect) {
                Some(how) => What::Ended(how),
                None if error.retriable || error.code == STEP_STOPPED => again(error.message.clone()),
                None => What::Ended(StepEnd::Failed { failure: Failure::new(error.code, error.message), doubt: effect.doubtful() }),
            },
        }
    }
}

/// What steps said, noted in the run as far as it is news to it.
fn news(run: &mut Run, said: &[(StepPath, What)], now: Timestamp) -> Result<Vec<RunEntry>, RunFoldError> {
    let mut entries = Vec::new();
    for (step, what) in said {
        let entry = match what {
            What::Ended(how) if run.running.contains(step) => RunEntry::StepEnded { at: now, step: step.clone(), how: how.clone() },
            What::Undone(Unwound::Dealt(how)) if run.saga().and_then(|saga| saga.next()) == Some(step) => match how {
                Ok(how) => RunEntry::CompensationCompleted { at: now, step: step.clone(), how: how.clone() },
                Err(failure) => RunEntry::CompensationFailed { at: now, step: step.clone(), failure: failure.clone() },
            },
            _ => continue,
        };
        run.note(&entry)?;
        entries.push(entry);
    }
    Ok(entries)
}

/// How a step ended of whose call nothing is recorded.
fn unrecorded_end(answer: Answer) -> StepEnd {
    let doubt = answer.outcome == WorldSemantics::InDoubt.word();
    match (answer.status, answer.error) {
        (Status::Success, _) => StepEnd::Done { result: answer.data.unwrap_or_else(Json::null), way: None, undo: false },
        (_, error) => {
            let error = error.unwrap_or_else(|| AnswerError::new("failed", "the tool failed"));
            StepEnd::Failed { failure: Failure { retriable: error.retriable, ..Failure::new(error.code, error.message) }, doubt }
        }
    }
}
