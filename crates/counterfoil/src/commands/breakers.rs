//! `counterfoil breakers`: list, reset, open.

use counterfoil_core::ToolName;
use counterfoil_runtime::shown::{self, time};

use super::house::House;
use super::tools::find;
use crate::cli::{BreakersArgs, BreakersCommand, Global};
use crate::output::{self, Exit};

pub async fn run(global: &Global, args: &BreakersArgs) -> anyhow::Result<Exit> {
    let house = match &args.command {
        BreakersCommand::List => House::standing(global).await?,
        BreakersCommand::Reset { .. } | BreakersCommand::Open { .. } => House::open(global).await?,
    };
    match &args.command {
        BreakersCommand::List => list(global, &house).await,
        BreakersCommand::Reset { tool } => {
            let tool = find(&house, tool)?;
            house.runtime.set_breaker(&house.config.tenant, &tool, |b, _| b.reset()).await?;
            changed(global, &tool.name, "closed")
        }
        BreakersCommand::Open { tool, why } => {
            let tool = find(&house, tool)?;
            house.runtime.set_breaker(&house.config.tenant, &tool, |b, now| b.force_open(now, why.clone())).await?;
            changed(global, &tool.name, "open")
        }
    }
}

fn changed(global: &Global, tool: &ToolName, state: &str) -> anyhow::Result<Exit> {
    match global.json {
        true => output::json(&serde_json::json!({ "tool": tool, "state": state })),
        false => output::note(format_args!("the breaker of {tool} is {state}")),
    }
    Ok(Exit::Done)
}

async fn list(global: &Global, house: &House) -> anyhow::Result<Exit> {
    let mut rows = Vec::new();
    for tool in house.runtime.tools().iter().filter(|t| !t.is_pure()) {
        let (breaker, phase) = house.runtime.breaker(&house.config.tenant, tool).await?;
        rows.push((tool.clone(), breaker, phase));
    }
    if global.json {
        let items: Vec<_> = rows.iter().map(|(tool, breaker, phase)| shown::breaker(tool, breaker, *phase)).collect();
        output::json(&items);
        return Ok(Exit::Done);
    }
    let mut table = output::table(&["tool", "state", "failures in a row", "last calls", "since", "reason"]);
    for (tool, breaker, phase) in &rows {
        let failed = breaker.window.matches('x').count();
        let (since, reason) = breaker.open.as_ref().map_or((String::new(), String::new()), |o| (time(o.since), o.reason.clone()));
        let window = if breaker.window.is_empty() { String::new() } else { format!("{failed} of {} failed", breaker.window.len()) };
        table.add_row([tool.name.to_string(), shown::phase_word(*phase).into(), breaker.consecutive.to_string(), window, since, reason]);
    }
    output::print_table(&table);
    Ok(Exit::Done)
}
