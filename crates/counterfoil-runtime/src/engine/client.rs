//! Runs that a client drives, in any language: it opens the run, acquires permits for its steps, commits what they gave, and says when it is over.
//!
//! The run knows each step from the moment its permit is asked for, so what the client did is undone, cancelled and shown as for any run. A client that
//! falls silent for longer than its lease has failed, and what it did is undone; each of its permits has a lease of its own besides.

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::ids::{Digest32, WorkflowName};
use counterfoil_core::run::Run;
use counterfoil_core::run::ending::step_end;
use counterfoil_core::run::entry::{Began, By, RunEnd, RunEntry, Started};
use counterfoil_core::{Caller, CanonicalJson, EffectKey, Failure, RunId, Tenant, Timestamp};

use super::RunError;
use super::beside::{After, RunBeside};
use super::book::Book;
use super::drivers::Rest;
use super::durable::Shared;
use super::function::Unwinding;
use super::operate::Heard;
use super::start::Second;
use crate::answer::Answer;
use crate::drive::ledger_answer;
use crate::observe;
use crate::runtime::{Runtime, Task};
use crate::workflow::{RETAIN, Workflow};

/// How long a client may be silent: at least, and at most.
const LEASE_MIN: Duration = Duration::from_secs(1);
const LEASE_MAX: Duration = Duration::from_secs(24 * 3600);

/// A run that a client opens.
#[derive(Debug, Clone)]
pub struct NewClientRun {
    pub tenant: Tenant,
    pub caller: Caller,
    pub run: RunId,
    /// What the client calls what it does.
    pub name: WorkflowName,
    pub input: CanonicalJson,
    /// How long it may be silent. `None`: for ever.
    pub lease: Option<Duration>,
}

impl Runtime {
    /// Records the run. The same id with the same name and input is the same run. `true`: it is new.
    pub async fn open_client_run(&self, new: NewClientRun) -> Result<bool, RunError> {
        Ok(self.open_client_run_beside(new, &RunBeside::default()).await?.heard == Heard::Now)
    }

    /// With writes that hold or fall with it.
    pub async fn open_client_run_beside(&self, new: NewClientRun, beside: &RunBeside) -> Result<After, RunError> {
        let lease_ms = new.lease.map(checked).transpose()?;
        let now = self.now();
        let started = Arc::new(Started {
            at: now,
            tenant: new.tenant.clone(),
            run: new.run.clone(),
            caller: new.caller.clone(),
            definition: Digest32::of_fields("counterfoil/client-run/1", &[new.name.as_str().as_bytes()]),
            workflow: new.name.clone(),
            by: By::Client,
            input: new.input.clone(),
            parent: None,
            forked: None,
            tools: None,
            deadline: None,
            lease_ms,
            retain_ms: u64::try_from(RETAIN.as_millis()).unwrap_or(u64::MAX),
        });
        let due = new.lease.map(|lease| now + lease);
        let workflow = Arc::new(Workflow::without_plan(&new.name));
        self.record_start(started, workflow, None, Some(Second::Parked { due }), beside).await
    }

    /// The client of a run is alive.
    pub async fn beat_run(&self, tenant: &Tenant, run: &RunId, beside: &RunBeside) -> Result<After, RunError> {
        self.tell_run(tenant, run, beside, |facts, _| {
            open(facts, run)?;
            let due = facts.started.lease_ms.map(|lease| self.now() + Duration::from_millis(lease));
            Ok(due.map(|due| RunEntry::Parked { at: self.now(), due: Some(due), unconfirmed: false }))
        })
        .await
    }

    /// The client says that its run is over. Said again, it is the same; said otherwise, it is refused.
    pub async fn finish_run(&self, tenant: &Tenant, run: &RunId, how: RunEnd) -> Result<Heard, RunError> {
        Ok(self.finish_run_beside(tenant, run, how, &RunBeside::default()).await?.heard)
    }

    /// With writes that hold or fall with it.
    pub async fn finish_run_beside(&self, tenant: &Tenant, run: &RunId, how: RunEnd, beside: &RunBeside) -> Result<After, RunError> {
        self.tell_run(tenant, run, beside, |facts, _| {
            if facts.finish.as_ref() == Some(&how) {
                return Ok(None);
            }
            open(facts, run)?;
            if matches!(how, RunEnd::Completed { .. }) && !facts.running.is_empty() {
                let hint = "it has steps that have not ended: commit or fail them first";
                return Err(RunError::WrongState { run: run.clone(), state: facts.state().word(), hint });
            }
            Ok(Some(RunEntry::FinishAsked { at: self.now(), how: how.clone() }))
        })
        .await
    }

    /// A permit is asked for a step of a run: the run knows it from now on. A run that is over or stopped gives none.
    pub(crate) async fn begin_client_step(&self, task: &Task) -> Result<(), Box<Answer>> {
        let (Some(run), Some(step)) = (&task.call.run, &task.call.step) else { return Ok(()) };
        let told = self
            .tell_run(&task.call.tenant, run, &RunBeside::default(), |facts, _| {
                if facts.started.by != By::Client || facts.step(step).is_some() {
                    return Ok(None);
                }
                open(facts, run)?;
                let what = Began::Effect { tool: task.tool.name.clone(), key: task.key, pure: false };
                Ok(Some(RunEntry::StepBegan { at: self.now(), step: step.clone(), what }))
            })
            .await;
        match told {
            // A run id that is a name and no more.
            Ok(_) | Err(RunError::NotFound(_) | RunError::Archived { .. }) => Ok(()),
            Err(RunError::Ledger(error)) => Err(Box::new(ledger_answer(&error, None))),
            Err(error) => Err(Box::new(Answer::refused(error.code(), error.to_string()))),
        }
    }

    /// What a client reported is the end of its step.
    pub(crate) async fn end_client_step(&self, key: EffectKey) -> Result<(), RunError> {
        let effect = self.inner.ledger.load(key).await?;
        let Some(opened) = &effect.opened else { return Ok(()) };
        let (Some(run), Some(step), Some(how)) = (&opened.run, &opened.step, step_end(&effect)) else { return Ok(()) };
        let told = self
            .tell_run(&opened.tenant, run, &RunBeside::default(), |facts, _| {
                let ours = facts.started.by == By::Client && facts.running.contains(step) && facts.effect(step) == Some(key);
                Ok(ours.then(|| RunEntry::StepEnded { at: self.now(), step: step.clone(), how: how.clone() }))
            })
            .await;
        match told {
            Ok(_) | Err(RunError::NotFound(_) | RunError::Archived { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Sees to what a client cannot: a run that is cancelled, over, or left alone.
    pub(super) async fn drive_client(&self, book: Arc<Book>) -> Result<Rest, RunError> {
        if book.lock().over() {
            return Ok(Rest::Ended);
        }
        let running: Vec<EffectKey> = {
            let pages = book.lock();
            pages.run.running.iter().filter_map(|step| pages.run.effect(step)).collect()
        };
        for key in running {
            self.end_client_step(key).await?;
        }
        book.renew(self).await?;
        let how = {
            let run = &book.lock().run;
            let lost = lease_over(run, self.now());
            match (&run.end, &run.cancel, &run.finish) {
                (Some(_), ..) => None,
                (None, Some(_), _) => Some(RunEnd::Cancelled),
                (None, None, Some(how)) => Some(how.clone()),
                (None, None, None) if lost => {
                    let failure = Failure::new("client_lost", "the client that drives the run fell silent, and its lease ran out");
                    Some(RunEnd::Failed { failure })
                }
                (None, None, None) => return Ok(Rest::Parked { due: run.due() }),
            }
        };
        if !book.own(self).await? {
            return Ok(Rest::Elsewhere);
        }
        let shared = Shared::new(self.clone(), book.clone());
        let decided = book.lock().run.finish.is_some() || book.lock().run.cancel.is_some();
        if let (Some(how), false) = (&how, decided) {
            // The client is lost: it stays so, also if it comes back while this is worked on.
            let entry = RunEntry::FinishAsked { at: self.now(), how: how.clone() };
            shared.record(|run| run.note(&entry).map(|()| vec![entry.clone()])).await?;
        }
        if let Some(how) = &how {
            self.stop_all(&shared, &book).await?;
            self.trigger(&shared, how).await?;
        }
        if let Unwinding::Held(until) = self.unwind_function(&shared).await? {
            return self.park(&shared, Some(until)).await;
        }
        if let Some(how) = how {
            let entry = RunEntry::RunEnded { at: self.now(), how };
            shared.record(|run| run.note(&entry).map(|()| vec![entry.clone()])).await?;
        }
        observe::run_ended(book.lock().run.state().word());
        Ok(Rest::Ended)
    }
}

/// A client's run that takes more steps.
fn open(facts: &Run, run: &RunId) -> Result<(), RunError> {
    let wrong = |hint| RunError::WrongState { run: run.clone(), state: facts.state().word(), hint };
    if facts.started.by != By::Client {
        return Err(wrong("it is not driven by a client"));
    }
    if facts.cancel.is_some() {
        return Err(wrong("it was cancelled"));
    }
    if facts.end.is_some() || facts.finish.is_some() || facts.saga().is_some() {
        return Err(wrong("it is over"));
    }
    Ok(())
}

fn lease_over(run: &Run, now: Timestamp) -> bool {
    let (Some(lease), Some(heard)) = (run.started.lease_ms, run.parked) else { return false };
    heard + Duration::from_millis(lease) <= now
}

fn checked(lease: Duration) -> Result<u64, RunError> {
    if !(LEASE_MIN..=LEASE_MAX).contains(&lease) {
        return Err(RunError::Lease(format!(
            "a lease of {lease:?} is not possible: from {LEASE_MIN:?} to {LEASE_MAX:?}, extended by heartbeats"
        )));
    }
    Ok(u64::try_from(lease.as_millis()).unwrap_or(u64::MAX))
}
