//! The adapter passes the suite, also where LISTEN is not used, and answers as the reference does.

use std::sync::Arc;

use counterfoil_store::Store;
use counterfoil_store::conformance::differential::{Plan, differential};
use counterfoil_store::conformance::{check_all, check_graves};
use counterfoil_store::postgres::PostgresOptions;

use crate::server::Server;

#[tokio::test]
async fn conforms() {
    let server = Server::start().await;
    check_all(async || Arc::new(server.open(&server.fresh()).await) as Arc<dyn Store>).await;
    check_graves(async || Arc::new(server.open(&server.fresh()).await)).await;
}

#[tokio::test]
async fn conforms_without_notifications() {
    let server = Server::start().await;
    check_all(async || {
        let options = PostgresOptions { listen: false, readers: 1, ..server.fresh() };
        Arc::new(server.open(&options).await) as Arc<dyn Store>
    })
    .await;
}

async fn differs_not(handles: usize, seeds: std::ops::Range<u64>) {
    let server = Server::start().await;
    for seed in seeds {
        let options = server.fresh();
        let plan = Plan { seed, operations_min: 1_500, handles, durable: true };
        differential(plan, async || Arc::new(server.open(&options).await) as Arc<dyn Store>).await;
    }
}

#[tokio::test]
async fn differs_not_from_memory() {
    differs_not(1, 0..2).await;
}

/// Several values on one schema see each other as several processes would.
#[tokio::test]
async fn differs_not_from_memory_through_several_handles() {
    differs_not(3, 20..23).await;
}
