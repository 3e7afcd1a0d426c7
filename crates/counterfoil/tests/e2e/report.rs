//! What the crash laboratory found: a line for each fault on each store, of which `scripts/lab` makes the table that ends a test run.
//!
//! A line is written before anything is judged, so that the table shows also what went wrong. It goes to the file that `COUNTERFOIL_LAB` names, if it
//! does, and to whoever watches the test. Which lines must be there, `scripts/lab` knows: a test that is not run leaves a hole in the table.

use std::io::Write;

use serde_json::json;

use crate::workers::Kind;

/// What is done to a ledger, or to those who use it. The words are those of the table.
#[derive(Debug, Clone, Copy)]
pub enum Fault {
    KilledAtWrite,
    BrokenAtWrite,
    FullAtWrite,
    FullDisk,
    WorkersKilled,
    WorkersPaused,
    WorkerClock,
    StoreClock,
    StoreKilled,
    Cut,
    OutOfReach,
}

impl Fault {
    fn words(self) -> &'static str {
        match self {
            Self::KilledAtWrite => "killed at a flush or write",
            Self::BrokenAtWrite => "EIO at a flush or write",
            Self::FullAtWrite => "ENOSPC at a flush or write",
            Self::FullDisk => "disk full",
            Self::WorkersKilled => "workers killed",
            Self::WorkersPaused => "workers paused past their leases",
            Self::WorkerClock => "workers' clocks set and drifting",
            Self::StoreClock => "database's clock set",
            Self::StoreKilled => "database killed",
            Self::Cut => "connections cut",
            Self::OutOfReach => "ledger out of reach",
        }
    }
}

/// What one test did and found.
#[derive(Debug)]
pub struct Row {
    pub fault: Fault,
    pub kind: Kind,
    /// How often the fault was made.
    pub rounds: u64,
    pub acknowledged: u64,
    /// Acknowledged, and not the answer any more.
    pub lost: Vec<String>,
    /// Happened in the world more than once, and nobody had said that it may.
    pub twice: Vec<String>,
    /// Left for a person to settle.
    pub in_doubt: u64,
}

impl Row {
    pub fn new(fault: Fault, kind: Kind) -> Self {
        Self { fault, kind, rounds: 0, acknowledged: 0, lost: Vec::new(), twice: Vec::new(), in_doubt: 0 }
    }

    /// Writes it down, and only then looks whether it may be so.
    #[track_caller]
    pub fn tell(self) {
        let Self { fault, kind, rounds, acknowledged, lost, twice, in_doubt } = self;
        line(&json!({
            "fault": fault.words(), "store": kind.word(), "rounds": rounds, "acknowledged": acknowledged,
            "lost": lost.len(), "twice": twice.len(), "in_doubt": in_doubt,
        }));
        assert!(lost.is_empty(), "acknowledged and lost: {lost:#?}");
        assert!(twice.is_empty(), "happened more than once: {twice:#?}");
        assert!(rounds > 0 && acknowledged > 0, "nothing was shown: {rounds} rounds, {acknowledged} acknowledged");
    }
}

/// What cannot be tried on this machine is not a hole.
pub fn skipped(fault: Fault, kind: Kind, why: &str) {
    line(&json!({ "fault": fault.words(), "store": kind.word(), "skipped": why }));
}

fn line(row: &serde_json::Value) {
    println!("{row}");
    let Some(path) = std::env::var_os("COUNTERFOIL_LAB") else { return };
    let mut file =
        std::fs::OpenOptions::new().create(true).append(true).open(path).expect("COUNTERFOIL_LAB names a file that can be written");
    // One write: other tests append at the same time.
    file.write_all(format!("{row}\n").as_bytes()).expect("a line is written");
}
