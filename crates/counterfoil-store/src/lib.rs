//! The durable border: compare-and-append on streams, and nothing else.
//!
//! A [`Store`] knows streams, versions, positions and opaque bodies. It does not know what a tool is, what an
//! entry means or when a lease ends: no adapter branches on content. The rules live in `counterfoil-core`,
//! group commit in the ledger, both written once for all adapters.
//!
//! Reading order: [`Store`], [`batch`], [`error`], [`graves`] and [`copy`] (a whole ledger, carried elsewhere), then the adapters [`memory`] (the reference), [`sqlite`] (the embedded
//! default), [`postgres`] and [`redis`] (shared by many workers on many machines; [`remote`] is what those two have in common).
//! [`conformance`] is the suite that every adapter passes.

use std::future::Future;
use std::pin::Pin;

use counterfoil_core::{StreamId, Timestamp};

pub mod batch;
pub mod conformance;
pub mod copy;
pub mod error;
pub mod graves;
pub mod memory;
pub mod postgres;
pub mod redis;
pub mod remote;
pub mod spread;
pub mod sqlite;

pub use batch::{Batch, Found, History, Page, Position, Pruned, Query, Reach, Record, Recorded, Version, Write};
pub use error::{AppendError, OpenError, StoreError, Written};
pub use graves::{Cursor, Graves, Graveyard, Tombstone};

/// A boxed future, so that a store can be chosen at run time.
pub type Eventually<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Durable compare-and-append on streams.
///
/// The embedded adapters do their work on the thread that polls: microseconds for `load`, a disk flush for `append`,
/// longer for `search`, `tail` and `prune`. Who must not be held up polls them on a thread of its own.
pub trait Store: Send + Sync + 'static {
    /// The records of `stream`, oldest first; the newest few when `reach` says so. An unknown stream has version 0.
    /// Sees everything that this `Store` value acknowledged before the call.
    fn load(&self, stream: StreamId, reach: Reach) -> Eventually<'_, Result<History, StoreError>>;

    /// All of `batch` or nothing: each stream must still be at its expected version. Durable when this returns `Ok`.
    /// A batch names a stream at most once.
    fn append<'a>(&'a self, batch: &'a Batch) -> Eventually<'a, Result<Position, AppendError>>;

    /// Streams whose summary says to look at them by `now`, earliest first.
    fn due(&self, now: Timestamp, limit: usize) -> Eventually<'_, Result<Vec<StreamId>, StoreError>>;

    /// The records of all streams in commit order, from just after a position.
    fn tail(&self, after: Position, limit: usize) -> Eventually<'_, Result<Vec<Recorded>, StoreError>>;

    /// For people: streams by their current summary, newest first. Never consulted by `decide`.
    fn search(&self, query: Query) -> Eventually<'_, Result<Page, StoreError>>;

    /// Drops the records of up to `limit` streams whose summary expired before `before`, leaving tombstones.
    fn prune(&self, before: Timestamp, limit: usize) -> Eventually<'_, Result<Pruned, StoreError>>;
}
