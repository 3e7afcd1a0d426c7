//! A whole ledger, carried from one store to another: records in their order, then tombstones.
//!
//! What must stay true: the target is empty or holds what the source began with, or nothing is changed; what was copied is read back
//! from both sides before anyone is told that it is there; stopped anywhere, the same copy goes on where it stopped.
//!
//! The source may be in use. What is appended meanwhile is copied until it is caught up with; what is pruned meanwhile is buried in
//! the target too, also where only a part of it had arrived. The target must not be in use.

mod digest;
mod walk;

use std::ops::ControlFlow;

use counterfoil_core::StreamId;
use counterfoil_core::ids::Digest32;
use futures_util::future::try_join_all;
use thiserror::Error;

pub use self::digest::Digest;
use self::walk::Walk;
use crate::spread::Set;
use crate::{AppendError, Batch, Graves, Position, Reach, Recorded, Store, StoreError, Tombstone, Version, Write};

/// Records read and written at once. Bounds memory, and how long a store is busy with one step.
const PAGE: usize = 500;

/// One of the two.
#[derive(Clone, Copy)]
pub struct Side<'a> {
    pub store: &'a dyn Store,
    pub graves: &'a dyn Graves,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// What the target holds is compared with what the source begins with.
    Comparing,
    Copying,
    Burying,
    Verifying,
}

/// How far it has come.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    pub phase: Phase,
    /// Records of this phase, or tombstones.
    pub done: u64,
    /// Where in the source it is, and where the source ended when it began.
    pub at: Position,
    pub end: Position,
}

/// What was found equal on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied {
    /// Of all records, and how many of them were there before.
    pub records: u64,
    pub found: u64,
    pub tombstones: u64,
    /// Over stream, version, time, body and summary of every record, in order.
    pub digest: Digest32,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CopyError {
    /// The target was not changed.
    #[error("the target is neither empty nor the beginning of the source: {difference}; nothing was changed")]
    Differs { difference: String },
    /// Found when everything was read back.
    #[error("the copy is not what the source holds: {difference}; do not use the target, make a new one")]
    Unsound { difference: String },
    #[error("something else writes to the target: {} moved on; stop it, and copy into an empty store", names(streams))]
    Moved { streams: Vec<StreamId> },
    #[error("source: {0}")]
    From(StoreError),
    #[error("target: {0}; what was copied so far is whole: the same command goes on from there")]
    To(StoreError),
    #[error("stopped; what was copied so far is whole: the same command goes on from there")]
    Stopped,
}

fn names(streams: &[StreamId]) -> String {
    streams.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl CopyError {
    fn writing(error: AppendError) -> Self {
        match error {
            AppendError::Conflict { streams } => Self::Moved { streams },
            AppendError::Store(error) => Self::To(error),
        }
    }
}

/// Copies until the target holds what the source holds. `told` hears of progress and may stop it, between two steps.
pub async fn copy(from: Side<'_>, to: Side<'_>, mut told: impl FnMut(Progress) -> ControlFlow<()>) -> Result<Copied, CopyError> {
    // An empty batch is written by nobody, and is answered with the newest position.
    let end = from.store.append(&Batch::default()).await.map_err(|error| match error {
        AppendError::Store(error) => CopyError::From(error),
        AppendError::Conflict { streams } => CopyError::Moved { streams },
    })?;
    let mut tell = |phase, done, at| match told(Progress { phase, done, at, end }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(CopyError::Stopped),
    };
    let mut begun = Lockstep::new(from, to);
    begun.compare(|done, at| tell(Phase::Comparing, done, at)).await?.map_err(|difference| CopyError::Differs { difference })?;
    buried_in_source(from, to).await?.map_err(|difference| CopyError::Differs { difference })?;
    let found = begun.digest.records;
    let mut source = begun.from;
    let mut copied = 0;
    append_all(&mut source, to, |records, at| {
        copied += records;
        tell(Phase::Copying, copied, at)
    })
    .await?;
    let mut verified = Lockstep::new(from, to);
    loop {
        verified.compare(|done, at| tell(Phase::Verifying, done, at)).await?.map_err(|difference| CopyError::Unsound { difference })?;
        // What was pruned since it was copied.
        for tombstones in std::mem::take(&mut verified.pruned).chunks(PAGE) {
            to.graves.entomb(tombstones).await.map_err(CopyError::writing)?;
        }
        if append_all(&mut source, to, |_, at| tell(Phase::Copying, copied, at)).await? == 0 {
            break;
        }
    }
    let tombstones = bury_all(from, to, |done| tell(Phase::Burying, done, end)).await?;
    buried_in_source(from, to).await?.map_err(|difference| CopyError::Unsound { difference })?;
    Ok(Copied { records: verified.digest.records, found, tombstones, digest: verified.digest.value })
}

/// Appends what follows in the source, until there is nothing more. Says how many records it was.
async fn append_all(
    source: &mut Walk<'_>,
    to: Side<'_>,
    mut tell: impl FnMut(u64, Position) -> Result<(), CopyError>,
) -> Result<u64, CopyError> {
    let mut all = 0;
    loop {
        let page = source.page().await.map_err(CopyError::From)?;
        let Some(at) = page.last().map(|recorded| recorded.record.position) else { return Ok(all) };
        let records = page.len() as u64;
        for batch in batches(page) {
            to.store.append(&batch).await.map_err(CopyError::writing)?;
        }
        all += records;
        tell(records, at)?;
    }
}

/// The records in their order, in as few batches as name each stream once.
fn batches(page: Vec<Recorded>) -> Vec<Batch> {
    let (mut batches, mut named) = (vec![Batch::default()], Set::default());
    for Recorded { stream, summary, record } in page {
        if !named.insert(stream) {
            batches.push(Batch::default());
            named = Set::default();
            named.insert(stream);
        }
        let write = Write { stream, expected: Version(record.version.0 - 1), at: record.at, body: record.body, summary };
        batches.last_mut().expect("there is always one").writes.push(write);
    }
    batches
}

/// Both sides, record by record.
struct Lockstep<'a> {
    from: Walk<'a>,
    to: Walk<'a>,
    digest: Digest,
    /// Streams of the target that the source has pruned since.
    pruned: Vec<Tombstone>,
}

impl<'a> Lockstep<'a> {
    fn new(from: Side<'a>, to: Side<'a>) -> Self {
        Self { from: Walk::new(from.store), to: Walk::new(to.store), digest: Digest::default(), pruned: Vec::new() }
    }

    /// Goes on to the end of the target. Inside: the first difference, if there is one.
    async fn compare(&mut self, mut tell: impl FnMut(u64, Position) -> Result<(), CopyError>) -> Result<Result<(), String>, CopyError> {
        while let Some(there) = self.to.next().await.map_err(CopyError::To)? {
            let here = self.from.next().await.map_err(CopyError::From)?;
            if let Some(here) = here.as_ref().filter(|here| same(here, &there)) {
                self.digest.add(here);
                if self.digest.records.is_multiple_of(PAGE as u64) {
                    tell(self.digest.records, here.record.position)?;
                }
                continue;
            }
            let now = self.from.store.load(there.stream, Reach::Newest(0)).await.map_err(CopyError::From)?;
            if !now.expired || now.version < there.record.version {
                return Ok(Err(difference(here.as_ref(), &there)));
            }
            // Pruned after it had been copied. What the source holds instead is compared with what follows in the target.
            if let Some(here) = here {
                self.from.put_back(here);
            }
            let tombstone = Tombstone { stream: there.stream, version: now.version };
            if self.pruned.last() != Some(&tombstone) {
                self.pruned.push(tombstone);
            }
        }
        Ok(Ok(()))
    }
}

/// Positions are each store's own.
fn same(here: &Recorded, there: &Recorded) -> bool {
    let (a, b) = (&here.record, &there.record);
    (here.stream, a.version, a.at) == (there.stream, b.version, b.at) && a.body == b.body && here.summary == there.summary
}

fn difference(here: Option<&Recorded>, there: &Recorded) -> String {
    let place = |recorded: &Recorded| {
        format!("record {} of stream {} (position {})", recorded.record.version.0, recorded.stream, recorded.record.position.0)
    };
    let Some(here) = here else { return format!("the target holds {} and the source ends before it", place(there)) };
    let (a, b) = (&here.record, &there.record);
    if (here.stream, a.version) != (there.stream, b.version) {
        return format!("the source holds {} where the target holds {}", place(here), place(there));
    }
    let what = match () {
        () if a.at != b.at => format!("the time is {} in the source and {} in the target", a.at.0, b.at.0),
        () if a.body != b.body => {
            let byte = a.body.bytes().zip(b.body.bytes()).take_while(|(a, b)| a == b).count();
            format!("the bodies ({} and {} bytes) differ from byte {byte} on", a.body.len(), b.body.len())
        }
        () => format!("the summary is {:?} in the source and {:?} in the target", here.summary, there.summary),
    };
    format!("{} in the source, {} in the target: {what}", place(here), place(there))
}

/// Every tombstone of the source becomes one of the target. Says how many.
async fn bury_all(from: Side<'_>, to: Side<'_>, mut tell: impl FnMut(u64) -> Result<(), CopyError>) -> Result<u64, CopyError> {
    let (mut cursor, mut all) = (None, 0);
    loop {
        let page = from.graves.tombstones(cursor, PAGE).await.map_err(CopyError::From)?;
        to.graves.entomb(&page.found).await.map_err(CopyError::writing)?;
        if let Some(difference) = unlike(to.store, &page.found, "target").await.map_err(CopyError::To)? {
            return Err(CopyError::Unsound { difference });
        }
        all += page.found.len() as u64;
        tell(all)?;
        cursor = page.next;
        if cursor.is_none() {
            return Ok(all);
        }
    }
}

/// Every tombstone of the target must be one of the source. Inside: the first that is not.
async fn buried_in_source(from: Side<'_>, to: Side<'_>) -> Result<Result<(), String>, CopyError> {
    let mut cursor = None;
    loop {
        let page = to.graves.tombstones(cursor, PAGE).await.map_err(CopyError::To)?;
        if let Some(difference) = unlike(from.store, &page.found, "source").await.map_err(CopyError::From)? {
            return Ok(Err(difference));
        }
        cursor = page.next;
        if cursor.is_none() {
            return Ok(Ok(()));
        }
    }
}

/// The first of these that is no such tombstone in `store`.
async fn unlike(store: &dyn Store, tombstones: &[Tombstone], side: &str) -> Result<Option<String>, StoreError> {
    let stands = try_join_all(tombstones.iter().map(|tombstone| store.load(tombstone.stream, Reach::Newest(0)))).await?;
    let mut pairs = tombstones.iter().zip(stands);
    let unlike = pairs.find(|(tombstone, stand)| !stand.expired || stand.version != tombstone.version);
    Ok(unlike.map(|(tombstone, stand)| {
        let instead = if stand.expired { "a tombstone" } else { "a stream" };
        let (stream, version) = (tombstone.stream, tombstone.version.0);
        format!("stream {stream} is a tombstone of {version} records on one side, and in the {side} {instead} of {}", stand.version.0)
    }))
}
