//! Counterfoil: a side-effect safety runtime for AI agents and workflows.
//!
//! No side effect runs without the ledger's permission, none is run again on a guess, each leaves a receipt, replay never touches the
//! world, and what was done can be undone.
//!
//! ```
//! use counterfoil::prelude::*;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("ledger.db");
//! let runtime = counterfoil::open(path)?;
//! let charge = FnTool::new(|call: Invocation| async move {
//!     // Talk to the bank here; send `call.key` as the Idempotency-Key.
//!     Ok(serde_json::json!({ "charged": true, "key": call.key.to_string() }))
//! });
//! runtime.register(Registered::new("charge_card".parse()?, charge, Policy::default()));
//!
//! let call = counterfoil::call("charge_card", serde_json::json!({ "cents": 1999 }))?.key("order-7")?;
//! let first = runtime.call(call.build()).await;
//! let again = runtime.call(call.build()).await;
//! assert_eq!(first.data, again.data);
//! assert!(again.replayed);
//! # Ok(())
//! # }
//! ```

pub mod archive;
pub mod check;
pub mod compose;
pub mod erase;
pub mod keyring;

use std::path::Path;
use std::sync::Arc;

use counterfoil_core::ids::{CallKey, NameError};
use counterfoil_core::{Call, Caller, CanonicalJson, RunId, StepPath, Tenant, ToolName};
use counterfoil_runtime::{Builder, Runtime};
use counterfoil_store::OpenError;
use counterfoil_store::sqlite::Sqlite;
use thiserror::Error;

pub use counterfoil_core as core;
pub use counterfoil_evidence as evidence;
pub use counterfoil_runtime as runtime;
pub use counterfoil_runtime::engine::durable;
pub use counterfoil_store as store;

/// What most programs need.
pub mod prelude {
    pub use counterfoil_core::policy::{EffectClass, Policy, Repeat};
    pub use counterfoil_core::{Failure, Outcome, TraceContext};
    pub use counterfoil_runtime::{Answer, CallContext, FnTool, Invocation, ProbeAnswer, Registered, Runtime, Status, Tool, ToolError};
}

#[derive(Debug, Error)]
pub enum Error {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("{path}: {source}")]
    Workers { path: String, source: std::io::Error },
}

/// Opens the embedded ledger at `path`, creating it if need be, and a runtime on it. Must be called inside a Tokio runtime.
pub fn open(path: impl AsRef<Path>) -> Result<Runtime, Error> {
    let path = path.as_ref();
    let store = Arc::new(Sqlite::open(path, Default::default())?);
    let workers = compose::workers_dir(path);
    Builder::new(store).workers_dir(&workers).build().map_err(|source| Error::Workers { path: workers.display().to_string(), source })
}

/// Whether a receipt is of that call: the same tool, and the same arguments as they are stored. True for the call it was made for and for every replay of it.
/// Of a veiled effect only the subject's key can tell: see `Receipt::covers_under`.
pub fn verify(receipt: &counterfoil_core::Receipt, call: &Call) -> bool {
    receipt.covers(&call.tool, &call.args)
}

/// Begins to describe a call.
pub fn call(tool: &str, args: serde_json::Value) -> Result<CallBuilder, CallError> {
    Ok(CallBuilder {
        call: Call {
            tenant: Tenant::new("default")?,
            caller: Caller::new("library")?,
            tool: ToolName::new(tool)?,
            args: CanonicalJson::from_value(&args)?,
            key: None,
            run: None,
            step: None,
            ordinal: 0,
        },
    })
}

#[derive(Debug, Error)]
pub enum CallError {
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("the arguments: {0}")]
    Args(#[from] counterfoil_core::canonical::CanonicalError),
}

/// A call in the making. Every name is checked when it is given.
#[derive(Debug, Clone)]
pub struct CallBuilder {
    call: Call,
}

impl CallBuilder {
    /// The caller's own key: the same key is the same call, whatever else happens.
    pub fn key(mut self, key: &str) -> Result<Self, CallError> {
        self.call.key = Some(CallKey::new(key)?);
        Ok(self)
    }
    pub fn run(mut self, run: &str) -> Result<Self, CallError> {
        self.call.run = Some(RunId::new(run)?);
        Ok(self)
    }
    pub fn step(mut self, step: &str) -> Result<Self, CallError> {
        self.call.step = Some(StepPath::new(step)?);
        Ok(self)
    }
    pub fn caller(mut self, caller: &str) -> Result<Self, CallError> {
        self.call.caller = Caller::new(caller)?;
        Ok(self)
    }
    pub fn tenant(mut self, tenant: &str) -> Result<Self, CallError> {
        self.call.tenant = Tenant::new(tenant)?;
        Ok(self)
    }
    pub fn build(&self) -> Call {
        self.call.clone()
    }
}
