//! Tests of the SQLite adapter, in one program since each would link SQLite anew.

mod absent;
mod backup;
mod child;
mod conform;
mod crash;
mod damage;
mod erasing;
mod full;
mod opening;
mod pruning;
mod syncs;
mod threads;
mod wal;

use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use counterfoil_core::summary::StreamKind;
use counterfoil_core::{StreamId, Summary, Tenant, Timestamp};
use counterfoil_store::sqlite::{Options, Sqlite};
use counterfoil_store::{AppendError, Batch, History, Position, Reach, Store, Version, Write};

/// Tells the other threads of a test to end, also when this one fails: a test that fails must not hang.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn open(path: &Path, options: Options) -> Sqlite {
    Sqlite::open(path, options).unwrap_or_else(|error| panic!("{error}"))
}

/// The embedded adapters complete when first polled.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("an embedded adapter does not wait"),
    }
}

fn stream(number: u64) -> StreamId {
    let mut bytes = [0; 32];
    for (index, chunk) in bytes.chunks_exact_mut(8).enumerate() {
        chunk.copy_from_slice(&(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 + index as u64 * 2).to_le_bytes());
    }
    StreamId(bytes)
}

/// Record `expected + 1` of a stream: its body says which it is.
fn write(number: u64, expected: u64) -> Write {
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
    let body = format!("{number}/{}", expected + 1);
    Write { stream: stream(number), expected: Version(expected), at: Timestamp(1), body, summary }
}

/// The same with a long body: a few of them fill a page.
fn large(number: u64, expected: u64) -> Write {
    let write = write(number, expected);
    Write { body: format!("{} {}", write.body, "x".repeat(3000)), ..write }
}

fn append(store: &Sqlite, writes: Vec<Write>) -> Result<Position, AppendError> {
    now(store.append(&Batch { writes }))
}

fn load(store: &Sqlite, number: u64) -> History {
    now(store.load(stream(number), Reach::Whole)).unwrap_or_else(|error| panic!("{error}"))
}

/// Every record of the stream is there and is the one that was written.
fn check_stream(store: &Sqlite, number: u64) -> u64 {
    let history = load(store, number);
    assert_eq!(history.records.len() as u64, history.version.0, "stream {number}");
    for (index, record) in history.records.iter().enumerate() {
        assert_eq!(record.version, Version(index as u64 + 1), "stream {number}");
        assert_eq!(record.body.split(' ').next(), Some(format!("{number}/{}", index + 1).as_str()), "stream {number}");
    }
    history.version.0
}

fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| status.contains("\nUid:\t0\t0"))
}
