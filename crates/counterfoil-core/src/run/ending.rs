//! What the state of an effect means for the step that began it.

use super::entry::StepEnd;
use crate::effect::{Effect, State};
use crate::outcome::Failure;

/// How the step ended; `None`: it has not. An attempt that failed and may be tried again is the step's end: whoever drives it has tried as often as it may.
pub fn step_end(effect: &Effect) -> Option<StepEnd> {
    let doubt = effect.doubtful();
    match &effect.state {
        State::Done(done) => Some(StepEnd::Done { result: done.result.clone(), way: None, undo: done.undo.is_some() }),
        // Somebody undid it by hand: it was done, and there is nothing left to undo.
        State::Undoing { done, .. } | State::Undone { done, .. } | State::UndoFailed { done, .. } => {
            Some(StepEnd::Done { result: done.result.clone(), way: None, undo: matches!(effect.state, State::UndoFailed { .. }) })
        }
        State::Failed { failure, .. } => Some(StepEnd::Failed { failure: failure.clone(), doubt }),
        State::Retrying(failed) => Some(StepEnd::Failed { failure: failed.failure.clone(), doubt }),
        State::Cancelled { late, .. } => Some(StepEnd::Cancelled { doubt: doubt || late.is_some() }),
        State::Flushed { why, .. } => {
            Some(StepEnd::Failed { failure: Failure::new("flushed", format!("its key was freed: {why}")), doubt: false })
        }
        State::Absent | State::Ready | State::WaitingApproval { .. } | State::Running(_) | State::InDoubt(_) => None,
    }
}
