//! Stopping what a step began: what has not been claimed never is, what runs is told to stop, what may have happened stays a doubt.

use counterfoil_core::effect::State;
use counterfoil_core::entry::Opened;
use counterfoil_core::ids::Digest32;
use counterfoil_core::run::Run;
use counterfoil_core::run::ending::step_end;
use counterfoil_core::run::entry::{Began, By, StepEnd};
use counterfoil_core::{CanonicalJson, Effect, Entry, StepPath, Timestamp};

use super::RunError;
use super::book::Book;
use crate::ledger::{LedgerError, Sealed, next_receipt};
use crate::operate::{OperateError, Operator};
use crate::runtime::Runtime;
use crate::workflow::StepSpec;

impl Runtime {
    /// Stops what a step began, as far as that can be, and says how it ended.
    pub(super) async fn stop_step(&self, book: &Book, step: &StepPath, what: Began) -> Result<Stopped, RunError> {
        let mut ran = false;
        let at_rest = |how| Stopped { how, ran: false };
        let key = match what {
            Began::Effect { key, pure: false, .. } => key,
            Began::Child { run } => return self.stop_child(book, step, run).await.map(|how| Stopped { how, ran: true }),
            _ => return Ok(Stopped { how: StepEnd::Cancelled { doubt: false }, ran: true }),
        };
        let operator = {
            let pages = book.lock();
            match &pages.run.cancel {
                Some(cancel) => Operator::new(&cancel.by, &cancel.why),
                None => Operator::new("the run", format!("step {step} is not wanted any more")),
            }
        };
        loop {
            let effect = self.inner.ledger.load(key).await?;
            match &effect.state {
                State::Absent => {
                    if !self.cancel_before(book, step, effect, &operator).await? {
                        continue;
                    }
                    return Ok(at_rest(StepEnd::Cancelled { doubt: false }));
                }
                State::InDoubt(_) => return Ok(at_rest(StepEnd::Cancelled { doubt: true })),
                State::Ready | State::WaitingApproval { .. } | State::Running(_) | State::Retrying(_) => {
                    ran |= matches!(effect.state, State::Running(_));
                    match self.cancel(key, &operator).await {
                        Ok(_) | Err(OperateError::WrongState { .. }) => {}
                        Err(OperateError::Ledger(error)) => return Err(error.into()),
                        Err(_) => return Ok(Stopped { how: StepEnd::Cancelled { doubt: effect.doubtful() }, ran }),
                    }
                }
                _ => return Ok(Stopped { how: step_end(&effect).unwrap_or(StepEnd::Cancelled { doubt: effect.doubtful() }), ran }),
            }
        }
    }

    /// Cancels what was never claimed: whoever is about to claim it finds it so. `false`: someone was faster.
    async fn cancel_before(&self, book: &Book, step: &StepPath, effect: Effect, operator: &Operator) -> Result<bool, RunError> {
        let prepared = {
            let pages = book.lock();
            let node = pages.run.flow().and_then(|flow| flow.node(step));
            match node.map(|node| book.workflow.step(node)) {
                Some(StepSpec::Tool(spec)) => self.prepare(&pages.run, &book.workflow, step, spec).ok(),
                _ => None,
            }
        };
        let now = self.now();
        let (opened, effect) = match prepared.filter(|prepared| prepared.task.key == effect.key) {
            // Of an erased subject nothing is recorded, and nothing is run.
            Some(prepared) => match self.inner.veiled(&prepared.task, &effect).await? {
                Ok(veiled) => (self.inner.opened(&prepared.task, now), veiled),
                Err(_) => return Ok(true),
            },
            None => {
                let pages = book.lock();
                let mut veiled = effect;
                veiled.veil = pages.run.veil.clone();
                match unasked(&pages.run, step, now) {
                    Some(opened) => (opened, veiled),
                    None => return Ok(true),
                }
            }
        };
        let opened = Entry::Opened(opened);
        let receipt = next_receipt(&effect);
        let cancelled = Entry::Cancelled { at: now, by: operator.by.clone(), why: operator.why.clone(), receipt };
        let result = Digest32::of(operator.why.as_bytes());
        let sealed = Sealed { outcome: "cancelled", result, said: Some(operator.said()), started: now, ended: now };
        match self.inner.ledger.record(&effect, vec![opened, cancelled], Some(sealed)).await {
            Ok(_) => Ok(true),
            Err(LedgerError::Conflict) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// The call of a step that only its client or its function could put together: known by what the run knows of it. Whoever still comes with the
/// call itself is refused, for its arguments are others.
fn unasked(run: &Run, step: &StepPath, now: Timestamp) -> Option<Opened> {
    let Some(Began::Effect { tool, .. }) = run.step(step)?.what.as_ref() else { return None };
    let args = CanonicalJson::parse("null").expect("null is JSON");
    Some(Opened {
        at: now,
        tenant: run.started.tenant.clone(),
        caller: run.started.caller.clone(),
        tool: tool.clone(),
        fingerprint: args.fingerprint(),
        args,
        run: Some(run.started.run.clone()),
        step: Some(step.clone()),
        redacted: true,
        settles: false,
        lent: run.started.by == By::Client,
        retain_ms: run.started.retain_ms,
    })
}

/// How a step ended that was stopped.
pub(super) struct Stopped {
    pub how: StepEnd,
    /// An attempt was under way.
    pub ran: bool,
}
