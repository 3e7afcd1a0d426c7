//! Short names for what the checks write and read.

use counterfoil_core::summary::StreamKind;
use counterfoil_core::{RunId, StreamId, Summary, Tenant, Timestamp, ToolName};

use crate::{AppendError, Batch, Found, History, Page, Position, Query, Reach, Store, Version, Write};

/// A stream told apart by a number. Looks like a digest: adapters may use its bytes as a hash.
pub fn stream(number: u64) -> StreamId {
    let mut rng = super::rng::Rng::new(number);
    let mut bytes = [0; 32];
    for chunk in bytes.chunks_exact_mut(8) {
        chunk.copy_from_slice(&rng.next().to_le_bytes());
    }
    StreamId(bytes)
}

pub fn tenant(text: &str) -> Tenant {
    Tenant::new(text).expect("a short name")
}

pub fn tool(text: &str) -> ToolName {
    ToolName::new(text).expect("a short name")
}

pub fn run(text: &str) -> RunId {
    RunId::new(text).expect("a short name")
}

/// An effect of tenant `acme` at rest: no tool, no run, never due, kept for ever.
pub fn summary(state: &'static str) -> Summary {
    Summary { kind: StreamKind::Effect, tenant: tenant("acme"), state, tool: None, run: None, open: false, due: None, expires: None }
}

pub fn open(state: &'static str) -> Summary {
    Summary { open: true, ..summary(state) }
}

pub fn write(number: u64, expected: u64, summary: Summary) -> Write {
    let body = format!("{{\"stream\":{number},\"after\":{expected}}}");
    Write { stream: stream(number), expected: Version(expected), at: Timestamp(1_000 + expected as i64), body, summary }
}

pub async fn append(store: &dyn Store, writes: Vec<Write>) -> Position {
    store.append(&Batch { writes }).await.expect("every stream is at its expected version")
}

/// The streams of the conflict that `writes` must end in, sorted.
pub async fn conflict(store: &dyn Store, writes: Vec<Write>) -> Vec<StreamId> {
    match store.append(&Batch { writes }).await {
        Err(AppendError::Conflict { mut streams }) => {
            streams.sort();
            streams
        }
        other => panic!("a conflict was expected, not {other:?}"),
    }
}

pub async fn load(store: &dyn Store, number: u64) -> History {
    store.load(stream(number), Reach::Whole).await.expect("the store serves")
}

pub fn sorted(numbers: &[u64]) -> Vec<StreamId> {
    let mut streams: Vec<StreamId> = numbers.iter().map(|number| stream(*number)).collect();
    streams.sort();
    streams
}

/// All pages of `query`, in order.
pub async fn search(store: &dyn Store, mut query: Query) -> Vec<Found> {
    let mut all = Vec::new();
    loop {
        let Page { found, next } = store.search(query.clone()).await.expect("the store serves");
        assert!(found.len() <= query.limit, "a page of {} for a limit of {}", found.len(), query.limit);
        all.extend(found);
        let Some(next) = next else { return all };
        assert!(query.below.is_none_or(|below| next < below), "paging must move on");
        query.below = Some(next);
    }
}

pub fn streams(found: &[Found]) -> Vec<StreamId> {
    found.iter().map(|found| found.stream).collect()
}
