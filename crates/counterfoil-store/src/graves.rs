//! Tombstones, for whoever carries a whole ledger elsewhere: a pruned stream must be refused in the copy as in the original.
//!
//! Not a part of [`crate::Store`]: no call needs it. What must stay true: an identity that was buried is never free again, and entombing
//! follows the same path as pruning, so that positions, searches and what is due are as after a prune.

use counterfoil_core::StreamId;

use crate::spread::Map;
use crate::{AppendError, Eventually, StoreError, Version};

/// What is left of a pruned stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tombstone {
    pub stream: StreamId,
    /// How many records it had.
    pub version: Version,
}

/// Some of the tombstones, and where to go on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Graveyard {
    pub found: Vec<Tombstone>,
    /// Set while there may be more; also after a page that held none.
    pub next: Option<Cursor>,
}

/// Where a listing of tombstones goes on. Means something to the store that gave it, and to no other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor(pub(crate) Vec<u8>);

pub trait Graves: Send + Sync + 'static {
    /// About `limit` tombstones. Whoever goes on until there is no `next` has seen each that was there all the time, perhaps twice.
    fn tombstones(&self, from: Option<Cursor>, limit: usize) -> Eventually<'_, Result<Graveyard, StoreError>>;

    /// All of these become tombstones, or nothing is changed. A stream that has records loses them, unless it has more than its tombstone
    /// says, which is a conflict; so is another tombstone. One that is there already is left.
    fn entomb<'a>(&'a self, tombstones: &'a [Tombstone]) -> Eventually<'a, Result<(), AppendError>>;

    /// Entombs, and makes the bytes that the stream had unfindable in the files that are this store's own to write. One that is a tombstone
    /// already is made so all the same.
    fn erase<'a>(&'a self, tombstone: &'a Tombstone) -> Eventually<'a, Result<(), AppendError>> {
        self.entomb(std::slice::from_ref(tombstone))
    }
}

/// Each stream once, or those that are named with two versions or with none.
/// A stream that never had a record cannot have been pruned.
pub(crate) fn distinct(tombstones: &[Tombstone]) -> Result<Vec<Tombstone>, AppendError> {
    let mut versions = Map::default();
    let mut conflicts = Vec::new();
    let mut distinct = Vec::with_capacity(tombstones.len());
    for tombstone in tombstones {
        match versions.insert(tombstone.stream, tombstone.version) {
            None if tombstone.version == Version::NONE => conflicts.push(tombstone.stream),
            None => distinct.push(*tombstone),
            Some(version) if version != tombstone.version => conflicts.push(tombstone.stream),
            Some(_) => {}
        }
    }
    if conflicts.is_empty() { Ok(distinct) } else { Err(AppendError::Conflict { streams: conflicts }) }
}

/// A page in the order of the streams' ids, of the stores that can list so.
pub(crate) fn page(found: Vec<Tombstone>, limit: usize) -> Graveyard {
    let next = found.last().filter(|_| found.len() >= limit).map(|last| Cursor(last.stream.0.to_vec()));
    Graveyard { found, next }
}
