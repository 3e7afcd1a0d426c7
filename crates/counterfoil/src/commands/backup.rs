//! `counterfoil backup`: a copy of the ledger while programs use it.

use counterfoil_store::StoreError;
use counterfoil_store::sqlite::{BackupError, Progress};

use super::house::{config, exists, open_store};
use crate::cli::{BackupArgs, Global};
use crate::output::{self, Exit, Refused};

/// Lines on the way, at most: one for each tenth.
const TENTHS: u64 = 10;

pub async fn run(global: &Global, args: &BackupArgs) -> anyhow::Result<Exit> {
    let config = config(global)?;
    exists(&config.store)?;
    let opened = open_store(&config).await?;
    let Some(sqlite) = opened.sqlite().cloned() else {
        let message = "this ledger is not a file of this program: back it up with the tools of its database, or with `counterfoil store copy`; nothing was copied";
        return Err(Refused::usage("backup_unsupported", message));
    };
    let (file, quiet) = (args.file.clone(), global.json);
    let mut tenths = 0;
    let told = move |progress: Progress| {
        let now = progress.bytes * TENTHS / progress.bytes_total.max(1);
        if now > tenths && !quiet {
            tenths = now;
            output::note(format_args!("{} of {} MiB", progress.bytes >> 20, progress.bytes_total >> 20));
        }
    };
    let done = tokio::task::spawn_blocking(move || sqlite.backup(&file, told)).await?.map_err(refused)?;
    let took_ms = u64::try_from(done.took.as_millis()).unwrap_or(u64::MAX);
    match global.json {
        true => {
            output::json(&serde_json::json!({ "file": args.file, "bytes": done.bytes, "records": done.records, "duration_ms": took_ms }))
        }
        false => {
            output::note(format_args!("{}: {} records, {} bytes, in {took_ms} ms", args.file.display(), done.records, done.bytes));
            output::note("keep it as secret as the ledger: it holds the same results, and the salt of what was redacted");
        }
    }
    Ok(Exit::Done)
}

fn refused(error: BackupError) -> anyhow::Error {
    let (exit, code) = match &error {
        BackupError::Exists { .. } => (Exit::Usage, "backup_exists"),
        BackupError::Target { .. } | BackupError::Unsound { .. } => (Exit::Broken, "backup_failed"),
        BackupError::Store(StoreError::Corrupt { .. }) => (Exit::Broken, "ledger_corrupt"),
        BackupError::Store(StoreError::Unavailable { .. }) => (Exit::Broken, "store_unavailable"),
    };
    Refused { exit, code, message: error.to_string(), detail: None }.into()
}
