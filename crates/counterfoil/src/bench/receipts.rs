//! What receipts cost: one load on two ledgers of the same disk, one that writes receipts and one that leaves them out, in turns.

use std::path::Path;
use std::time::Duration;

use counterfoil::compose::{self, Volatile};
use counterfoil_runtime::Receipts;
use serde::Serialize;

use super::Folder;
use super::load::{Load, Tally};
use crate::cli::{BenchArgs, Global};
use crate::output::{self, Exit, Refused};

/// Many short turns: what else the machine does hits both.
const TURNS: u32 = 10;

#[derive(Debug, Serialize)]
struct Cost {
    concurrency: usize,
    effects_per_s: f64,
    effects_per_s_without_receipts: f64,
    /// How much slower it is with receipts, in percent of the speed without.
    cost_percent: f64,
}

pub async fn run(global: &Global, args: &BenchArgs) -> anyhow::Result<Exit> {
    if global.store.is_some() {
        return Err(Refused::usage("invalid_bench", "--receipts measures two ledgers of its own: leave out --store"));
    }
    let folder = Folder::new(args.dir.as_deref())?;
    let mut costs = Vec::new();
    for concurrency in &args.concurrency {
        if !global.json {
            output::note(format_args!("measuring {concurrency} at once, with receipts and without …"));
        }
        costs.push(measure(&folder.path, *concurrency, Duration::from_secs_f64(args.seconds)).await?);
    }
    if global.json {
        output::json(&costs);
        return Ok(Exit::Done);
    }
    let mut table = output::table(&["callers", "effects/s", "without receipts", "receipts cost"]);
    for cost in &costs {
        table.add_row([
            cost.concurrency.to_string(),
            format!("{:.0}", cost.effects_per_s),
            format!("{:.0}", cost.effects_per_s_without_receipts),
            format!("{:.1} %", cost.cost_percent),
        ]);
    }
    output::print_table(&table);
    Ok(Exit::Done)
}

async fn measure(folder: &Path, concurrency: usize, seconds: Duration) -> anyhow::Result<Cost> {
    let mut loads = Vec::new();
    for (name, receipts) in [("with", Receipts::Written), ("without", Receipts::LeftOut)] {
        let url = format!("sqlite:{}", folder.join(format!("{name}-{concurrency}.db")).display());
        let opened = compose::open_store(&url, Volatile::Refused).await?;
        loads.push((Load::new(&opened, receipts).await?, Tally::default()));
    }
    for turn in 0..TURNS {
        // Each goes first as often as the other.
        let (first, second) = loads.split_at_mut(1);
        let order = if turn % 2 == 0 { [&mut first[0], &mut second[0]] } else { [&mut second[0], &mut first[0]] };
        for (load, tally) in order {
            tally.add(load.run(concurrency, seconds / TURNS).await?);
        }
    }
    let (with, without) = (loads[0].1.per_second(), loads[1].1.per_second());
    Ok(Cost { concurrency, effects_per_s: with, effects_per_s_without_receipts: without, cost_percent: (1.0 - with / without) * 100.0 })
}
