//! `counterfoil tools`: list, show, check.

use std::sync::Arc;

use counterfoil_core::ToolName;
use counterfoil_runtime::config::FILE_NAME;
use counterfoil_runtime::{Registered, shown};

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
    if house::config_path(global).is_none() {
        let message = format!("there is no {FILE_NAME} here: `counterfoil init` writes one, --config FILE names another");
        return Err(Refused::usage("config_absent", message));
    }
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
        output::json(&tools.iter().map(shown::tool).collect::<Vec<_>>());
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
            shown::effect_class(policy).into(),
            shown::repeat(policy).into(),
            shown::span(policy.timeout),
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
        output::json(&shown::tool(tool));
        return Ok(Exit::Done);
    }
    let serde_json::Value::Object(fields) = shown::tool(tool) else { unreachable!("an item is an object") };
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
    let list = match known.is_empty() {
        true => format!("there are none: is there a {FILE_NAME} here? (`counterfoil init` writes one, --config FILE names another)"),
        false => format!("there are: {}", known.join(", ")),
    };
    Refused::refused("unknown_tool", format!("there is no tool {name:?}; {list}"))
}
