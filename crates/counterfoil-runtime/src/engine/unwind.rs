//! Undoing one step: what it did is undone by the call that was worked out when it committed, as a ledgered effect of its own.
//!
//! Before it is judged, a doubt is resolved or held: what may have happened is neither left nor undone on a guess.

use std::time::Duration;

use counterfoil_core::effect::State;
use counterfoil_core::run::confirm::{Finding, WORLD_DRIFTED};
use counterfoil_core::run::entry::{Began, Undone};
use counterfoil_core::run::{Run, RunState};
use counterfoil_core::{Effect, EffectKey, Failure, StepPath, Tenant, Timestamp};

use super::RunError;
use crate::operate::{OperateError, Operator};
use crate::runtime::Runtime;

/// How long until a doubt that only a person can settle is looked at again. Its resolution stirs the run before that.
const HELD_LOOK: Duration = Duration::from_secs(60);
/// How long until an undo that is under way elsewhere is looked at again.
const UNDER_WAY_LOOK: Duration = Duration::from_secs(1);

/// A doubt is not asked about more often than this.
const ASK_AGAIN_MIN: Duration = Duration::from_millis(200);

/// What came of it.
pub(crate) enum Unwound {
    Dealt(Result<Undone, Failure>),
    /// Not yet: look again then.
    Held {
        until: Timestamp,
        why: String,
    },
}

impl Runtime {
    /// Undoes what a step did, as far as that can be said and done now.
    pub(crate) async fn unwind(&self, tenant: Tenant, what: Began, operator: Operator) -> Result<Unwound, RunError> {
        match what {
            Began::Effect { key, .. } => self.unwind_effect(key, &operator).await,
            Began::Child { run } => self.unwind_child(&tenant, &run, &operator).await,
            _ => Ok(Unwound::Dealt(Ok(Undone::NothingToUndo))),
        }
    }

    async fn unwind_effect(&self, key: EffectKey, operator: &Operator) -> Result<Unwound, RunError> {
        let mut effect = self.settled_doubt(key).await?;
        // What did not happen shall not happen any more: somebody may be about to try it again.
        while let State::Ready | State::WaitingApproval { .. } | State::Retrying(_) = effect.state {
            match self.cancel(key, operator).await {
                Ok(_) | Err(OperateError::WrongState { .. }) => effect = self.inner.ledger.load(key).await?,
                Err(OperateError::Ledger(error)) => return Err(error.into()),
                Err(error) => return Ok(Unwound::Dealt(Err(Failure::new("undo_refused", error.to_string())))),
            }
        }
        let now = self.now();
        if effect.expired {
            let failure = Failure::new("key_expired", "what is known of the effect was pruned: it cannot be undone any more");
            return Ok(Unwound::Dealt(Err(failure)));
        }
        match &effect.state {
            State::Undone { .. } => Ok(Unwound::Dealt(Ok(Undone::Undone))),
            State::Done(done) | State::UndoFailed { done, .. } | State::Cancelled { late: Some(done), .. } if done.undo.is_none() => {
                Ok(Unwound::Dealt(Ok(Undone::NothingToUndo)))
            }
            State::Done(_) | State::UndoFailed { .. } | State::Undoing { .. } | State::Cancelled { late: Some(_), .. } => {
                self.undo_now(key, operator).await
            }
            State::InDoubt(_) => Ok(held(look_at_doubt(&effect, now), key, "it is not known whether it happened")),
            State::Cancelled { late: None, .. } if effect.doubtful() => {
                if self.may_report_until(&effect) > now {
                    return Ok(Unwound::Held { until: now + UNDER_WAY_LOOK, why: "it was told to stop, and still runs".into() });
                }
                // Not asked yet, or asked in vain.
                let from = self.asked_from(&effect).await?.filter(|from| *from > now);
                let until = from.map_or(now + HELD_LOOK, |from| from.min(now + HELD_LOOK));
                Ok(held(until, key, "it was cancelled while it ran, and it is not known whether it happened"))
            }
            State::Running(_) => Ok(Unwound::Held { until: now + UNDER_WAY_LOOK, why: "it still runs".into() }),
            // Its tool is, or was, in mode off: nobody can say whether it happened, and nobody knows how to undo it.
            State::Absent => {
                let failure = Failure::new("not_recorded", "it may have happened, and nothing of it is recorded: its tool was in mode off");
                Ok(Unwound::Dealt(Err(failure)))
            }
            State::Ready
            | State::WaitingApproval { .. }
            | State::Retrying(_)
            | State::Failed { .. }
            | State::Cancelled { late: None, .. }
            | State::Flushed { .. } => Ok(Unwound::Dealt(Ok(Undone::NothingToUndo))),
        }
    }

    async fn undo_now(&self, key: EffectKey, operator: &Operator) -> Result<Unwound, RunError> {
        let error = match self.undo(key, operator).await {
            Ok(answer) => answer.error,
            Err(OperateError::Ledger(error)) => return Err(error.into()),
            // It is being undone already: by a call whose first record was written although nobody could say so, or by somebody else.
            Err(OperateError::WrongState { .. }) => None,
            Err(error) => return Ok(Unwound::Dealt(Err(Failure::new("undo_refused", error.to_string())))),
        };
        let now = self.now();
        let effect = self.inner.ledger.load(key).await?;
        match &effect.state {
            State::Undone { .. } => Ok(Unwound::Dealt(Ok(Undone::Undone))),
            State::UndoFailed { failure, .. } => Ok(Unwound::Dealt(Err(failure.clone()))),
            State::Undoing { undo, .. } => {
                let undoing = self.inner.ledger.load(*undo).await?;
                let attempts_max = self.undo_attempts(&effect).await?;
                // Another worker may be in the middle of an attempt: what may still happen is not judged.
                let open = undoing.doubtful() || matches!(undoing.state, State::Running(_));
                match error {
                    // What keeps it away may do so for ever: it has been tried as often as it may.
                    Some(error) if undoing.attempts >= attempts_max && !open => {
                        Ok(Unwound::Dealt(Err(Failure { retriable: true, ..Failure::new(error.code, error.message) })))
                    }
                    _ if undoing.doubtful() => Ok(held(look_at_doubt(&undoing, now), *undo, "it is not known whether the undo happened")),
                    Some(error) => Ok(Unwound::Held { until: now + UNDER_WAY_LOOK, why: error.message }),
                    None => Ok(Unwound::Held { until: now + UNDER_WAY_LOOK, why: "the undo is under way".into() }),
                }
            }
            // Refused before it was written down as begun.
            _ => {
                let failure = error.map_or_else(
                    || Failure::new("undo_refused", "the undo was refused"),
                    |error| Failure { retriable: error.retriable, ..Failure::new(error.code, error.message) },
                );
                Ok(Unwound::Dealt(Err(failure)))
            }
        }
    }

    /// The effect after its doubt, if it has one, went up its ladder as far as it can without a person.
    async fn settled_doubt(&self, key: EffectKey) -> Result<Effect, RunError> {
        let effect = self.inner.ledger.load(key).await?;
        match &effect.state {
            State::InDoubt(_) | State::Running(_) => {
                self.resume(key).await?;
                Ok(self.inner.ledger.load(key).await?)
            }
            State::Cancelled { late: None, .. } if effect.doubtful() => Ok(self.probe_cancelled(&effect).await?),
            _ => Ok(effect),
        }
    }
}

/// When a doubt is looked at again: when its tool may be asked again, or else when a person may have said something that was not heard.
pub(super) fn look_at_doubt(effect: &Effect, now: Timestamp) -> Timestamp {
    let look = if effect.opened.is_some() { effect.summary().due } else { None };
    look.map_or(now + HELD_LOOK, |due| due.clamp(now + ASK_AGAIN_MIN, now + HELD_LOOK))
}

fn held(until: Timestamp, key: EffectKey, why: &str) -> Unwound {
    Unwound::Held { until, why: format!("{why}: counterfoil effects resolve {key}") }
}

/// Why a step is not undone by the run itself: the world no longer agrees with what it did. Whoever changed that may have meant to, and an undo would
/// meet their work. A person may have it undone all the same.
pub(crate) fn left_alone(run: &Run, step: &StepPath) -> Option<Failure> {
    let by_itself = run.saga().is_some_and(|saga| saga.by == THE_RUN);
    run.drifted().filter(|_| by_itself)?;
    let check = run.confirmed.as_ref()?.drifted().find(|check| check.step == *step)?;
    let Finding::Drifted { expected, found } = &check.finding else { return None };
    let message = format!(
        "not undone, since it was changed by somebody else: expected {expected}, found {found}; undo it with `counterfoil runs undo`, or say that it is \
         dealt with by `counterfoil runs skip`"
    );
    Some(Failure::new(WORLD_DRIFTED, message))
}

/// Who undoes what a run did, when nobody asked for it by hand.
pub(crate) const THE_RUN: &str = "the run";

pub(crate) fn operator_of(run: &Run, step: &StepPath) -> Operator {
    let saga = run.saga();
    let by = saga.map_or(THE_RUN, |saga| saga.by.as_str());
    let why = saga.map_or_else(|| format!("step {step} of the run {}", run.started.run), |saga| saga.why.clone());
    debug_assert!(run.state() == RunState::Compensating);
    Operator::new(by, why)
}
