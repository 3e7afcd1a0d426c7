//! Puts the parts together: the only file that names a concrete store.
//!
//! A config becomes a runtime with its tools; every tool is checked here before the first call, so that a mistake is found at start.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use counterfoil_runtime::config::Config;
pub use counterfoil_runtime::register::{RegisterError, registered};
use counterfoil_runtime::{Builder, Runtime};
use counterfoil_store::memory::Memory;
use counterfoil_store::sqlite::Sqlite;
use counterfoil_store::{OpenError, Store};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum ComposeError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("the store {url} is not one this version knows; use sqlite:FILE or memory:")]
    UnknownStore { url: String },
    #[error("{path}: {source}; workers announce themselves there")]
    Workers { path: String, source: std::io::Error },
    #[error(transparent)]
    Tool(#[from] RegisterError),
}

/// A store that was opened, and where its workers announce themselves.
pub struct Opened {
    pub store: Arc<dyn Store>,
    pub workers_dir: Option<PathBuf>,
    /// The embedded ledger itself, for its statistics and its backups.
    pub sqlite: Option<Arc<Sqlite>>,
}

pub fn open_store(url: &str) -> Result<Opened, ComposeError> {
    if url == "memory:" {
        return Ok(Opened { store: Arc::new(Memory::default()), workers_dir: None, sqlite: None });
    }
    let Some(path) = url.strip_prefix("sqlite:") else {
        let scheme = url.split(':').next().unwrap_or_default();
        // Only the scheme is shown: the rest may hold a password.
        return Err(ComposeError::UnknownStore { url: format!("{scheme}:…") });
    };
    let path = Path::new(path.strip_prefix("//").unwrap_or(path));
    let sqlite = Arc::new(Sqlite::open(path, Default::default())?);
    Ok(Opened { store: sqlite.clone(), workers_dir: Some(workers_dir(path)), sqlite: Some(sqlite) })
}

/// Beside the ledger: `counterfoil.db` → `counterfoil.db-workers/`.
pub fn workers_dir(ledger: &Path) -> PathBuf {
    let mut name = ledger.as_os_str().to_owned();
    name.push("-workers");
    name.into()
}

/// A runtime on an opened store, with the tools of a config. Must be called inside a Tokio runtime.
pub fn runtime(opened: &Opened, config: &Config) -> Result<Runtime, ComposeError> {
    let mut builder = Builder::new(opened.store.clone()).mode(config.mode);
    for spec in &config.tools {
        if let Some(mode) = spec.mode {
            builder = builder.tool_mode(spec.name.clone(), mode);
        }
    }
    if let Some(dir) = &opened.workers_dir {
        builder = builder.workers_dir(dir);
    }
    let runtime = builder.build().map_err(|source| {
        let path = opened.workers_dir.as_deref().unwrap_or(Path::new("")).display().to_string();
        ComposeError::Workers { path, source }
    })?;
    runtime.know_tenants([config.tenant.clone()]);
    for spec in &config.tools {
        for tool in registered(spec)? {
            runtime.register(tool);
        }
    }
    Ok(runtime)
}
