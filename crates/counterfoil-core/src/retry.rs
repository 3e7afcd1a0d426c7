//! When to try again. One owner of retries: the call loop, under one key.
//!
//! Only failures that are certainly "not done", or doubts of tools that may be repeated, come here.

use std::time::Duration;

use crate::outcome::Failure;
use crate::policy::{Jitter, RetryPolicy};
use crate::time::Timestamp;

/// Attempts made in one call, and until when it may go on. A new call on the same key begins a new series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Series {
    pub attempts: u32,
    pub probes: u32,
    pub deadline: Timestamp,
}

impl Series {
    /// No further attempt: too many were made, or the time is up. The first attempt of a call is always open to it.
    pub fn is_over(&self, policy: &RetryPolicy, now: Timestamp) -> bool {
        self.attempts > 0 && (self.attempts >= policy.attempts || now >= self.deadline)
    }
}

/// What follows a failure that may be tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Next {
    /// Before this, the recorded failure is the answer.
    pub not_before: Timestamp,
    /// This series is over: too many attempts, or no time left for another.
    pub exhausted: bool,
}

/// The delay before attempt `attempts + 1`. `jitter` is between 0 and 1.
pub fn delay(policy: &RetryPolicy, attempts: u32, jitter: f64) -> Duration {
    let doublings = i32::try_from(attempts.saturating_sub(1)).unwrap_or(i32::MAX);
    let full = (policy.first.as_secs_f64() * policy.factor.powi(doublings)).min(policy.max.as_secs_f64());
    let share = match policy.jitter {
        Jitter::Full => jitter.clamp(0.0, 1.0),
        Jitter::Off => 1.0,
    };
    Duration::try_from_secs_f64(full * share).unwrap_or(policy.max).min(policy.max)
}

pub fn next(policy: &RetryPolicy, series: Series, failure: &Failure, now: Timestamp, jitter: f64) -> Next {
    let asked = failure.retry_after_ms.map(Duration::from_millis);
    let own = if series.attempts >= policy.attempts { policy.max } else { delay(policy, series.attempts, jitter) };
    // The other side knows better than our schedule when it will be back; coming earlier only counts against us.
    let not_before = now + asked.unwrap_or(Duration::ZERO).max(own);
    Next { not_before, exhausted: series.attempts >= policy.attempts || not_before >= series.deadline }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_attempt_is_open_to_every_call() {
        let policy = RetryPolicy { attempts: 2, ..RetryPolicy::default() };
        let over = |attempts, now| Series { attempts, probes: 0, deadline: Timestamp(10) }.is_over(&policy, Timestamp(now));
        assert!(!over(0, 10) && !over(0, 99), "also when its time is up");
        assert!(!over(1, 9) && over(1, 10) && over(2, 0));
    }

    #[test]
    fn without_jitter_the_delays_are_exact() {
        let policy = RetryPolicy { jitter: Jitter::Off, ..RetryPolicy::default() };
        let ms: Vec<u128> = (1..=6).map(|n| delay(&policy, n, 0.3).as_millis()).collect();
        assert_eq!(ms, [500, 1000, 2000, 4000, 5000, 5000]);
    }

    #[test]
    fn with_jitter_a_delay_is_a_share_of_it() {
        let policy = RetryPolicy { jitter: Jitter::Full, ..RetryPolicy::default() };
        assert_eq!([0.0, 0.25, 1.0].map(|jitter| delay(&policy, 2, jitter).as_millis()), [0, 250, 1000]);
    }

    #[test]
    fn retry_after_is_honoured_and_the_deadline_ends_the_series() {
        let policy = RetryPolicy { jitter: Jitter::Off, ..RetryPolicy::default() };
        let series = Series { attempts: 1, probes: 0, deadline: Timestamp::from_millis(10_000) };
        let failure = Failure::of_dependency("http_429", "slow down").retry_after(Some(Duration::from_secs(3)));
        let now = Timestamp::ZERO;
        assert_eq!(next(&policy, series, &failure, now, 0.5), Next { not_before: Timestamp::from_millis(3000), exhausted: false });
        let late = Timestamp::from_millis(8_000);
        assert!(next(&policy, series, &failure, late, 0.5).exhausted);
        assert!(next(&policy, Series { attempts: 4, ..series }, &failure, now, 0.5).exhausted);
    }

    proptest! {
        #[test]
        fn delays_stay_within_their_bounds(attempts in 0u32..10_000, jitter in 0.0f64..=1.0, first in 0u64..10_000, max in 0u64..10_000) {
            let policy = RetryPolicy { first: Duration::from_millis(first), max: Duration::from_millis(max), ..RetryPolicy::default() };
            prop_assert!(delay(&policy, attempts, jitter) <= policy.max);
        }
    }
}
