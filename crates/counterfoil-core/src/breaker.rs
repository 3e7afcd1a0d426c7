//! Keeps calls away from a dependency that fails, per (tenant, tool).
//!
//! Closed → open after some failures in a row or too large a share of the last calls → after `reset` one probe passes → closed, or
//! open anew. Half-open is not stored: it is "open, and the time is up". Only dependency failures and doubts count; rejections,
//! validation, cancellation and replays never do. The newest record of the breaker's stream is its whole state.

use serde::{Deserialize, Serialize};

use crate::policy::BreakerPolicy;
use crate::time::Timestamp;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breaker {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<Open>,
    /// Dependency failures in a row.
    #[serde(default)]
    pub consecutive: u32,
    /// The last calls, oldest first: `x` failed, `.` did not.
    #[serde(default)]
    pub window: String,
    /// A probe is out. Not stored: a probe that is lost with its process gives its permit back.
    #[serde(skip)]
    pub probing: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    pub since: Timestamp,
    /// When one probe may pass. `None`: forced open by a person, until reset.
    pub until: Option<Timestamp>,
    pub reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    Pass,
    /// Passes as the one probe of a half-open breaker.
    Probe,
    Refuse {
        retry_at: Option<Timestamp>,
    },
}

/// What a dispatch said about the dependency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    Good,
    Bad,
    /// Says nothing: not dispatched after all, or cancelled.
    Silent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Closed,
    Open,
    HalfOpen,
}

impl Phase {
    /// The glossary's word, as in tables, logs and metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

impl Breaker {
    pub fn phase(&self, now: Timestamp) -> Phase {
        match &self.open {
            None => Phase::Closed,
            Some(Open { until: Some(until), .. }) if *until <= now => Phase::HalfOpen,
            Some(_) => Phase::Open,
        }
    }

    pub fn admit(&mut self, policy: &BreakerPolicy, now: Timestamp) -> Admission {
        match self.phase(now) {
            // A person's word holds even where the policy has no breaker.
            _ if !policy.enabled && !self.forced() => Admission::Pass,
            Phase::Closed => Admission::Pass,
            Phase::HalfOpen if !self.probing => {
                self.probing = true;
                Admission::Probe
            }
            Phase::HalfOpen | Phase::Open => Admission::Refuse { retry_at: self.open.as_ref().and_then(|o| o.until) },
        }
    }

    pub fn forced(&self) -> bool {
        matches!(&self.open, Some(Open { until: None, .. }))
    }

    /// Whether it lets everyone pass and one more success leaves it as it is.
    pub fn is_calm(&self, policy: &BreakerPolicy) -> bool {
        let settled = || self.consecutive == 0 && self.window.len() == policy.window as usize && !self.window.contains('x');
        self.open.is_none() && (!policy.enabled || settled())
    }

    /// As what an attempt passed that began at `begun` and whose pass was not kept: while open, nothing passes but the probe.
    pub fn admitted_at(&self, begun: Timestamp) -> Admission {
        match &self.open {
            Some(Open { until: Some(until), .. }) if *until <= begun => Admission::Probe,
            _ => Admission::Pass,
        }
    }

    /// Counts one dispatch. Returns whether what is stored changed: only then is there something to write.
    pub fn count(&mut self, policy: &BreakerPolicy, admission: Admission, health: Health, now: Timestamp) -> bool {
        let before = (self.open.clone(), self.consecutive, self.window.contains('x'));
        if admission == Admission::Probe {
            self.probing = false;
        }
        match (health, admission) {
            (Health::Silent, _) => return false,
            _ if !policy.enabled => return false,
            // Forced open while the probe was out: the person's word holds.
            _ if self.forced() => return false,
            // Dispatched before it opened: says nothing about the dependency of now.
            (_, Admission::Pass | Admission::Refuse { .. }) if self.open.is_some() => return false,
            (Health::Good, Admission::Probe) => *self = Self::default(),
            (Health::Bad, Admission::Probe) => self.trip(policy, now, "the probe of the half-open breaker failed".into()),
            (Health::Good, _) => {
                self.consecutive = 0;
                self.remember('.', policy.window);
            }
            (Health::Bad, _) => {
                self.consecutive += 1;
                self.remember('x', policy.window);
                if let Some(reason) = self.verdict(policy) {
                    self.trip(policy, now, reason);
                }
            }
        }
        // Successes of a healthy breaker change nothing worth a write.
        health == Health::Bad || before != (self.open.clone(), self.consecutive, self.window.contains('x'))
    }

    pub fn reset(&mut self) {
        *self = Self::default();
    }

    pub fn force_open(&mut self, now: Timestamp, reason: String) {
        self.open = Some(Open { since: now, until: None, reason });
    }

    fn remember(&mut self, mark: char, window: u32) {
        self.window.push(mark);
        let excess = self.window.len().saturating_sub(window as usize);
        self.window.drain(..excess);
    }

    fn verdict(&self, policy: &BreakerPolicy) -> Option<String> {
        if self.consecutive >= policy.consecutive {
            return Some(format!("{} failures in a row", self.consecutive));
        }
        let calls = self.window.len();
        let failed = self.window.matches('x').count();
        let full = calls >= policy.window as usize && calls > 0;
        (full && failed as f64 >= policy.rate * calls as f64).then(|| format!("{failed} of the last {calls} calls failed"))
    }

    fn trip(&mut self, policy: &BreakerPolicy, now: Timestamp, reason: String) {
        *self = Self { open: Some(Open { since: now, until: Some(now + policy.reset), reason }), ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: BreakerPolicy =
        BreakerPolicy { enabled: true, consecutive: 5, rate: 0.5, window: 100, reset: std::time::Duration::from_secs(30) };
    const NOW: Timestamp = Timestamp(0);

    fn run(breaker: &mut Breaker, marks: &str) {
        for mark in marks.chars() {
            let admission = breaker.admit(&POLICY, NOW);
            let health = if mark == 'x' { Health::Bad } else { Health::Good };
            breaker.count(&POLICY, admission, health, NOW);
        }
    }

    #[test]
    fn opens_after_five_in_a_row_and_not_after_four() {
        let mut b = Breaker::default();
        run(&mut b, "xxxx.xxxx");
        assert_eq!(b.phase(NOW), Phase::Closed);
        run(&mut b, "x");
        assert_eq!(b.phase(NOW), Phase::Open);
        assert!(matches!(b.admit(&POLICY, NOW), Admission::Refuse { .. }));
    }

    #[test]
    fn opens_at_half_of_a_full_window_and_not_below() {
        let mut b = Breaker::default();
        run(&mut b, &"x.".repeat(49));
        assert_eq!(b.phase(NOW), Phase::Closed, "the window is not full");
        run(&mut b, ".x");
        assert_eq!(b.phase(NOW), Phase::Open, "50 of 100");
        let mut b = Breaker::default();
        run(&mut b, &"x.".repeat(49));
        run(&mut b, "..");
        assert_eq!(b.phase(NOW), Phase::Closed, "49 of 100");
        let mut b = Breaker::default();
        run(&mut b, "..");
        run(&mut b, &".x".repeat(49));
        assert_eq!(b.phase(NOW), Phase::Closed, "49 of 100, the last of them just now");
    }

    /// Whoever finds it calm neither asks it nor tells it of a success: both must make no difference.
    #[test]
    fn a_calm_breaker_lets_pass_and_is_left_as_it_is_by_a_success() {
        let mut b = Breaker::default();
        for n in 0..3 * POLICY.window {
            // Two failures, of which the second has left the window in the end.
            let health = if n == 3 || n == 20 { Health::Bad } else { Health::Good };
            b.count(&POLICY, Admission::Pass, health, NOW);
            let mut after = b.clone();
            let passes = after.admit(&POLICY, NOW) == Admission::Pass;
            let changed = after.count(&POLICY, Admission::Pass, Health::Good, NOW);
            assert_eq!(b.is_calm(&POLICY), passes && !changed && after == b, "after {n}: {b:?}");
        }
        assert!(b.is_calm(&POLICY) && !b.is_calm(&BreakerPolicy { window: 50, ..POLICY }));
        b.force_open(NOW, "maintenance".into());
        let without = BreakerPolicy { enabled: false, ..POLICY };
        assert!(!b.is_calm(&POLICY) && !b.is_calm(&without) && Breaker::default().is_calm(&without));
    }

    #[test]
    fn a_window_of_nothing_says_nothing() {
        let policy = BreakerPolicy { window: 0, ..POLICY };
        let mut b = Breaker::default();
        b.count(&policy, Admission::Pass, Health::Bad, NOW);
        assert_eq!(b.phase(NOW), Phase::Closed, "one failure is not all of the last calls");
    }

    /// Whoever was on the way when it opened reports about the dependency of before: that neither keeps it open longer nor closes it.
    #[test]
    fn what_was_dispatched_before_it_opened_is_not_counted() {
        let mut b = Breaker::default();
        run(&mut b, "xxxxx");
        let open = b.clone();
        let later = NOW + std::time::Duration::from_secs(20);
        for health in [Health::Bad, Health::Bad, Health::Bad, Health::Bad, Health::Bad, Health::Good] {
            assert!(!b.count(&POLICY, Admission::Pass, health, later), "there is nothing to write");
            assert_eq!(b, open);
        }
    }

    #[test]
    fn one_probe_decides() {
        let later = NOW + POLICY.reset;
        for (health, then) in [(Health::Good, Phase::Closed), (Health::Bad, Phase::Open), (Health::Silent, Phase::HalfOpen)] {
            let mut b = Breaker::default();
            run(&mut b, "xxxxx");
            assert_eq!(b.admit(&POLICY, later), Admission::Probe);
            assert!(matches!(b.admit(&POLICY, later), Admission::Refuse { .. }), "one at a time");
            b.count(&POLICY, Admission::Probe, health, later);
            assert_eq!(b.phase(later), then, "{health:?}");
            if health == Health::Silent {
                assert_eq!(b.admit(&POLICY, later), Admission::Probe, "a lost probe gives its permit back");
            }
        }
    }

    #[test]
    fn what_began_while_it_was_half_open_was_its_probe() {
        let later = NOW + POLICY.reset;
        let mut b = Breaker::default();
        assert_eq!(b.admitted_at(later), Admission::Pass);
        run(&mut b, "xxxxx");
        assert_eq!(b.admitted_at(NOW), Admission::Pass, "before it opened");
        assert_eq!(b.admitted_at(later), Admission::Probe);
        b.force_open(later, "maintenance".into());
        assert_eq!(b.admitted_at(Timestamp::MAX), Admission::Pass);
    }

    #[test]
    fn a_person_can_force_it_open_and_reset_it() {
        let mut b = Breaker::default();
        b.force_open(NOW, "maintenance".into());
        assert!(matches!(b.admit(&POLICY, Timestamp::MAX), Admission::Refuse { retry_at: None }));
        b.reset();
        assert_eq!(b.admit(&POLICY, NOW), Admission::Pass);
    }

    #[test]
    fn a_probe_that_is_out_does_not_overrule_the_person_who_forced_it_open() {
        let later = NOW + POLICY.reset;
        for health in [Health::Good, Health::Bad, Health::Silent] {
            let mut b = Breaker::default();
            run(&mut b, "xxxxx");
            assert_eq!(b.admit(&POLICY, later), Admission::Probe);
            b.force_open(later, "maintenance".into());
            b.count(&POLICY, Admission::Probe, health, later);
            assert!(b.forced(), "{health:?}");
        }
    }

    /// A tool whose policy has no breaker is not kept away by what was counted before; a person's word holds all the same.
    #[test]
    fn without_a_breaker_nothing_is_counted_and_only_a_person_stops_calls() {
        let without = BreakerPolicy { enabled: false, ..POLICY };
        let mut tripped = Breaker::default();
        run(&mut tripped, "xxxxx");
        assert_eq!(tripped.admit(&without, NOW), Admission::Pass);
        let mut b = Breaker::default();
        for _ in 0..10 {
            assert!(!b.count(&without, Admission::Pass, Health::Bad, NOW), "there is nothing to write");
        }
        assert_eq!(b, Breaker::default());
        b.force_open(NOW, "maintenance".into());
        assert_eq!(b.admit(&without, NOW), Admission::Refuse { retry_at: None });
    }

    #[test]
    fn phases_are_called_as_in_the_glossary() {
        let mut b = Breaker::default();
        assert_eq!(b.phase(NOW).word(), "closed");
        run(&mut b, "xxxxx");
        assert_eq!((b.phase(NOW).word(), b.phase(NOW + POLICY.reset).word()), ("open", "half_open"));
    }

    #[test]
    fn a_healthy_breaker_writes_nothing() {
        let mut b = Breaker::default();
        assert!(!b.count(&POLICY, Admission::Pass, Health::Good, NOW));
        assert!(b.count(&POLICY, Admission::Pass, Health::Bad, NOW));
        assert!(b.count(&POLICY, Admission::Pass, Health::Good, NOW), "the row of failures ended");
    }
}
