//! Whether a small batch waits a moment for callers that were just answered.
//!
//! Behind a network a batch has a price of its own, whatever is in it. Callers that are answered together come back together, a moment after the
//! writer has gone on with those that came meanwhile: two halves take turns, and each pays the whole price. So where few wait, the writer lets
//! those go first that it has answered, as long as they keep coming. Where several batches go beside each other each waits for its share.
//!
//! What must stay true: nobody is waited for where none has come for a moment, and where waiting was in vain lately it is hardly tried.

use std::time::{Duration, Instant};

use super::patience::Patience;

/// Larger batches wait for nobody: their own price is shared by many, and whoever would be waited for works meanwhile.
pub const FEW: usize = 32;

/// How long nobody must have come, so that the batch goes: longer than a thread takes to wake up and a caller to come back, short beside what a network
/// takes.
pub const GATHER_WITHIN: Duration = Duration::from_micros(60);

pub struct Gather {
    /// `None`: nobody is ever waited for.
    moment: Option<Duration>,
    /// So many, of which so many were there when the last one came.
    wanted: usize,
    came: usize,
    since: Instant,
    patience: Patience,
}

impl Gather {
    pub fn new(moment: Option<Duration>) -> Self {
        Self { moment, wanted: 0, came: 0, since: Instant::now(), patience: Patience::default() }
    }

    /// Whether a batch that has so many of its share waits for more. Asked once for a batch; where it is worth it, [`goes_on`](Self::goes_on) says how long.
    pub fn is_worth(&mut self, waiting: usize, share: usize) -> bool {
        (self.wanted, self.came, self.since) = (share.min(FEW), waiting, Instant::now());
        self.moment.is_some() && waiting < self.wanted && self.patience.tries()
    }

    /// Whether it waits on, now that so many are there.
    pub fn goes_on(&mut self, waiting: usize) -> bool {
        let all_came = waiting >= self.wanted;
        if waiting > self.came {
            (self.came, self.since) = (waiting, Instant::now());
        }
        let over = all_came || self.moment.is_none_or(|moment| self.since.elapsed() >= moment);
        if over {
            self.patience.learn(all_came);
        }
        !over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOR_EVER: Duration = Duration::from_secs(3600);

    #[test]
    fn only_few_wait_and_only_until_their_share_is_there() {
        let mut gather = Gather::new(Some(FOR_EVER));
        assert!(gather.is_worth(8, 16));
        assert!(gather.goes_on(8) && gather.goes_on(15) && !gather.goes_on(16));
        assert!(!gather.is_worth(3, 3), "all are there");
        assert!(!gather.is_worth(FEW, 64) && gather.is_worth(FEW - 1, 64));
        assert!(!Gather::new(None).is_worth(8, 16));
    }

    #[test]
    fn who_does_not_come_within_a_moment_is_not_waited_for_and_then_hardly_ever() {
        let mut gather = Gather::new(Some(Duration::ZERO));
        let in_vain = (0..100).filter(|_| gather.is_worth(1, 2) && !gather.goes_on(1)).count();
        assert!((1..10).contains(&in_vain), "{in_vain} of 100");
    }
}
