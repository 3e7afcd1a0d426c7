//! The claim of a step's effect, made together with the record that begins the step: one flush of the disk where there would be two.
//!
//! Only where nothing stands before the claim: no limit to wait for, no person to ask, no other step at the same time. Everything else takes the way of any call.

use counterfoil_core::decide::Attempt;
use counterfoil_core::entry::{Claim, Entry};
use counterfoil_core::{Effect, EffectKey, Fence};
use counterfoil_store::{StoreError, Written};

use super::advance::Advanced;
use super::step::Prepared;
use crate::conclude;
use crate::drive::Held;
use crate::gate::Pass;
use crate::ledger::{Claiming, LedgerError, Permit};
use crate::liveness::Unsettled;
use crate::mode::Mode;
use crate::runtime::Runtime;
use crate::tool::Runs;

/// A claim on its way.
pub(crate) struct Ahead {
    key: EffectKey,
    claim: Claim,
    pass: Pass,
    unsettled: Unsettled,
}

impl Runtime {
    /// The claim of the one call that follows, if nothing stands before it.
    pub(crate) fn ahead(&self, advanced: &Advanced) -> Option<(Ahead, Claiming)> {
        match &advanced.calls[..] {
            [prepared] if advanced.children.is_empty() => self.ahead_of(prepared),
            _ => None,
        }
    }

    /// The claim of a call, if nothing stands before it.
    pub(crate) fn ahead_of(&self, prepared: &Prepared) -> Option<(Ahead, Claiming)> {
        let (inner, task) = (&self.inner, &prepared.task);
        let (tool, policy) = (&task.tool, &task.tool.policy);
        let plain = !tool.is_pure()
            && tool.runs() == Runs::Here
            && tool.approval.is_none()
            && tool.subject.is_none()
            && policy.limits.per_run.is_none()
            && policy.limits.cost_per_run.is_none()
            && inner.modes.known(&tool.name).is_some_and(|mode| mode != Mode::Off);
        if !plain {
            return None;
        }
        let pass = inner.gates.pass_at_once(&task.call.tenant, &tool.name, policy)?;
        let unsettled = inner.liveness.claiming();
        let claim = inner.ledger.claim(FIRST, policy.lease);
        let before = vec![Entry::Opened(inner.opened(task, claim.at))];
        // That it is absent is looked at when it is written.
        let mut effect = Effect::absent(task.key);
        effect.veil = task.veil.clone();
        let claiming = Claiming { effect, claim: claim.clone(), lease: policy.lease, before };
        Some((Ahead { key: task.key, claim, pass, unsettled }, claiming))
    }
}

const FIRST: Attempt = Attempt { number: 1, fence: Fence(1) };

impl Ahead {
    /// It is durable: the call need not claim any more.
    pub fn arrived(mut self, permit: Option<Permit>, prepared: &mut Prepared) {
        match permit {
            Some(permit) => {
                self.pass.claimed();
                prepared.task.held = Some(Held { permit, pass: self.pass, attempt: FIRST, unsettled: self.unsettled });
            }
            None => self.unsettled.settled(),
        }
    }

    /// It is not, or nobody knows. Nothing was dispatched under it.
    pub fn lost(self, runtime: &Runtime, error: &LedgerError) {
        let inner = &runtime.inner;
        match error {
            LedgerError::Store(StoreError::Unavailable { written: Written::Perhaps, .. }) => {
                conclude::release(inner.ledger.clone(), self.key, self.claim, self.unsettled, inner.reports.begin());
            }
            _ => self.unsettled.settled(),
        }
    }
}
