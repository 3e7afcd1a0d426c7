//! `counterfoil effects flush`: frees one key, or after a confirmation those of all finished effects of a tool.

use super::effects::{changed, find_key, operate_refused, operator};
use super::house::House;
use super::tools::find;
use crate::cli::{FlushArgs, Global};
use crate::output::{self, Exit, Refused};

/// Keys flushed between two words on how far it has come.
const SLICE: usize = 1000;

pub async fn run(global: &Global, house: &House, args: &FlushArgs) -> anyhow::Result<Exit> {
    match (&args.key, &args.tool) {
        (Some(key), _) => {
            let key = find_key(house, key).await?;
            changed(global, house.runtime.flush(key, &operator(&args.who)).await)
        }
        (None, Some(tool)) => flush_tool(global, house, args, tool).await,
        (None, None) => unreachable!("clap asks for one of them"),
    }
}

async fn flush_tool(global: &Global, house: &House, args: &FlushArgs, tool: &str) -> anyhow::Result<Exit> {
    let (tool, tenant) = (find(house, tool)?, &house.config.tenant);
    if !args.yes {
        let would = house.runtime.flushable(tenant, &tool.name).await?;
        let message = format!(
            "{} finished effects of {} would be flushed: the next call with each of their keys would run again. {} more are not over for certain \
             and would stay. Say --yes to do it; nothing was changed",
            would.flushed, tool.name, would.skipped
        );
        let detail = Some(serde_json::json!({ "would_flush": would.flushed, "would_skip": would.skipped }));
        return Err(Refused { exit: Exit::Usage, code: "confirmation_needed", message, detail }.into());
    }
    let operator = operator(&args.who);
    let mut flushed = 0;
    let skipped = loop {
        let slice = house.runtime.flush_tool(tenant, &tool.name, &operator, SLICE).await.map_err(operate_refused)?;
        flushed += slice.flushed;
        if !slice.more {
            break slice.skipped;
        }
        if !global.json {
            output::note(format_args!("{flushed} so far"));
        }
    };
    match global.json {
        true => output::json(&serde_json::json!({ "tool": tool.name, "flushed": flushed, "skipped": skipped })),
        false => output::note(format_args!("{flushed} effects of {} flushed; {skipped} are not over for certain and stay", tool.name)),
    }
    Ok(Exit::Done)
}
