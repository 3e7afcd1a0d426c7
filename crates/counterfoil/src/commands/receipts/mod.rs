//! `counterfoil receipts`: what was proven, whether it holds, and evidence of it for others.

mod list;
mod prove;
mod verify;

use std::io::Write;
use std::path::Path;

use counterfoil::compose::Opened;
use counterfoil_core::ids::CallKey;
use counterfoil_core::receipt::ReceiptId;
use counterfoil_core::{EffectKey, RunId, Tenant, ToolName};
use counterfoil_runtime::log::find::{Placed, effect_of_key};
use counterfoil_runtime::{Log, LogError, Runtime};

use super::call::name;
use super::house;
use crate::cli::{Global, ReceiptArgs, ReceiptsArgs, ReceiptsCommand, ReceiptsOf};
use crate::output::{self, Exit, Refused};

pub use self::verify::{head, public_keys};

pub async fn run(global: &Global, args: &ReceiptsArgs) -> anyhow::Result<Exit> {
    match &args.command {
        ReceiptsCommand::List(args) => list::list(global, args).await,
        ReceiptsCommand::Show(args) => list::show(global, args).await,
        ReceiptsCommand::Verify(args) => verify::run(global, args).await,
        ReceiptsCommand::Export(args) => prove::export(global, args).await,
        ReceiptsCommand::Prove(args) => prove::prove(global, args).await,
        ReceiptsCommand::Seal { output } => prove::seal(global, output.as_deref()).await,
        ReceiptsCommand::Heads { limit } => list::heads(global, *limit).await,
        ReceiptsCommand::Consistency { old, new, output } => prove::consistency(global, *old, *new, output.as_deref()).await,
    }
}

/// The ledger of a command, with its log.
struct Shelf {
    tenant: Tenant,
    log: Log,
    runtime: Runtime,
    opened: Opened,
}

impl Shelf {
    async fn open(global: &Global) -> anyhow::Result<Self> {
        let config = house::config(global)?;
        house::exists(&config.store)?;
        let (runtime, opened) = house::open(&config).await?;
        Ok(Self { tenant: config.tenant, log: Log::new(&runtime), runtime, opened })
    }

    /// Which receipts are meant, in their order. `None` of both: those of calls outside runs.
    async fn all_of(&self, of: &Of) -> anyhow::Result<Vec<Placed>> {
        let found = match (&of.run, of.effect(&self.tenant)) {
            (run, Some(effect)) => self.log.of_effect(&self.tenant, effect, run.as_ref()).await,
            (Some(run), None) => self.log.of_run(&self.tenant, run).await,
            (None, None) => self.log.outside_runs(&self.tenant).await,
        };
        found.map_err(refused)
    }

    /// The one that was named: by its id, or by its place in a run.
    async fn one(&self, args: &ReceiptArgs) -> anyhow::Result<Placed> {
        let of = Of::typed(&args.of)?;
        let id = args.receipt.parse().map(ReceiptId);
        let found = match (id, args.receipt.parse::<u64>(), &of) {
            (Ok(id), _, Of { run: None, effect: None, key: None }) => self.log.by_id(&self.tenant, id).await.map(Some),
            (Ok(id), ..) => Ok(self.all_of(&of).await?.into_iter().find(|placed| placed.receipt.id == id)),
            (Err(_), Ok(seq), Of { run: Some(_), .. }) => Ok(self.all_of(&of).await?.into_iter().find(|placed| placed.receipt.seq == seq)),
            (Err(_), Ok(_), _) => {
                let message = format!("{}: say of which run (--run), or give the receipt's 64 digits", args.receipt);
                return Err(Refused::usage("invalid_receipt", message));
            }
            (Err(error), Err(_), _) => return Err(Refused::usage("invalid_receipt", format!("RECEIPT: {error}"))),
        };
        let none = || Refused::refused("not_found", format!("there is no receipt {} there", args.receipt));
        found.map_err(refused)?.ok_or_else(none)
    }
}

/// What was typed to say which receipts.
#[derive(Default)]
struct Of {
    run: Option<RunId>,
    effect: Option<EffectKey>,
    key: Option<(ToolName, CallKey)>,
}

impl Of {
    fn typed(of: &ReceiptsOf) -> anyhow::Result<Self> {
        let run = of.run.as_deref().map(|run| name("--run", run)).transpose()?;
        let effect = of.effect.as_deref().map(effect).transpose()?;
        let key = match (&of.tool, &of.key) {
            (Some(tool), Some(key)) => Some((name("--tool", tool)?, name("--key", key)?)),
            _ => None,
        };
        Ok(Self { run, effect, key })
    }

    fn effect(&self, tenant: &Tenant) -> Option<EffectKey> {
        self.effect.or_else(|| self.key.as_ref().map(|(tool, key)| effect_of_key(tenant, tool, key)))
    }
}

fn effect(typed: &str) -> anyhow::Result<EffectKey> {
    typed.parse().map_err(|error| Refused::usage("invalid_key", format!("--effect: {error}")))
}

fn refused(error: LogError) -> anyhow::Error {
    let exit = match &error {
        LogError::Ledger(_) => return error.into(),
        LogError::Unsound { .. } => Exit::Broken,
        _ => Exit::Refused,
    };
    Refused { exit, code: error.code(), message: error.to_string(), detail: None }.into()
}

/// Writes a file whole or not at all; to standard output where none is named.
fn write_file(path: Option<&Path>, text: &str) -> anyhow::Result<()> {
    let Some(path) = path else {
        drop(std::io::stdout().write_all(text.as_bytes()));
        return Ok(());
    };
    let failed = |error: std::io::Error| Refused::usage("output_unwritable", format!("{}: {error}", path.display()));
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}.tmp", std::process::id()));
    let written = std::fs::write(&draft, text).and_then(|()| std::fs::rename(&draft, path));
    written.map_err(|error| {
        drop(std::fs::remove_file(&draft));
        failed(error)
    })
}

fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Where something was written, for people.
fn wrote(path: Option<&Path>, what: impl std::fmt::Display) {
    match path {
        Some(path) => output::note(format_args!("{}: {what}", path.display())),
        None => output::note(what),
    }
}
