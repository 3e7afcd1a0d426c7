//! A run as its driver knows it: read from the ledger, changed only together with what is written.
//!
//! What must stay true: at most one record of a run is on its way at a time, made from all that were before it. If it does not get there the book is
//! stale, and is read again before anything else is decided.

use std::sync::{Arc, Mutex, MutexGuard};

use counterfoil_core::run::archived::Archived;
use counterfoil_core::run::entry::{By, Started};
use counterfoil_core::run::flow::Flow;
use counterfoil_core::run::{OWNER_LEASE, Run, RunEntry, RunFoldError, StepState};
use counterfoil_core::{Fence, RunId, StepPath, StreamId, Tenant, Timestamp};
use counterfoil_store::{History, Reach, Version, Write};

use super::RunError;
use super::advance::Advanced;
use super::ahead::Ahead;
use crate::ledger::{LedgerError, Permit, body};
use crate::runtime::{Inner, Runtime};
use crate::workflow::Workflow;

pub(crate) struct Book {
    pub stream: StreamId,
    pub tenant: Tenant,
    pub id: RunId,
    pub workflow: Arc<Workflow>,
    /// Taken by who writes to the run where several may want to at once.
    pub turn: tokio::sync::Mutex<()>,
    pages: Mutex<Pages>,
}

pub(crate) struct Pages {
    pub run: Run,
    /// A record is on its way.
    pub busy: bool,
    /// What is here is not what the ledger has.
    pub stale: bool,
    /// It was read, or a record of ours got there, since the driver last looked or waited in vain: nobody else had written, or that record would have lost its
    /// race.
    pub newest: bool,
    /// Under which this worker owns the run.
    pub fence: Option<Fence>,
    pub carried: Option<Carried>,
    /// What follows from such records that got there: for the driver to begin.
    pub follows: Vec<Advanced>,
}

/// What follows from a record that is on its way with the end of a step's effect.
pub(crate) struct Carried {
    pub step: StepPath,
    pub advanced: Advanced,
    pub ahead: Option<Ahead>,
}

impl Book {
    pub fn lock(&self) -> MutexGuard<'_, Pages> {
        // A panic half-way leaves a run that is ahead of the ledger: it is marked stale before it is changed.
        self.pages.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Of a run as it was just read, or as this process has just written it.
    pub fn new(run: Run, workflow: Arc<Workflow>) -> Self {
        let (tenant, id) = (run.started.tenant.clone(), run.started.run.clone());
        let pages = Pages { run, busy: false, stale: false, newest: true, fence: None, carried: None, follows: Vec::new() };
        let stream = StreamId::run(&tenant, &id);
        Self { stream, tenant, id, workflow, turn: tokio::sync::Mutex::new(()), pages: Mutex::new(pages) }
    }

    pub async fn open(runtime: &Runtime, tenant: &Tenant, id: &RunId) -> Result<Self, RunError> {
        let (run, workflow) = read(&runtime.inner, tenant, id).await?;
        Ok(Self::new(run, workflow))
    }

    /// Reads what others wrote.
    pub async fn renew(&self, runtime: &Runtime) -> Result<(), RunError> {
        let (run, _) = read(&runtime.inner, &self.tenant, &self.id).await?;
        let mut pages = self.lock();
        pages.run = run;
        pages.stale = false;
        Ok(())
    }

    /// Whether somebody else wrote.
    pub async fn moved(&self, runtime: &Runtime) -> Result<bool, RunError> {
        let newest = runtime.inner.ledger.records(self.stream, Reach::Newest(1)).await?;
        let pages = self.lock();
        Ok(!pages.busy && newest.version.0 != pages.run.version)
    }

    /// Records what `say` notes in the run. `false`: nothing was written, since it is not this worker's run any more, the book is stale, or another record
    /// is on its way.
    pub async fn record(
        &self,
        runtime: &Runtime,
        say: impl FnOnce(&mut Run) -> Result<Vec<RunEntry>, RunFoldError>,
    ) -> Result<bool, RunError> {
        let written = {
            let mut pages = self.lock();
            if !pages.writable() {
                return Ok(false);
            }
            match pages.write(self, runtime.inner.clock.now(), say).map_err(|source| self.unreadable(source))? {
                Some(write) => runtime.inner.ledger.append_claiming(vec![write], None),
                None => return Ok(true),
            }
        };
        let in_flight = InFlight(self);
        let written = written.await;
        std::mem::forget(in_flight);
        self.written(written.map(drop))
    }

    /// What became of the record that was on its way. `false`: someone else wrote.
    pub fn written(&self, written: Result<(), LedgerError>) -> Result<bool, RunError> {
        let mut pages = self.lock();
        match written {
            Ok(()) => {
                pages.arrived();
                Ok(true)
            }
            Err(error) => {
                pages.lost();
                if let LedgerError::Conflict = error { Ok(false) } else { Err(error.into()) }
            }
        }
    }

    /// Takes the run on, if nobody else is at it. `false`: somebody is.
    pub async fn own(&self, runtime: &Runtime) -> Result<bool, RunError> {
        let inner = &runtime.inner;
        loop {
            let now = inner.clock.now();
            let write = {
                let mut pages = self.lock();
                match pages.run.owner.clone() {
                    // It was started or left by this process, which drives it nowhere else.
                    Some(owner) if owner.worker == *inner.ledger.worker() && now < owner.until => {
                        pages.fence = Some(owner.fence);
                        return Ok(true);
                    }
                    Some(owner) if now < owner.until && !inner.liveness.away(&owner.worker) => return Ok(false),
                    _ => {}
                }
                let owned = owned(inner, &pages.run, now);
                pages.fence = Some(Fence(pages.run.fence.0 + 1));
                let noted = |run: &mut Run| run.note(&owned).map(|()| vec![owned]);
                pages.write(self, now, noted).map_err(|source| self.unreadable(source))?
            };
            let Some(write) = write else { return Ok(true) };
            if self.written(inner.ledger.append(vec![write]).await)? {
                return Ok(true);
            }
            self.renew(runtime).await?;
        }
    }

    /// Says that this worker is still at it, where nothing else was recorded for a while.
    pub async fn keep(&self, runtime: &Runtime) -> Result<(), RunError> {
        let inner = &runtime.inner;
        let write = {
            let mut pages = self.lock();
            let now = inner.clock.now();
            let soon = pages.run.owner.as_ref().is_some_and(|owner| owner.until.since(now) < OWNER_LEASE / 2);
            if !soon || !pages.writable() {
                return Ok(());
            }
            let owned = owned(inner, &pages.run, now);
            pages.fence = Some(Fence(pages.run.fence.0 + 1));
            pages.write(self, now, |run| run.note(&owned).map(|()| vec![owned])).map_err(|source| self.unreadable(source))?
        };
        match write {
            // Whoever was faster has it now.
            Some(write) => self.written(inner.ledger.append(vec![write]).await).map(drop),
            None => Ok(()),
        }
    }

    pub fn unreadable(&self, source: RunFoldError) -> RunError {
        LedgerError::Run { run: self.id.to_string(), source }.into()
    }
}

/// A record on its way. Whoever waited for it may go away: then it is looked up whether it got there.
struct InFlight<'a>(&'a Book);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.lock().lost();
    }
}

impl Pages {
    /// This worker is the one that is at it.
    pub fn owned(&self) -> bool {
        self.fence.is_some() && self.run.owner.as_ref().map(|owner| owner.fence) == self.fence
    }

    /// The run knows how the step ended.
    pub fn knows_end(&self, step: &StepPath) -> bool {
        !self.stale && self.run.step(step).is_some_and(|known| matches!(known.state, StepState::Ended { .. }))
    }

    /// Its owner may write now: the book is up to date, and no other record is on its way.
    pub fn writable(&self) -> bool {
        self.owned() && !self.stale && !self.busy
    }

    /// The run has ended, and the ledger knows it.
    pub fn over(&self) -> bool {
        !self.stale && !self.busy && self.run.state().is_end()
    }

    /// The write of what `say` notes. `None`: nothing to say.
    pub fn write(
        &mut self,
        book: &Book,
        now: Timestamp,
        say: impl FnOnce(&mut Run) -> Result<Vec<RunEntry>, RunFoldError>,
    ) -> Result<Option<Write>, RunFoldError> {
        // Until it is known that the ledger has it.
        self.stale = true;
        let entries = say(&mut self.run)?;
        self.stale = false;
        if entries.is_empty() {
            return Ok(None);
        }
        let expected = Version(self.run.version);
        self.run.recorded();
        self.busy = true;
        let body = body(self.run.veil.as_ref(), &book.stream, expected, &entries);
        Ok(Some(Write { stream: book.stream, expected, at: now, body, summary: self.run.summary() }))
    }

    /// The record that was on its way is durable.
    pub fn arrived(&mut self) {
        self.busy = false;
        self.newest = true;
    }

    /// It is not, or nobody knows.
    pub fn lost(&mut self) {
        self.busy = false;
        self.stale = true;
    }

    /// The record that went with the end of this step's effect is durable, if there was one.
    pub fn arrived_with(&mut self, step: &StepPath, permit: Option<Permit>) {
        if let Some(Carried { mut advanced, ahead, .. }) = self.carried.take_if(|carried| carried.step == *step) {
            self.arrived();
            if let (Some(ahead), Some(call)) = (ahead, advanced.calls.first_mut()) {
                ahead.arrived(permit, call);
            }
            self.follows.push(advanced);
        }
    }

    /// It is not, or nobody knows.
    pub fn lost_with(&mut self, step: &StepPath, runtime: &Runtime, error: &LedgerError) {
        if let Some(carried) = self.carried.take_if(|carried| carried.step == *step) {
            self.lost();
            if let Some(ahead) = carried.ahead {
                ahead.lost(runtime, error);
            }
        }
    }
}

/// This worker takes the run on.
pub(crate) fn owned(inner: &Inner, run: &Run, now: Timestamp) -> RunEntry {
    let fence = Fence(run.fence.0 + 1);
    RunEntry::Owned { at: now, worker: inner.ledger.worker().clone(), fence, lease_until: now + OWNER_LEASE }
}

/// A run with its definition.
pub(crate) async fn read(inner: &Inner, tenant: &Tenant, id: &RunId) -> Result<(Run, Arc<Workflow>), RunError> {
    let (history, veil) = inner.ledger.read(StreamId::run(tenant, id), Reach::Whole).await?;
    let Some(first) = history.records.first() else { return Err(absent(inner, tenant, id).await?) };
    let unreadable = |source| RunError::Ledger(LedgerError::Run { run: id.to_string(), source });
    let (started, _) = Run::begun(&first.body).map_err(unreadable)?;
    let workflow = match started.by {
        By::Plan => inner.definitions.of_run(&inner.ledger, tenant, id, started.definition).await?,
        By::Function | By::Client => Arc::new(Workflow::without_plan(&started.workflow)),
    };
    let mut run = folded(started, &workflow, &history).map_err(unreadable)?;
    run.veil = veil;
    Ok((run, workflow))
}

/// Never there, pruned, or moved to an archive.
async fn absent(inner: &Inner, tenant: &Tenant, id: &RunId) -> Result<RunError, RunError> {
    let (_, archived) = inner.ledger.newest::<Archived>(StreamId::archived(tenant, id)).await?;
    Ok(match archived {
        Some(Archived { run, file, digest, .. }) => RunError::Archived { run, file, digest },
        None => RunError::NotFound(id.clone()),
    })
}

fn folded(started: Arc<Started>, workflow: &Workflow, history: &History) -> Result<Run, RunFoldError> {
    let flow = (started.by == By::Plan).then(|| flow_of(workflow, &started));
    let mut run = Run::new(started, flow);
    let mut records = history.records.iter();
    if let Some(first) = records.next() {
        let (_, entries) = Run::begun(&first.body)?;
        run.apply(&entries)?;
    }
    records.try_for_each(|record| run.apply_body(&record.body))?;
    Ok(run)
}

pub(crate) fn flow_of(workflow: &Workflow, started: &Started) -> Flow {
    Flow::new(workflow.plan.clone(), workflow.effects_max, started.at)
}
