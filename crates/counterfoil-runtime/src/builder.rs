//! Puts a runtime together. Must be called inside a Tokio runtime.

use std::path::PathBuf;
use std::sync::Arc;

use counterfoil_core::{ToolName, WorkerId};
use counterfoil_store::Store;

use crate::clock::{Clock, SystemClock};
use crate::ledger::Ledger;
use crate::liveness::Liveness;
use crate::mode::{Configured, Mode};
use crate::runtime::Runtime;

pub struct Builder {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    worker: WorkerId,
    workers_dir: Option<PathBuf>,
    configured: Configured,
}

impl Builder {
    pub fn new(store: Arc<dyn Store>) -> Self {
        // Unique for ever: a claim must never be taken for that of another process with the same pid.
        let worker = WorkerId::new(&format!("{}-{}", std::process::id(), uuid::Uuid::now_v7())).expect("digits and dashes");
        Self { store, clock: Arc::new(SystemClock), worker, workers_dir: None, configured: Configured::default() }
    }

    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    pub fn worker(mut self, worker: WorkerId) -> Self {
        self.worker = worker;
        self
    }

    /// A directory shared by all workers of this ledger on this machine: with it, the claims of killed processes need not be waited out.
    pub fn workers_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.workers_dir = Some(dir.into());
        self
    }

    /// For all tools, as long as nobody switches it.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.configured.all = mode;
        self
    }

    /// For one tool, whatever holds for all.
    pub fn tool_mode(mut self, tool: ToolName, mode: Mode) -> Self {
        self.configured.tools.insert(tool, mode);
        self
    }

    pub fn build(self) -> std::io::Result<Runtime> {
        let liveness = match &self.workers_dir {
            Some(dir) => Liveness::announce(dir, &self.worker)?,
            None => Liveness::Leases,
        };
        let ledger = Arc::new(Ledger::new(self.store, self.clock.clone(), self.worker));
        Ok(Runtime::assemble(ledger, self.clock, liveness, self.configured))
    }
}
