//! Whether a key that nobody has looked up is likely to be new.
//!
//! Most calls are the first with their key, and the claim of a first call proves that by itself: a store writes it only where nothing is. So
//! after enough keys in a row that were new, the next is taken for new, and the look at the ledger is saved: with a store on the far side of a network, a
//! third of the ways that a call takes.
//!
//! What must stay true: a guess decides nothing. A claim that meets a record is refused by the store, and then the effect is read and decided
//! like any other; and nothing that was made of a guess is answered while the ledger can be read (`Inner::drive`). A wrong guess costs one append that is
//! sent once more without it; after it, keys are looked up again until enough of them were new.

use std::sync::atomic::{AtomicU32, Ordering};

pub struct Novelty {
    in_a_row: AtomicU32,
    enough: u32,
}

impl Novelty {
    /// New keys in a row after which the next is taken for new. Even where one call in twenty is a repeat, few guesses are wrong, and those are rare.
    pub const ENOUGH: u32 = 32;

    pub fn after(enough: u32) -> Self {
        Self { in_a_row: AtomicU32::new(0), enough }
    }

    pub fn is_likely(&self) -> bool {
        self.in_a_row.load(Ordering::Relaxed) >= self.enough
    }

    /// What a look or a claim showed. Counts that race are not exact: it is a guess.
    pub fn saw(&self, new: bool) {
        let counted = self.in_a_row.load(Ordering::Relaxed);
        match new {
            // Written no more than needed: all calls share it.
            true if counted < self.enough => self.in_a_row.store(counted + 1, Ordering::Relaxed),
            false if counted > 0 => self.in_a_row.store(0, Ordering::Relaxed),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_taken_for_new_after_enough_new_ones_in_a_row_and_no_longer_after_a_known_one() {
        let novelty = Novelty::after(3);
        for _ in 0..2 {
            assert!(!novelty.is_likely());
            (0..2).for_each(|_| novelty.saw(true));
            assert!(!novelty.is_likely(), "two");
            novelty.saw(false);
            (0..3).for_each(|_| novelty.saw(true));
            assert!(novelty.is_likely(), "three in a row");
            novelty.saw(true);
            assert!(novelty.is_likely());
            novelty.saw(false);
        }
    }
}
