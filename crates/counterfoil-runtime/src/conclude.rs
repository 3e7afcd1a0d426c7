//! What the ledger makes of an attempt's answer: done, failed, to be tried again, or in doubt.
//!
//! Decides with values and leaves the writing to the ledger. Whatever happened is kept, also when it is not what was promised: an output that
//! violates its schema is flagged, not refused. A doubt about something that only reads is no doubt: reading again does no harm.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::echo::Echo;
use counterfoil_core::effect::{Effect, State};
use counterfoil_core::entry::{Claim, Ended, Entry, Probed, UndoCall};
use counterfoil_core::ids::Digest32;
use counterfoil_core::outcome::Flag;
use counterfoil_core::policy::EffectClass;
use counterfoil_core::redact::{Salt, holds_digest, redact_json, scrub, scrub_json, secrets};
use counterfoil_core::retry::{self, Series};
use counterfoil_core::{EffectKey, Failure, Json, Outcome, StateChanged, Success, Timestamp};

use crate::ledger::{Ending, Ledger, LedgerError, Permit, Reported, Said, Sealed, evidence, next_receipt};
use crate::liveness::Unsettled;
use crate::registry::Registered;
use crate::reports::Report;
use crate::tool::{Invocation, ProbeAnswer, UndoPlan};

/// How long between tries to bring in a report that could not be recorded: at first, and at most.
const TRY_AGAIN_FIRST: Duration = Duration::from_millis(10);
const TRY_AGAIN_MAX: Duration = Duration::from_millis(500);

/// An attempt that ended, and what is needed to judge it. Owned: a report may outlive its call.
pub(crate) struct Concluding {
    pub tool: Arc<Registered>,
    pub invocation: Invocation,
    pub series: Series,
    pub outcome: Outcome,
    /// By when it was sent, if it was sent from here.
    pub sent: Option<Timestamp>,
    pub salt: Option<Salt>,
    pub jitter: f64,
}

impl Concluding {
    pub fn ending(&self, effect: &Effect, now: Timestamp) -> Ending {
        let policy = &self.tool.policy;
        let receipt = next_receipt(effect);
        let outcome = self.judged();
        let undo = match &outcome {
            Outcome::Done(success) => undo_call(&self.tool, &self.invocation, &success.result),
            _ => None,
        };
        let late = evidence(&outcome, undo.clone());
        let outcome = match outcome {
            Outcome::Done(success) => Ended::Done { success, undo, receipt },
            // A refusal says nothing about an earlier attempt whose answer was lost: while that one is open, it is a failed repeat like any other.
            Outcome::NotDone(failure) if !failure.retriable && !effect.doubtful() => Ended::Failed { failure, receipt },
            Outcome::NotDone(failure) => {
                let next = retry::next(&policy.retry, self.series, &failure, now, self.jitter);
                // While an earlier attempt is in doubt, a failed repeat ends nothing: no receipt.
                let ends = next.exhausted && !effect.doubtful();
                Ended::Retry { failure, not_before: next.not_before, receipt: ends.then_some(receipt) }
            }
            Outcome::Unknown(failure) => {
                let next = retry::next(&policy.retry, self.series, &failure, now, self.jitter);
                Ended::Unknown { failure, not_before: next.not_before, sent: self.sent }
            }
        };
        Ending { outcome, evidence: late }
    }

    /// Whether the state that the attempt led to is the end of the call: nothing more is tried.
    pub fn is_last(&self, after: &Effect) -> bool {
        match &after.state {
            State::Retrying(failed) => failed.receipt.is_some(),
            State::InDoubt(_) => false,
            _ => true,
        }
    }

    fn judged(&self) -> Outcome {
        let policy = &self.tool.policy;
        match self.outcome.clone() {
            Outcome::Done(success) => {
                let flags = self.flags(&success);
                let state_changed = success.state_changed.or_else(|| captured(&self.tool, &self.invocation, &success.result));
                let state_changed = state_changed.map(|state| self.state_told(state));
                Outcome::Done(Success { result: self.redacted(&success.result), flags, state_changed })
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
        let message = scrubbed(&self.tool, &self.invocation, &failure.message, self.salt.as_ref());
        Failure { message, detail: failure.detail.as_ref().map(|detail| self.redacted(detail)), ..failure }
    }

    /// The same for what was captured.
    fn state_told(&self, state: Box<StateChanged>) -> Box<StateChanged> {
        if self.tool.policy.redact.is_empty() {
            return state;
        }
        let told = |text: Option<String>| text.map(|text| scrubbed(&self.tool, &self.invocation, &text, self.salt.as_ref()));
        let StateChanged { version, etag, digest, reference } = *state;
        Box::new(StateChanged { version: told(version), etag: told(etag), digest, reference: told(reference) })
    }

    fn flags(&self, success: &Success) -> Vec<Flag> {
        let truncated = success.flags.iter().any(|f| matches!(f, Flag::Truncated { .. }));
        let violated = match &self.tool.output {
            Some(schema) if !truncated => schema.violations(&success.result.to_value()).map(Flag::OutputSchemaViolated),
            _ => None,
        };
        success.flags.iter().cloned().chain(violated).collect()
    }

    fn redacted(&self, json: &Json) -> Json {
        redacted(&self.tool, &self.invocation, json, self.salt.as_ref())
    }
}

/// What the world said, as it may be kept: without what the policy names, and without an echo of it elsewhere.
pub(crate) fn redacted(tool: &Registered, invocation: &Invocation, json: &Json, salt: Option<&Salt>) -> Json {
    let paths = &tool.policy.redact;
    match salt {
        Some(salt) if !paths.is_empty() => {
            let kept = scrub_json(&redact_json(json, paths, salt), &secrets(&invocation.args, paths));
            // Of a call that is known from the ledger alone, only the digests of its secrets are known.
            Echo::of(&invocation.args, paths, salt).map_or(kept.clone(), |echo| echo.scrub_json(&kept))
        }
        _ => json.clone(),
    }
}

/// The same for a text.
pub(crate) fn scrubbed(tool: &Registered, invocation: &Invocation, text: &str, salt: Option<&Salt>) -> String {
    let (args, paths) = (&invocation.args, &tool.policy.redact);
    let kept = scrub(text, &secrets(args, paths));
    salt.and_then(|salt| Echo::of(args, paths, salt)).map_or(kept.clone(), |echo| echo.scrub(&kept))
}

fn captured(tool: &Registered, invocation: &Invocation, result: &Json) -> Option<Box<StateChanged>> {
    std::panic::catch_unwind(AssertUnwindSafe(|| tool.tool.captured(invocation, result))).unwrap_or_default()
}

pub(crate) fn undo_call(tool: &Registered, invocation: &Invocation, result: &Json) -> Option<UndoCall> {
    let planning = AssertUnwindSafe(|| tool.tool.undo_plan(invocation, result));
    let planned = std::panic::catch_unwind(planning).unwrap_or_else(|_| Err("the tool panicked".into()));
    match planned.and_then(|plan| plan.map(|plan| storable(tool, invocation, plan)).transpose()) {
        Ok(undo) => undo,
        Err(error) => {
            let error = scrub(&error, &secrets(&invocation.args, &tool.policy.redact));
            // It happened; that its undo cannot be worked out does not change that. The operator sees that there is none.
            tracing::error!(effect = %invocation.key, tool = %tool.name, %error, "the undo of this effect cannot be worked out");
            None
        }
    }
}

/// An undo is kept in the ledger until it is asked for, so it cannot hold what must not be kept.
fn storable(tool: &Registered, invocation: &Invocation, plan: UndoPlan) -> Result<UndoCall, String> {
    let args = Json::from(plan.args.clone());
    if holds_digest(&plan.args) || scrub_json(&args, &secrets(&invocation.args, &tool.policy.redact)) != args {
        return Err("its arguments would hold a redacted value, and the ledger keeps none".into());
    }
    Ok(UndoCall { tool: plan.tool, args: plan.args })
}

pub(crate) async fn finish(ledger: &Ledger, permit: &Permit, concluding: &Concluding) -> Result<Effect, LedgerError> {
    let ending = |effect: &Effect, now| concluding.ending(effect, now);
    ledger.finish(permit.holding(), ending, |_| Vec::new()).await.map(Reported::into_effect)
}

/// Brings a report in when the store is back. Until then the effect is in doubt for everyone else.
pub(crate) fn keep_trying(ledger: Arc<Ledger>, permit: Permit, concluding: Concluding, unsettled: Unsettled, report: Report) {
    tracing::error!(effect = %permit.key(), "an outcome could not be recorded; it is kept in memory and tried again");
    tokio::spawn(async move {
        let _report = report;
        let mut pause = TRY_AGAIN_FIRST;
        loop {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(TRY_AGAIN_MAX);
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

/// Gives back a claim that may have been written although the store could not say so. This worker knows that it dispatched nothing.
pub(crate) fn release(ledger: Arc<Ledger>, key: EffectKey, claim: Claim, unsettled: Unsettled, report: Report) {
    tokio::spawn(async move {
        let _report = report;
        let mut pause = TRY_AGAIN_FIRST;
        while let Err(error) = ledger.release(key, &claim, "the claim could not be confirmed; nothing was dispatched").await {
            if let LedgerError::Fold { .. } = error {
                tracing::error!(effect = %key, %error, "a claim cannot be given back");
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(TRY_AGAIN_MAX);
        }
        unsettled.settled();
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
            let undo = undo_call(tool, invocation, &result);
            let sealed = Sealed { outcome: "probed_happened", result: result.digest(), said: None, started: now, ended: now };
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
            Some(Sealed { outcome: "denied", result: Digest32::of(why.as_bytes()), said: Some(Said { by, why }), started: *at, ended: *at })
        }
        _ => None,
    }
}
