//! The SQLite adapter passes the suite, with its defaults and with numbers so small that every path is walked.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use counterfoil_store::Store;
use counterfoil_store::conformance::differential::{Plan, differential};
use counterfoil_store::conformance::{check_all, check_graves};
use counterfoil_store::sqlite::{Options, Sqlite};

/// Merges all the time, checkpoints all the time.
fn tiny() -> Options {
    Options { merge_entries: 4, checkpoint_pages: 8, ..Options::default() }
}

fn opener(options: Options, dir: &tempfile::TempDir) -> impl AsyncFn() -> Arc<Sqlite> {
    let count = AtomicU64::new(0);
    async move || {
        let path = dir.path().join(format!("{}.db", count.fetch_add(1, Ordering::Relaxed)));
        Arc::new(Sqlite::open(path, options.clone()).expect("a new ledger"))
    }
}

#[tokio::test]
async fn conforms() {
    let dir = tempfile::tempdir().expect("a directory");
    let open = opener(Options::default(), &dir);
    check_all(async || open().await as Arc<dyn Store>).await;
    check_graves(open).await;
}

#[tokio::test]
async fn conforms_with_tiny_numbers() {
    let dir = tempfile::tempdir().expect("a directory");
    let open = opener(tiny(), &dir);
    check_all(async || open().await as Arc<dyn Store>).await;
    check_graves(open).await;
}

async fn differs_not(options: Options, handles: usize, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("ledger.db");
        let plan = Plan { seed, operations_min: 1_500, handles, durable: true };
        differential(plan, async || Arc::new(Sqlite::open(&path, options.clone()).expect("the ledger")) as Arc<dyn Store>).await;
    }
}

#[tokio::test]
async fn differs_not_from_memory() {
    differs_not(Options::default(), 1, 0..2).await;
}

#[tokio::test]
async fn differs_not_from_memory_with_tiny_numbers() {
    differs_not(tiny(), 1, 10..16).await;
}

/// Several values on one file see each other as several processes would. No snapshot is held, since the reference knows
/// no staleness.
#[tokio::test]
async fn differs_not_from_memory_through_several_handles() {
    differs_not(Options { snapshot_held_max: Duration::ZERO, ..tiny() }, 3, 20..26).await;
}
