//! What the stores behind a network have in common: whose clock counts, and how one process hears of another's commits.
//!
//! Leases of workers on several machines are compared with one clock, the store's. Asking it for every look would cost a round trip, so each
//! process keeps the difference between its own monotonic clock and the store's, and learns it anew from time to time. A process that was
//! paused or whose wall clock was set finds the store's time all the same: neither moves the monotonic clock.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use counterfoil_core::{StreamId, Timestamp};

/// The store's time, as this process reckons it.
#[derive(Debug)]
pub struct RemoteClock {
    /// Monotonic time is counted from here.
    started: Instant,
    /// Microseconds from `started` as the store's clock shows it.
    offset: AtomicI64,
    /// How far `offset` may be off, in microseconds.
    error: AtomicU64,
    /// When it was learned, in microseconds after `started`.
    learned: AtomicU64,
}

/// Two quartz clocks may drift apart by so much: 200 parts in a million.
const DRIFT_PER_SECOND: Duration = Duration::from_micros(200);

impl RemoteClock {
    /// The store was asked at `asked`, answered `told`, and the answer was here at `answered`.
    pub fn new(asked: Instant, told: Timestamp, answered: Instant) -> Self {
        let clock = Self { started: asked, offset: AtomicI64::new(0), error: AtomicU64::new(u64::MAX), learned: AtomicU64::new(0) };
        clock.learn(asked, told, answered);
        clock
    }

    /// Takes another reading, if it is better than what is left of the last one.
    pub fn learn(&self, asked: Instant, told: Timestamp, answered: Instant) {
        let half = answered.saturating_duration_since(asked) / 2;
        let error = micros(half);
        if error > self.error_at(answered) {
            return;
        }
        let middle = self.since_start(asked + half);
        self.offset.store(told.0 - middle as i64, Ordering::SeqCst);
        self.error.store(error, Ordering::SeqCst);
        self.learned.store(self.since_start(answered), Ordering::SeqCst);
    }

    /// The best guess.
    pub fn now(&self) -> Timestamp {
        Timestamp(self.offset.load(Ordering::SeqCst).saturating_add(self.since_start(Instant::now()) as i64))
    }

    /// How far `now` may be off.
    pub fn error(&self) -> Duration {
        Duration::from_micros(self.error_at(Instant::now()))
    }

    /// The store's clock has reached this by now.
    pub fn earliest(&self) -> Timestamp {
        Timestamp(self.now().0.saturating_sub(self.error().as_micros() as i64))
    }

    /// The store's clock has not passed this yet.
    pub fn latest(&self) -> Timestamp {
        self.now() + self.error()
    }

    fn error_at(&self, at: Instant) -> u64 {
        let age_us = self.since_start(at).saturating_sub(self.learned.load(Ordering::SeqCst));
        let drift = age_us / 1_000_000 * micros(DRIFT_PER_SECOND);
        self.error.load(Ordering::SeqCst).saturating_add(drift)
    }

    fn since_start(&self, at: Instant) -> u64 {
        micros(at.saturating_duration_since(self.started))
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// The beginning of a stream's id: enough to wake whoever waits for it, short enough to be sent for every commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamPrefix(pub [u8; 8]);

impl From<&StreamId> for StreamPrefix {
    fn from(stream: &StreamId) -> Self {
        let mut prefix = [0; 8];
        prefix.copy_from_slice(&stream.0[..8]);
        Self(prefix)
    }
}

impl std::fmt::Display for StreamPrefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

impl StreamPrefix {
    /// As `Display` writes it: 16 hex digits.
    pub fn from_hex(hex: &str) -> Option<Self> {
        (hex.len() == 16).then(|| u64::from_str_radix(hex, 16).ok()).flatten().map(|number| Self(number.to_be_bytes()))
    }
}

/// What a process hears of commits, its own and others'. A hint that it is worth a look, never a fact: it may come late, twice or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    Streams(Vec<StreamPrefix>),
    /// Something was missed: whoever waits for anything looks again.
    Anything,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_is_worth_half_its_round_trip_and_a_worse_one_is_not_taken() {
        let asked = Instant::now();
        let ms = Duration::from_millis;
        let clock = RemoteClock::new(asked, Timestamp(5_000_000), asked + ms(10));
        // Halfway between question and answer the store's clock stood at 5 s.
        assert_eq!(clock.offset.load(Ordering::SeqCst), 5_000_000 - 5_000);
        assert_eq!(clock.error_at(asked + ms(10)), 5_000);
        clock.learn(asked + ms(20), Timestamp(9_000_000), asked + ms(120));
        assert_eq!(clock.offset.load(Ordering::SeqCst), 4_995_000, "half of 100 ms is worse than 5 ms");
        clock.learn(asked + ms(200), Timestamp(5_200_000), asked + ms(202));
        assert_eq!((clock.offset.load(Ordering::SeqCst), clock.error_at(asked + ms(202))), (4_999_000, 1_000));
    }

    #[test]
    fn a_good_reading_grows_old_and_then_a_worse_one_is_taken() {
        let asked = Instant::now();
        let clock = RemoteClock::new(asked, Timestamp(0), asked + Duration::from_millis(2));
        let later = asked + Duration::from_secs(60);
        assert_eq!(clock.error_at(later), 1_000 + 59 * 200);
        clock.learn(later, Timestamp(60_500_000), later + Duration::from_millis(20));
        assert_eq!(clock.offset.load(Ordering::SeqCst), 490_000, "the store's clock runs ahead");
    }
}
