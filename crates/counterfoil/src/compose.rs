//! Puts the parts together: the only file that names a concrete store.
//!
//! A config becomes a runtime with its tools; every tool is checked here before the first call, so that a mistake is found at start.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use counterfoil_core::EffectClass;
use counterfoil_core::policy::Repeat;
use counterfoil_runtime::config::Config;
use counterfoil_runtime::registry::{ArgsRule, SchemaError};
use counterfoil_runtime::spec::ToolSpec;
use counterfoil_runtime::template::{Expr, Scope};
use counterfoil_runtime::tools::{self, BuildError};
use counterfoil_runtime::{Builder, Registered, Runtime, Schema};
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
    #[error("tools.{tool}: {source}")]
    Tool { tool: String, source: BuildError },
    #[error("tools.{tool}.{field}: {source}")]
    Schema { tool: String, field: &'static str, source: SchemaError },
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
    for spec in &config.tools {
        for tool in registered(spec)? {
            runtime.register(tool);
        }
    }
    Ok(runtime)
}

/// The tool of a spec, and the companion that undoes it where there is one.
pub fn registered(spec: &ToolSpec) -> Result<Vec<Registered>, ComposeError> {
    let name = spec.name.to_string();
    let schema = |field, source: &Option<serde_json::Value>| {
        let compiled = source.as_ref().map(Schema::compile).transpose();
        compiled.map_err(|source| ComposeError::Schema { tool: name.clone(), field, source })
    };
    let (input, output) = (schema("input", &spec.input)?, schema("output", &spec.output)?);
    let built = tools::build(spec).map_err(|source| ComposeError::Tool { tool: name.clone(), source })?;
    let tools = built.into_iter().map(|(tool_name, tool)| {
        if tool_name != spec.name {
            // What undoes a file change checks what it finds: doing it twice is the same as doing it once.
            let policy =
                counterfoil_core::Policy { effect: EffectClass::Write, repeat: Repeat::Safe, ..counterfoil_core::Policy::default() };
            let description = Some(format!("Undoes a change made by {}", spec.name));
            return Registered { description, ..Registered::new(tool_name, tool, policy) };
        }
        Registered {
            name: tool_name,
            description: spec.description.clone(),
            policy: spec.policy.clone(),
            tool,
            input: input.clone(),
            output: output.clone(),
            approval: spec
                .approval
                .clone()
                .map(|expr| rule("approval", expr, |expr, scope| expr.eval_bool(scope).map_err(|e| e.to_string()))),
            cost: spec.cost.clone().map(|expr| rule("cost", expr, cost)),
        }
    });
    Ok(tools.collect())
}

fn rule<T: 'static>(field: &'static str, expr: Expr, eval: fn(&Expr, &Scope) -> Result<T, String>) -> ArgsRule<T> {
    Arc::new(move |args| eval(&expr, &Scope::new().with_args(args)).map_err(|e| format!("{field}: `{}`: {e}", expr.source())))
}

fn cost(expr: &Expr, scope: &Scope) -> Result<f64, String> {
    let value = expr.eval(scope).map_err(|e| e.to_string())?;
    value.as_f64().ok_or_else(|| format!("gives {value}, which is not a number"))
}
