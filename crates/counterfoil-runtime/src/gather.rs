//! Whether a small batch waits a moment for callers that were just answered.
//!
//! Behind a network a batch has a price of its own, whatever is in it. Callers that are answered together come back together, a moment after the
//! writer has gone on with those that came meanwhile: two halves take turns, and each pays the whole price. So where few wait, the writer waits for
//! those it has answered, as long as they keep coming. Where several batches go beside each other each waits for its share.
//!
//! What must stay true: nobody is waited for where none has come for a moment, and where waiting was in vain lately it is hardly tried.

use std::time::Duration;

use crate::group::Grouping;
use crate::patience::Patience;

/// Larger batches wait for nobody: their own price is shared by many, and whoever would be waited for works meanwhile.
const FEW: usize = 32;

/// How long nobody must have come, so that the batch goes: longer than a thread takes to wake up and a caller to come back, short beside what a network
/// takes.
pub const GATHER_WITHIN: Duration = Duration::from_micros(150);

pub struct Gather {
    /// `None`: nobody is ever waited for.
    moment: Option<Duration>,
    /// Batches that go beside each other: each is to have its share of the callers.
    shares: usize,
    wanted: usize,
    patience: Patience,
}

impl Gather {
    pub fn new(grouping: Grouping) -> Self {
        Self { moment: grouping.gather_within, shares: grouping.at_once, wanted: 0, patience: Patience::default() }
    }

    /// So many were answered while so many were waiting, for their turn or for their answers.
    pub fn answered(&mut self, answered: usize, waiting: usize) {
        self.wanted = ((answered + waiting) / self.shares).min(FEW);
    }

    /// How many are worth waiting for when `waiting` are there, and how long for each next one. Asked once for a batch.
    pub fn worth(&mut self, waiting: usize) -> Option<(usize, Duration)> {
        let wanted = std::mem::take(&mut self.wanted);
        let moment = self.moment?;
        (waiting < wanted && self.patience.tries()).then_some((wanted, moment))
    }

    pub fn learn(&mut self, all_came: bool) {
        self.patience.learn(all_came);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_few_wait_and_only_for_those_who_were_answered() {
        let mut gather = Gather::new(Grouping { at_once: 1, gather_within: Some(GATHER_WITHIN) });
        let mut worth = |answered: usize, before: usize, waiting: usize| {
            gather.answered(answered, before);
            let worth = gather.worth(waiting).map(|(wanted, _)| wanted);
            if worth.is_some() {
                gather.learn(true);
            }
            worth
        };
        assert_eq!(worth(8, 8, 8), Some(16));
        assert_eq!(worth(3, 0, 1), Some(3), "one of the three is back");
        assert_eq!(worth(3, 0, 3), None, "all are");
        assert_eq!(worth(0, 5, 5), None, "nobody was answered");
        assert_eq!((worth(64, FEW, FEW), worth(64, FEW, FEW - 1)), (None, Some(FEW)));
        assert_eq!(gather.worth(1), None, "once for a batch");
        let mut beside = Gather::new(Grouping { at_once: 2, gather_within: Some(GATHER_WITHIN) });
        beside.answered(8, 12);
        assert_eq!(beside.worth(9).map(|(wanted, _)| wanted), Some(10), "its half");
        let mut never = Gather::new(Grouping { at_once: 1, gather_within: None });
        never.answered(8, 8);
        assert_eq!(never.worth(8), None);
    }
}
