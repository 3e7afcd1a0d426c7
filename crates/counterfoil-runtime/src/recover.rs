//! Due and unfinished effects, through the same loop as a live call.
//!
//! A lease that ran out becomes a doubt, a doubt goes up its ladder as far as it can without a person, an approved call runs, an interrupted undo
//! goes on. There is no recovery logic here: only the question what is due.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::effect::State;
use counterfoil_core::run::schedule::{Became, is_schedule};
use counterfoil_core::run::{OWNER_LEASE, is_run};
use counterfoil_core::{Call, Effect, EffectKey, StreamId};
use counterfoil_store::Reach;
use futures_util::{StreamExt, stream};
use tokio::time::Instant;

use crate::answer::Answer;
use crate::engine::RunError;
use crate::ledger::LedgerError;
use crate::liveness::Liveness;
use crate::runtime::{Runtime, Task};

/// Effects looked at at once.
const AT_ONCE_MAX: usize = 16;

/// Runs that are looked at for one look at what is due.
const RUNS_MAX: usize = 100_000;

/// Effects asked for at a time.
const ROUND_MAX: usize = 100;

/// Claims whose lease ends within this are asked about their worker. Longer than a lease should be; a longer one is waited out.
const LEASE_AHEAD: Duration = Duration::from_secs(3600);

/// What recovery did with one effect.
#[derive(Debug)]
pub struct Recovered {
    pub key: EffectKey,
    pub was: &'static str,
    pub answer: Answer,
}

/// What to do about runs that are due.
#[derive(Clone, Copy)]
enum Runs<'a> {
    /// This process is a worker: it goes on with these, which are due, or whose worker may be dead.
    Driven(&'a HashSet<EffectKey>),
    Left,
}

impl Runtime {
    /// Looks once at everything that is due, and at what dead workers of this machine were running.
    pub async fn recover(&self) -> Result<Vec<Recovered>, LedgerError> {
        self.recover_all(Runs::Left).await
    }

    async fn recover_all(&self, runs: Runs<'_>) -> Result<Vec<Recovered>, LedgerError> {
        let mut recovered = Vec::new();
        let mut seen = HashSet::new();
        // Without locks only leases tell who is dead, and a lease that ran out is due by itself.
        let ahead = if let Liveness::Leases = self.inner.liveness { Duration::ZERO } else { LEASE_AHEAD };
        loop {
            // What was looked at may be due still: ask for more than that.
            let due = self.inner.ledger.due(ahead, seen.len() + ROUND_MAX).await?;
            let fresh: Vec<EffectKey> = due.into_iter().filter(|key| seen.insert(*key)).collect();
            if fresh.is_empty() {
                return Ok(recovered);
            }
            let looked = stream::iter(fresh).map(|key| self.look_at(key, runs)).buffer_unordered(AT_ONCE_MAX);
            recovered.extend(looked.filter_map(std::future::ready).collect::<Vec<_>>().await);
        }
    }

    /// One that cannot be read holds up none of the others.
    async fn look_at(&self, key: EffectKey, runs: Runs<'_>) -> Option<Recovered> {
        let looked = async {
            let newest = self.inner.ledger.records(StreamId::effect(&key), Reach::Newest(1)).await?;
            if newest.records.last().is_some_and(|record| is_run(&record.body)) {
                if let Runs::Driven(near) = runs
                    && near.contains(&key)
                {
                    self.drive_if_due(StreamId::effect(&key)).await?;
                }
                return Ok(None);
            }
            if newest.records.last().is_some_and(|record| is_schedule(&record.body)) {
                if let Runs::Driven(near) = runs
                    && near.contains(&key)
                {
                    self.tick_and_drive(StreamId::effect(&key)).await?;
                }
                return Ok(None);
            }
            let effect = self.inner.ledger.load(key).await?;
            let answer = if self.ripe(&effect) { self.resume(key).await? } else { None };
            Ok::<_, LedgerError>(answer.map(|answer| Recovered { key, was: effect.state.word(), answer }))
        };
        looked.await.unwrap_or_else(|error| {
            tracing::error!(effect = %key, %error, "this effect cannot be recovered");
            None
        })
    }

    async fn tick_and_drive(&self, schedule: StreamId) -> Result<(), LedgerError> {
        match self.tick_if_due(schedule).await {
            Ok(dealt) => {
                for one in dealt {
                    if let Became::Started { run } = one.ticked.what {
                        self.spawn_run(one.schedule.tenant, run);
                    }
                }
            }
            Err(RunError::Ledger(error)) => return Err(error),
            Err(error) => tracing::error!(stream = %schedule, %error, "this schedule could not go on"),
        }
        Ok(())
    }

    /// Due by now, or held by a worker that is certainly dead although its lease still runs.
    fn ripe(&self, effect: &Effect) -> bool {
        self.inner.silences.note(effect);
        let due = effect.opened.is_some() && effect.summary().due.is_some_and(|due| due <= self.inner.clock.now());
        due || self.inner.holder_gone(effect)
    }

    /// Recovers for as long as the runtime lives: at once, then every `every`; and drives the runs that are due. Abort the task to stop it.
    pub fn recover_forever(&self, every: Duration) -> tokio::task::JoinHandle<()> {
        let runtime = self.clone();
        tokio::spawn(async move {
            loop {
                match runtime.work_once().await {
                    Ok(recovered) => {
                        for one in recovered {
                            tracing::info!(effect = %one.key, was = one.was, now = ?one.answer.status, "recovered");
                        }
                    }
                    Err(error) => tracing::error!(%error, "recovery could not read the ledger"),
                }
                tokio::time::sleep(every).await;
            }
        })
    }

    async fn work_once(&self) -> Result<Vec<Recovered>, LedgerError> {
        // A run is read whole to be looked at, so only those are that may need it now.
        let near: HashSet<EffectKey> = self.inner.ledger.due(OWNER_LEASE, RUNS_MAX).await?.into_iter().collect();
        self.recover_all(Runs::Driven(&near)).await
    }

    /// Goes on with a recorded effect from what the ledger knows of it. `None`: its tool is not registered here.
    pub async fn resume(&self, key: EffectKey) -> Result<Option<Answer>, LedgerError> {
        let started = Instant::now();
        let effect = self.inner.ledger.load(key).await?;
        if let State::Undoing { .. } = effect.state {
            let told = self.continue_undo(effect).await?;
            return Ok(Some(self.stamped(started.elapsed(), told.answer)));
        }
        let Some(mut task) = self.recorded_task(&effect).await? else { return Ok(None) };
        // Nobody waits for this answer: what is not ripe yet is looked at again. Only whether its holder is lost is found out now.
        let listening = !self.inner.listened_for(&effect, &task.tool.policy).is_zero();
        task.wait_until = self.inner.clock.now() + if listening { task.tool.policy.lease } else { Duration::ZERO };
        task.awaited = false;
        let told = self.settle_traced(task, effect.clone()).await;
        if effect.opened.as_ref().is_some_and(|opened| opened.run.is_some()) && self.inner.ledger.load(key).await?.version != effect.version
        {
            self.stir_run_of(&effect).await?;
        }
        Ok(Some(self.stamped(started.elapsed(), told.answer)))
    }

    /// The call as it was recorded; of a run's step, with what the step says in place of the tool's own. `None`: its tool is not known here.
    pub(crate) async fn recorded_task(&self, effect: &Effect) -> Result<Option<Box<Task>>, LedgerError> {
        let Some(mut task) = self.recorded_call(effect) else { return Ok(None) };
        if let Some((tool, wanted)) = self.tool_of_step(effect).await? {
            task.tool = tool.map_or(task.tool, Arc::new);
            // What its run has given up is asked about, and not done.
            task.runnable &= wanted;
            task.aside = Some(self.clone());
        }
        Ok(Some(task))
    }

    /// The call as it was recorded. Redacted arguments are not the arguments: such a call can be probed, not dispatched.
    pub(crate) fn recorded_call(&self, effect: &Effect) -> Option<Box<Task>> {
        let opened = effect.opened.as_ref()?;
        let tool = self.inner.tools.get(&opened.tenant, &opened.tool)?;
        let now = self.inner.clock.now();
        let call = Call {
            tenant: opened.tenant.clone(),
            caller: opened.caller.clone(),
            tool: opened.tool.clone(),
            args: opened.args.clone(),
            key: None,
            run: opened.run.clone(),
            step: opened.step.clone(),
            ordinal: 0,
        };
        let stored = call.args.clone();
        let mut task = Task::new(tool, call, stored, effect.key, now);
        task.runnable = !opened.redacted;
        Some(task)
    }
}
