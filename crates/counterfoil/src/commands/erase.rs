//! `counterfoil erase`: destroys the key of a subject.

use std::io::{IsTerminal, Write};

use counterfoil::erase::{EraseError, erase};
use counterfoil_core::Timestamp;
use counterfoil_core::veil::Erased;
use counterfoil_runtime::ledger::LedgerError;
use counterfoil_runtime::shown;
use serde_json::json;

use super::house::{config, exists, open_store};
use crate::cli::{EraseArgs, Global};
use crate::output::{self, Exit, Refused};

pub async fn run(global: &Global, args: &EraseArgs) -> anyhow::Result<Exit> {
    if !args.yes && !agreed(global)? {
        return Err(Refused::usage("not_confirmed", "an erasure cannot be taken back: add --yes; nothing was changed"));
    }
    let config = config(global)?;
    exists(&config.store)?;
    let opened = open_store(&config).await?;
    let at = Timestamp(jiff::Timestamp::now().as_microsecond());
    let erased = Erased { at, by: args.who.by.clone(), why: args.who.why.clone() };
    let erasure = erase(&*opened.store, &*opened.graves, &config.tenant, &args.subject, &erased).await.map_err(refused)?;
    if global.json {
        output::json(&json!({ "subject": erasure.subject, "at": shown::time(erasure.at), "before": erasure.before }));
        return Ok(Exit::Done);
    }
    let when = shown::time(erasure.at);
    match erasure.before {
        true => output::data(format_args!("was erased at {when}; subject {}", erasure.subject)),
        false => output::data(format_args!("erased; subject {}", erasure.subject)),
    }
    output::note("copies elsewhere still hold the key: backups, archives of the disk, replicas. See docs/erasure.md");
    Ok(Exit::Done)
}

/// Asks, where somebody is there to answer.
fn agreed(global: &Global) -> anyhow::Result<bool> {
    if global.json || !std::io::stdin().is_terminal() {
        return Ok(false);
    }
    let mut err = std::io::stderr();
    write!(err, "What is recorded of this subject will be unreadable for ever. Go on? [y/N] ")?;
    err.flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn refused(error: EraseError) -> anyhow::Error {
    let message = error.to_string();
    match error {
        EraseError::NotFound => Refused::refused("subject_not_found", message),
        EraseError::InUse(open) => {
            Refused { exit: Exit::Refused, code: "subject_in_use", message, detail: Some(json!({ "open": open })) }.into()
        }
        EraseError::Store(error) => LedgerError::from(error).into(),
    }
}
