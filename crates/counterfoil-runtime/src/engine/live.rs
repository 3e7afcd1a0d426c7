//! The loop that drives one run: advance, record, call, and again with what came of it.
//!
//! One loop for a run that was just started, taken over after a crash, or woken by time or a signal: it begins by reading the run, and what it finds
//! begun and not ended it sees through. When nothing is left to do but wait, it lets go of the run: nobody need be at one that sleeps.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use counterfoil_core::effect::State;
use counterfoil_core::entry::Opened;
use counterfoil_core::ids::Digest32;
use counterfoil_core::run::ending::step_end;
use counterfoil_core::run::entry::{Began, By, RunEntry, StepEnd};
use counterfoil_core::run::flow::Progress;
use counterfoil_core::run::{Run, RunFoldError, is_run};
use counterfoil_core::{CanonicalJson, Effect, EffectKey, Entry, Failure, Json, RunId, StepPath, StreamId, Tenant, Timestamp};
use counterfoil_store::{Reach, Version};
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::Notify;

use super::RunError;
use super::advance::{Advanced, advance};
use super::book::{self, Book};
use super::follow::Follow;
use super::step::{NotNow, Prepared};
use super::unwind::{self, Unwound, operator_of};
use crate::answer::{Answer, AnswerError, Status};
use crate::drive::STEP_STOPPED;
use crate::ledger::{LedgerError, Sealed, next_receipt};
use crate::mode::Mode;
use crate::observe;
use crate::operate::{OperateError, Operator};
use crate::runtime::Runtime;
use crate::undropped::Undropped;
use crate::workflow::StepSpec;

/// A wait that is shorter is waited out here; for a longer one the run is let go.
const NAP_MAX: Duration = Duration::from_secs(2);
/// How long until a step that was not let through (a breaker, a limit) is tried again: at least, and at most.
const AGAIN_MIN: Duration = Duration::from_millis(200);
const AGAIN_MAX: Duration = Duration::from_secs(30);
/// How long until a step that a person must decide about is looked at again. Their word stirs the run before that.
const HELD_LOOK: Duration = Duration::from_secs(60);
/// How often a driver whose steps run looks whether others wrote to its run.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Runs that one look at what is due drives.
const DUE_MAX: usize = 10_000;

/// How a driver left its run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rest {
    /// It is over.
    Ended,
    /// Nobody need be at it before then, unless something comes.
    Parked { due: Option<Timestamp> },
    /// Another worker is at it.
    Elsewhere,
}

/// Runs that this process drives now.
#[derive(Default)]
pub(crate) struct Lives {
    stirs: Mutex<HashMap<StreamId, Arc<Notify>>>,
    left: Notify,
    /// This process is about to end: no further step is begun.
    resting: AtomicBool,
}

impl Lives {
    /// Tells a driver of this process that its run was written to.
    pub fn stir(&self, stream: &StreamId) {
        if let Some(notify) = self.lock().get(stream) {
            notify.notify_one();
        }
    }

    pub fn resting(&self) -> bool {
        self.resting.load(Ordering::SeqCst)
    }

    fn has(&self, stream: &StreamId) -> bool {
        self.lock().contains_key(stream)
    }

    fn enter(&self, stream: StreamId) -> Option<Arc<Notify>> {
        let mut stirs = self.lock();
        if stirs.contains_key(&stream) {
            return None;
        }
        let notify = Arc::new(Notify::new());
        stirs.insert(stream, notify.clone());
        Some(notify)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<StreamId, Arc<Notify>>> {
        self.stirs.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// In the list for as long as it lives.
struct Life<'a> {
    lives: &'a Lives,
    stream: StreamId,
}

impl Drop for Life<'_> {
    fn drop(&mut self) {
        self.lives.lock().remove(&self.stream);
        self.lives.left.notify_waiters();
    }
}

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

impl Runtime {
    /// Drives a run until it has ended or nobody need be at it.
    pub async fn drive_run(&self, tenant: &Tenant, run: &RunId) -> Result<Rest, RunError> {
        let stream = StreamId::run(tenant, run);
        let lives = &self.inner.lives;
        loop {
            if lives.resting() {
                return Ok(Rest::Parked { due: Some(self.now()) });
            }
            let left = lives.left.notified();
            let Some(stirred) = lives.enter(stream) else {
                // This process is at it already.
                left.await;
                continue;
            };
            let _life = Life { lives, stream };
            let book = Arc::new(Book::open(self, tenant, run).await?);
            let by = book.lock().run.started.by;
            match by {
                By::Plan => {}
                By::Function => return Box::pin(self.drive_function(book, stirred)).await,
                By::Client => return Box::pin(self.drive_client(book)).await,
            }
            return Box::pin(Live::new(self.clone(), book, stirred).drive()).await;
        }
    }
}

impl Runtime {
    /// For a process that is about to end: begins no further step of any run, lets those that are under way end, and lets go of the runs. Whoever
    /// looks next goes on with them at once. (A Rust function is waited for until it ends or waits.)
    pub async fn rest_runs(&self) {
        let lives = &self.inner.lives;
        lives.resting.store(true, Ordering::SeqCst);
        loop {
            let left = lives.left.notified();
            let driven: Vec<Arc<Notify>> = lives.lock().values().cloned().collect();
            if driven.is_empty() {
                return;
            }
            driven.iter().for_each(|stirred| stirred.notify_one());
            left.await;
        }
    }

    /// Drives a run until it has ended: waits with it where it waits, and looks on where another worker is at it.
    pub async fn see_run_through(&self, tenant: &Tenant, run: &RunId) -> Result<(), RunError> {
        let stream = StreamId::run(tenant, run);
        loop {
            let rest = self.drive_run(tenant, run).await?;
            if let Rest::Ended = rest {
                return Ok(());
            }
            // As it is now: what came since it was let go of is in it.
            let (facts, _) = book::read(&self.inner, tenant, run).await?;
            if facts.state().is_end() {
                return Ok(());
            }
            let parked = Version(facts.version);
            let due = if let Rest::Elsewhere = rest { Some(self.now() + LOOK_EVERY) } else { facts.due() };
            let waiter = self.inner.ledger.wakeups().register(stream);
            loop {
                let woken = waiter.notify.notified();
                let moved = self.inner.ledger.records(stream, Reach::Newest(1)).await?.version != parked;
                let now = self.now();
                if moved || due.is_some_and(|due| due <= now) {
                    break;
                }
                let nap = due.map_or(LOOK_EVERY, |due| due.since(now).min(LOOK_EVERY));
                // Either end leads to another look.
                drop(tokio::time::timeout(nap, woken).await);
            }
        }
    }

    /// Lets go of a run that this process drives no more: whoever looks may go on with it at once.
    pub async fn let_go(&self, tenant: &Tenant, run: &RunId) -> Result<(), RunError> {
        let book = Book::open(self, tenant, run).await?;
        let ours = book.lock().run.owner.as_ref().is_some_and(|owner| owner.worker == *self.inner.ledger.worker());
        if ours && book.own(self).await? {
            let parked = RunEntry::Parked { at: self.now(), due: Some(self.now()) };
            // Whoever was faster has it now.
            book.record(self, |run| run.note(&parked).map(|()| vec![parked])).await?;
        }
        Ok(())
    }

    /// Drives every run that is due, as far as it comes.
    pub async fn drive_due(&self) -> Result<Vec<(RunId, Rest)>, RunError> {
        let mut driven = Vec::new();
        for key in self.inner.ledger.due(Duration::ZERO, DUE_MAX).await? {
            let stream = StreamId::effect(&key);
            let history = self.inner.ledger.records(stream, Reach::Whole).await?;
            let Some(first) = history.records.first().filter(|first| is_run(&first.body)) else { continue };
            let Ok((started, _)) = Run::begun(&first.body) else {
                tracing::error!(%stream, "this run cannot be read");
                continue;
            };
            // One that cannot go on holds up none of the others.
            match self.drive_run(&started.tenant, &started.run).await {
                Ok(rest) => driven.push((started.run.clone(), rest)),
                Err(error) => tracing::error!(run = %started.run, %error, "the run could not go on"),
            }
        }
        Ok(driven)
    }

    /// A worker's look at a run that may be due: if it is, it is driven by a task of its own.
    pub(crate) async fn drive_if_due(&self, stream: StreamId) -> Result<(), LedgerError> {
        if self.inner.lives.has(&stream) {
            return Ok(());
        }
        let history = self.inner.ledger.records(stream, Reach::Whole).await?;
        let Some(first) = history.records.first() else { return Ok(()) };
        let (started, _) = Run::begun(&first.body).map_err(|source| LedgerError::Run { run: stream.to_string(), source })?;
        let facts = match book::read(&self.inner, &started.tenant, &started.run).await {
            Ok((facts, _)) => facts,
            Err(RunError::Ledger(error)) => return Err(error),
            Err(error) => {
                tracing::error!(run = %started.run, %error, "the run cannot go on here");
                return Ok(());
            }
        };
        let due = facts.due().is_some_and(|due| due <= self.now());
        let gone = facts.owner.as_ref().is_some_and(|owner| self.inner.liveness.away(&owner.worker));
        if due || gone {
            self.spawn_run(started.tenant.clone(), started.run.clone());
        }
        Ok(())
    }

    /// Drives a run in the background, as far as it comes.
    pub fn spawn_run(&self, tenant: Tenant, run: RunId) {
        let runtime = self.clone();
        tokio::spawn(async move {
            match runtime.drive_run(&tenant, &run).await {
                Ok(rest) => tracing::debug!(%run, ?rest, "the run rests"),
                Err(error) => tracing::error!(%run, %error, "the run could not go on"),
            }
        });
    }
}

struct Live {
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
}

impl Live {
    fn new(runtime: Runtime, book: Arc<Book>, stirred: Arc<Notify>) -> Self {
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
        }
    }

    async fn drive(mut self) -> Result<Rest, RunError> {
        if self.over() {
            return Ok(Rest::Ended);
        }
        if !self.book.own(&self.runtime).await? {
            return Ok(Rest::Elsewhere);
        }
        self.salted().await?;
        loop {
            if self.book.lock().stale || self.book.moved(&self.runtime).await? {
                self.book.renew(&self.runtime).await?;
            }
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
                // A step's outcome is on its way, and with it what it means for the run.
                self.wait().await;
                continue;
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
            self.begin_found()?;
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

    /// Nobody is at it any more. `false`: somebody wrote; look again first.
    async fn let_go(&mut self, due: Option<Timestamp>) -> Result<bool, RunError> {
        let parked = RunEntry::Parked { at: self.runtime.now(), due };
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

    /// Secrets are digested while a step is prepared, which waits for nothing: so their salt is fetched before.
    async fn salted(&mut self) -> Result<(), RunError> {
        let redacts = self.book.workflow.steps.iter().any(|step| match step {
            StepSpec::Tool(step) => {
                self.runtime.inner.tools.get(&self.book.tenant, &step.tool).is_some_and(|tool| !tool.policy.redact.is_empty())
            }
            _ => false,
        });
        if redacts {
            self.runtime.inner.salt(&self.book.tenant).await?;
        }
        Ok(())
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
    fn begin_found(&mut self) -> Result<(), RunError> {
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
                Began::Effect { key, .. } => self.again(step, key)?,
                Began::Child { run } => self.child(step, run),
                Began::Sleep { .. } | Began::Wait { .. } | Began::Map { .. } => {}
            }
        }
        Ok(())
    }

    /// A step that was begun, perhaps by another worker: the same call, and so the same effect.
    fn again(&mut self, step: StepPath, key: EffectKey) -> Result<(), RunError> {
        let (book, now) = (self.book.clone(), self.runtime.now());
        let prepared = {
            let pages = book.lock();
            let node = pages.run.flow().and_then(|flow| flow.node(&step));
            let Some(StepSpec::Tool(spec)) = node.map(|node| book.workflow.step(node)) else { return Ok(()) };
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
        Ok(())
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
                Some((step.clone(), what, operator_of(&pages.run, &step)))
            })
        };
        let Some((step, what, operator)) = next else { return };
        let held = self.undo_held.is_some_and(|until| self.runtime.now() < until);
        if held || !self.in_hand.insert(step.clone()) {
            return;
        }
        self.undo_held = None;
        let (runtime, tenant) = (self.runtime.clone(), self.book.tenant.clone());
        self.steps.push(Box::pin(async move {
            let what = runtime.unwind(tenant, what, operator).await.map_or_else(What::UndoFailed, What::Undone);
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
        let nap = self.next_look().map_or(LOOK_EVERY, |due| due.since(now).min(LOOK_EVERY));
        tokio::select! {
            biased;
            Some(said) = self.steps.next(), if !self.steps.is_empty() => self.heard(said),
            () = self.stirred.notified() => {
                self.held.clear();
                self.undo_held = None;
            }
            () = tokio::time::sleep(nap) => {}
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
    /// Makes a step's call, and says what came of it as far as the run does not know yet.
    pub(super) async fn call_step(&self, book: &Book, prepared: Prepared) -> What {
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
            return What::Ended(how);
        }
        task.trace = self.inner.below(None);
        let told = match task.held {
            Some(_) => Undropped::new(self.inner.clone().see_through(task, effect)).await,
            None => self.settle(task, effect).await,
        };
        let answer = self.counted(&meters, started, told);
        if book.lock().knows_end(&step) {
            return What::Recorded;
        }
        match self.inner.ledger.load(key).await {
            Ok(effect) => self.step_said(&effect, answer, tool.policy.retry.attempts),
            Err(error) => What::Failed(error.into()),
        }
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

    /// Stops what a step began, as far as that can be, and says how it ended.
    pub(super) async fn stop_step(&self, book: &Book, step: &StepPath, what: Began) -> Result<Stopped, RunError> {
        let mut ran = false;
        let at_rest = |how| Stopped { how, ran: false };
        let key = match what {
            Began::Effect { key, pure: false, .. } => key,
            Began::Child { run } => return self.stop_child(book, step, run).await.map(|how| Stopped { how, ran: true }),
            _ => return Ok(Stopped { how: StepEnd::Cancelled { doubt: false }, ran: true }),
        };
        let operator = {
            let pages = book.lock();
            match &pages.run.cancel {
                Some(cancel) => Operator::new(&cancel.by, &cancel.why),
                None => Operator::new("the run", format!("step {step} is not wanted any more")),
            }
        };
        loop {
            let effect = self.inner.ledger.load(key).await?;
            match &effect.state {
                State::Absent => {
                    if !self.cancel_before(book, step, effect, &operator).await? {
                        continue;
                    }
                    return Ok(at_rest(StepEnd::Cancelled { doubt: false }));
                }
                State::InDoubt(_) => return Ok(at_rest(StepEnd::Cancelled { doubt: true })),
                State::Ready | State::WaitingApproval { .. } | State::Running(_) | State::Retrying(_) => {
                    ran |= matches!(effect.state, State::Running(_));
                    match self.cancel(key, &operator).await {
                        Ok(_) | Err(OperateError::WrongState { .. }) => {}
                        Err(OperateError::Ledger(error)) => return Err(error.into()),
                        Err(_) => return Ok(Stopped { how: StepEnd::Cancelled { doubt: effect.doubtful() }, ran }),
                    }
                }
                _ => return Ok(Stopped { how: step_end(&effect).unwrap_or(StepEnd::Cancelled { doubt: effect.doubtful() }), ran }),
            }
        }
    }

    /// Cancels what was never claimed: whoever is about to claim it finds it so. `false`: someone was faster.
    async fn cancel_before(&self, book: &Book, step: &StepPath, effect: Effect, operator: &Operator) -> Result<bool, RunError> {
        let prepared = {
            let pages = book.lock();
            let node = pages.run.flow().and_then(|flow| flow.node(step));
            match node.map(|node| book.workflow.step(node)) {
                Some(StepSpec::Tool(spec)) => self.prepare(&pages.run, &book.workflow, step, spec).ok(),
                _ => None,
            }
        };
        let now = self.now();
        let opened = match prepared.filter(|prepared| prepared.task.key == effect.key) {
            Some(prepared) => self.inner.opened(&prepared.task),
            None => match unasked(&book.lock().run, step, now) {
                Some(opened) => opened,
                None => return Ok(true),
            },
        };
        let opened = Entry::Opened(opened);
        let receipt = next_receipt(&effect);
        let cancelled = Entry::Cancelled { at: now, by: operator.by.clone(), why: operator.why.clone(), receipt };
        let result = Digest32::of(operator.why.as_bytes());
        let sealed = Sealed { outcome: "cancelled", result, by: Some(&operator.by), started: now, ended: now };
        match self.inner.ledger.record(&effect, vec![opened, cancelled], Some(sealed)).await {
            Ok(_) => Ok(true),
            Err(LedgerError::Conflict) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// The call of a step that only its client or its function could put together: known by what the run knows of it. Whoever still comes with the
/// call itself is refused, for its arguments are others.
fn unasked(run: &Run, step: &StepPath, now: Timestamp) -> Option<Opened> {
    let Some(Began::Effect { tool, .. }) = run.step(step)?.what.as_ref() else { return None };
    let args = CanonicalJson::parse("null").expect("null is JSON");
    Some(Opened {
        at: now,
        tenant: run.started.tenant.clone(),
        caller: run.started.caller.clone(),
        tool: tool.clone(),
        fingerprint: args.fingerprint(),
        args,
        run: Some(run.started.run.clone()),
        step: Some(step.clone()),
        redacted: true,
        settles: false,
        lent: run.started.by == By::Client,
        retain_ms: run.started.retain_ms,
    })
}

/// How a step ended that was stopped.
pub(super) struct Stopped {
    pub how: StepEnd,
    /// An attempt was under way.
    pub ran: bool,
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
    match (answer.status, answer.error) {
        (Status::Success, _) => StepEnd::Done { result: answer.data.unwrap_or_else(Json::null), way: None, undo: false },
        (_, error) => {
            let error = error.unwrap_or_else(|| AnswerError::new("failed", "the tool failed"));
            StepEnd::Failed { failure: Failure { retriable: error.retriable, ..Failure::new(error.code, error.message) }, doubt: false }
        }
    }
}
