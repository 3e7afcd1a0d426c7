//! `counterfoil effects`: what was done, what is in doubt, and what a person does about it.

use std::time::Duration;

use counterfoil_core::effect::State;
use counterfoil_core::run::confirm::Finding;
use counterfoil_core::summary::state_word;
use counterfoil_core::{Effect, EffectKey, Json, RunId, ToolName};
use counterfoil_runtime::log::find::effect_of_key;
use counterfoil_runtime::shown::{self, key_of, time};
use counterfoil_runtime::{OperateError, Operator, Resolution};
use counterfoil_store::{Position, Query};

use super::call::name;
use super::house::House;
use crate::cli::{EffectsArgs, EffectsCommand, Global, ListArgs, OperateArgs, ResolveArgs, WhoArgs};
use crate::output::{self, Exit, Refused};

/// Effects looked through for a short key. Beyond that, the whole key is needed.
const PREFIX_SEARCH_MAX: usize = 100_000;
const PREFIX_DIGITS_MIN: usize = 8;
/// Effects of a list that are loaded beside each other.
const AT_ONCE: usize = 64;
/// Of arguments, in a list.
const ARGS_CHARS_MAX: usize = 40;
/// Streams pruned in one slice, so that calls in between are not held up.
const PRUNE_SLICE: usize = 500;

pub async fn run(global: &Global, args: &EffectsArgs) -> anyhow::Result<Exit> {
    if let EffectsCommand::List(list_args) = &args.command {
        return list(global, list_args).await;
    }
    let house = House::standing(global).await?;
    match &args.command {
        EffectsCommand::List(_) => unreachable!("answered above"),
        EffectsCommand::Show { key } => show(global, &house, key).await,
        EffectsCommand::Verify { key } => verify(global, &house, key).await,
        EffectsCommand::Resolve(args) => resolve(global, &house, args).await,
        EffectsCommand::Flush(args) => super::flush::run(global, &house, args).await,
        EffectsCommand::Prune => prune(global, &house).await,
        EffectsCommand::Retry(args) => {
            let (key, operator) = target(&house, args).await?;
            answered(global, house.runtime.retry(key, &operator).await)
        }
        EffectsCommand::Undo(args) => {
            let (key, operator) = target(&house, args).await?;
            answered(global, house.runtime.undo(key, &operator).await)
        }
        EffectsCommand::Approve(args) => {
            let (key, operator) = target(&house, args).await?;
            answered(global, house.runtime.approve(key, &operator).await)
        }
        EffectsCommand::Cancel(args) => {
            let (key, operator) = target(&house, args).await?;
            let running = house.runtime.effect(key).await.is_ok_and(|effect| matches!(effect.state, State::Running(_)));
            let exit = changed(global, house.runtime.cancel(key, &operator).await)?;
            if running && !global.json {
                output::note("  its tool was at work and is told to stop; what it does all the same is kept: counterfoil effects show");
            }
            Ok(exit)
        }
        EffectsCommand::Deny(args) => {
            let (key, operator) = target(&house, args).await?;
            changed(global, house.runtime.deny(key, &operator).await)
        }
    }
}

async fn list(global: &Global, args: &ListArgs) -> anyhow::Result<Exit> {
    let states = args.state.iter().map(|s| state(s)).collect::<anyhow::Result<Vec<_>>>()?;
    let tool = args.tool.as_deref().map(ToolName::new).transpose().map_err(|e| Refused::usage("invalid_name", format!("--tool: {e}")))?;
    let run = args.run.as_deref().map(RunId::new).transpose().map_err(|e| Refused::usage("invalid_name", format!("--run: {e}")))?;
    let age = args.older_than.as_deref().map(parse_age).transpose()?;
    let house = House::standing(global).await?;
    let now = house.runtime.now();
    let query = Query {
        states,
        tool,
        run,
        before: age.map(|age| now - age),
        below: args.below.map(Position),
        limit: args.limit.clamp(1, 10_000),
        ..Query::effects(house.config.tenant.clone())
    };
    let page = house.runtime.ledger().search(query).await?;
    // Whoever asks for doubts alone has to do something about them.
    let inbox = args.state == ["in_doubt"];
    let mut doubts = Vec::new();
    for some in page.found.chunks(AT_ONCE).filter(|_| inbox) {
        let load = |found| {
            let (runtime, key) = (house.runtime.clone(), key_of(found));
            tokio::spawn(async move { runtime.effect(key).await })
        };
        for loading in some.iter().map(load).collect::<Vec<_>>() {
            doubts.push(match loading.await? {
                Err(OperateError::Ledger(error)) => return Err(error.into()),
                loaded => loaded.ok(),
            });
        }
    }
    if global.json {
        let mut items: Vec<_> = page.found.iter().map(|f| shown::found(f, now)).collect();
        for (item, effect) in items.iter_mut().zip(&doubts) {
            item["args"] = serde_json::json!(effect.as_ref().and_then(|effect| effect.latest()).map(|opened| &opened.args));
            item["doubt"] = serde_json::json!(effect.as_ref().and_then(doubt));
        }
        output::json(&serde_json::json!({ "effects": items, "next": page.next.map(|p| p.0) }));
        return Ok(Exit::Done);
    }
    if page.found.is_empty() {
        output::note("no effects");
        return Ok(Exit::Done);
    }
    let columns = ["effect", "state", "tool", "run", "age", "args", "why"];
    let mut table = output::table(&columns[..if inbox { 7 } else { 5 }]);
    for (at, f) in page.found.iter().enumerate() {
        let s = &f.summary;
        let text = |o: Option<String>| o.unwrap_or_default();
        let mut row = vec![
            key_of(f).to_string(),
            s.state.to_owned(),
            text(s.tool.as_ref().map(ToString::to_string)),
            text(s.run.as_ref().map(ToString::to_string)),
            age_text(now.since(f.at)),
        ];
        if let Some(effect) = doubts.get(at) {
            let args = effect.as_ref().and_then(|effect| effect.latest()).map(|opened| shortened(opened.args.as_str()));
            row.extend([text(args), text(effect.as_ref().and_then(doubt))]);
        }
        table.add_row(row);
    }
    output::print_table(&table);
    if let Some(next) = page.next {
        output::note(format_args!("more: --below {}", next.0));
    }
    Ok(Exit::Done)
}

/// Why nobody knows whether it happened.
fn doubt(effect: &Effect) -> Option<String> {
    match &effect.state {
        State::InDoubt(doubt) => Some(doubt.failure.code.clone()),
        State::Cancelled { by, .. } => Some(format!("cancelled by {by} while at work")),
        _ => None,
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(ARGS_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn state(text: &str) -> anyhow::Result<&'static str> {
    let known = state_word(text).filter(|w| !w.is_empty());
    known.ok_or_else(|| {
        let all = "in_doubt, running, done, failed, retrying, waiting_approval, cancelled, undoing, undone, undo_failed, ready, flushed";
        Refused::usage("invalid_state", format!("--state {text:?}: there is no such state; there are {all}"))
    })
}

fn parse_age(text: &str) -> anyhow::Result<Duration> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit = match &text[split..] {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => 0,
    };
    let number: Option<u64> = text[..split].parse().ok();
    match number.and_then(|n| n.checked_mul(unit)).filter(|_| unit > 0) {
        Some(seconds) => Ok(Duration::from_secs(seconds)),
        None => Err(Refused::usage("invalid_age", format!("--older-than {text:?}: write a number and a unit: 30s, 10m, 2h, 7d"))),
    }
}

async fn show(global: &Global, house: &House, key: &str) -> anyhow::Result<Exit> {
    let key = find_key(house, key).await?;
    let effect = house.runtime.effect(key).await.map_err(operate_refused)?;
    let history = house.runtime.history(key).await?;
    if global.json {
        output::json(&shown::effect(&effect, Some(&history)));
        return Ok(Exit::Done);
    }
    let field = |name: &str, value: &dyn std::fmt::Display| output::data(format_args!("{name:>10}  {value}"));
    field("effect", &effect.key);
    field("state", &if effect.expired { "expired" } else { effect.state.word() });
    field("outcome", &effect.world().word());
    if let Some(opened) = effect.latest() {
        field("tool", &opened.tool);
        field("args", &opened.args.as_str());
        field("caller", &opened.caller);
        if let Some(run) = &opened.run {
            field("run", run);
        }
        if let Some(step) = &opened.step {
            field("step", step);
        }
    }
    field("attempts", &effect.attempts);
    match &effect.state {
        State::Done(done) | State::Undoing { done, .. } | State::Undone { done, .. } | State::UndoFailed { done, .. } => {
            field("result", &done.result);
            if let Some(state) = &done.state_changed {
                field("changed", &serde_json::to_string(state).expect("it is plain data"));
            }
            if let Some(undo) = &done.undo {
                field("undo", &format!("{} {}", undo.tool, undo.args.as_str()));
            }
        }
        State::InDoubt(doubt) => {
            field("doubt", &format!("{}: {}", doubt.failure.code, doubt.failure.message));
            if let Some(said) = &doubt.probe_said {
                field("probe", said);
            }
            field("next", &format!("counterfoil effects resolve {} --happened --result JSON | --did-not-happen", effect.key));
        }
        State::Flushed { at, by, why, .. } => field("flushed", &format!("{} by {by}: {why}", time(*at))),
        State::Failed { failure, .. } => field("failure", &format!("{}: {}", failure.code, failure.message)),
        State::Retrying(failed) => {
            field("failure", &format!("{}: {} (again from {})", failed.failure.code, failed.failure.message, time(failed.not_before)))
        }
        _ => {}
    }
    output::data("   history");
    for line in &history {
        output::data(format_args!("  {}", super::history::line(line)));
    }
    Ok(Exit::Done)
}

async fn verify(global: &Global, house: &House, key: &str) -> anyhow::Result<Exit> {
    let key = find_key(house, key).await?;
    let (effect, finding) = house.runtime.verify(key).await.map_err(operate_refused)?;
    match global.json {
        true => output::json(&shown::finding(&effect, &finding)),
        false => output::data(finding_text(&finding)),
    }
    Ok(exit_of(&finding))
}

pub fn exit_of(finding: &Finding) -> Exit {
    match finding {
        Finding::Verified | Finding::Unverified { .. } => Exit::Done,
        Finding::Drifted { .. } => Exit::Drifted,
        Finding::Unavailable { .. } | Finding::InDoubt => Exit::InDoubt,
    }
}

/// On one line.
pub fn finding_text(finding: &Finding) -> String {
    match finding {
        Finding::Drifted { expected, found } => format!("drifted: expected {expected}, found {found}"),
        Finding::Unavailable { why } | Finding::Unverified { why } => format!("{}: {why}", finding.word()),
        Finding::Verified => "verified".into(),
        Finding::InDoubt => "in doubt: it is not known whether it happened".into(),
    }
}

async fn resolve(global: &Global, house: &House, args: &ResolveArgs) -> anyhow::Result<Exit> {
    let result =
        Json::parse(&args.result).map_err(|e| Refused::usage("invalid_result", format!("--result: not JSON: {e}; nothing was changed")))?;
    let key = find_key(house, &args.key).await?;
    let operator = operator(&args.who).about(args.attempt);
    let undoable = !(args.undo || args.happened) || house.runtime.could_undo(key, &result).await.map_err(operate_refused)?;
    if !undoable && names_undo(house, key).await {
        let needs = "its undo cannot be worked out from this result: say with --result JSON what the world answered";
        if args.undo {
            return Err(Refused::usage("undo_needs_result", format!("{needs}; nothing was changed")));
        }
        output::note(format_args!("{needs}, or it cannot be undone later"));
    } else if !undoable && args.undo {
        return Err(operate_refused(OperateError::NoUndo(key)));
    }
    let resolution = match () {
        () if args.happened || args.undo => Resolution::Happened { result },
        () if args.did_not_happen => Resolution::DidNotHappen,
        () => Resolution::GiveUp,
    };
    let resolved = house.runtime.resolve(key, resolution, &operator).await;
    if args.undo {
        resolved.map_err(operate_refused)?;
        return answered(global, house.runtime.undo(key, &operator).await);
    }
    changed(global, resolved)
}

/// Whether the tool of an effect says what undoes it.
async fn names_undo(house: &House, key: EffectKey) -> bool {
    let Ok(effect) = house.runtime.effect(key).await else { return false };
    let Some(opened) = effect.latest() else { return false };
    house.runtime.tools().iter().any(|tool| tool.name == opened.tool && tool.tool.undone_by().is_some())
}

async fn prune(global: &Global, house: &House) -> anyhow::Result<Exit> {
    let mut streams = 0;
    loop {
        let pruned = house.runtime.prune(PRUNE_SLICE).await?;
        streams += pruned.streams;
        if !pruned.more {
            break;
        }
        if !global.json {
            output::note(format_args!("{streams} so far"));
        }
    }
    match global.json {
        true => output::json(&serde_json::json!({ "pruned": streams })),
        false => output::note(format_args!("{streams} pruned; the keys of effects among them answer key_expired and never run again")),
    }
    Ok(Exit::Done)
}

async fn target(house: &House, args: &OperateArgs) -> anyhow::Result<(EffectKey, Operator)> {
    Ok((find_key(house, &args.key).await?, operator(&args.who)))
}

pub fn operator(who: &WhoArgs) -> Operator {
    Operator::new(&who.by, &who.why)
}

fn answered(global: &Global, answer: Result<counterfoil_runtime::Answer, OperateError>) -> anyhow::Result<Exit> {
    Ok(output::answer(global, &answer.map_err(operate_refused)?))
}

pub fn changed(global: &Global, effect: Result<Effect, OperateError>) -> anyhow::Result<Exit> {
    let effect = effect.map_err(operate_refused)?;
    match global.json {
        true => output::json(&shown::effect(&effect, None)),
        false => output::note(format_args!("{} is now {}", effect.key, effect.state.word())),
    }
    Ok(Exit::Done)
}

pub fn operate_refused(error: OperateError) -> anyhow::Error {
    let code = match &error {
        OperateError::NotFound(_) => "not_found",
        OperateError::WrongState { .. } => "wrong_state",
        OperateError::NoUndo(_) => "no_undo",
        OperateError::UnknownTool(_) => "unknown_tool",
        OperateError::Beside => "wrong_state",
        OperateError::Ledger(_) => return error.into(),
    };
    Refused::refused(code, format!("{error}; nothing was changed"))
}

/// A key that was typed whole, or its first digits; or a tool and the key that its caller chose.
pub async fn find_key(house: &House, typed: &str) -> anyhow::Result<EffectKey> {
    if let Ok(key) = typed.parse::<EffectKey>() {
        return Ok(key);
    }
    if let Some((tool, key)) = typed.split_once('/') {
        return Ok(effect_of_key(&house.config.tenant, &name("TOOL/KEY", tool)?, &name("TOOL/KEY", key)?));
    }
    if typed.len() < PREFIX_DIGITS_MIN || !typed.bytes().all(|b| b.is_ascii_hexdigit()) {
        let message =
            format!("{typed:?} is not an effect: give its 64 hex digits, or the first {PREFIX_DIGITS_MIN} or more of them, or TOOL/KEY");
        return Err(Refused::usage("invalid_key", message));
    }
    let wanted = typed.to_ascii_lowercase();
    let mut matches: Vec<EffectKey> = Vec::new();
    let mut below = None;
    let mut seen = 0;
    while seen < PREFIX_SEARCH_MAX {
        let query = Query { below, limit: 1000, ..Query::effects(house.config.tenant.clone()) };
        let page = house.runtime.ledger().search(query).await?;
        seen += page.found.len();
        matches.extend(page.found.iter().map(key_of).filter(|k| k.to_string().starts_with(&wanted)));
        below = page.next;
        if below.is_none() {
            break;
        }
    }
    match matches[..] {
        [key] => Ok(key),
        [] => Err(Refused::refused("not_found", format!("no effect begins with {typed} (the newest {seen} were looked at)"))),
        _ => Err(Refused::refused("ambiguous_key", format!("{} effects begin with {typed}: give more digits", matches.len()))),
    }
}

fn age_text(age: Duration) -> String {
    let s = age.as_secs();
    match s {
        0..=119 => format!("{s}s"),
        120..=7199 => format!("{}m", s / 60),
        7200..=172_799 => format!("{}h", s / 3600),
        _ => format!("{}d", s / 86_400),
    }
}
