//! Appending: one connection, one transaction per batch, durable when COMMIT returns.
//!
//! The write lock is taken first, then what other processes have committed is folded into the index, then the expected
//! versions are checked, then rows are inserted. Memory follows only after COMMIT: whatever fails before leaves no
//! trace in it, and after a failed COMMIT the file is asked again before anything is decided.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use counterfoil_core::StreamId;
use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use super::Shared;
use super::fault::{commit_failed, corrupt, refused};
use super::index::{Index, Meta, Noted, Place, Whereabouts, each_newer};
use super::merge::{Merge, Step};
use super::reader::INDEXED;
use super::row::{self, Fields};
use super::wal::Wal;
use crate::spread::Set;
use crate::{AppendError, Batch, Position, StoreError, Version};

/// Entries merged at once, at least: fewer would dirty nearly a page each.
const MERGE_SLICE_MIN: usize = 256;

pub struct Writer {
    // Dropped first, and with it the connection of `beside`: the writer's closes last.
    wal: Wal,
    pub conn: Connection,
    /// `PRAGMA data_version` when the index was last known to be complete.
    data_version: i64,
    merge: Option<Merge>,
    /// Entries that may be merged: as many as records were written since the last slice.
    merge_credit: usize,
    /// Rows of `resting` that are known to be there.
    resting: HashSet<(u8, &'static str)>,
    /// Kept from batch to batch for its memory.
    noted: Vec<Noted>,
}

/// Where a stream stands, inside a write transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stand {
    Absent,
    Live { pos: u64, version: u64 },
    Tombstone,
}

impl Writer {
    /// The connection must be in a transaction in which `index` was read.
    pub fn new(mut conn: Connection) -> rusqlite::Result<Self> {
        let data_version = data_version(&conn)?;
        let wal = Wal::watch(&mut conn)?;
        Ok(Self { wal, conn, data_version, merge: None, merge_credit: 0, resting: HashSet::new(), noted: Vec::new() })
    }

    pub fn append(&mut self, shared: &Shared, batch: &Batch) -> Result<Position, AppendError> {
        if batch.writes.is_empty() {
            return Ok(Position(shared.index().last));
        }
        self.begin(shared)?;
        let step = match self.fill(shared, batch) {
            Ok(step) => step,
            Err(error) => {
                self.roll_back();
                return Err(error);
            }
        };
        self.commit()?;
        shared.stats.commits.fetch_add(1, Ordering::Relaxed);
        shared.stats.records.fetch_add(batch.writes.len() as u64, Ordering::Relaxed);
        self.resting.extend(batch.writes.iter().filter_map(resting_state));
        let last = self.publish(shared, step);
        self.wal.committed(&self.conn, shared);
        Ok(Position(last))
    }

    /// Takes the write lock and brings the index up to what is committed.
    pub fn begin(&mut self, shared: &Shared) -> Result<(), StoreError> {
        // Only if an earlier ROLLBACK failed: a transaction of which nothing is known is still open.
        self.roll_back();
        run(&self.conn, "BEGIN IMMEDIATE").map_err(refused)?;
        // Nobody else commits while the write lock is held.
        let moment = shared.moment();
        self.follow(shared).inspect_err(|_| self.roll_back())?;
        shared.caught_up(moment);
        Ok(())
    }

    fn follow(&mut self, shared: &Shared) -> Result<(), StoreError> {
        let now = data_version(&self.conn).map_err(refused)?;
        if now != self.data_version {
            let meta = Meta::read(&self.conn).map_err(refused)?;
            let mut index = shared.index_mut();
            if meta.pruned != index.pruned {
                (index.pruned, index.doubtful) = (meta.pruned, true);
                index.epoch += 1;
            }
            if meta.watermark > index.watermark {
                self.yield_merge(&mut index, meta.watermark);
            }
            let last = index.last;
            each_newer(&self.conn, last, |record| index.fold(record))?;
            index.last = index.last.max(meta.floor);
            self.data_version = now;
        }
        Ok(())
    }

    /// Another process has merged up to `watermark`.
    fn yield_merge(&mut self, index: &mut Index, watermark: u64) {
        if self.merge.as_ref().is_some_and(|merge| merge.upto <= watermark) {
            self.merge = None;
            index.thaw(watermark);
        } else {
            index.rise(watermark);
        }
        index.drop_merged();
    }

    /// Everything between BEGIN and COMMIT.
    fn fill(&mut self, shared: &Shared, batch: &Batch) -> Result<Option<Step>, AppendError> {
        let previous = self.check(shared, batch)?;
        self.insert(shared, batch, &previous).map_err(refused)?;
        self.merge_credit += batch.writes.len();
        Ok(self.merge_slice(shared).map_err(refused)?)
    }

    /// The position of each stream's newest record, or every stream that is not as expected.
    fn check(&self, shared: &Shared, batch: &Batch) -> Result<Vec<u64>, AppendError> {
        // The write lock is held, and all that anyone committed is in the index: who is absent from it is absent.
        let (places, doubtful): (Vec<Option<Whereabouts>>, bool) = {
            let index = shared.index();
            (batch.writes.iter().map(|write| index.whereabouts(&write.stream)).collect(), index.doubtful)
        };
        let mut finder = Finder::new(&self.conn, doubtful).map_err(refused)?;
        let mut named = Set::with_capacity_and_hasher(batch.writes.len(), Default::default());
        let mut conflicts = Vec::new();
        let mut previous = Vec::with_capacity(batch.writes.len());
        for (write, place) in batch.writes.iter().zip(places) {
            let stand = match place {
                Some(Whereabouts::Nowhere) => Stand::Absent,
                Some(Whereabouts::At(place)) => finder.stand(&write.stream, Some(place))?,
                None => finder.stand(&write.stream, None)?,
            };
            let as_expected = match stand {
                Stand::Absent => write.expected == Version::NONE,
                Stand::Live { version, .. } => write.expected.0 == version,
                Stand::Tombstone => false,
            };
            let again = !named.insert(write.stream);
            if (again || !as_expected) && !conflicts.contains(&write.stream) {
                conflicts.push(write.stream);
            }
            previous.push(if let Stand::Live { pos, .. } = stand { pos } else { 0 });
        }
        if conflicts.is_empty() {
            return Ok(previous);
        }
        let mut index = shared.index_mut();
        conflicts.iter().for_each(|stream| index.suspect(stream));
        Err(AppendError::Conflict { streams: conflicts })
    }

    fn insert(&mut self, shared: &Shared, batch: &Batch, previous: &[u64]) -> rusqlite::Result<()> {
        self.noted.clear();
        let mut pos = shared.index().last;
        let mut insert = self.conn.prepare_cached(row::INSERT)?;
        for (write, previous) in batch.writes.iter().zip(previous) {
            pos += 1;
            let fields = Fields::of_write(write, pos, *previous);
            fields.insert(&mut insert)?;
            self.noted.push(Noted::of(&fields));
            if let Some((kind, state)) = resting_state(write)
                && !self.resting.contains(&(kind, state))
            {
                self.conn.prepare_cached("INSERT OR IGNORE INTO resting VALUES(?1, ?2)")?.execute(params![kind, state])?;
            }
        }
        Ok(())
    }

    fn merge_slice(&self, shared: &Shared) -> rusqlite::Result<Option<Step>> {
        match &self.merge {
            Some(merge) if self.merge_credit >= MERGE_SLICE_MIN.min(shared.options.merge_entries) => {
                merge.slice(&self.conn, self.merge_credit, || shared.index().soonest().collect()).map(Some)
            }
            _ => Ok(None),
        }
    }

    pub fn commit(&mut self) -> Result<(), StoreError> {
        run(&self.conn, "COMMIT").map_err(|error| {
            self.roll_back();
            // Asks the file again before the next decision: the value is never equal to it.
            self.data_version = -1;
            commit_failed(error)
        })
    }

    pub fn roll_back(&self) {
        if !self.conn.is_autocommit() {
            // An error here leaves the transaction open; the next BEGIN tries again.
            let _ = run(&self.conn, "ROLLBACK");
        }
    }

    /// Memory follows what is committed.
    fn publish(&mut self, shared: &Shared, step: Option<Step>) -> u64 {
        let mut index = shared.index_mut();
        self.noted.drain(..).for_each(|record| index.fold(record));
        if let (Some(step), Some(merge)) = (step, &mut self.merge) {
            self.merge_credit = 0;
            merge.committed(step);
            if step.finished {
                index.thaw(merge.upto);
                self.merge = None;
            }
        }
        if self.merge.is_none() && index.active_len() >= shared.options.merge_entries {
            self.merge = Some(Merge::begin(&mut index));
            self.merge_credit = 0;
        }
        index.last
    }

    /// For what else commits on this connection.
    /// `false`: someone reads from the log still.
    pub fn empty_log(&mut self, shared: &Shared) -> rusqlite::Result<bool> {
        self.wal.empty(&self.conn, shared)
    }

    pub fn committed(&mut self, shared: &Shared) {
        shared.stats.commits.fetch_add(1, Ordering::Relaxed);
        self.wal.committed(&self.conn, shared);
    }
}

/// Finds streams, with its statements prepared once for many.
pub struct Finder<'a> {
    indexed: CachedStatement<'a>,
    version: CachedStatement<'a>,
    /// Whether the index in memory must be checked against the rows.
    doubtful: bool,
}

impl<'a> Finder<'a> {
    pub fn new(conn: &'a Connection, doubtful: bool) -> rusqlite::Result<Self> {
        let version = conn.prepare_cached("SELECT version FROM record WHERE pos = ?1")?;
        Ok(Self { indexed: conn.prepare_cached(INDEXED)?, version, doubtful })
    }

    /// Where `stream` stands: as the index in memory has it, or else as the file's index has it.
    pub fn stand(&mut self, stream: &StreamId, place: Option<Place>) -> Result<Stand, StoreError> {
        if let Some(place) = place
            && (!self.doubtful || self.version_at(place.pos)?.is_some())
        {
            return Ok(Stand::Live { pos: place.pos, version: place.version });
        }
        let indexed: Option<i64> = self.indexed.query_row([&stream.0[..]], |row| row.get(0)).optional().map_err(refused)?;
        match indexed {
            None => Ok(Stand::Absent),
            Some(pos) if pos < 0 => Ok(Stand::Tombstone),
            Some(pos) => {
                let pos = pos as u64;
                let version = self.version_at(pos)?.ok_or_else(|| corrupt(pos, format!("a record of stream {stream} is missing")))?;
                Ok(Stand::Live { pos, version })
            }
        }
    }

    fn version_at(&mut self, pos: u64) -> Result<Option<u64>, StoreError> {
        let version = self.version.query_row([pos as i64], |row| row.get::<_, i64>(0)).optional();
        Ok(version.map_err(refused)?.map(|version| version as u64))
    }
}

/// The state of a write that leaves its stream neither open nor due.
fn resting_state(write: &crate::Write) -> Option<(u8, &'static str)> {
    let summary = &write.summary;
    (!summary.open && summary.due.is_none()).then_some((summary.kind as u8, summary.state))
}

pub fn data_version(conn: &Connection) -> rusqlite::Result<i64> {
    conn.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))
}

pub fn run(conn: &Connection, sql: &str) -> rusqlite::Result<()> {
    conn.prepare_cached(sql)?.execute([]).map(drop)
}
