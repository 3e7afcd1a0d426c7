//! Calls that run without the ledger's protection: of pure tools, with the mode off, and in shadow what would have been stopped.
//!
//! Nothing of them is recorded, and they are answered as what they are. Only live calls come here.

use counterfoil_core::effect::WorldSemantics;
use counterfoil_core::{Call, Decision, Effect, Fence, Outcome, TraceContext};
use tracing::Instrument;

use crate::answer::{Answer, Ending, Status};
use crate::drive::invocation;
use crate::execute;
use crate::mode::Stopped;
use crate::observe::{Served, decision_word};
use crate::registry::Registered;
use crate::runtime::{Runtime, Task, Told};
use crate::tool::{Invocation, Stop};
use crate::trace;
use crate::undropped::Undropped;

impl Runtime {
    /// Shadow mode: a live call is never stopped, only told of. Recovery, undo and operators do not come through here: they always enforce.
    pub(crate) async fn let_through(&self, mut task: Box<Task>, effect: Effect) -> Told {
        let stopped = match self.inner.decide(&task, &effect) {
            Ok(Decision::Execute(_)) => None,
            Ok(decision) => {
                let stopped = match &decision {
                    Decision::Replay => Stopped::Replayed,
                    Decision::Refuse(_) => Stopped::Refused,
                    _ => Stopped::Held,
                };
                Some((stopped, decision_word(&decision)))
            }
            Err(_) => Some((Stopped::Refused, "refuse")),
        };
        if let Some((stopped, decision)) = stopped {
            return self.shadow(&task, stopped, decision, &format!("the effect is {}", effect.state.word())).await;
        }
        let (runtime, limited) = (self.clone(), task.tool.policy.limits.shared());
        let going_on = Box::pin(async move {
            match runtime.inner.drive(&mut task, effect).await {
                // Limits and breakers stop nothing either.
                Ok((_, Ending::NotAdmitted(_, error))) => runtime.shadow(&task, Stopped::Refused, &error.code, &error.message).await,
                driven => runtime.inner.dress(&task, driven),
            }
        });
        Undropped::polled(limited, self.inner.beyond(), going_on).await
    }

    pub(crate) async fn unrecorded(&self, tool: &Registered, call: &Call, within: Option<&TraceContext>) -> Told {
        let key = call.fresh_key(&self.inner.fresh.nonce());
        let trace = within.map(|within| self.inner.fresh.below(within));
        let span = trace::attempt_span(1, Fence(0), within, trace.as_ref());
        let invocation = Invocation { trace, ..invocation(tool, call, key, 1, Stop::default()) };
        let attempting = span.in_scope(|| execute::unrecorded(&*tool.tool, invocation));
        let outcome = attempting.instrument(span.clone()).await;
        trace::attempted(&span, &outcome);
        self.inner.meters.of(&tool.name).attempted(&outcome);
        let blank = Answer { attempt: 1, ..Answer::refused("", "") };
        let answer = match outcome {
            Outcome::Done(success) => {
                let world = if tool.is_pure() { WorldSemantics::Pure } else { WorldSemantics::SideEffectCommitted };
                Answer {
                    status: Status::Success,
                    data: Some(success.result),
                    error: None,
                    flags: success.flags,
                    outcome: world.word(),
                    ..blank
                }
            }
            Outcome::NotDone(failure) => {
                Answer { error: Some((&failure).into()), outcome: WorldSemantics::PermanentFailure.word(), ..blank }
            }
            Outcome::Unknown(failure) => {
                let status = if failure.code == "timeout" { Status::Timeout } else { Status::Error };
                let world = if tool.is_pure() { WorldSemantics::PermanentFailure } else { WorldSemantics::InDoubt };
                Answer { status, error: Some((&failure).into()), outcome: world.word(), ..blank }
            }
        };
        Told { answer, served: Served::Ran { recorded: false } }
    }

    /// What shadow mode does instead of stopping a call: says so, and runs it unprotected.
    async fn shadow(&self, task: &Task, stopped: Stopped, decision: &str, why: &str) -> Told {
        tracing::warn!(effect = %task.key, tool = %task.tool.name, decision, why, "shadow: this call would have been stopped; it runs unprotected");
        self.inner.modes.count(stopped);
        self.inner.meters.of(&task.tool.name).shadowed(decision);
        self.unrecorded(&task.tool, &task.call, task.trace.as_ref()).await
    }
}
