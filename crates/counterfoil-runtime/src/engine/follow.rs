//! What a call tells the run whose step it is: the end of the step is in the same append as the outcome of its effect, and so is the claim of the next.
//!
//! Where that cannot be (another record of the run is on its way, someone else wrote to it) the outcome is recorded alone, and the run's driver finds
//! it: the effect's own stream is the truth about the effect.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use counterfoil_core::run::ending::step_end;
use counterfoil_core::run::entry::RunEntry;
use counterfoil_core::run::flow::Progress;
use counterfoil_core::{Effect, StepPath};

use super::advance::{Advanced, advance};
use super::book::{Book, Carried};
use crate::conclude::Concluding;
use crate::ledger::{Along, Ledger, LedgerError, Permit, Reported};
use crate::runtime::Runtime;

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

    /// The run's record of the end of this step and of all that follows from it, if the effect's end is the step's.
    fn ended(&self, after: &Effect, concluding: &Concluding) -> Along {
        let over = concluding.is_last(after);
        let Some(how) = step_end(after).filter(|_| over) else { return Along::default() };
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
                let (ahead, claiming) = self.runtime.ahead(&advanced).unzip();
                pages.carried = Some(Carried { step: self.step.clone(), advanced, ahead });
                Along { writes: vec![write], claiming }
            }
            // Of a run that cannot be read, the driver says what is wrong when it reads it again.
            Ok(None) | Err(_) => Along::default(),
        }
    }
}
