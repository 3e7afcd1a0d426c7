//! Puts a runtime together. Must be called inside a Tokio runtime.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use counterfoil_core::{ToolName, WorkerId};
use counterfoil_store::Store;
use counterfoil_store::remote::Heard;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::clock::{Clock, SystemClock};
use crate::fresh::Fresh;
use crate::group::Grouping;
use crate::ledger::Ledger;
use crate::liveness::Liveness;
use crate::mode::{Configured, Mode};
use crate::novelty::Novelty;
use crate::runtime::Runtime;

/// Where work is done that may hold up the thread it is done on: the ledger's appends, and looks at much of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Threads {
    /// On threads of its own.
    #[default]
    Own,
    /// By tasks of the Tokio runtime it was built in. For a store behind a network, which waits and does not work; and for a simulator: whoever polls
    /// that runtime decides what happens when, and drops all of it at any moment.
    None,
}

/// Whether ends leave receipts. They do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Receipts {
    #[default]
    Written,
    /// For a benchmark, which measures what they cost. Such a ledger is evidence of nothing.
    LeftOut,
}

pub struct Builder {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    worker: WorkerId,
    workers_dir: Option<PathBuf>,
    configured: Configured,
    heard: Option<broadcast::Receiver<Heard>>,
    threads: Threads,
    fresh: Fresh,
    receipts: Receipts,
    novelty: Novelty,
    grouping: Grouping,
}

impl Builder {
    pub fn new(store: Arc<dyn Store>) -> Self {
        // Unique for ever: a claim must never be taken for that of another process with the same pid.
        let worker = WorkerId::new(&format!("{}-{}", std::process::id(), uuid::Uuid::now_v7())).expect("digits and dashes");
        Self {
            store,
            clock: Arc::new(SystemClock),
            worker,
            workers_dir: None,
            configured: Configured::default(),
            heard: None,
            threads: Threads::default(),
            fresh: Fresh::new(),
            receipts: Receipts::default(),
            novelty: Novelty::after(Novelty::ENOUGH),
            grouping: Grouping { at_once: 1, gather_within: None },
        }
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

    /// What the store tells of commits, other processes' too: then nobody has to look for them.
    pub fn heard(mut self, heard: broadcast::Receiver<Heard>) -> Self {
        self.heard = Some(heard);
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

    pub fn threads(mut self, threads: Threads) -> Self {
        self.threads = threads;
        self
    }

    pub fn receipts(mut self, receipts: Receipts) -> Self {
        self.receipts = receipts;
        self
    }

    /// Ids, nonces and jitter follow from `seed`: for a simulator. No two runtimes of one ledger may have the same. (Secrets and salts do not follow from it.)
    pub fn seed(mut self, seed: u64) -> Self {
        self.fresh = Fresh::seeded(seed);
        self
    }

    /// After so many keys in a row that were new the next is not looked up before it is claimed. 0: none is; for a simulator, which is to see wrong
    /// guesses.
    pub fn guess_after(mut self, new_keys: u32) -> Self {
        self.novelty = Novelty::after(new_keys);
        self
    }

    /// For a store behind a network, where a batch mostly waits and has a price of its own: writers are tasks ([`Threads::None`]), and a small batch waits
    /// for callers that were just answered, as long as one comes within each `moment` ([`GATHER_WITHIN`](crate::GATHER_WITHIN) is a good one).
    pub fn gather_within(mut self, moment: Duration) -> Self {
        self.grouping.gather_within = Some(moment);
        self
    }

    /// For such a store: up to so many batches are on their way at once, one at least; writers are tasks then. Receipts of calls outside runs go to as many
    /// chains.
    pub fn batches_at_once(mut self, batches: usize) -> Self {
        self.grouping.at_once = batches.max(1);
        self
    }

    /// Inside the Tokio runtime that goes on with what its callers leave: it must live as long as this.
    pub fn build(self) -> std::io::Result<Runtime> {
        let liveness = match &self.workers_dir {
            Some(dir) => Liveness::announce(dir, &self.worker)?,
            None => Liveness::Leases,
        };
        let fresh = Arc::new(self.fresh);
        // Only tasks gather, and go beside each other: each tells its callers before the next batch may name their streams.
        let tasks = self.grouping.at_once > 1 || self.grouping.gather_within.is_some();
        let threads = if tasks { Threads::None } else { self.threads };
        let ledger = Ledger::new(self.store, self.clock.clone(), self.worker, threads, self.grouping, fresh.clone());
        let ledger = Arc::new(ledger.with_receipts(self.receipts));
        if let Some(heard) = self.heard {
            ledger.wakeups().hears();
            tokio::spawn(listen(heard, Arc::downgrade(&ledger)));
        }
        Ok(Runtime::assemble(ledger, self.clock, liveness, self.configured, fresh, self.novelty))
    }
}

/// Passes on what is heard, for as long as there is someone to pass it on to.
async fn listen(mut heard: broadcast::Receiver<Heard>, ledger: Weak<Ledger>) {
    loop {
        let heard = match heard.recv().await {
            Ok(heard) => heard,
            Err(RecvError::Lagged(_)) => Heard::Anything,
            Err(RecvError::Closed) => return,
        };
        let Some(ledger) = ledger.upgrade() else { return };
        ledger.wakeups().hear(&heard);
    }
}
