//! Whether the world still agrees with what is recorded of an effect: asked of its tool's verifier, and of nothing else.
//!
//! What must stay true: no tool is called and nothing is recorded here; what is in doubt is not asked about, since nobody knows what there would be to
//! agree with; what the other side said is told without secrets.

use counterfoil_core::effect::State;
use counterfoil_core::run::confirm::Finding;
use counterfoil_core::{Effect, EffectKey};

use crate::conclude::scrubbed;
use crate::drive::invocation;
use crate::execute;
use crate::ledger::LedgerError;
use crate::observe;
use crate::operate::OperateError;
use crate::runtime::{Runtime, Task};
use crate::tool::{Invocation, Recorded, Stop};

impl Runtime {
    /// Holds one effect against the world.
    pub async fn verify(&self, key: EffectKey) -> Result<(Effect, Finding), OperateError> {
        let effect = self.effect(key).await?;
        match self.held_against_the_world(&effect).await? {
            Some(finding) => Ok((effect, finding)),
            None => {
                let state = effect.state.word();
                Err(OperateError::WrongState { key, state, hint: "only what was done and not undone can be verified" })
            }
        }
    }

    /// `None`: there is nothing to hold, since it was not done, or was undone.
    pub(crate) async fn held_against_the_world(&self, effect: &Effect) -> Result<Option<Finding>, LedgerError> {
        let unverified = |why: &str| Ok(Some(Finding::Unverified { why: why.to_owned() }));
        if effect.expired {
            return unverified("what is known of the effect was pruned");
        }
        let done = match &effect.state {
            State::Done(done) => done,
            State::Cancelled { late: None, .. } if effect.doubtful() => return Ok(Some(Finding::InDoubt)),
            State::InDoubt(_) => return Ok(Some(Finding::InDoubt)),
            // Nobody says how it ended: as much a doubt as one that is recorded as such.
            State::Running(claim) if self.now() >= claim.lease_until || self.inner.holder_gone(effect) => {
                return Ok(Some(Finding::InDoubt));
            }
            _ => return Ok(None),
        };
        let Some(task) = self.recorded_call(effect) else {
            let tool = effect.opened.as_ref().map(|opened| opened.tool.to_string()).unwrap_or_default();
            return Ok(Some(Finding::Unavailable { why: format!("the tool {tool} is not registered here") }));
        };
        if !task.tool.tool.can_verify() {
            return unverified("its tool has no verifier");
        }
        let invocation = invocation(&task.tool, &task.call, effect.sent_key(), done.attempt, Stop::default());
        let recorded = Recorded { result: done.result.clone(), state_changed: done.state_changed.clone() };
        let finding = execute::verify(&*task.tool.tool, invocation.clone(), recorded).await;
        observe::verified(finding.word());
        Ok(Some(self.told(&task, &invocation, finding).await?))
    }

    /// The other side may have repeated what it was once given.
    async fn told(&self, task: &Task, invocation: &Invocation, finding: Finding) -> Result<Finding, LedgerError> {
        if task.tool.policy.redact.is_empty() {
            return Ok(finding);
        }
        let salt = self.inner.salt(&task.call.tenant).await?;
        let told = |text: String| scrubbed(&task.tool, invocation, &text, Some(&salt));
        Ok(match finding {
            Finding::Drifted { expected, found } => Finding::Drifted { expected: told(expected), found: told(found) },
            Finding::Unavailable { why } => Finding::Unavailable { why: told(why) },
            Finding::Unverified { why } => Finding::Unverified { why: told(why) },
            finding @ (Finding::Verified | Finding::InDoubt) => finding,
        })
    }
}
