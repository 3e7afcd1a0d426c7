//! `counterfoil receipts`: what was proven, and whether the chain holds.

use counterfoil_core::{Receipt, RunId};

use super::house::House;
use crate::cli::{Global, ReceiptsArgs, ReceiptsCommand};
use crate::output::{self, Exit, Refused};
use counterfoil_runtime::shown::time;

pub async fn run(global: &Global, args: &ReceiptsArgs) -> anyhow::Result<Exit> {
    let (run, verify) = match &args.command {
        ReceiptsCommand::List { run } => (run, false),
        ReceiptsCommand::Verify { run } => (run, true),
    };
    let run = run.as_deref().map(RunId::new).transpose().map_err(|e| Refused::usage("invalid_name", format!("--run: {e}")))?;
    let house = House::open(global).await?;
    let receipts = house.runtime.ledger().receipts(&house.config.tenant, run.as_ref()).await?;
    if let (Some(run), true) = (&run, receipts.is_empty()) {
        return Err(Refused::refused("not_found", format!("there are no receipts of a run {run}")));
    }
    match (verify, global.json) {
        (true, true) => output::json(&serde_json::json!({ "verified": receipts.len() })),
        (true, false) => {
            output::data(format_args!("{} receipt{}, every link holds", receipts.len(), if receipts.len() == 1 { "" } else { "s" }))
        }
        (false, true) => output::json(&receipts),
        (false, false) => {
            let mut table = output::table(&["seq", "ended", "outcome", "tool", "attempt", "effect", "by"]);
            for r in &receipts {
                table.add_row([
                    place(r),
                    time(r.ended),
                    r.outcome.clone(),
                    r.tool.to_string(),
                    r.attempt.to_string(),
                    r.effect.to_string(),
                    r.by.clone().unwrap_or_default(),
                ]);
            }
            output::print_table(&table);
        }
    }
    Ok(Exit::Done)
}

/// The place in the chain, after the lane where there are several.
fn place(receipt: &Receipt) -> String {
    match receipt.lane.is_first() {
        true => receipt.seq.to_string(),
        false => format!("{}/{}", receipt.lane.0, receipt.seq),
    }
}
