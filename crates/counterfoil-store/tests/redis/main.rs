//! The Redis adapter against a real Redis that each test starts for itself.

mod aof;
mod cluster;
mod conform;
mod cuts;
mod kills;
mod listening;
mod memory;
mod names;
mod opening;
mod proxy;
mod racing;
mod settings;
mod tls;
mod worker;

use std::time::{Duration, Instant};

use counterfoil_core::summary::StreamKind;
use counterfoil_core::{StreamId, Summary, Tenant, Timestamp, ToolName};
use counterfoil_servers::redis as server;
use counterfoil_store::redis::Redis;
use counterfoil_store::{AppendError, Batch, History, Position, Reach, Store, StoreError, Version, Write};

use crate::server::PATIENCE;

/// A stream told apart by a number; looks like a digest.
fn stream(number: u64) -> StreamId {
    let mut bytes = [0; 32];
    for (place, byte) in bytes.iter_mut().enumerate() {
        *byte = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(7 * place as u32) >> 13) as u8;
    }
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    StreamId(bytes)
}

fn summary(state: &'static str) -> Summary {
    Summary {
        kind: StreamKind::Effect,
        tenant: Tenant::new("acme").expect("a name"),
        state,
        tool: Some(ToolName::new("bank.pay").expect("a name")),
        run: None,
        open: state == "running",
        due: None,
        expires: None,
    }
}

fn write(number: u64, expected: u64) -> Write {
    let body = format!("{{\"stream\":{number},\"after\":{expected}}}");
    Write { stream: stream(number), expected: Version(expected), at: Timestamp(1_000), body, summary: summary("running") }
}

async fn append(store: &Redis, writes: Vec<Write>) -> Result<Position, AppendError> {
    store.append(&Batch { writes }).await
}

async fn load(store: &Redis, number: u64) -> History {
    store.load(stream(number), Reach::Whole).await.expect("the ledger serves")
}

fn unavailable(result: Result<Position, AppendError>) -> (String, counterfoil_store::Written) {
    match result {
        Err(AppendError::Store(StoreError::Unavailable { message, written })) => (message, written),
        other => panic!("a store that cannot serve was expected, not {other:?}"),
    }
}

/// Tries until it is so. Everything that is waited for here must happen.
async fn eventually<T>(what: &str, mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        if let Some(value) = attempt().await {
            return value;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("{what}: not in {PATIENCE:?}");
}
