//! How the things of the ledger are shown: one JSON shape each, for the HTTP API and for the CLI's `--json`.

use std::time::Duration;

use counterfoil_core::breaker::{Breaker, Phase};
use counterfoil_core::effect::State;
use counterfoil_core::ids::Digest32;
use counterfoil_core::policy::{ArgPath, EffectClass, Policy, Repeat};
use counterfoil_core::run::confirm::Finding;
use counterfoil_core::run::schedule::{Became, Schedule, Standing};
use counterfoil_core::{Effect, EffectKey, Timestamp};
use counterfoil_store::Found;
use serde_json::{Value, json};

use crate::registry::Registered;
use crate::tool::Runs;

/// RFC 3339, to the millisecond.
pub fn time(at: Timestamp) -> String {
    jiff::Timestamp::from_microsecond(at.0).map_or_else(|_| at.0.to_string(), |t| format!("{t:.3}"))
}

/// RFC 3339, to the second.
pub fn second(at: Timestamp) -> String {
    jiff::Timestamp::from_microsecond(at.0).map_or_else(|_| at.0.to_string(), |t| format!("{t:.0}"))
}

/// A schedule, with what became of its last tick.
pub fn schedule(schedule: &Schedule) -> Value {
    let terms = &schedule.terms;
    let last = schedule.last.as_ref().map(|last| {
        let mut shown = json!({ "tick": second(last.tick), "at": time(last.at) });
        match &last.what {
            Became::Started { run } => (shown["what"], shown["run"]) = ("started".into(), json!(run)),
            Became::Skipped { why } => (shown["what"], shown["why"]) = ("skipped".into(), json!(why)),
            Became::Refused { code, message } => {
                (shown["what"], shown["code"], shown["why"]) = ("refused".into(), json!(code), json!(message));
            }
        }
        if let Some(from) = last.missed_from {
            shown["missed_from"] = second(from).into();
        }
        shown
    });
    let why = match &schedule.standing {
        Standing::Active => None,
        Standing::Paused { why } | Standing::Removed { why } => Some(why),
    };
    json!({
        "schedule": schedule.schedule, "state": schedule.standing.word(), "why": why, "workflow": terms.workflow, "cron": terms.cron,
        "zone": terms.zone, "input": terms.input.to_value(), "catch_up": terms.catch_up.word(),
        "within_ms": terms.within().map(|within| u64::try_from(within.as_millis()).unwrap_or(u64::MAX)), "overlap": terms.overlap.word(),
        "next": schedule.next.map(second), "last": last, "last_run": schedule.last_run, "runs": schedule.runs,
        "at": time(schedule.at), "by": schedule.by,
    })
}

pub fn key_of(found: &Found) -> EffectKey {
    Digest32(found.stream.0)
}

/// An effect in a list.
pub fn found(found: &Found, now: Timestamp) -> Value {
    let s = &found.summary;
    json!({
        "effect": key_of(found), "state": s.state, "tool": s.tool, "run": s.run, "at": time(found.at),
        "age_ms": u64::try_from(now.since(found.at).as_millis()).unwrap_or(u64::MAX), "position": found.position.0,
    })
}

/// A run in a list.
pub fn run(found: &Found) -> Value {
    let s = &found.summary;
    json!({
        "run": s.run, "workflow": s.tool, "state": s.state, "at": time(found.at), "due": s.due.map(time), "position": found.position.0,
    })
}

pub fn effect(effect: &Effect, history: Option<&[Value]>) -> Value {
    let opened = effect.latest();
    let done = match &effect.state {
        State::Done(done) | State::Undoing { done, .. } | State::Undone { done, .. } | State::UndoFailed { done, .. } => Some(done),
        _ => None,
    };
    json!({
        "effect": effect.key,
        "state": state(effect),
        "outcome": effect.world().word(),
        "attempts": effect.attempts,
        "tool": opened.map(|o| &o.tool),
        "args": opened.map(|o| &o.args),
        "caller": opened.map(|o| &o.caller),
        "run": opened.and_then(|o| o.run.as_ref()),
        "step": opened.and_then(|o| o.step.as_ref()),
        "result": done.map(|d| &d.result),
        "receipt": done.map(|d| &d.receipt),
        "state_changed": done.and_then(|d| d.state_changed.as_ref()),
        "undo": done.and_then(|d| d.undo.as_ref()),
        "late": effect.late,
        "history": history,
    })
}

/// What a look at the world found of one effect.
pub fn finding(effect: &Effect, finding: &Finding) -> Value {
    let opened = effect.latest();
    let mut shown = json!({
        "effect": effect.key, "tool": opened.map(|o| &o.tool), "run": opened.and_then(|o| o.run.as_ref()),
        "step": opened.and_then(|o| o.step.as_ref()), "finding": finding.word(),
    });
    match finding {
        Finding::Drifted { expected, found } => {
            shown["expected"] = json!(expected);
            shown["found"] = json!(found);
        }
        Finding::Unavailable { why } | Finding::Unverified { why } => shown["why"] = json!(why),
        Finding::Verified | Finding::InDoubt => {}
    }
    shown
}

pub fn state(effect: &Effect) -> &'static str {
    if effect.expired { "expired" } else { effect.state.word() }
}

pub fn breaker(tool: &Registered, breaker: &Breaker, phase: Phase) -> Value {
    let open = breaker.open.as_ref();
    json!({
        "tool": tool.name, "state": phase_word(phase), "consecutive": breaker.consecutive,
        "window": { "calls": breaker.window.len(), "failed": breaker.window.matches('x').count() },
        "since": open.map(|o| time(o.since)), "until": open.and_then(|o| o.until).map(time), "reason": open.map(|o| &o.reason),
    })
}

pub fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::Closed => "closed",
        Phase::Open => "open",
        Phase::HalfOpen => "half_open",
    }
}

pub fn tool(tool: &Registered) -> Value {
    let p = &tool.policy;
    let paths = |list: &[ArgPath]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
    let breaker = || {
        let b = &p.breaker;
        format!("{} in a row, or {}% of {}; reset after {}", b.consecutive, b.rate * 100.0, b.window, span(b.reset))
    };
    json!({
        "name": tool.name,
        "description": tool.description,
        "effect": effect_class(p),
        "repeat": repeat(p),
        "runs": runs(tool),
        "probe": tool.tool.can_probe(),
        "verify": tool.tool.can_verify(),
        "undo": tool.tool.undone_by(),
        "approval": tool.approval.is_some(),
        "key": p.key.as_deref().map(paths),
        "timeout": span(p.timeout),
        "deadline": span(p.deadline),
        "lease": span(p.lease),
        "attempts": p.retry.attempts,
        "retry_first": span(p.retry.first),
        "retry_max": span(p.retry.max),
        "breaker": p.breaker.enabled.then(breaker),
        "concurrency": p.limits.concurrency,
        "rate": p.limits.rate.map(|r| format!("{} per {}", r.count, span(r.per))),
        "per_run": p.limits.per_run,
        "retain": span(p.retain),
        "dedupe_window": p.dedupe_window.map(span),
        "redact": (!p.redact.is_empty()).then(|| paths(&p.redact)),
        "input": tool.input.as_ref().map(|s| &s.source),
        "output": tool.output.as_ref().map(|s| &s.source),
    })
}

fn runs(tool: &Registered) -> &'static str {
    match tool.runs() {
        Runs::Here => "here",
        Runs::Elsewhere => "elsewhere",
    }
}

pub fn effect_class(policy: &Policy) -> &'static str {
    match policy.effect {
        EffectClass::Pure => "pure",
        EffectClass::Read => "read",
        EffectClass::Write => "write",
    }
}

pub fn repeat(policy: &Policy) -> &'static str {
    match policy.repeat {
        Repeat::Never => "never",
        Repeat::Safe => "safe",
        Repeat::Keyed => "keyed",
    }
}

/// A duration as it is written in the config.
pub fn span(d: Duration) -> String {
    let ms = d.as_millis();
    match ms {
        _ if !ms.is_multiple_of(1000) => format!("{ms}ms"),
        _ if ms >= 3_600_000 && ms.is_multiple_of(3_600_000) => format!("{}h", ms / 3_600_000),
        _ if ms >= 60_000 && ms.is_multiple_of(60_000) => format!("{}m", ms / 60_000),
        _ => format!("{}s", ms / 1000),
    }
}
