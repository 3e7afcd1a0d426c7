//! What the ledger makes of an attempt's answer: done, failed, to be tried again, or in doubt.
//!
//! Decides with values and leaves the writing to the ledger. Whatever happened is kept, also when it is not what was promised: an output that
//! violates its schema is flagged, not refused. A doubt about something that only reads is no doubt: reading again does no harm.

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::effect::Effect;
use counterfoil_core::entry::{Ended, Entry, Probed, UndoCall};
use counterfoil_core::ids::Digest32;
use counterfoil_core::outcome::Flag;
use counterfoil_core::policy::EffectClass;
use counterfoil_core::redact::{Salt, redact_args, redact_json, scrub, scrub_json, secrets};
use counterfoil_core::retry::{self, Series};
use counterfoil_core::{Failure, Json, Outcome, Success, Timestamp};

use crate::ledger::{Ending, Ledger, LedgerError, Permit, Sealed, evidence, next_receipt};
use crate::liveness::Unsettled;
use crate::registry::Registered;
use crate::tool::{Invocation, ProbeAnswer};

/// How long between tries to bring in a report that could not be recorded.
const KEEP_TRYING_EVERY: Duration = Duration::from_millis(500);

/// An attempt that ended, and what is needed to judge it.
pub(crate) struct Concluding<'a> {
    pub tool: &'a Arc<Registered>,
    pub invocation: &'a Invocation,
    pub series: Series,
    pub outcome: &'a Outcome,
    pub salt: Option<&'a Salt>,
    pub jitter: f64,
}

/// The same, for a report that outlives its call.
pub(crate) struct Concluded {
    tool: Arc<Registered>,
    invocation: Invocation,
    series: Series,
    outcome: Outcome,
    salt: Option<Salt>,
    jitter: f64,
}

impl Concluding<'_> {
    pub(crate) fn into_owned(self) -> Concluded {
        Concluded {
            tool: self.tool.clone(),
            invocation: self.invocation.clone(),
            series: self.series,
            outcome: self.outcome.clone(),
            salt: self.salt.cloned(),
            jitter: self.jitter,
        }
    }

    fn ending(&self, effect: &Effect, now: Timestamp) -> Ending {
        let policy = &self.tool.policy;
        let receipt = next_receipt(effect);
        let outcome = self.judged();
        let undo = match &outcome {
            Outcome::Done(success) => self.undo(&success.result),
            _ => None,
        };
        let late = evidence(&outcome, undo.clone());
        let outcome = match outcome {
            Outcome::Done(success) => Ended::Done { success, undo, receipt },
            Outcome::NotDone(failure) if !failure.retriable => Ended::Failed { failure, receipt },
            Outcome::NotDone(failure) => {
                let next = retry::next(&policy.retry, self.series, &failure, now, self.jitter);
                // While an earlier attempt is in doubt, a failed repeat ends nothing: no receipt.
                let ends = next.exhausted && !effect.doubtful();
                Ended::Retry { failure, not_before: next.not_before, receipt: ends.then_some(receipt) }
            }
            Outcome::Unknown(failure) => {
                let next = retry::next(&policy.retry, self.series, &failure, now, self.jitter);
                Ended::Unknown { failure, not_before: next.not_before }
            }
        };
        Ending { outcome, evidence: late }
    }

    fn judged(&self) -> Outcome {
        let policy = &self.tool.policy;
        match self.outcome.clone() {
            Outcome::Done(success) => {
                let flags = self.flags(&success);
                Outcome::Done(Success { result: redacted(self.tool, self.invocation, &success.result, self.salt), flags })
            }
            Outcome::NotDone(failure) => Outcome::NotDone(self.told(failure)),
            Outcome::Unknown(failure) if policy.effect != EffectClass::Write => {
                Outcome::NotDone(Failure { retriable: true, ..self.told(failure) })
            }
            Outcome::Unknown(failure) => Outcome::Unknown(self.told(failure)),
        }
    }

    /// A failure as it may be kept: the other side may have echoed what it was given.
    fn told(&self, failure: Failure) -> Failure {
        if self.tool.policy.redact.is_empty() {
            return failure;
        }
        let secrets = secrets(&self.invocation.args, &self.tool.policy.redact);
        let detail = failure.detail.as_ref().map(|detail| redacted(self.tool, self.invocation, detail, self.salt));
        Failure { message: scrub(&failure.message, &secrets), detail, ..failure }
    }

    fn flags(&self, success: &Success) -> Vec<Flag> {
        let truncated = success.flags.iter().any(|f| matches!(f, Flag::Truncated { .. }));
        let violated = match &self.tool.output {
            Some(schema) if !truncated => schema.violations(&success.result.to_value()).map(Flag::OutputSchemaViolated),
            _ => None,
        };
        success.flags.iter().cloned().chain(violated).collect()
    }

    fn undo(&self, result: &Json) -> Option<UndoCall> {
        undo_call(self.tool, self.invocation, result, self.salt)
    }
}

/// What the world said, as it may be kept: without what the policy names, and without an echo of it elsewhere.
pub(crate) fn redacted(tool: &Registered, invocation: &Invocation, json: &Json, salt: Option<&Salt>) -> Json {
    let paths = &tool.policy.redact;
    match salt {
        Some(salt) if !paths.is_empty() => scrub_json(&redact_json(json, paths, salt), &secrets(&invocation.args, paths)),
        _ => json.clone(),
    }
}

fn undo_call(tool: &Registered, invocation: &Invocation, result: &Json, salt: Option<&Salt>) -> Option<UndoCall> {
    match tool.tool.undo_plan(invocation, result) {
        Ok(plan) => plan.map(|plan| UndoCall {
            tool: plan.tool,
            args: match salt {
                Some(salt) => redact_args(&plan.args, &tool.policy.redact, salt),
                None => plan.args,
            },
        }),
        Err(error) => {
            // It happened; that its undo cannot be worked out does not change that. The operator sees that there is none.
            tracing::error!(effect = %invocation.key, tool = %tool.name, %error, "the undo of this effect cannot be worked out");
            None
        }
    }
}

pub(crate) async fn finish(ledger: &Ledger, permit: &Permit, concluding: &Concluding<'_>) -> Result<Effect, LedgerError> {
    ledger.finish(permit, |effect, now| concluding.ending(effect, now)).await
}

/// Brings a report in when the store is back. Until then the effect is in doubt for everyone else.
pub(crate) fn keep_trying(ledger: Arc<Ledger>, permit: Permit, concluded: Concluded, unsettled: Unsettled) {
    tracing::error!(effect = %permit.key(), "an outcome could not be recorded; it is kept in memory and tried again");
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(KEEP_TRYING_EVERY).await;
            let concluding = Concluding {
                tool: &concluded.tool,
                invocation: &concluded.invocation,
                series: concluded.series,
                outcome: &concluded.outcome,
                salt: concluded.salt.as_ref(),
                jitter: concluded.jitter,
            };
            match finish(&ledger, &permit, &concluding).await {
                Ok(effect) => {
                    unsettled.settled();
                    tracing::warn!(effect = %effect.key, state = effect.state.word(), "the outcome is recorded after all");
                    return;
                }
                Err(LedgerError::Fold { source, .. }) => {
                    tracing::error!(effect = %permit.key(), %source, "the outcome cannot be recorded");
                    return;
                }
                Err(_) => {}
            }
        }
    });
}

/// Records what a probe learned.
pub(crate) async fn probed(
    ledger: &Ledger,
    effect: &Effect,
    tool: &Registered,
    invocation: &Invocation,
    answer: ProbeAnswer,
    salt: Option<&Salt>,
    now: Timestamp,
) -> Result<Effect, LedgerError> {
    let (answer, sealed) = match answer {
        ProbeAnswer::Happened(success) => {
            let result = redacted(tool, invocation, &success.result, salt);
            let undo = undo_call(tool, invocation, &success.result, salt);
            let sealed = Sealed { outcome: "probed_happened", result: result.digest(), by: None, started: now, ended: now };
            (Probed::Happened { result, undo, receipt: next_receipt(effect) }, Some(sealed))
        }
        ProbeAnswer::DidNotHappen => (Probed::DidNotHappen, None),
        ProbeAnswer::CannotTell(why) => (Probed::CannotTell(why), None),
    };
    ledger.record(effect, vec![Entry::Probed { at: now, answer }], sealed).await
}

/// The receipt of a fact that time made true: an approval that nobody gave ends the effect, a lost lease does not.
pub(crate) fn seal_of_fact(entry: &Entry) -> Option<Sealed<'_>> {
    match entry {
        Entry::Denied { at, by, why, .. } => {
            Some(Sealed { outcome: "denied", result: Digest32::of(why.as_bytes()), by: Some(by), started: *at, ended: *at })
        }
        _ => None,
    }
}
