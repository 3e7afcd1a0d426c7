//! Puts the parts together: the only file that names a concrete store.
//!
//! A config becomes a runtime with its tools; every tool is checked here before the first call, so that a mistake is found at start.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use counterfoil_runtime::config::Config;
pub use counterfoil_runtime::register::{RegisterError, registered};
use counterfoil_runtime::{Builder, GATHER_WITHIN, Mode, Runtime};
use counterfoil_store::memory::Memory;
use counterfoil_store::postgres::{Postgres, PostgresOptions};
use counterfoil_store::redis::{Redis, RedisOptions};
use counterfoil_store::sqlite::Sqlite;
use counterfoil_store::{Graves, OpenError, Store};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum ComposeError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("the store {url} is not one this version knows; use sqlite:FILE, postgres://…, redis://… or memory:")]
    UnknownStore { url: String },
    #[error("{path}: {source}; workers announce themselves there")]
    Workers { path: String, source: std::io::Error },
    #[error(transparent)]
    Tool(#[from] RegisterError),
}

/// A store that was opened, and where its workers announce themselves.
pub struct Opened {
    pub store: Arc<dyn Store>,
    /// The same store, for its tombstones.
    pub graves: Arc<dyn Graves>,
    pub workers_dir: Option<PathBuf>,
    pub kind: Kind,
}

/// The store itself, for what only one kind of them has.
#[derive(Clone)]
pub enum Kind {
    Memory,
    Sqlite(Arc<Sqlite>),
    Postgres(Arc<Postgres>),
    Redis(Arc<Redis>),
}

impl Opened {
    fn shared(store: Arc<impl Store + Graves>, kind: Kind) -> Self {
        // Workers on other machines announce themselves nowhere: their claims are waited out.
        Self { store: store.clone(), graves: store, workers_dir: None, kind }
    }

    /// The embedded ledger, for its statistics and its backups.
    pub fn sqlite(&self) -> Option<&Arc<Sqlite>> {
        match &self.kind {
            Kind::Sqlite(sqlite) => Some(sqlite),
            _ => None,
        }
    }
}

impl Kind {
    /// Where it is, for people: never with a password.
    pub fn label(&self) -> String {
        match self {
            Self::Memory => "memory:".into(),
            Self::Sqlite(sqlite) => format!("sqlite:{}", sqlite.path().display()),
            Self::Postgres(postgres) => postgres.describe(),
            Self::Redis(redis) => redis.label(),
        }
    }

    /// What can be lost although it was acknowledged.
    pub fn risks(&self) -> Vec<String> {
        match self {
            Self::Memory => vec!["memory: forgets everything when the process ends; use it for tests only".into()],
            Self::Sqlite(_) => Vec::new(),
            Self::Postgres(postgres) => postgres.risks(),
            Self::Redis(redis) => redis.risks(),
        }
    }
}

/// Whether a store will do that can lose what it acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Volatile {
    Refused,
    Allowed,
}

impl Volatile {
    /// Allowed where the config says so, and where nothing is promised anyway.
    pub fn of(config: &Config) -> Self {
        if config.allow_volatile || config.mode != Mode::Enforce { Self::Allowed } else { Self::Refused }
    }
}

/// Must be called inside a Tokio runtime.
pub async fn open_store(url: &str, volatile: Volatile) -> Result<Opened, ComposeError> {
    let allow_volatile = volatile == Volatile::Allowed;
    let scheme = url.split(':').next().unwrap_or_default();
    match scheme {
        "memory" if url == "memory:" => Ok(Opened::shared(Arc::new(Memory::default()), Kind::Memory)),
        "sqlite" => {
            let path = ledger_file(url).expect("it begins with sqlite:");
            let sqlite = Arc::new(Sqlite::open(path, Default::default())?);
            Ok(Opened { store: sqlite.clone(), graves: sqlite.clone(), workers_dir: Some(workers_dir(path)), kind: Kind::Sqlite(sqlite) })
        }
        "postgres" | "postgresql" => {
            let postgres = Arc::new(Postgres::open(url, PostgresOptions { allow_volatile, ..Default::default() }).await?);
            Ok(Opened::shared(postgres.clone(), Kind::Postgres(postgres)))
        }
        "redis" | "rediss" => {
            let redis = Arc::new(Redis::open(url, RedisOptions { allow_volatile, ..Default::default() }).await?);
            Ok(Opened::shared(redis.clone(), Kind::Redis(redis)))
        }
        // Only the scheme is shown: the rest may hold a password.
        _ => Err(ComposeError::UnknownStore { url: format!("{scheme}:…") }),
    }
}

/// Whether an embedded ledger could be opened or made there, as far as can be told without doing so.
pub fn check_place(url: &str) -> Result<(), ComposeError> {
    Ok(ledger_file(url).map_or(Ok(()), Sqlite::check_place)?)
}

/// Where an embedded ledger lies.
pub fn ledger_file(url: &str) -> Option<&Path> {
    let path = url.strip_prefix("sqlite:")?;
    Some(Path::new(path.strip_prefix("//").unwrap_or(path)))
}

/// Beside the ledger: `counterfoil.db` → `counterfoil.db-workers/`.
pub fn workers_dir(ledger: &Path) -> PathBuf {
    let mut name = ledger.as_os_str().to_owned();
    name.push("-workers");
    name.into()
}

/// Behind a network one batch is flushed while another comes or goes. A third is no faster.
const BATCHES_AT_ONCE: usize = 2;

/// A runtime on an opened store, as that store wants it.
pub fn builder(opened: &Opened) -> Builder {
    let builder = Builder::new(opened.store.clone());
    let builder = match &opened.kind {
        Kind::Memory | Kind::Sqlite(_) => return builder,
        Kind::Postgres(postgres) => builder.clock(postgres.clock()).heard(postgres.heard()),
        Kind::Redis(redis) => builder.clock(redis.clock()).heard(redis.heard()),
    };
    builder.gather_within(GATHER_WITHIN).batches_at_once(BATCHES_AT_ONCE)
}

/// A runtime on an opened store, with the tools of a config. Must be called inside a Tokio runtime.
pub fn runtime(opened: &Opened, config: &Config) -> Result<Runtime, ComposeError> {
    let mut builder = builder(opened).mode(config.mode);
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
