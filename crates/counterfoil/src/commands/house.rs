//! The config and the ledger a command works on, found the same way by every command.

use std::path::{Path, PathBuf};

use counterfoil::compose::{self, Opened, Volatile};
use counterfoil_runtime::Runtime;
use counterfoil_runtime::config::{Config, ConfigErrors, Environment, FILE_NAME};

use crate::cli::Global;
use crate::output::{self, Exit, Refused, trace_settings};

pub struct House {
    pub config: Config,
    pub runtime: Runtime,
}

impl House {
    pub async fn open(global: &Global) -> anyhow::Result<Self> {
        let config = config(global)?;
        let new = compose::ledger_file(&config.store).is_some_and(|file| !file.exists());
        let (runtime, opened) = open(&config).await?;
        // Whoever meant another one, from another folder perhaps, has to see it: a new ledger knows of nothing that was done.
        if let (true, false, Some(sqlite)) = (new, global.json, opened.sqlite()) {
            output::note(format_args!("a new ledger: {}", sqlite.path().display()));
        }
        Ok(Self { config, runtime })
    }

    /// For what looks at a ledger, and needs one.
    pub async fn standing(global: &Global) -> anyhow::Result<Self> {
        exists(&config(global)?.store)?;
        Self::open(global).await
    }
}

/// A file that is not there would be made, and found empty: a mistyped name would look as if all were well.
pub fn exists(url: &str) -> anyhow::Result<()> {
    let Some(file) = compose::ledger_file(url) else { return Ok(()) };
    match file.try_exists() {
        Ok(false) => {
            let message = format!("there is no ledger {}: the first call makes one; nothing was changed", file.display());
            Err(Refused::usage("store_absent", message))
        }
        // What stands in the way of looking is told by whoever opens it.
        Ok(true) | Err(_) => Ok(()),
    }
}

/// The runtime of a config, and its store.
pub async fn open(config: &Config) -> anyhow::Result<(Runtime, Opened)> {
    let opened = open_store(config).await?;
    let runtime = compose::runtime(&opened, config).map_err(open_refused)?;
    if trace_settings().is_some() {
        runtime.begin_traces();
    }
    Ok((runtime, opened))
}

pub async fn open_store(config: &Config) -> anyhow::Result<Opened> {
    open_store_at(&config.store, config).await
}

/// Another store than the config's own, under the same conditions.
pub async fn open_store_at(url: &str, config: &Config) -> anyhow::Result<Opened> {
    compose::open_store(url, Volatile::of(config)).await.map_err(open_refused)
}

/// The config that was named, or the one beside us, or defaults alone.
pub fn config(global: &Global) -> anyhow::Result<Config> {
    let mut config = match config_path(global) {
        Some(path) => Config::load(&path).map_err(config_refused)?,
        None => Config::parse("", FILE_NAME, &Environment::of_process()).map_err(config_refused)?,
    };
    if let Some(url) = &global.store {
        config.store = url.clone();
    }
    Ok(config)
}

pub fn config_path(global: &Global) -> Option<PathBuf> {
    global.config.clone().or_else(|| Path::new(FILE_NAME).exists().then(|| FILE_NAME.into()))
}

pub fn config_refused(errors: ConfigErrors) -> anyhow::Error {
    let detail = serde_json::to_value(&errors).ok();
    Refused { exit: Exit::Usage, code: "config_invalid", message: errors.to_string(), detail }.into()
}

pub fn open_refused(error: compose::ComposeError) -> anyhow::Error {
    use counterfoil_store::{OpenError, StoreError};
    let (exit, code) = match &error {
        compose::ComposeError::UnknownStore { .. } => (Exit::Usage, "store_unknown"),
        compose::ComposeError::Open(OpenError::NotALedger { .. }) => (Exit::Usage, "not_a_ledger"),
        compose::ComposeError::Open(OpenError::TooNew { .. }) => (Exit::Usage, "ledger_too_new"),
        compose::ComposeError::Open(OpenError::ReadOnly { .. }) => (Exit::Usage, "ledger_read_only"),
        compose::ComposeError::Open(OpenError::Unfit { .. }) => (Exit::Usage, "store_unfit"),
        compose::ComposeError::Open(OpenError::Store(StoreError::Corrupt { .. })) => (Exit::Broken, "ledger_corrupt"),
        compose::ComposeError::Open(_) | compose::ComposeError::Workers { .. } => (Exit::Broken, "store_unavailable"),
        compose::ComposeError::Tool(_) => (Exit::Usage, "config_invalid"),
    };
    Refused { exit, code, message: format!("{error}; nothing was run"), detail: None }.into()
}
