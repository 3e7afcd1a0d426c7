//! Evidence for others: bundles, proofs, heads.

use std::path::Path;

use counterfoil_core::RunId;
use serde_json::json;

use super::{Shelf, counted, effect, refused, write_file, wrote};
use crate::cli::{Global, ReceiptsExportArgs, ReceiptsProveArgs};
use crate::commands::call::name;
use crate::commands::keys;
use crate::output::{self, Exit};

pub async fn export(global: &Global, args: &ReceiptsExportArgs) -> anyhow::Result<Exit> {
    let run: Option<RunId> = args.of.run.as_deref().map(|run| name("RUN", run)).transpose()?;
    let one = args.of.effect.as_deref().map(effect).transpose()?;
    let shelf = Shelf::open(global).await?;
    let secret = keys::ready(&keys::keyring(global), &shelf.log).await.map_err(keys::refused)?.secret;
    let exported = match (&run, one) {
        (Some(run), _) => shelf.log.export_run(&shelf.tenant, run, &secret).await,
        (None, Some(effect)) => shelf.log.export_effect(&shelf.tenant, effect, &secret).await,
        (None, None) => unreachable!("clap asks for one of them"),
    };
    let exported = exported.map_err(refused)?;
    let output = args.output.as_deref();
    write_file(output, &exported.text)?;
    let (root, key, ended) = (exported.root, secret.public(), exported.manifest.ended);
    if global.json && output.is_some() {
        output::json(&json!({ "file": output, "root": root, "key": key, "ended": ended, "bytes": exported.text.len() }));
        return Ok(Exit::Done);
    }
    wrote(output, format_args!("{}, signed with key {}", counted(exported.text.lines().count() as u64, "line"), key.id()));
    output::note(format_args!("root {root}"));
    if !ended {
        output::note("it was not over yet: exported again later there may be more in it");
    }
    Ok(Exit::Done)
}

pub async fn prove(global: &Global, args: &ReceiptsProveArgs) -> anyhow::Result<Exit> {
    let shelf = Shelf::open(global).await?;
    let placed = shelf.one(&args.receipt).await?;
    let secret = keys::ready(&keys::keyring(global), &shelf.log).await.map_err(keys::refused)?.secret;
    shelf.log.seal(&secret).await.map_err(refused)?;
    let proof = shelf.log.prove(&placed).await.map_err(refused)?;
    let output = args.output.as_deref();
    write_file(output, &format!("{}\n", serde_json::to_string(&proof)?))?;
    let (leaf, head) = (proof.leaf, &proof.head);
    if global.json && output.is_some() {
        output::json(&json!({ "file": output, "receipt": placed.receipt.id, "leaf": leaf, "head": head }));
        return Ok(Exit::Done);
    }
    wrote(output, format_args!("receipt {} is leaf {leaf} of {}, signed with key {}", placed.receipt.id, head.size, head.key.id()));
    Ok(Exit::Done)
}

pub async fn seal(global: &Global, output: Option<&Path>) -> anyhow::Result<Exit> {
    let shelf = Shelf::open(global).await?;
    let secret = keys::ready(&keys::keyring(global), &shelf.log).await.map_err(keys::refused)?.secret;
    let sealing = shelf.log.seal(&secret).await.map_err(refused)?;
    let newest = sealing.newest.as_ref();
    if let (Some(path), Some(newest)) = (output, newest) {
        write_file(Some(path), &format!("{}\n", serde_json::to_string(&newest.head)?))?;
    }
    if global.json {
        output::json(&json!({ "added": sealing.added, "number": newest.map(|kept| kept.number), "head": newest.map(|kept| &kept.head) }));
        return Ok(Exit::Done);
    }
    match newest {
        None => output::note("there are no receipts yet"),
        Some(kept) => {
            output::data(serde_json::to_string(&kept.head)?);
            let said = format!("head {} of {}, {} of them new", kept.number, counted(kept.head.size, "receipt"), sealing.added);
            wrote(output, said);
        }
    }
    Ok(Exit::Done)
}

pub async fn consistency(global: &Global, old: u64, new: Option<u64>, output: Option<&Path>) -> anyhow::Result<Exit> {
    let shelf = Shelf::open(global).await?;
    let newest = shelf.log.newest_head().await.map_err(refused)?.map_or(0, |newest| newest.number);
    let old = shelf.log.head(old).await.map_err(refused)?;
    let new = shelf.log.head(new.unwrap_or(newest)).await.map_err(refused)?;
    let proof = shelf.log.consistency(&old, &new).await.map_err(refused)?;
    write_file(output, &format!("{}\n", serde_json::to_string(&proof)?))?;
    let said = format!("the log of {} begins with that of {}", counted(new.head.size, "receipt"), old.head.size);
    match global.json && output.is_some() {
        true => output::json(&json!({ "file": output, "old": old.head, "new": new.head })),
        false => wrote(output, said),
    }
    Ok(Exit::Done)
}
