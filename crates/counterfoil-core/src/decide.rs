//! What may happen next: the pure answer to a call.
//!
//! Looks at the effect and the conditions of the call, never at a store, a clock or the world. Order matters: identity first (a mismatch
//! runs nothing), then what is recorded, then doubt, and only then execution.

use std::time::Duration;

use crate::effect::{Doubt, Effect, State};
use crate::entry::Entry;
use crate::ids::{Fence, Fingerprint};
use crate::policy::{OnInFlight, Policy};
use crate::retry::Series;
use crate::time::Timestamp;

/// Probes of one doubt within one call. A doubt that outlives it is asked about again in the background.
const PROBES_PER_CALL_MAX: u32 = 1;

/// What `decide` needs to know beside the effect and the call.
#[derive(Debug, Clone, Copy)]
pub struct Conditions<'a> {
    pub now: Timestamp,
    pub policy: &'a Policy,
    pub series: Series,
    /// Of the arguments as they are stored.
    pub fingerprint: Fingerprint,
    pub can_probe: bool,
    pub needs_approval: bool,
    /// The holder of the running claim is known to be dead: its lease need not be waited out.
    pub holder_gone: bool,
    /// The call carries the arguments in clear: it can be dispatched.
    pub runnable: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Claim this attempt, then run it.
    Execute(Attempt),
    /// The recorded outcome is the answer. The world is not touched.
    Replay,
    /// Someone else is at it, or it is too early: look again at `until`, or when the effect changes.
    Wait {
        until: Timestamp,
    },
    /// Ask the world.
    Probe,
    /// A person is needed.
    Hold(Hold),
    /// Ask a person, once.
    AskApproval,
    /// Time made a fact true: record it and decide again.
    Record(Entry),
    Refuse(Refusal),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    pub number: u32,
    pub fence: Fence,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    Doubt,
    Approval,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The key was used with other arguments.
    KeyReuseMismatch { recorded: Fingerprint },
    /// The effect was pruned; its key answers no more, and never runs again.
    KeyExpired,
    /// Another call with this key is under way, and the policy says not to wait.
    InFlight { retry_after: Duration },
    /// The stored arguments are redacted: only a caller who has them can run it.
    ArgumentsRedacted,
}

pub fn decide(effect: &Effect, conditions: &Conditions<'_>) -> Decision {
    if effect.expired {
        return Decision::Refuse(Refusal::KeyExpired);
    }
    if let Some(opened) = &effect.opened
        && opened.fingerprint != conditions.fingerprint
    {
        return Decision::Refuse(Refusal::KeyReuseMismatch { recorded: opened.fingerprint });
    }
    let now = conditions.now;
    if effect.expires().is_some_and(|at| at <= now) {
        return Decision::Refuse(Refusal::KeyExpired);
    }
    match &effect.state {
        State::Absent | State::Ready if conditions.needs_approval && !effect.approved => Decision::AskApproval,
        State::Absent | State::Ready => execute(effect, conditions),
        State::WaitingApproval { expires, .. } if *expires <= now => Decision::Record(Entry::Denied {
            at: now,
            by: "the clock".into(),
            why: "nobody approved it in time".into(),
            receipt: crate::receipt::ReceiptId::new(&effect.key, effect.version + 1),
        }),
        State::WaitingApproval { .. } => Decision::Hold(Hold::Approval),
        State::Running(claim) if conditions.holder_gone => lost(claim.fence, now, format!("the worker {} is gone", claim.worker)),
        State::Running(claim) if claim.lease_until <= now => {
            lost(claim.fence, now, format!("the worker {} fell silent and its lease ran out", claim.worker))
        }
        State::Running(claim) => match conditions.policy.on_in_flight {
            OnInFlight::Wait => Decision::Wait { until: claim.lease_until },
            OnInFlight::Conflict => {
                Decision::Refuse(Refusal::InFlight { retry_after: claim.lease_until.since(now).min(Duration::from_secs(1)) })
            }
        },
        State::Retrying(failed) if failed.receipt.is_some() && conditions.series.attempts > 0 => Decision::Replay,
        // A probe that showed nothing had happened does not make the series any longer.
        State::Retrying(_) if conditions.series.is_over(&conditions.policy.retry, now) => Decision::Replay,
        State::Retrying(failed) if failed.not_before <= now => execute(effect, conditions),
        // The owner of this series waits its turn; anyone else is told what happened and when to come back.
        State::Retrying(failed) if conditions.series.attempts > 0 => Decision::Wait { until: failed.not_before },
        State::Retrying(_) => Decision::Replay,
        State::InDoubt(doubt) => in_doubt(effect, doubt, conditions),
        State::Done(_) | State::Failed { .. } | State::Cancelled { .. } => Decision::Replay,
        // What was undone stays undone: nothing compensated is ever run again.
        State::Undoing { .. } | State::Undone { .. } | State::UndoFailed { .. } => Decision::Replay,
    }
}

/// The ladder: a late receipt would already have closed it; then the probe, then a harmless repeat, then a person.
fn in_doubt(effect: &Effect, doubt: &Doubt, conditions: &Conditions<'_>) -> Decision {
    let now = conditions.now;
    let policy = conditions.policy;
    if conditions.can_probe && conditions.series.probes < PROBES_PER_CALL_MAX {
        let settled = doubt.since + policy.settle_after;
        return if settled <= now { Decision::Probe } else { Decision::Wait { until: settled } };
    }
    let attempts_left = !conditions.series.is_over(&policy.retry, now) && doubt.not_before < conditions.series.deadline;
    if policy.repeatable() && attempts_left && conditions.runnable {
        return if doubt.not_before <= now { execute(effect, conditions) } else { Decision::Wait { until: doubt.not_before } };
    }
    Decision::Hold(Hold::Doubt)
}

fn execute(effect: &Effect, conditions: &Conditions<'_>) -> Decision {
    if !conditions.runnable {
        return Decision::Refuse(Refusal::ArgumentsRedacted);
    }
    // The fence is the version of the claim's record: it grows with every claim and no two claims share one.
    Decision::Execute(Attempt { number: effect.attempts + 1, fence: Fence(effect.version + 1) })
}

fn lost(fence: Fence, at: Timestamp, why: String) -> Decision {
    Decision::Record(Entry::Lost { fence, at, why })
}
