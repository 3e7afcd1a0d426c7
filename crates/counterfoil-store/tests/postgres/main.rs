//! Tests of the PostgreSQL adapter against a real, private server.

mod burying;
mod conform;
mod cutting;
mod damage;
mod hearing;
mod large;
mod loading;
mod migrating;
mod opening;
mod outage;
mod proxy;
mod racing;
mod settling;
mod stalling;
mod tls;

use counterfoil_core::summary::StreamKind;
use counterfoil_core::{StreamId, Summary, Tenant, Timestamp};
use counterfoil_servers::postgres as server;
use counterfoil_store::{AppendError, Batch, History, Position, Reach, Store, StoreError, Version, Write};

fn stream(number: u64) -> StreamId {
    let mut bytes = [0; 32];
    for (index, chunk) in bytes.chunks_exact_mut(8).enumerate() {
        chunk.copy_from_slice(&(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 + index as u64 * 2).to_le_bytes());
    }
    StreamId(bytes)
}

/// Record `expected + 1` of a stream: its body says which it is, and who wrote it.
fn write_by(who: u64, number: u64, expected: u64) -> Write {
    let summary = Summary {
        kind: StreamKind::Effect,
        tenant: Tenant::new("acme").expect("a name"),
        state: if expected.is_multiple_of(2) { "running" } else { "done" },
        tool: None,
        run: None,
        open: expected.is_multiple_of(2),
        due: None,
        expires: None,
    };
    let body = format!("{number}/{} by {who}", expected + 1);
    Write { stream: stream(number), expected: Version(expected), at: Timestamp(1), body, summary }
}

fn write(number: u64, expected: u64) -> Write {
    write_by(0, number, expected)
}

async fn append(store: &dyn Store, writes: Vec<Write>) -> Result<Position, AppendError> {
    store.append(&Batch { writes }).await
}

async fn load(store: &dyn Store, number: u64) -> Result<History, StoreError> {
    store.load(stream(number), Reach::Whole).await
}

/// The bodies of a stream; its records must be 1, 2, 3, … and say so.
async fn bodies(store: &dyn Store, number: u64) -> Vec<String> {
    let history = load(store, number).await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(history.records.len() as u64, history.version.0, "stream {number}");
    for (index, record) in history.records.iter().enumerate() {
        assert_eq!(record.version, Version(index as u64 + 1), "stream {number}");
        assert!(record.body.starts_with(&format!("{number}/{} ", index + 1)), "stream {number}: {}", record.body);
    }
    history.records.into_iter().map(|record| record.body).collect()
}
