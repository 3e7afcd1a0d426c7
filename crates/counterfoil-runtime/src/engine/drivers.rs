//! Which runs this process drives, and when: asked for, due, or seen to their end. How one is driven is `live`'s, `function`'s and `client`'s.
//!
//! What must stay true: a process drives a run at most once at a time; a process that is about to end begins nothing more.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use counterfoil_core::run::confirm::Occasion;
use counterfoil_core::run::entry::{By, RunEntry};
use counterfoil_core::run::schedule::is_schedule;
use counterfoil_core::run::{Run, is_run};
use counterfoil_core::{RunId, StreamId, Tenant, Timestamp};
use counterfoil_store::{Reach, Version};
use tokio::sync::Notify;

use super::RunError;
use super::beside::After;
use super::book::{self, Book};
use super::live::Live;
use super::operate::Heard;
use super::tick::Dealt;
use crate::ledger::LedgerError;
use crate::runtime::Runtime;

/// How often is looked whether others wrote to a run that is waited for.
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
    /// Ticks that this process leaves to others, as it has said.
    left_ticks: Mutex<HashMap<StreamId, Timestamp>>,
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

    /// `true`: it is the first time that this tick is left to others.
    pub fn leave_tick(&self, schedule: StreamId, tick: Timestamp) -> bool {
        let mut left = self.left_ticks.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        left.insert(schedule, tick) != Some(tick)
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

impl Runtime {
    /// Drives a run until it has ended or nobody need be at it.
    pub async fn drive_run(&self, tenant: &Tenant, run: &RunId) -> Result<Rest, RunError> {
        self.drive_known(tenant, run, None).await
    }

    /// The same of a run that this process has just written to: it need not be read first.
    pub async fn drive_after(&self, after: After) -> Result<Rest, RunError> {
        let (tenant, run) = (after.run.started.tenant.clone(), after.run.started.run.clone());
        self.drive_known(&tenant, &run, Some(after).filter(|after| after.heard == Heard::Now)).await
    }

    async fn drive_known(&self, tenant: &Tenant, run: &RunId, mut known: Option<After>) -> Result<Rest, RunError> {
        let stream = StreamId::run(tenant, run);
        let lives = &self.inner.lives;
        loop {
            if lives.resting() {
                return Ok(Rest::Parked { due: Some(self.now()) });
            }
            let left = lives.left.notified();
            let Some(stirred) = lives.enter(stream) else {
                // This process is at it already, and writes to it.
                left.await;
                known = None;
                continue;
            };
            let _life = Life { lives, stream };
            let book = Arc::new(match known.take() {
                Some(After { run, workflow, .. }) => Book::new(run, workflow),
                None => Book::open(self, tenant, run).await?,
            });
            let by = book.lock().run.started.by;
            match by {
                By::Plan => {}
                By::Function => return Box::pin(self.drive_function(book, stirred)).await,
                By::Client => return Box::pin(self.drive_client(book)).await,
            }
            return Box::pin(Live::new(self.clone(), book, stirred).drive()).await;
        }
    }

    /// From now on no further step of any run begins here. [`rest_runs`](Self::rest_runs) does the rest.
    pub fn begin_no_steps(&self) {
        self.inner.lives.resting.store(true, Ordering::SeqCst);
    }

    /// For a process that is about to end: begins no further step of any run, lets those that are under way end, and lets go of the runs. Whoever
    /// looks next goes on with them at once. (A Rust function is waited for until it ends or waits.)
    pub async fn rest_runs(&self) {
        self.begin_no_steps();
        let lives = &self.inner.lives;
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

    /// Drives a run until it has ended: waits with it where it waits, and looks on where another worker is at it. Or until this process begins no more steps
    /// ([`begin_no_steps`](Self::begin_no_steps)).
    pub async fn see_run_through(&self, tenant: &Tenant, run: &RunId) -> Result<(), RunError> {
        let stream = StreamId::run(tenant, run);
        loop {
            let rest = self.drive_run(tenant, run).await?;
            if let Rest::Ended = rest {
                return Ok(());
            }
            // As it is now: what came since it was let go of is in it.
            let (facts, _) = book::read(&self.inner, tenant, run).await?;
            if facts.state().is_end() || self.inner.lives.resting() {
                return Ok(());
            }
            let parked = Version(facts.version);
            let due = if let Rest::Elsewhere = rest { Some(self.now() + LOOK_EVERY) } else { facts.due() };
            let waiter = self.inner.ledger.wakeups().register(stream);
            loop {
                let woken = waiter.notify.notified();
                let moved = self.inner.ledger.records(stream, Reach::Newest(1)).await?.version != parked;
                let now = self.now();
                if moved || due.is_some_and(|due| due <= now) || self.inner.lives.resting() {
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
            // It may be in the middle of that, for all that is known here: to ask once more does no harm.
            let unconfirmed = book.lock().run.unconfirmed.is_some_and(|occasion| occasion != Occasion::PickedUp);
            let parked = RunEntry::Parked { at: self.now(), due: Some(self.now()), unconfirmed };
            // Whoever was faster has it now.
            book.record(self, |run| run.note(&parked).map(|()| vec![parked])).await?;
        }
        Ok(())
    }

    /// Deals with every tick that is due. The runs it starts are due themselves. One schedule that cannot go on holds up none of the others.
    pub async fn tick_due(&self) -> Result<Vec<Dealt>, RunError> {
        let mut dealt = Vec::new();
        for key in self.inner.ledger.due(Duration::ZERO, DUE_MAX).await? {
            let stream = StreamId::effect(&key);
            let newest = self.inner.ledger.records(stream, Reach::Newest(1)).await?;
            if newest.records.last().is_some_and(|record| is_schedule(&record.body)) {
                match self.tick_if_due(stream).await {
                    Ok(ticked) => dealt.extend(ticked),
                    Err(error) => tracing::error!(%stream, %error, "this schedule could not go on"),
                }
            }
        }
        Ok(dealt)
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
        tokio::spawn(async move { told(&run, runtime.drive_run(&tenant, &run).await) });
    }

    /// The same of a run that this process has just written to.
    pub fn spawn_after(&self, after: After) {
        let (runtime, run) = (self.clone(), after.run.started.run.clone());
        tokio::spawn(async move { told(&run, runtime.drive_after(after).await) });
    }
}

fn told(run: &RunId, driven: Result<Rest, RunError>) {
    match driven {
        Ok(rest) => tracing::debug!(%run, ?rest, "the run rests"),
        Err(error) => tracing::error!(%run, %error, "the run could not go on"),
    }
}
