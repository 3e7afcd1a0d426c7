//! The reference passes the suite that it is the reference for.

use std::sync::Arc;

use counterfoil_store::Store;
use counterfoil_store::conformance::differential::{Plan, differential};
use counterfoil_store::conformance::{cases, check_all, check_graves};
use counterfoil_store::memory::Memory;

async fn fresh() -> Arc<dyn Store> {
    Arc::new(Memory::new())
}

#[tokio::test]
async fn conforms() {
    assert!(cases().len() > 20);
    check_all(fresh).await;
    check_graves(async || Arc::new(Memory::new())).await;
}

/// Against itself: shows that the generator reaches everything it must.
#[tokio::test]
async fn differs_not_from_itself() {
    for seed in 0..4 {
        differential(Plan { seed, operations_min: 2_000, handles: 1, durable: false }, fresh).await;
    }
}
