//! Due and unfinished effects, through the same loop as a live call.
//!
//! A lease that ran out becomes a doubt, a doubt goes up its ladder as far as it can without a person, an approved call runs, an interrupted undo
//! goes on. There is no recovery logic here: only the question what is due.

use std::time::Duration;

use counterfoil_core::effect::State;
use counterfoil_core::retry::Series;
use counterfoil_core::{Call, EffectKey};

use crate::answer::Answer;
use crate::ledger::LedgerError;
use crate::liveness::Liveness;
use crate::runtime::{Runtime, Task};

/// Effects looked at in one round.
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

impl Runtime {
    /// Looks once at everything that is due, and at what dead workers of this machine were running.
    pub async fn recover(&self) -> Result<Vec<Recovered>, LedgerError> {
        let mut recovered = Vec::new();
        let mut keys = self.inner.ledger.due(Duration::ZERO, ROUND_MAX).await?;
        keys.extend(self.orphans().await?);
        for key in keys {
            let effect = self.inner.ledger.load(key).await?;
            let was = effect.state.word();
            if let Some(answer) = self.resume(key).await? {
                recovered.push(Recovered { key, was, answer });
            }
        }
        Ok(recovered)
    }

    /// Effects whose worker is certainly dead although its lease still runs.
    async fn orphans(&self) -> Result<Vec<EffectKey>, LedgerError> {
        let mut orphans = Vec::new();
        if let Liveness::Leases = self.inner.liveness {
            return Ok(orphans);
        }
        let now = self.inner.clock.now();
        for key in self.inner.ledger.due(LEASE_AHEAD, ROUND_MAX).await? {
            let effect = self.inner.ledger.load(key).await?;
            // A lease that has run out is due by itself.
            let leased = matches!(&effect.state, State::Running(claim) if now < claim.lease_until);
            if leased && self.inner.holder_gone(&effect) {
                orphans.push(key);
            }
        }
        Ok(orphans)
    }

    /// Recovers for as long as the runtime lives: at once, then every `every`. Abort the task to stop it.
    pub fn recover_forever(&self, every: Duration) -> tokio::task::JoinHandle<()> {
        let runtime = self.clone();
        tokio::spawn(async move {
            loop {
                match runtime.recover().await {
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

    /// Goes on with a recorded effect from what the ledger knows of it. `None`: its tool is not registered here.
    pub async fn resume(&self, key: EffectKey) -> Result<Option<Answer>, LedgerError> {
        let effect = self.inner.ledger.load(key).await?;
        if let State::Undoing { .. } = effect.state {
            return self.continue_undo(effect).await.map(Some);
        }
        let Some(task) = self.recorded_task(&effect) else { return Ok(None) };
        Ok(Some(self.settle(task, effect).await))
    }

    /// The call as it was recorded. Redacted arguments are not the arguments: such a call can be probed, not dispatched.
    pub(crate) fn recorded_task(&self, effect: &counterfoil_core::Effect) -> Option<Task> {
        let opened = effect.opened.as_ref()?;
        let tool = self.inner.tools.get(&opened.tool)?;
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
        let series = Series { attempts: 0, probes: 0, deadline: now + tool.policy.deadline };
        let wait_until = now + tool.policy.wait_max;
        let stored = call.args.clone();
        Some(Task { tool, call, stored, key: effect.key, family: None, series, wait_until, runnable: !opened.redacted })
    }
}
