//! Bounds on how often and how much: a token bucket for rates, places for attempts at one time, a running total for a run's budget.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{EffectKey, Fence};
use crate::policy::{Limits, Rate};
use crate::time::Timestamp;

/// `rate.count` tokens that grow back over `rate.per`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
    tokens: f64,
    at: Timestamp,
}

impl Bucket {
    pub fn full(rate: Rate, now: Timestamp) -> Self {
        Self { tokens: f64::from(rate.count), at: now }
    }

    /// Takes one token, or says how long until there is one.
    pub fn take(&mut self, rate: Rate, now: Timestamp) -> Result<(), Duration> {
        let per_second = f64::from(rate.count) / rate.per.as_secs_f64();
        let grown = now.since(self.at).as_secs_f64() * per_second;
        self.tokens = (self.tokens + grown).min(f64::from(rate.count));
        self.at = self.at.max(now);
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return Ok(());
        }
        Err(Duration::try_from_secs_f64((1.0 - self.tokens) / per_second).unwrap_or(rate.per))
    }
}

/// What all workers together have taken of one tool's `rate` and `concurrency`. Each record holds all of it, so only the newest is read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Quota {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<Bucket>,
    /// Attempts that have, or had, a place. One that is over is taken out when the place is needed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<Place>,
    /// It went on in the next stream.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub moved: bool,
}

/// An attempt among `limits.concurrency`: it has its place for as long as this claim of this effect runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Place {
    pub effect: EffectKey,
    pub fence: Fence,
}

/// Why there is nothing to take now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wait {
    /// Every place is taken, unless one of these attempts is over.
    Place,
    /// The next token comes after so long.
    Token(Duration),
}

impl Quota {
    /// The quota after one more attempt. `place`: it counts among `limits.concurrency`.
    pub fn take(&self, limits: &Limits, place: Option<Place>, now: Timestamp) -> Result<Self, Wait> {
        let mut next = self.clone();
        if let (Some(place), Some(most)) = (place, limits.concurrency) {
            next.places.retain(|other| other.effect != place.effect);
            if next.places.len() >= most as usize {
                return Err(Wait::Place);
            }
            next.places.push(place);
        }
        if let Some(rate) = limits.rate {
            next.bucket.get_or_insert_with(|| Bucket::full(rate, now)).take(rate, now).map_err(Wait::Token)?;
        }
        Ok(next)
    }

    /// Without the places of attempts that are over.
    pub fn without(mut self, over: &[Place]) -> Self {
        self.places.retain(|place| !over.contains(place));
        self
    }
}

/// What one run has spent on one tool. Each record holds the total, so only the newest is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    pub count: u32,
    pub cost: f64,
}

impl Spent {
    /// The total with one more effect, or which limit it would break.
    pub fn plus(self, cost: f64, limits: &Limits) -> Result<Self, String> {
        let total = Self { count: self.count.saturating_add(1), cost: self.cost + cost };
        if cost < 0.0 || !total.cost.is_finite() {
            return Err(format!("this call costs {cost}, spent so far {}: that is no amount", self.cost));
        }
        if let Some(max) = limits.per_run.filter(|max| total.count > *max) {
            return Err(format!("limits.per_run is {max} and this run has used all of them"));
        }
        if let Some(max) = limits.cost_per_run.filter(|max| total.cost > *max) {
            return Err(format!("limits.cost_per_run is {max}; spent so far {}, this call costs {cost}", self.cost));
        }
        Ok(total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let rate = Rate { count: 10, per: Duration::from_secs(1) };
        let mut bucket = Bucket::full(rate, Timestamp::ZERO);
        for _ in 0..10 {
            assert_eq!(bucket.take(rate, Timestamp::ZERO), Ok(()));
        }
        let wait = bucket.take(rate, Timestamp::ZERO).unwrap_err();
        assert_eq!(wait.as_millis(), 100);
        assert_eq!(bucket.take(rate, Timestamp::ZERO + Duration::from_millis(101)), Ok(()));
        assert!(bucket.take(rate, Timestamp::ZERO).is_err(), "a clock that runs backwards gives nothing away");
    }

    #[test]
    fn half_a_token_is_half_the_wait() {
        let rate = Rate { count: 1, per: Duration::from_secs(2) };
        let mut bucket = Bucket::full(rate, Timestamp::ZERO);
        assert_eq!(bucket.take(rate, Timestamp::ZERO), Ok(()));
        assert_eq!(bucket.take(rate, Timestamp::ZERO + Duration::from_millis(500)), Err(Duration::from_millis(1500)));
    }

    #[test]
    fn a_quota_gives_as_many_places_and_tokens_as_there_are() {
        let place = |number: u8, fence: u64| Place { effect: crate::ids::Digest32([number; 32]), fence: Fence(fence) };
        let limits = Limits { concurrency: Some(2), rate: Some(Rate { count: 3, per: Duration::from_secs(3) }), ..Limits::default() };
        let now = Timestamp::ZERO;
        let two = Quota::default().take(&limits, Some(place(1, 1)), now).unwrap().take(&limits, Some(place(2, 1)), now).unwrap();
        assert_eq!(two.take(&limits, Some(place(3, 1)), now), Err(Wait::Place));
        // A later claim of the same effect takes the place of the earlier one.
        let again = two.take(&limits, Some(place(2, 2)), now).unwrap();
        assert_eq!(again.places, [place(1, 1), place(2, 2)]);
        let free = again.without(&[place(1, 1), place(2, 1)]);
        assert_eq!(free.places, [place(2, 2)], "of the places that are over, only those that are there");
        assert_eq!(free.take(&limits, Some(place(3, 1)), now), Err(Wait::Token(Duration::from_secs(1))));
        // A client's attempt has no place, and needs a token all the same.
        let later = now + Duration::from_millis(1001);
        assert_eq!(two.take(&limits, None, later).unwrap().places, two.places);
        let text = serde_json::to_string(&two).unwrap();
        assert_eq!(serde_json::from_str::<Quota>(&text).unwrap(), two);
        // Lower limits than when the places were taken.
        assert_eq!(two.take(&Limits { concurrency: Some(1), ..Limits::default() }, Some(place(3, 1)), later), Err(Wait::Place));
    }

    #[test]
    fn budgets_stop_at_the_limit() {
        let limits = Limits { per_run: Some(2), cost_per_run: Some(10.0), ..Limits::default() };
        let one = Spent::default().plus(6.0, &limits).unwrap();
        assert!(one.plus(4.01, &limits).unwrap_err().contains("limits.cost_per_run is 10; spent so far 6, this call costs 4.01"));
        assert_eq!(one.plus(4.0, &limits).map(|spent| spent.cost), Ok(10.0), "to the last cent");
        let two = one.plus(1.0, &limits).unwrap();
        assert!(two.plus(0.0, &limits).unwrap_err().contains("per_run is 2"));
    }

    #[test]
    fn a_cost_that_is_no_amount_is_refused() {
        let limits = Limits { cost_per_run: Some(10.0), ..Limits::default() };
        // NaN compares with nothing: once in the total, no limit would ever stop anything again, nor could the record be read.
        for cost in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0] {
            assert!(Spent::default().plus(cost, &limits).unwrap_err().contains("costs"), "{cost}");
            assert!(Spent::default().plus(cost, &Limits::default()).is_err(), "{cost}");
        }
        assert!(Spent { count: 1, cost: f64::MAX }.plus(f64::MAX, &Limits::default()).is_err(), "the total is no amount either");
        assert!(Spent { count: u32::MAX, cost: 0.0 }.plus(1.0, &limits).is_ok());
    }
}
