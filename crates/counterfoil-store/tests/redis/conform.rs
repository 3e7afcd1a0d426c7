//! The suite that every adapter passes, and the differential run.

use std::sync::Arc;

use counterfoil_store::Store;
use counterfoil_store::conformance::differential::{Plan, differential};
use counterfoil_store::conformance::{check_all, check_graves};

use crate::server::{Server, open, options};

#[tokio::test]
async fn conforms() {
    let server = Server::durable();
    check_all(async || Arc::new(open(&server.fresh_url(), options()).await) as Arc<dyn Store>).await;
    check_graves(async || Arc::new(open(&server.fresh_url(), options()).await)).await;
}

async fn differs_not(handles: usize, seeds: std::ops::Range<u64>) {
    let server = Server::durable();
    for seed in seeds {
        let url = server.fresh_url();
        let plan = Plan { seed, operations_min: 2_000, handles, durable: true };
        differential(plan, async || Arc::new(open(&url, options()).await) as Arc<dyn Store>).await;
    }
}

#[tokio::test]
async fn differs_not_from_memory() {
    differs_not(1, 0..3).await;
}

/// Several values on one ledger see each other at once, as several processes would.
#[tokio::test]
async fn differs_not_from_memory_through_several_handles() {
    differs_not(3, 10..13).await;
}
