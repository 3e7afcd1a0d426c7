//! Due and unfinished effects, through the same loop as a live call.
//!
//! A lease that ran out becomes a doubt, a doubt goes up its ladder as far as it can without a person, an approved call runs, an interrupted undo
//! goes on. There is no recovery logic here: only the question what is due.

use std::collections::HashSet;
use std::time::Duration;

use counterfoil_core::effect::State;
use counterfoil_core::retry::Series;
use counterfoil_core::{Call, EffectKey, Timestamp};

use crate::answer::Answer;
use crate::ledger::LedgerError;
use crate::runtime::{Runtime, Task};

/// Effects taken from the ledger at a time.
const SLICE: usize = 100;
/// Effects looked through for claims of dead workers. Their leases are the oldest, so they come first.
const CLAIMS_LOOKED_AT_MAX: usize = 1000;

/// What recovery did with one effect.
#[derive(Debug)]
pub struct Recovered {
    pub key: EffectKey,
    pub was: &'static str,
    pub answer: Answer,
}

impl Runtime {
    /// Looks once at everything that is due, and at what dead workers of this machine left behind.
    pub async fn recover(&self) -> Result<Vec<Recovered>, LedgerError> {
        let mut recovered = Vec::new();
        let mut looked_at = HashSet::new();
        let mut keys = self.left_behind().await?;
        loop {
            // Beyond what is still due after a look at it (an undo that waits for its breaker): that must not hide the rest.
            keys.extend(self.inner.ledger.due(SLICE + looked_at.len()).await?);
            keys.retain(|key| looked_at.insert(*key));
            if keys.is_empty() {
                return Ok(recovered);
            }
            for key in keys.drain(..) {
                let was = self.inner.ledger.load(key).await?.state.word();
                if let Some(answer) = self.resume(key).await? {
                    recovered.push(Recovered { key, was, answer });
                }
            }
        }
    }

    /// Claims whose holder is certainly dead: their leases need not be waited out.
    async fn left_behind(&self) -> Result<Vec<EffectKey>, LedgerError> {
        let mut keys = Vec::new();
        if self.inner.liveness.knows_the_dead() {
            for key in self.inner.ledger.due_by(Timestamp::MAX, CLAIMS_LOOKED_AT_MAX).await? {
                if self.inner.holder_gone(&self.inner.ledger.load(key).await?) {
                    keys.push(key);
                }
            }
        }
        Ok(keys)
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
