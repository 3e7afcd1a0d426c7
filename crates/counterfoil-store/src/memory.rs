//! The reference adapter: one lock around plain maps.
//!
//! It says what the trait means, so it must stay so simple that it is obviously right: no index, no cache, every
//! question answered by looking at everything. Nothing here survives the process. The other adapters are compared
//! with it, operation by operation, by [`crate::conformance`].

use std::collections::{BTreeMap, HashMap};
use std::future::ready;
use std::sync::{Mutex, MutexGuard};

use counterfoil_core::{StreamId, Summary, Timestamp};

use crate::graves::{distinct, page};
use crate::{
    AppendError, Batch, Cursor, Eventually, Found, Graves, Graveyard, History, Page, Position, Pruned, Query, Reach, Record, Recorded,
    Store, StoreError, Tombstone, Version,
};

#[derive(Debug, Default)]
pub struct Memory {
    ledger: Mutex<Ledger>,
}

impl Memory {
    pub fn new() -> Self {
        Self::default()
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().expect("nothing panics while it holds the ledger")
    }
}

impl Store for Memory {
    fn load(&self, stream: StreamId, reach: Reach) -> Eventually<'_, Result<History, StoreError>> {
        Box::pin(ready(Ok(self.ledger().load(stream, reach))))
    }

    fn append<'a>(&'a self, batch: &'a Batch) -> Eventually<'a, Result<Position, AppendError>> {
        Box::pin(ready(self.ledger().append(batch)))
    }

    fn due(&self, now: Timestamp, limit: usize) -> Eventually<'_, Result<Vec<StreamId>, StoreError>> {
        Box::pin(ready(Ok(self.ledger().due(now, limit))))
    }

    fn tail(&self, after: Position, limit: usize) -> Eventually<'_, Result<Vec<Recorded>, StoreError>> {
        Box::pin(ready(Ok(self.ledger().tail(after, limit))))
    }

    fn search(&self, query: Query) -> Eventually<'_, Result<Page, StoreError>> {
        Box::pin(ready(Ok(self.ledger().search(&query))))
    }

    fn prune(&self, before: Timestamp, limit: usize) -> Eventually<'_, Result<Pruned, StoreError>> {
        Box::pin(ready(Ok(self.ledger().prune(before, limit))))
    }
}

impl Graves for Memory {
    fn tombstones(&self, from: Option<Cursor>, limit: usize) -> Eventually<'_, Result<Graveyard, StoreError>> {
        Box::pin(ready(Ok(self.ledger().tombstones(from.as_ref(), limit))))
    }

    fn entomb<'a>(&'a self, tombstones: &'a [Tombstone]) -> Eventually<'a, Result<(), AppendError>> {
        Box::pin(ready(self.ledger().entomb(tombstones)))
    }
}

#[derive(Debug, Default)]
struct Ledger {
    /// Every record in commit order.
    log: BTreeMap<Position, Recorded>,
    streams: HashMap<StreamId, Stream>,
    /// The last position given out; pruning does not take it back.
    last: Position,
}

#[derive(Debug)]
enum Stream {
    Live { positions: Vec<Position>, summary: Summary },
    Tombstone { version: Version },
}

impl Stream {
    fn version(&self) -> Version {
        match self {
            Self::Live { positions, .. } => Version(positions.len() as u64),
            Self::Tombstone { version } => *version,
        }
    }
}

impl Ledger {
    fn load(&self, stream: StreamId, reach: Reach) -> History {
        match self.streams.get(&stream) {
            None => History::default(),
            Some(Stream::Tombstone { version }) => History { version: *version, expired: true, records: Vec::new() },
            Some(Stream::Live { positions, .. }) => {
                let skipped = match reach {
                    Reach::Whole => 0,
                    Reach::Newest(count) => positions.len().saturating_sub(count as usize),
                };
                let records = positions[skipped..].iter().map(|position| self.log[position].record.clone()).collect();
                History { version: Version(positions.len() as u64), expired: false, records }
            }
        }
    }

    fn append(&mut self, batch: &Batch) -> Result<Position, AppendError> {
        let streams = self.conflicts(batch);
        if !streams.is_empty() {
            return Err(AppendError::Conflict { streams });
        }
        for write in batch.writes.iter().cloned() {
            self.last = Position(self.last.0 + 1);
            let record = Record { version: write.expected.next(), position: self.last, at: write.at, body: write.body };
            self.log.insert(self.last, Recorded { stream: write.stream, summary: write.summary.clone(), record });
            match self.streams.get_mut(&write.stream) {
                Some(Stream::Live { positions, summary }) => {
                    positions.push(self.last);
                    *summary = write.summary;
                }
                _ => {
                    let live = Stream::Live { positions: vec![self.last], summary: write.summary };
                    self.streams.insert(write.stream, live);
                }
            }
        }
        Ok(self.last)
    }

    /// Streams that are not at their expected version, are pruned, or are named twice; each once.
    fn conflicts(&self, batch: &Batch) -> Vec<StreamId> {
        let mut conflicts: Vec<StreamId> = Vec::new();
        for (index, write) in batch.writes.iter().enumerate() {
            let stream = self.streams.get(&write.stream);
            let moved = stream.map_or(Version::NONE, Stream::version) != write.expected;
            let pruned = matches!(stream, Some(Stream::Tombstone { .. }));
            let repeated = batch.writes[..index].iter().any(|earlier| earlier.stream == write.stream);
            if (moved || pruned || repeated) && !conflicts.contains(&write.stream) {
                conflicts.push(write.stream);
            }
        }
        conflicts
    }

    fn due(&self, now: Timestamp, limit: usize) -> Vec<StreamId> {
        let mut due: Vec<(Timestamp, StreamId)> =
            self.live().filter_map(|found| Some((found.summary.due?, found.stream))).filter(|(due, _)| *due <= now).collect();
        due.sort();
        due.into_iter().take(limit).map(|(_, stream)| stream).collect()
    }

    fn tail(&self, after: Position, limit: usize) -> Vec<Recorded> {
        self.log.range(Position(after.0.saturating_add(1))..).take(limit).map(|(_, recorded)| recorded.clone()).collect()
    }

    fn search(&self, query: &Query) -> Page {
        let mut found: Vec<Found> = self.live().filter(|found| query.matches(found)).collect();
        found.sort_by_key(|found| std::cmp::Reverse(found.position));
        let more = found.len() > query.limit;
        found.truncate(query.limit);
        let next = found.last().filter(|_| more).map(|last| last.position);
        Page { found, next }
    }

    fn prune(&mut self, before: Timestamp, limit: usize) -> Pruned {
        let mut expired: Vec<Found> = self.live().filter(|found| found.summary.expires.is_some_and(|at| at < before)).collect();
        expired.sort_by_key(|found| found.position);
        let more = expired.len() > limit;
        expired.truncate(limit);
        expired.iter().for_each(|found| self.bury(found.stream, found.version));
        Pruned { streams: expired.len() as u64, more }
    }

    fn bury(&mut self, stream: StreamId, version: Version) {
        self.log.retain(|_, recorded| recorded.stream != stream);
        self.streams.insert(stream, Stream::Tombstone { version });
    }

    fn tombstones(&self, from: Option<&Cursor>, limit: usize) -> Graveyard {
        let mut found: Vec<Tombstone> = self
            .streams
            .iter()
            .filter(|(_, state)| matches!(state, Stream::Tombstone { .. }))
            .map(|(stream, state)| Tombstone { stream: *stream, version: state.version() })
            .filter(|tombstone| from.is_none_or(|from| tombstone.stream.0[..] > from.0[..]))
            .collect();
        found.sort_by_key(|tombstone| tombstone.stream);
        found.truncate(limit);
        page(found, limit)
    }

    fn entomb(&mut self, tombstones: &[Tombstone]) -> Result<(), AppendError> {
        let tombstones = distinct(tombstones)?;
        let conflicts = |tombstone: &&Tombstone| match self.streams.get(&tombstone.stream) {
            None => false,
            Some(Stream::Tombstone { version }) => *version != tombstone.version,
            Some(live) => live.version() > tombstone.version,
        };
        let streams: Vec<StreamId> = tombstones.iter().filter(conflicts).map(|tombstone| tombstone.stream).collect();
        if !streams.is_empty() {
            return Err(AppendError::Conflict { streams });
        }
        tombstones.iter().for_each(|tombstone| self.bury(tombstone.stream, tombstone.version));
        Ok(())
    }

    /// Every stream that is not a tombstone, with its newest record's place and time.
    fn live(&self) -> impl Iterator<Item = Found> + '_ {
        self.streams.iter().filter_map(|(stream, state)| {
            let Stream::Live { positions, summary } = state else { return None };
            let position = *positions.last()?;
            Some(Found { stream: *stream, version: state.version(), position, at: self.log[&position].record.at, summary: summary.clone() })
        })
    }
}
