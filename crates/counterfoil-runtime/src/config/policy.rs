//! The policy fields of a tool: bounds and promises, checked one by one and against each other.
//!
//! Defaults are those of [`Policy`] and nowhere else. Where two fields bound each other, what is not written gives way to what
//! is; a contradiction between two that are written is a mistake, never a silent choice.

use std::time::Duration;

use counterfoil_core::policy::{
    ArgPath, BREAKER_WINDOW_MAX, BreakerPolicy, EffectClass, Jitter, Limits, OnInFlight, Policy, Repeat, RetryPolicy,
};

use super::confirm;
use super::read::{Fields, Spot};
use super::units::{self, shown};

pub const RETRY: &[&str] = &["attempts", "first", "max", "factor", "jitter"];
pub const BREAKER: &[&str] = &["consecutive", "rate", "window", "reset"];
pub const LIMITS: &[&str] = &["concurrency", "queue", "rate", "per_run", "cost_per_run"];

/// More attempts than this are a loop, not a retry.
const ATTEMPTS_MAX: u32 = 100;
/// A lease is renewed several times while it lasts; what is shorter is lost to one slow fsync.
const LEASE_MIN: Duration = Duration::from_secs(1);
/// Results are rows of the ledger, not a place for files.
const RESULT_MAX: usize = 64 << 20;

pub fn read(tool: &Fields<'_>) -> Policy {
    let mut policy = Policy::default();
    tool.read("effect", |s| s.choice(&EFFECTS), &mut policy.effect);
    tool.read("repeat", |s| s.choice(&REPEATS), &mut policy.repeat);
    tool.read("key", |s| key(s).map(Some), &mut policy.key);
    tool.read("retry", retry, &mut policy.retry);
    tool.read("breaker", breaker, &mut policy.breaker);
    tool.read("limits", |s| limits(s, tool), &mut policy.limits);
    tool.read("retain", Spot::duration, &mut policy.retain);
    tool.read("redact", arg_paths, &mut policy.redact);
    tool.read("dedupe_window", |s| s.duration().map(Some), &mut policy.dedupe_window);
    tool.read("on_in_flight", |s| s.choice(&[("wait", OnInFlight::Wait), ("conflict", OnInFlight::Conflict)]), &mut policy.on_in_flight);
    tool.read("wait_max", Spot::duration_or_zero, &mut policy.wait_max);
    tool.read("lease", lease, &mut policy.lease);
    tool.read("settle_after", |spot| spot.duration_or_zero().map(Some), &mut policy.settle_after);
    tool.read("approval_expires", Spot::duration, &mut policy.approval_expires);
    tool.read("result_max", result_max, &mut policy.result_bytes_max);
    tool.read("confirm", confirm::read, &mut policy.confirm);
    times(tool, &mut policy);
    window_kept(tool, &mut policy);
    consistent(tool, &policy);
    policy
}

const EFFECTS: [(&str, EffectClass); 3] = [("pure", EffectClass::Pure), ("read", EffectClass::Read), ("write", EffectClass::Write)];
const REPEATS: [(&str, Repeat); 3] = [("never", Repeat::Never), ("safe", Repeat::Safe), ("keyed", Repeat::Keyed)];

/// One attempt fits into the whole. What is not written gives way to what is.
fn times(tool: &Fields<'_>, policy: &mut Policy) {
    let read = |name| tool.get(name).and_then(|spot| spot.duration());
    match (read("timeout"), read("deadline")) {
        (Some(timeout), Some(deadline)) => {
            (policy.timeout, policy.deadline) = (timeout, deadline);
            if timeout > deadline {
                let message =
                    "{timeout} for one attempt is more than the deadline of {deadline} for all of them; raise deadline or lower timeout";
                let message = message.replace("{timeout}", &shown(timeout)).replace("{deadline}", &shown(deadline));
                tool.wrong("timeout", message);
            }
        }
        (Some(timeout), None) => (policy.timeout, policy.deadline) = (timeout, policy.deadline.max(timeout)),
        (None, Some(deadline)) => (policy.timeout, policy.deadline) = (policy.timeout.min(deadline), deadline),
        (None, None) => {}
    }
}

/// A result must be kept for as long as it may be replayed.
fn window_kept(tool: &Fields<'_>, policy: &mut Policy) {
    let Some(window) = policy.dedupe_window.filter(|window| *window > policy.retain) else { return };
    if tool.has("retain") {
        let retain = shown(policy.retain);
        tool.wrong("dedupe_window", format!("{} is longer than results are kept, retain: {retain}; raise retain", shown(window)));
    }
    policy.retain = window;
}

/// What one field makes of another.
fn consistent(tool: &Fields<'_>, policy: &Policy) {
    let class = match policy.effect {
        EffectClass::Pure => "pure",
        EffectClass::Read => "read",
        EffectClass::Write => return,
    };
    if tool.has("probe") {
        tool.wrong(
            "probe",
            format!("an effect: {class} tool may simply be run again, so it is never in doubt; drop probe, or write effect: write"),
        );
    }
    if tool.has("undo") {
        tool.wrong(
            "undo",
            format!("an effect: {class} tool changes nothing, so there is nothing to undo; drop undo, or write effect: write"),
        );
    }
    if policy.effect == EffectClass::Pure && tool.has("dedupe_window") {
        tool.wrong(
            "dedupe_window",
            "nothing is recorded of an effect: pure tool, so there is nothing to replay; drop it, or write effect: read",
        );
    }
}

fn key(spot: &Spot<'_>) -> Option<Vec<ArgPath>> {
    let paths = arg_paths(spot)?;
    if spot.list().is_some_and(|items| items.is_empty()) {
        spot.wrong("an empty list would make all calls of a step one call; name the arguments that identify a call, or drop key");
        return None;
    }
    Some(paths)
}

pub fn arg_paths(spot: &Spot<'_>) -> Option<Vec<ArgPath>> {
    let mut paths = Vec::new();
    for item in spot.list()? {
        let Some(text) = item.text() else { continue };
        match ArgPath::parse(text.strip_prefix("args.").unwrap_or(text)) {
            Some(path) if paths.contains(&path) => item.wrong(format!("{text:?} is listed twice")),
            Some(path) => paths.push(path),
            None => item.wrong(format!("{text:?} is not the path of an argument; write order_id or card.number")),
        }
    }
    Some(paths)
}

pub fn retry(spot: &Spot<'_>) -> Option<RetryPolicy> {
    let mut retry = RetryPolicy::default();
    if spot.is_off() {
        return Some(RetryPolicy { attempts: 1, ..retry });
    }
    let fields = spot.fields(RETRY)?;
    fields.read("attempts", attempts, &mut retry.attempts);
    fields.read("first", Spot::duration_or_zero, &mut retry.first);
    fields.read("max", Spot::duration_or_zero, &mut retry.max);
    fields.read("factor", factor, &mut retry.factor);
    fields.read("jitter", |s| s.choice(&[("full", Jitter::Full), ("off", Jitter::Off)]), &mut retry.jitter);
    if retry.first > retry.max {
        if fields.has("max") {
            fields.wrong("first", format!("the first delay of {} is above the longest, max: {}", shown(retry.first), shown(retry.max)));
        }
        retry.max = retry.first;
    }
    Some(retry)
}

fn attempts(spot: &Spot<'_>) -> Option<u32> {
    if spot.node.value == super::node::Value::Int(0) {
        spot.wrong("0 attempts would never run the tool: attempts counts the first one too; for no retries write retry: off");
        return None;
    }
    let attempts = spot.count(1)?;
    if attempts > ATTEMPTS_MAX {
        spot.wrong(format!("{attempts} attempts are too many; at most {ATTEMPTS_MAX}"));
    }
    Some(attempts)
}

fn factor(spot: &Spot<'_>) -> Option<f64> {
    let factor = spot.number()?;
    if !(1.0..=100.0).contains(&factor) {
        spot.wrong(format!("found {factor}; expected a number from 1 (always the same delay) to 100"));
        return None;
    }
    Some(factor)
}

fn breaker(spot: &Spot<'_>) -> Option<BreakerPolicy> {
    let mut breaker = BreakerPolicy::default();
    if spot.is_off() {
        return Some(BreakerPolicy { enabled: false, ..breaker });
    }
    let fields = spot.fields(BREAKER)?;
    fields.read("consecutive", |s| s.count(1), &mut breaker.consecutive);
    fields.read("rate", share, &mut breaker.rate);
    fields.read("window", window, &mut breaker.window);
    fields.read("reset", Spot::duration, &mut breaker.reset);
    Some(breaker)
}

fn share(spot: &Spot<'_>) -> Option<f64> {
    let share = spot.number()?;
    if !(share > 0.0 && share <= 1.0) {
        let meant = (share > 1.0 && share <= 100.0).then(|| (share / 100.0).to_string());
        spot.report.add(spot.mistake(format!("found {share}; expected a share above 0 and up to 1, as in 0.5 for half")).suggest(meant));
        return None;
    }
    Some(share)
}

fn window(spot: &Spot<'_>) -> Option<u32> {
    let window = spot.count(1)?;
    if window > BREAKER_WINDOW_MAX {
        spot.wrong(format!("a window of {window} calls is too wide; at most {BREAKER_WINDOW_MAX}"));
        return None;
    }
    Some(window)
}

fn limits(spot: &Spot<'_>, tool: &Fields<'_>) -> Option<Limits> {
    let mut limits = Limits::default();
    let fields = spot.fields(LIMITS)?;
    fields.read("concurrency", |s| s.count(1).map(Some), &mut limits.concurrency);
    fields.read("queue", |s| s.count(0).map(Some), &mut limits.queue);
    fields.read("rate", |s| s.unit(units::rate).map(Some), &mut limits.rate);
    fields.read("per_run", |s| s.count(1).map(Some), &mut limits.per_run);
    fields.read("cost_per_run", |s| cost_per_run(s).map(Some), &mut limits.cost_per_run);
    if fields.has("queue") && !fields.has("concurrency") {
        fields.wrong("queue", "nothing ever queues without limits.concurrency; add it, or drop queue");
    }
    if fields.has("cost_per_run") && !tool.has("cost") {
        fields.wrong("cost_per_run", "what one call costs is not known; add cost to the tool, as in cost: args.cents");
    }
    Some(limits)
}

fn cost_per_run(spot: &Spot<'_>) -> Option<f64> {
    let cost = spot.number()?;
    if cost <= 0.0 {
        spot.wrong(format!("found {cost}; expected a number above 0"));
        return None;
    }
    Some(cost)
}

fn lease(spot: &Spot<'_>) -> Option<Duration> {
    let lease = spot.duration()?;
    if lease < LEASE_MIN {
        spot.wrong(format!("a lease of {} would be lost to any pause; at least {}", shown(lease), shown(LEASE_MIN)));
        return None;
    }
    Some(lease)
}

fn result_max(spot: &Spot<'_>) -> Option<usize> {
    let size = spot.size()?;
    if size > RESULT_MAX {
        spot.wrong(format!("found {size} bytes; results are kept in the ledger, at most 64MiB each"));
        return None;
    }
    Some(size)
}
