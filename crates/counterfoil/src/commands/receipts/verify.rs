//! Whether it holds: a file of evidence, offline; or the chains and the log of this ledger.

use std::path::Path;

use counterfoil::check::Problem;
use counterfoil::check::log::{self, Against};
use counterfoil_core::canonical::CanonicalJson;
use counterfoil_core::summary::StreamKind;
use counterfoil_core::{RunId, ToolName};
use counterfoil_evidence::file::{self, Evidence};
use counterfoil_evidence::{Fault, Head, PublicKey};
use counterfoil_store::Query;
use serde_json::json;

use super::{Shelf, counted};
use crate::cli::{Global, ReceiptArgs, ReceiptsOf, ReceiptsVerifyArgs};
use crate::commands::call::{name, read_json};
use crate::output::{self, Exit, Refused};

pub async fn run(global: &Global, args: &ReceiptsVerifyArgs) -> anyhow::Result<Exit> {
    let trusted = public_keys(&args.key)?;
    match (&args.file, &args.receipt) {
        (Some(path), _) => of_file(global, path, &trusted),
        (None, Some(receipt)) => of_call(global, args, receipt).await,
        (None, None) => of_ledger(global, args, trusted).await,
    }
}

/// Each as 64 digits, or as a file that holds them.
pub fn public_keys(typed: &[String]) -> anyhow::Result<Vec<PublicKey>> {
    let read = |typed: &String| {
        let file = Path::new(typed);
        let text = match file.is_file() {
            true => std::fs::read_to_string(file).map_err(|error| Refused::usage("invalid_key", format!("--key {typed}: {error}")))?,
            false => typed.clone(),
        };
        text.trim().parse().map_err(|error| Refused::usage("invalid_key", format!("--key: {error}, nor a file with one")))
    };
    typed.iter().map(read).collect()
}

/// A head as `receipts seal -o` writes it.
pub fn head(path: &Path) -> anyhow::Result<Head> {
    let unreadable = |error: String| Refused::usage("invalid_head", format!("--head {}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| unreadable(format!("not a signed head: {error}")))
}

fn of_file(global: &Global, path: &Path, trusted: &[PublicKey]) -> anyhow::Result<Exit> {
    if trusted.is_empty() {
        let message = "--key PUB is needed: whose signature do you trust? A file of evidence names a key itself, but so would a forged one";
        return Err(Refused::usage("key_needed", message));
    }
    let bytes = std::fs::read(path).map_err(|error| Refused::usage("file_unreadable", format!("{}: {error}", path.display())))?;
    match file::verify(&bytes, trusted) {
        Ok(evidence) => {
            match global.json {
                true => output::json(&json!({ "verified": true, "evidence": evidence })),
                false => told(&evidence),
            }
            Ok(Exit::Done)
        }
        Err(faults) => Ok(does_not_hold(global, &faults)),
    }
}

fn does_not_hold(global: &Global, faults: &[Fault]) -> Exit {
    if global.json {
        let message = faults.first().map(ToString::to_string).unwrap_or_default();
        let error = json!({ "code": "evidence_invalid", "message": message });
        output::json(&json!({ "status": "error", "verified": false, "error": error, "faults": faults }));
        return Exit::Broken;
    }
    faults.iter().for_each(|fault| output::data(format_args!("BAD  {fault}")));
    output::note(format_args!("it does not hold: {}", counted(faults.len() as u64, "fault")));
    Exit::Broken
}

fn told(evidence: &Evidence) {
    match evidence {
        Evidence::Bundle(verified) => {
            let of = match (&verified.run, verified.effect) {
                (Some(run), _) => format!("run {run}"),
                (None, effect) => format!("effect {}", effect.map(|effect| effect.to_string()).unwrap_or_default()),
            };
            let (records, receipts) = (counted(verified.records, "record"), counted(verified.receipts, "receipt"));
            output::data(format_args!("{of} of tenant {}: {records}, {receipts}; every link holds", verified.tenant));
            output::note(format_args!("root {}, sealed by key {}", verified.root, verified.key.id()));
            if let Some(head) = &verified.head {
                output::note(format_args!(
                    "the receipts are in the log of {}, signed by key {}",
                    counted(head.size, "receipt"),
                    head.key.id()
                ));
            }
            if !verified.ended {
                output::note("it was not over yet when it was exported");
            }
        }
        Evidence::Receipt { receipt, leaf, head } => {
            let (id, tool, outcome) = (&receipt.id, &receipt.tool, &receipt.outcome);
            output::data(format_args!("receipt {id} ({tool}: {outcome}) is leaf {leaf} of {}", counted(head.size, "receipt")));
            output::note(format_args!("the head is signed by key {}", head.key.id()));
        }
        Evidence::Consistency { old, new } => {
            output::data(format_args!("the log of {} begins with that of {}", counted(new.size, "receipt"), old.size));
        }
    }
}

/// Whether a receipt speaks of a call.
async fn of_call(global: &Global, args: &ReceiptsVerifyArgs, receipt: &str) -> anyhow::Result<Exit> {
    let tool: ToolName = name("--tool", args.tool.as_deref().unwrap_or_default())?;
    let json = read_json("--args", args.args.as_deref().unwrap_or("{}"))?;
    let call = CanonicalJson::parse(&json).map_err(|e| Refused::usage("invalid_arguments", format!("--args: {e}")))?;
    let shelf = Shelf::open(global).await?;
    let of = ReceiptsOf { run: args.run.clone(), effect: args.effect.clone(), key: None, tool: None };
    let placed = shelf.one(&ReceiptArgs { receipt: receipt.to_owned(), of }).await?;
    let effect = shelf.runtime.ledger().load(placed.receipt.effect).await?;
    let covers = match &effect.veil {
        Some(veil) => placed.receipt.covers_under(veil, &tool, &call),
        None => placed.receipt.covers(&tool, &call),
    };
    match global.json {
        true => output::json(&json!({ "covers": covers, "receipt": placed.receipt.id, "spec": placed.receipt.spec })),
        false if covers => output::data(format_args!("receipt {} is of that call: {}", placed.receipt.id, placed.receipt.outcome)),
        false if effect.expired => output::data(format_args!(
            "BAD  receipt {} is of another call: another tool, or other arguments; or of an erased subject, of which nobody can tell",
            placed.receipt.id
        )),
        false => output::data(format_args!("BAD  receipt {} is of another call: another tool, or other arguments", placed.receipt.id)),
    }
    Ok(if covers { Exit::Done } else { Exit::Broken })
}

async fn of_ledger(global: &Global, args: &ReceiptsVerifyArgs, trusted: Vec<PublicKey>) -> anyhow::Result<Exit> {
    let run: Option<RunId> = args.run.as_deref().map(|run| name("--run", run)).transpose()?;
    let against = Against { trusted, head: args.head.as_deref().map(head).transpose()? };
    let shelf = Shelf::open(global).await?;
    let (receipts, runs) = followed(&shelf, run.as_ref()).await?;
    let (found, problems) = log::verify(&*shelf.opened.store, &against).await.map_err(counterfoil_runtime::ledger::LedgerError::from)?;
    if !problems.is_empty() {
        return Ok(broken(global, &problems));
    }
    if global.json {
        output::json(&json!({
            "verified": receipts, "runs": runs, "log": { "receipts": found.receipts, "sealed": found.sealed, "heads": found.heads }, "notes": found.notes,
        }));
        return Ok(Exit::Done);
    }
    let of_runs = if runs > 0 { format!(" (of {})", counted(runs, "run")) } else { String::new() };
    output::data(format_args!("{}{of_runs}, every link holds", counted(receipts, "receipt")));
    if found.heads > 0 {
        let (receipts, heads) = (counted(found.receipts, "receipt"), counted(found.heads, "head"));
        output::data(format_args!("log: {} of {receipts} under {heads}, every leaf holds", found.sealed));
    }
    found.notes.iter().for_each(output::note);
    Ok(Exit::Done)
}

/// Follows the chain of a run, or without one all chains of the tenant: how many receipts there are, and of how many runs.
async fn followed(shelf: &Shelf, run: Option<&RunId>) -> anyhow::Result<(u64, u64)> {
    let ledger = shelf.runtime.ledger();
    let mut receipts = ledger.receipts(&shelf.tenant, run).await?.len() as u64;
    if let Some(run) = run {
        return match receipts {
            0 => Err(Refused::refused("not_found", format!("there are no receipts of a run {run}"))),
            _ => Ok((receipts, 1)),
        };
    }
    let chains = ledger.all_of(Query { kind: StreamKind::Chain, limit: 1000, ..Query::effects(shelf.tenant.clone()) }).await?;
    let mut runs = 0;
    for run in chains.iter().filter_map(|chain| chain.summary.run.as_ref()) {
        receipts += ledger.receipts(&shelf.tenant, Some(run)).await?.len() as u64;
        runs += 1;
    }
    Ok((receipts, runs))
}

fn broken(global: &Global, problems: &[Problem]) -> Exit {
    if global.json {
        let message = problems.first().map(|first| format!("{}: {}", first.place, first.problem)).unwrap_or_default();
        let error = json!({ "code": "log_unsound", "message": message });
        output::json(&json!({ "status": "error", "error": error, "problems": problems }));
        return Exit::Broken;
    }
    problems.iter().for_each(|problem| output::data(format_args!("BAD  {}: {}", problem.place, problem.problem)));
    output::note(format_args!("it does not hold: {}; nothing was changed", counted(problems.len() as u64, "problem")));
    Exit::Broken
}
