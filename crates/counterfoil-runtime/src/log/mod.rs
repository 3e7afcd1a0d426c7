//! The log of all receipts, in the order of the ledger: a Merkle tree under signed heads, kept in the ledger itself.
//!
//! [`seal`] adds what is new, in one append of tiles and head; [`find`] tells where a receipt stands; [`prove`] gives proofs; [`export`] puts together all that
//! is recorded of a run. What must stay true: sealing is on nobody's way, a call never waits for it; a head that was written is never changed, and the log of each begins
//! with the logs of all before it; several processes may seal, and one wins. Nothing here knows where private keys are kept: they come in as values.

pub mod export;
pub mod find;
mod keys;
pub mod prove;
pub mod seal;
mod tile;

use std::sync::{Arc, Mutex};

use counterfoil_core::ids::Digest32;
use counterfoil_core::receipt::ReceiptId;
use counterfoil_core::{RunId, StreamId, Tenant, codec};
use counterfoil_evidence::Head;
use counterfoil_store::{Position, Reach, StoreError, Version};
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use self::tile::Added;
use crate::clock::Clock;
use crate::ledger::{Ledger, LedgerError};
use crate::runtime::Runtime;

/// Heads in one stream.
const SEGMENT: u64 = 256;

#[derive(Debug, Error)]
pub enum LogError {
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// What the log says is not what the ledger holds.
    #[error("the log of receipts does not fit the ledger: {place}: {message}")]
    Unsound { place: String, message: String },
    #[error("key {found} may not sign here: this ledger is signed with key {newest}; take its private key, or `counterfoil keys rotate`")]
    OtherKey { found: String, newest: String },
    #[error("there are no receipts of a run {0}, nor a run of that name")]
    NoRun(RunId),
    #[error("there are no records and no receipts of an effect {0}")]
    NoEffect(Digest32),
    #[error("there is no receipt {0} here")]
    NoReceipt(ReceiptId),
    #[error("receipt {id} is not under a head yet: {why}")]
    NotSealed { id: ReceiptId, why: &'static str },
    #[error("there is no head {number}: the newest is {newest}")]
    NoHead { number: u64, newest: u64 },
}

impl LogError {
    /// Stable; each has a page in docs/errors.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Ledger(error) => error.code(),
            Self::Unsound { .. } => "log_unsound",
            Self::OtherKey { .. } => "key_not_current",
            Self::NoRun(_) | Self::NoEffect(_) | Self::NoReceipt(_) | Self::NoHead { .. } => "not_found",
            Self::NotSealed { .. } => "not_sealed",
        }
    }
}

/// A head as it is kept: with its number, and how far in the ledger it reaches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// 1, 2, 3, …
    pub number: u64,
    pub head: Head,
    pub covered: Covered,
}

/// The newest record whose receipts are in the log. Its position is this store's own: a copy has others, and is known by that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Covered {
    pub position: u64,
    pub stream: Digest32,
    pub version: u64,
}

/// The log of one ledger. One per process is enough: it remembers where it was.
pub struct Log {
    ledger: Arc<Ledger>,
    clock: Arc<dyn Clock>,
    memory: Mutex<Memory>,
}

#[derive(Default, Clone, Copy)]
struct Memory {
    /// The stream that held the newest head when last looked at.
    segment: u64,
    /// Under which head, and up to where the ledger was read for receipts since.
    read: Option<(u64, Position)>,
}

impl Log {
    pub fn new(runtime: &Runtime) -> Self {
        Self { ledger: runtime.inner.ledger.clone(), clock: runtime.inner.clock.clone(), memory: Mutex::default() }
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        // Two numbers that are only hints.
        self.memory.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The newest head, and the version of the stream that it stands in.
    async fn newest(&self) -> Result<Option<(Kept, Version)>, LogError> {
        let mut segment = self.memory().segment;
        if segment > 0 && self.versions(segment).await? == Version::NONE {
            segment = 0;
        }
        // Ever longer steps, then half as long again and again: however many heads there are, few looks.
        let mut step = 1;
        while self.versions(segment + step).await? != Version::NONE {
            segment += step;
            step *= 2;
        }
        while step > 1 {
            step /= 2;
            if self.versions(segment + step).await? != Version::NONE {
                segment += step;
            }
        }
        self.memory().segment = segment;
        let newest = self.ledger.records(StreamId::heads(segment), Reach::Newest(1)).await?;
        let Some(record) = newest.records.last() else { return Ok(None) };
        let number = segment * SEGMENT + newest.version.0;
        Ok(Some((kept(number, &record.body)?, newest.version)))
    }

    async fn versions(&self, segment: u64) -> Result<Version, LogError> {
        Ok(self.ledger.records(StreamId::heads(segment), Reach::Newest(0)).await?.version)
    }

    pub async fn newest_head(&self) -> Result<Option<Kept>, LogError> {
        Ok(self.newest().await?.map(|(kept, _)| kept))
    }

    /// The head of that number.
    pub async fn head(&self, number: u64) -> Result<Kept, LogError> {
        let none = |newest| LogError::NoHead { number, newest };
        let Some(index) = number.checked_sub(1) else { return Err(none(0)) };
        let records = self.ledger.records(StreamId::heads(index / SEGMENT), Reach::Whole).await?.records;
        match records.into_iter().find(|record| record.version.0 == index % SEGMENT + 1) {
            Some(record) => kept(number, &record.body),
            None => Err(none(self.newest_head().await?.map_or(0, |newest| newest.number))),
        }
    }

    /// The newest heads, newest first.
    pub async fn heads(&self, limit: usize) -> Result<Vec<Kept>, LogError> {
        let mut heads = Vec::new();
        let mut next = self.newest_head().await?.map_or(0, |newest| newest.number);
        while next > 0 && heads.len() < limit {
            let segment = (next - 1) / SEGMENT;
            let records = self.ledger.records(StreamId::heads(segment), Reach::Whole).await?.records;
            let known = records.iter().rev().filter(|record| segment * SEGMENT + record.version.0 <= next).take(limit - heads.len());
            for record in known {
                heads.push(kept(segment * SEGMENT + record.version.0, &record.body)?);
            }
            next = segment * SEGMENT;
        }
        Ok(heads)
    }
}

/// A head from its record.
pub fn kept(number: u64, body: &str) -> Result<Kept, LogError> {
    let place = || format!("head {number}");
    let mut heads: Vec<Kept> = codec::decode(body).map_err(|error| damaged(place(), error.to_string()))?;
    let unsound = |message: String| LogError::Unsound { place: place(), message };
    let kept = heads.pop().ok_or_else(|| unsound("its record is empty".into()))?;
    if kept.number != number {
        return Err(unsound(format!("its record says that it is head {}", kept.number)));
    }
    Ok(kept)
}

fn damaged(place: String, message: String) -> LogError {
    LedgerError::from(StoreError::Corrupt { place, message }).into()
}

/// What is kept for all tenants alike.
fn everyones() -> Tenant {
    Tenant::new("counterfoil").expect("a plain word")
}
