//! What a call tells the run whose step it is: the end of the step is in the same append as the outcome of its effect, and so is the claim of the next.
//!
//! Where that cannot be (another record of the run is on its way, someone else wrote to it) the outcome is recorded alone, and the run's driver finds
//! it: the effect's own stream is the truth about the effect. A step that ends with an effect that could still be claimed takes that along: what a run
//! has judged does not happen afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use counterfoil_core::ids::Digest32;
use counterfoil_core::run::ending::step_end;
use counterfoil_core::run::entry::{RunEntry, StepEnd};
use counterfoil_core::run::flow::Progress;
use counterfoil_core::{Effect, Entry, StepPath};

use super::advance::{Advanced, advance};
use super::book::{Book, Carried};
use super::live::{AGAIN_MIN, What};
use super::unwind::THE_RUN;
use crate::conclude::Concluding;
use crate::ledger::{Along, Ledger, LedgerError, Permit, Reported, Sealed, next_receipt};
use crate::operate::Operator;
use crate::runtime::Runtime;

/// Whether the claim of what comes next goes along.
enum Ahead {
    Yes,
    No,
}

pub(crate) struct Follow {
    pub runtime: Runtime,
    pub book: Arc<Book>,
    pub step: StepPath,
}

impl Follow {
    /// Whether the run still wants the step done: asked right before its claim.
    pub fn wanted(&self) -> bool {
        let pages = self.book.lock();
        let wanted = match pages.run.flow() {
            Some(flow) => flow.progress(&self.step) == Some(Progress::Busy),
            None => pages.run.running.contains(&self.step) && pages.run.cancel.is_none(),
        };
        pages.fence.is_some() && wanted
    }

    /// Records what an attempt said, and what that means for the run.
    pub async fn finish(&self, ledger: &Ledger, permit: &Permit, concluding: &Concluding) -> Result<Effect, LedgerError> {
        // Asked again only when the effect's own version had moved: then what was noted in the run did not get there.
        let asked = AtomicU32::new(0);
        let ending = |effect: &Effect, now| concluding.ending(effect, now);
        let along = |after: &Effect| match asked.fetch_add(1, Ordering::SeqCst) {
            0 => self.ended(after, concluding),
            _ => {
                self.lost(&LedgerError::Conflict);
                Along::default()
            }
        };
        match ledger.finish_along(permit.holding(), ending, along).await {
            Ok((Reported::InTime(effect), next)) => {
                self.book.lock().arrived_with(&self.step, next);
                Ok(effect)
            }
            Ok((Reported::Late { effect, .. }, _)) => {
                self.lost(&LedgerError::Conflict);
                Ok(effect)
            }
            Err(error @ LedgerError::BesideTaken { .. }) => {
                self.lost(&error);
                ledger.finish(permit.holding(), ending, |_| Vec::new()).await.map(Reported::into_effect)
            }
            Err(error) => {
                self.lost(&error);
                Err(error)
            }
        }
    }

    fn lost(&self, error: &LedgerError) {
        self.book.lock().lost_with(&self.step, &self.runtime, error);
    }

    /// Ends a step with an effect that somebody might still claim: from the same record on nobody can. What is tried no more by its run is not tried at all.
    pub(super) async fn give_up(&self, effect: &Effect, how: StepEnd) -> What {
        let (runtime, now) = (&self.runtime, self.runtime.now());
        let again = |why: &str| What::Held { until: now + AGAIN_MIN, why: why.to_owned() };
        let Along { writes, .. } = self.told(how, Ahead::No);
        if writes.is_empty() {
            return again("the run is being written to");
        }
        let operator = Operator::new(THE_RUN, format!("step {} does not try it any more", self.step));
        let cancelled = Entry::Cancelled { at: now, by: operator.by.clone(), why: operator.why.clone(), receipt: next_receipt(effect) };
        let result = Digest32::of(operator.why.as_bytes());
        let sealed = Sealed { outcome: "cancelled", result, said: Some(operator.said()), started: now, ended: now };
        match runtime.inner.ledger.record_with(effect, vec![cancelled], Some(sealed), |_| writes).await {
            Ok(_) => {
                self.book.lock().arrived_with(&self.step, None);
                What::Recorded
            }
            Err(error) => {
                self.lost(&error);
                match error {
                    LedgerError::Conflict | LedgerError::BesideTaken { .. } => again("another worker is at it"),
                    error => What::Failed(error.into()),
                }
            }
        }
    }

    /// The run's record of the end of this step and of all that follows from it, if the effect's end is the step's.
    fn ended(&self, after: &Effect, concluding: &Concluding) -> Along {
        let over = concluding.is_last(after);
        match step_end(after).filter(|_| over) {
            Some(how) => self.told(how, Ahead::Yes),
            None => Along::default(),
        }
    }

    /// Empty: the run cannot be written to now.
    fn told(&self, how: StepEnd, ahead: Ahead) -> Along {
        let now = self.runtime.now();
        let mut advanced = Advanced::default();
        let mut pages = self.book.lock();
        if !pages.writable() {
            return Along::default();
        }
        let write = pages.write(&self.book, now, |run| {
            let mut entries = vec![RunEntry::StepEnded { at: now, step: self.step.clone(), how }];
            run.note(&entries[0])?;
            // A process that is about to end begins nothing new, and claims nothing ahead.
            if !self.runtime.inner.lives.resting() {
                advanced = advance(&self.runtime, run, &self.book.workflow, now)?;
                entries.append(&mut advanced.entries);
            }
            Ok(entries)
        });
        match write {
            Ok(Some(write)) => {
                let ahead = if let Ahead::Yes = ahead { self.runtime.ahead(&advanced) } else { None };
                let (ahead, claiming) = ahead.unzip();
                pages.carried = Some(Carried { step: self.step.clone(), advanced, ahead });
                Along { writes: vec![write], claiming }
            }
            // Of a run that cannot be read, the driver says what is wrong when it reads it again.
            Ok(None) | Err(_) => Along::default(),
        }
    }
}
