//! `counterfoil tools`: list, show, check.

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::ToolName;
use counterfoil_core::policy::{EffectClass, Policy, Repeat};
use counterfoil_runtime::{Registered, Runs};

use super::house::{self, House};
use crate::cli::{Global, ToolsArgs, ToolsCommand};
use crate::output::{self, Exit, Refused};

pub async fn run(global: &Global, args: &ToolsArgs) -> anyhow::Result<Exit> {
    match &args.command {
        ToolsCommand::Check => check(global),
        ToolsCommand::List => list(global),
        ToolsCommand::Show { tool } => show(global, tool),
    }
}

/// Looks at the config alone: the ledger is not opened.
fn check(global: &Global) -> anyhow::Result<Exit> {
    let config = house::config(global)?;
    for spec in &config.tools {
        counterfoil::compose::registered(spec).map_err(|e| Refused::usage("config_invalid", e.to_string()))?;
    }
    match global.json {
        true => output::json(&serde_json::json!({ "file": config.path, "tools": config.tools.len(), "mistakes": [] })),
        false => output::data(format_args!("{}: {} tools, no mistakes", config.path.display(), config.tools.len())),
    }
    Ok(Exit::Done)
}

fn list(global: &Global) -> anyhow::Result<Exit> {
    let tools = registered(global)?;
    if global.json {
        output::json(&tools.iter().map(item).collect::<Vec<_>>());
        return Ok(Exit::Done);
    }
    if tools.is_empty() {
        output::note("no tools: `counterfoil init` writes a config with some");
        return Ok(Exit::Done);
    }
    let mut table = output::table(&["tool", "effect", "repeat", "timeout", "probe", "description"]);
    for tool in &tools {
        let policy = &tool.policy;
        let probe = if tool.tool.can_probe() { "yes" } else { "no" };
        let description = tool.description.clone().unwrap_or_default();
        table.add_row([
            tool.name.to_string(),
            effect(policy).into(),
            repeat(policy).into(),
            span(policy.timeout),
            probe.into(),
            description,
        ]);
    }
    output::print_table(&table);
    Ok(Exit::Done)
}

fn show(global: &Global, name: &str) -> anyhow::Result<Exit> {
    let tools = registered(global)?;
    let tool = tools.iter().find(|t| t.name.as_str() == name).ok_or_else(|| no_such_tool(name, tools.iter().map(|t| &t.name)))?;
    if global.json {
        output::json(&item(tool));
        return Ok(Exit::Done);
    }
    let serde_json::Value::Object(fields) = item(tool) else { unreachable!("an item is an object") };
    for (field, value) in fields.iter().filter(|(_, v)| !v.is_null()) {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        output::data(format_args!("{field:>16}  {text}"));
    }
    Ok(Exit::Done)
}

fn registered(global: &Global) -> anyhow::Result<Vec<Registered>> {
    let config = house::config(global)?;
    let mut tools = Vec::new();
    for spec in &config.tools {
        tools.extend(counterfoil::compose::registered(spec).map_err(|e| Refused::usage("config_invalid", e.to_string()))?);
    }
    Ok(tools)
}

pub fn find(house: &House, name: &str) -> anyhow::Result<Arc<Registered>> {
    let tools = house.runtime.tools();
    let found = tools.iter().find(|t| t.name.as_str() == name).cloned();
    found.ok_or_else(|| no_such_tool(name, tools.iter().map(|t| &t.name)))
}

fn no_such_tool<'a>(name: &str, known: impl Iterator<Item = &'a ToolName>) -> anyhow::Error {
    let known: Vec<&str> = known.map(ToolName::as_str).collect();
    let list = if known.is_empty() { "the config has none".to_owned() } else { format!("there are: {}", known.join(", ")) };
    Refused::refused("unknown_tool", format!("there is no tool {name:?}; {list}"))
}

fn item(tool: &Registered) -> serde_json::Value {
    let p = &tool.policy;
    let paths = |list: &[counterfoil_core::policy::ArgPath]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
    serde_json::json!({
        "name": tool.name,
        "description": tool.description,
        "effect": effect(p),
        "repeat": repeat(p),
        "runs": match tool.runs() {
            Runs::Here => "here",
            Runs::Elsewhere => "elsewhere",
        },
        "probe": tool.tool.can_probe(),
        "approval": tool.approval.is_some(),
        "key": p.key.as_deref().map(paths),
        "timeout": span(p.timeout),
        "deadline": span(p.deadline),
        "lease": span(p.lease),
        "attempts": p.retry.attempts,
        "retry_first": span(p.retry.first),
        "retry_max": span(p.retry.max),
        "breaker": p.breaker.enabled.then(|| format!("{} in a row, or {}% of {}; reset after {}", p.breaker.consecutive, p.breaker.rate * 100.0, p.breaker.window, span(p.breaker.reset))),
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

fn effect(policy: &Policy) -> &'static str {
    match policy.effect {
        EffectClass::Pure => "pure",
        EffectClass::Read => "read",
        EffectClass::Write => "write",
    }
}

fn repeat(policy: &Policy) -> &'static str {
    match policy.repeat {
        Repeat::Never => "never",
        Repeat::Safe => "safe",
        Repeat::Keyed => "keyed",
    }
}

/// A duration as it is written in the config.
fn span(d: Duration) -> String {
    let ms = d.as_millis();
    match ms {
        _ if !ms.is_multiple_of(1000) => format!("{ms}ms"),
        _ if ms >= 3_600_000 && ms.is_multiple_of(3_600_000) => format!("{}h", ms / 3_600_000),
        _ if ms >= 60_000 && ms.is_multiple_of(60_000) => format!("{}m", ms / 60_000),
        _ => format!("{}s", ms / 1000),
    }
}
