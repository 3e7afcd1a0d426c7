//! Whether it pays to look a moment longer before going to sleep.
//!
//! A caller alone writes its claim, runs its tool and writes the outcome: when the tool is quick, the writer has hardly gone to sleep when it is
//! woken again, and waking a thread takes longer than all the rest but the flush. So the writer looks on for a moment where that helped
//! lately, and sleeps at once where it did not. It gives way to every other thread meanwhile.

use std::time::{Duration, Instant};

/// A little more than a caller needs to wake up and come back with an outcome.
const MOMENT: Duration = Duration::from_micros(120);
/// So many looks in vain in a row, and it sleeps at once.
const CREDIT_MAX: u32 = 3;
/// After so many sleeps it tries once whether looking helps by now.
const TRY_EVERY: u32 = 32;

#[derive(Debug)]
pub struct Patience {
    credit: u32,
    slept: u32,
}

impl Default for Patience {
    fn default() -> Self {
        Self { credit: 1, slept: 0 }
    }
}

impl Patience {
    /// Looks on for a moment, if that is worth it. What `arrived` says at the end is seen by the caller itself.
    pub fn look_on(&mut self, arrived: impl Fn() -> bool) {
        if self.tries() {
            let until = Instant::now() + MOMENT;
            while !arrived() && Instant::now() < until {
                std::thread::yield_now();
            }
            self.learn(arrived());
        }
    }

    /// Asked before each time; whoever is told `true` says afterwards whether it helped.
    pub fn tries(&mut self) -> bool {
        if self.credit == 0 {
            self.slept += 1;
            if self.slept >= TRY_EVERY {
                self.slept = 0;
                self.credit = 1;
            }
        }
        self.credit > 0
    }

    pub fn learn(&mut self, helped: bool) {
        self.credit = if helped { CREDIT_MAX } else { self.credit - 1 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_stops_where_it_does_not_help_and_is_tried_again_now_and_then() {
        let mut patience = Patience::default();
        patience.learn(true);
        let in_vain = (0..100).take_while(|_| patience.tries().then(|| patience.learn(false)).is_some()).count();
        assert_eq!(in_vain, CREDIT_MAX as usize);
        let tried = (0..TRY_EVERY * 10).filter(|_| patience.tries().then(|| patience.learn(false)).is_some()).count();
        assert_eq!(tried, 10);
        patience.learn_after(true);
        assert!(patience.tries());
    }

    impl Patience {
        /// As if it had been tried.
        fn learn_after(&mut self, helped: bool) {
            self.credit = 1;
            self.learn(helped);
        }
    }
}
