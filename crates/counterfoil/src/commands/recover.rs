//! `counterfoil recover`: one look at everything that is due.

use counterfoil_runtime::engine::Rest;
use counterfoil_runtime::shown;

use super::house::House;
use crate::cli::Global;
use crate::output::{self, Exit};

pub async fn run(global: &Global) -> anyhow::Result<Exit> {
    let house = House::standing(global).await?;
    let recovered = house.runtime.recover().await?;
    let ticked = house.runtime.tick_due().await.map_err(super::run::refused)?;
    let driven = house.runtime.drive_due().await.map_err(super::run::refused)?;
    if global.json {
        let items: Vec<_> = recovered.iter().map(|r| serde_json::json!({ "effect": r.key, "was": r.was, "answer": r.answer })).collect();
        let runs: Vec<_> = driven.iter().map(|(run, _)| run).collect();
        let schedules: Vec<_> = ticked.iter().map(|one| shown::schedule(&one.schedule)).collect();
        output::json(&serde_json::json!({ "recovered": items, "schedules": schedules, "runs": runs }));
        return Ok(Exit::Done);
    }
    for one in &ticked {
        output::note(format_args!("schedule {}: {}", one.schedule.schedule, super::schedules::told(&one.ticked)));
    }
    for (run, rest) in &driven {
        let word = if let Rest::Ended = rest { "ended" } else { "went on as far as it could" };
        output::note(format_args!("run {run}: {word}"));
    }
    if recovered.is_empty() {
        if driven.is_empty() && ticked.is_empty() {
            output::note("nothing is due");
        }
        return Ok(Exit::Done);
    }
    let mut table = output::table(&["effect", "was", "now"]);
    for one in &recovered {
        let now = serde_json::to_value(one.answer.status)?;
        table.add_row([one.key.to_string(), one.was.to_owned(), now.as_str().unwrap_or_default().to_owned()]);
    }
    output::print_table(&table);
    Ok(Exit::Done)
}
