//! What a client may still say under a fence, and what it has said before: values from the ledger's fold, and nothing else.
//!
//! One attempt is reported once. Whoever says the same again is answered as recorded; whoever says otherwise is refused.

use counterfoil_core::Fence;
use counterfoil_core::effect::{Effect, How, State};
use counterfoil_core::entry::{Claim, LateOutcome};

use crate::liveness::is_client;

/// Where the claim stands that a client speaks of.
pub enum Standing {
    Running(Claim),
    /// Lost, or cancelled: what it says is evidence.
    Silent(Claim),
    /// It has ended, or was never lent.
    Over,
}

impl Standing {
    pub fn attempt(&self) -> Option<u32> {
        match self {
            Self::Running(claim) | Self::Silent(claim) => Some(claim.attempt),
            Self::Over => None,
        }
    }
}

pub fn standing(effect: &Effect, fence: Fence) -> Standing {
    // A claim of a worker is not a client's to end.
    let lent = |claim: &&Claim| claim.fence == fence && is_client(&claim.worker);
    match &effect.state {
        State::Running(claim) if lent(&claim) => Standing::Running(claim.clone()),
        _ => effect.silent.iter().find(lent).cloned().map_or(Standing::Over, Standing::Silent),
    }
}

/// What was said under a fence before.
pub struct Heard {
    pub outcome: LateOutcome,
    pub late: bool,
}

pub fn heard(effect: &Effect, fence: Fence) -> Option<Heard> {
    if let Some(late) = effect.late.iter().rev().find(|late| late.fence == fence) {
        return Some(Heard { outcome: late.outcome.clone(), late: true });
    }
    let newest = effect.fence == fence;
    let outcome = match &effect.state {
        State::Done(done) | State::Undoing { done, .. } | State::Undone { done, .. } | State::UndoFailed { done, .. }
            if newest && done.how == How::Reported =>
        {
            LateOutcome::Done {
                result: done.result.clone(),
                flags: done.flags.clone(),
                state_changed: done.state_changed.clone(),
                undo: done.undo.clone(),
            }
        }
        State::Failed { failure, .. } if newest => LateOutcome::NotDone(failure.clone()),
        State::Retrying(failed) if newest => LateOutcome::NotDone(failed.failure.clone()),
        State::InDoubt(doubt) if doubt.fence == fence => LateOutcome::Unknown(doubt.failure.clone()),
        _ => return None,
    };
    Some(Heard { outcome, late: false })
}

/// The undo is worked out from the rest, perhaps by a newer config: it tells no two reports apart.
pub fn same(a: &LateOutcome, b: &LateOutcome) -> bool {
    match (a, b) {
        (LateOutcome::Done { result, flags, .. }, LateOutcome::Done { result: other, flags: others, .. }) => {
            (result, flags) == (other, others)
        }
        (a, b) => a == b,
    }
}
