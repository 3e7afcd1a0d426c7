//! Per tool: what kind of effect it is, whether it may be repeated, and the bounds it runs within.
//!
//! Plain values; the defaults are the product's promises (DESIGN of retries, breaker and retention) in one place.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::run::confirm::Confirm;

/// Largest result kept in full. What is larger happened all the same: a preview and a digest are kept.
pub const RESULT_BYTES_MAX: usize = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    /// Computes. May be run again at will; nothing is recorded.
    Pure,
    /// Looks at the world. Recorded and replayed; running it again does no harm.
    Read,
    /// Changes the world. The default for whatever is not declared.
    Write,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Repeat {
    /// A second dispatch could be a second effect. The default.
    Never,
    /// Doing it twice is the same as doing it once.
    Safe,
    /// The other side honours our `Idempotency-Key`.
    Keyed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnInFlight {
    Wait,
    Conflict,
}

/// A place inside the arguments: member names from the outside in.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ArgPath(pub Vec<String>);

impl ArgPath {
    /// `card.number` names the member `number` of the member `card`.
    pub fn parse(text: &str) -> Option<Self> {
        let parts: Vec<String> = text.split('.').map(str::to_owned).collect();
        parts.iter().all(|p| !p.is_empty()).then_some(Self(parts))
    }
}

impl std::fmt::Display for ArgPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.join("."))
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    pub effect: EffectClass,
    pub repeat: Repeat,
    /// The arguments that identify the call; all of them when `None`.
    pub key: Option<Vec<ArgPath>>,
    /// One attempt may take this long; then its outcome is unknown.
    pub timeout: Duration,
    /// All attempts and the waiting between them.
    pub deadline: Duration,
    pub retry: RetryPolicy,
    pub breaker: BreakerPolicy,
    pub limits: Limits,
    /// How long a finished effect answers before it becomes a tombstone.
    pub retain: Duration,
    pub redact: Vec<ArgPath>,
    /// Equal calls without key and run replay when the last one ended less than this ago.
    pub dedupe_window: Option<Duration>,
    pub on_in_flight: OnInFlight,
    pub wait_max: Duration,
    /// A claim whose worker is silent for this long is in doubt.
    pub lease: Duration,
    /// How long to wait after a doubt began before the probe's word counts: the provider's own delay. `None`: until the lost attempt's
    /// timeout is over, since the other side may still be at work on it.
    pub settle_after: Option<Duration>,
    /// How long an approval may be outstanding before it counts as denied.
    pub approval_expires: Duration,
    /// Largest result kept in full.
    pub result_bytes_max: usize,
    /// Whether its recorded effects are held against the world when a run goes on, where the run's workflow does not say.
    pub confirm: Confirm,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            effect: EffectClass::Write,
            repeat: Repeat::Never,
            key: None,
            timeout: Duration::from_secs(30),
            deadline: Duration::from_secs(120),
            retry: RetryPolicy::default(),
            breaker: BreakerPolicy::default(),
            limits: Limits::default(),
            retain: Duration::from_secs(24 * 3600),
            redact: Vec::new(),
            dedupe_window: None,
            on_in_flight: OnInFlight::Wait,
            wait_max: Duration::from_secs(30),
            lease: Duration::from_secs(30),
            settle_after: None,
            approval_expires: Duration::from_secs(24 * 3600),
            result_bytes_max: RESULT_BYTES_MAX,
            confirm: Confirm::default(),
        }
    }
}

impl Policy {
    /// Whether a second dispatch after an unknown outcome is harmless.
    pub fn repeatable(&self) -> bool {
        self.repeat != Repeat::Never || self.effect != EffectClass::Write
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryPolicy {
    /// All attempts of one series, the first included.
    pub attempts: u32,
    pub first: Duration,
    pub max: Duration,
    pub factor: f64,
    pub jitter: Jitter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Jitter {
    /// Anything between zero and the delay.
    Full,
    /// Exactly the delay.
    Off,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { attempts: 4, first: Duration::from_millis(500), max: Duration::from_secs(5), factor: 2.0, jitter: Jitter::Full }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BreakerPolicy {
    /// Off: the breaker neither counts nor opens.
    pub enabled: bool,
    /// Opens after this many dependency failures in a row.
    pub consecutive: u32,
    /// Or when at least this share of the last `window` calls failed (a full window is needed).
    pub rate: f64,
    pub window: u32,
    /// How long it stays open before one probe may pass.
    pub reset: Duration,
}

/// Widest window of a breaker: it is kept as a bit per call in each breaker record.
pub const BREAKER_WINDOW_MAX: u32 = 1000;

impl Default for BreakerPolicy {
    fn default() -> Self {
        Self { enabled: true, consecutive: 5, rate: 0.5, window: 100, reset: Duration::from_secs(30) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Limits {
    /// Attempts of this tool at one time.
    pub concurrency: Option<u32>,
    /// Attempts that may wait for a place; one more is refused.
    pub queue: Option<u32>,
    pub rate: Option<Rate>,
    /// Effects of this tool in one run.
    pub per_run: Option<u32>,
    /// What the effects of this tool in one run may cost together (the cost of one is an expression of the tool).
    pub cost_per_run: Option<f64>,
}

impl Limits {
    /// Whether attempts take something that other attempts then lack.
    pub fn shared(&self) -> bool {
        self.rate.is_some() || self.concurrency.is_some()
    }
}

/// `count` per `per`, with a burst of `count`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    pub count: u32,
    pub per: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_of_a_mebibyte_is_kept_in_full() {
        assert_eq!(Policy::default().result_bytes_max, 1_048_576);
    }

    #[test]
    fn rates_and_places_are_shared_and_budgets_are_a_runs_own() {
        let rate = Some(Rate { count: 1, per: Duration::from_secs(1) });
        assert!(Limits { rate, ..Limits::default() }.shared() && Limits { concurrency: Some(1), ..Limits::default() }.shared());
        assert!(!Limits { per_run: Some(1), cost_per_run: Some(1.0), ..Limits::default() }.shared());
    }
}
