//! Receipts and heads, for people.

use counterfoil_core::Receipt;
use counterfoil_runtime::log::find::Placed;
use counterfoil_runtime::shown::time;
use serde_json::json;

use super::{Of, Shelf, refused};
use crate::cli::{Global, ReceiptArgs, ReceiptsListArgs};
use crate::output::{self, Exit, Refused};

pub async fn list(global: &Global, args: &ReceiptsListArgs) -> anyhow::Result<Exit> {
    let of = Of::typed(&args.of)?;
    let shelf = Shelf::open(global).await?;
    let mut receipts: Vec<Receipt> = match of.effect(&shelf.tenant) {
        Some(_) => shelf.all_of(&of).await?.into_iter().map(|placed| placed.receipt).collect(),
        None => shelf.runtime.ledger().receipts(&shelf.tenant, of.run.as_ref()).await?,
    };
    if receipts.is_empty() && (of.run.is_some() || of.effect(&shelf.tenant).is_some()) {
        let what = of.run.map_or_else(|| "that effect".to_owned(), |run| format!("a run {run}"));
        return Err(Refused::refused("not_found", format!("there are no receipts of {what}")));
    }
    receipts.retain(|receipt| args.outcome.is_empty() || args.outcome.contains(&receipt.outcome));
    let beyond = receipts.len().saturating_sub(args.limit.unwrap_or(usize::MAX));
    let receipts = &receipts[beyond..];
    if global.json {
        output::json(&receipts);
        return Ok(Exit::Done);
    }
    let mut table = output::table(&["seq", "ended", "outcome", "tool", "attempt", "effect", "by", "receipt"]);
    for r in receipts {
        table.add_row([
            place(r),
            time(r.ended),
            r.outcome.clone(),
            r.tool.to_string(),
            r.attempt.to_string(),
            r.effect.to_string(),
            r.by.clone().unwrap_or_default(),
            r.id.to_string(),
        ]);
    }
    output::print_table(&table);
    Ok(Exit::Done)
}

pub async fn show(global: &Global, args: &ReceiptArgs) -> anyhow::Result<Exit> {
    let shelf = Shelf::open(global).await?;
    let placed = shelf.one(args).await?;
    let Placed { receipt, text, .. } = &placed;
    let under = match shelf.log.prove(&placed).await {
        Ok(proof) => Some((proof.leaf, proof.head)),
        Err(counterfoil_runtime::LogError::NotSealed { .. }) => None,
        Err(error) => return Err(refused(error)),
    };
    let hash = counterfoil_core::ids::Digest32::of(text.as_bytes());
    if global.json {
        let (leaf, head) = under.unzip();
        output::json(&json!({ "receipt": receipt, "hash": hash, "leaf": leaf, "head": head }));
        return Ok(Exit::Done);
    }
    let fields: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text)?;
    for (name, value) in &fields {
        let value = match (name.as_str(), value.as_i64(), value.as_str()) {
            ("started" | "ended", Some(at), _) => time(counterfoil_core::Timestamp(at)),
            (_, _, Some(text)) => text.to_owned(),
            _ => value.to_string(),
        };
        output::data(format_args!("{name:<12}{value}"));
    }
    output::data(format_args!("{:<12}{hash}", "hash"));
    match under {
        Some((leaf, head)) => output::note(format_args!("leaf {leaf} of the log, under a head of {} receipts", head.size)),
        None => output::note("not under a head yet: `counterfoil receipts seal`"),
    }
    Ok(Exit::Done)
}

pub async fn heads(global: &Global, limit: usize) -> anyhow::Result<Exit> {
    let shelf = Shelf::open(global).await?;
    let heads = shelf.log.heads(limit).await.map_err(refused)?;
    if global.json {
        let shown = heads.iter().map(|kept| json!({ "number": kept.number, "head": kept.head }));
        output::json(&shown.collect::<Vec<_>>());
        return Ok(Exit::Done);
    }
    let mut table = output::table(&["head", "at", "receipts", "key", "root"]);
    for kept in &heads {
        let head = &kept.head;
        table.add_row([kept.number.to_string(), time(head.at), head.size.to_string(), head.key.id(), head.root.to_string()]);
    }
    output::print_table(&table);
    Ok(Exit::Done)
}

/// The place in the chain, after the lane where there are several.
fn place(receipt: &Receipt) -> String {
    match receipt.lane.is_first() {
        true => receipt.seq.to_string(),
        false => format!("{}/{}", receipt.lane.0, receipt.seq),
    }
}
