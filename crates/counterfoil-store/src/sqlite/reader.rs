//! Loading streams: pooled read-only connections that hold their snapshots for a while.
//!
//! A read transaction per load would cost as much as the load, so a snapshot serves up to 1000 loads or 20 ms. What
//! that means for what is seen:
//! - everything this `Store` value has acknowledged is seen at once: the index in memory knows it, and a snapshot
//!   that is too old for it is renewed;
//! - what *other* processes wrote may be missed for at most 20 ms, and only for a stream that was found at rest or not at all. When
//!   the stream is open, the answer comes from a fresh snapshot. Whoever decides from an older view loses the race at the append.
//!
//! A snapshot holds up the WAL, so an idle one is ended by the sweeper, and all of them when the writer asks.

use std::sync::atomic::Ordering;
use std::time::Instant;

use counterfoil_core::StreamId;
use rusqlite::{Connection, OptionalExtension, ToSql};

use super::Shared;
use super::fault::{corrupt, refused};
use super::index::{each_newer, page_after};
use super::row::{self, Fields};
use super::writer::data_version;
use crate::{History, Reach, StoreError, Version};

/// Loads per snapshot. More gain nothing: the transaction's share is then far below a load's cost.
const SNAPSHOT_LOADS_MAX: u32 = 1000;

/// A command that makes one call does not read the whole index for it.
const MISSES_BEFORE_SCAN: u64 = 32;

/// Snapshots in a row without a change before the file is mapped. Each lasts for many loads or 20 ms.
const QUIET_SNAPSHOTS: u32 = 5;

pub struct Reader {
    pub conn: Connection,
    snapshot: Option<Snapshot>,
    /// `PRAGMA data_version` of the last snapshot, and how many in a row have had it.
    data_version: i64,
    quiet: u32,
    mapped: bool,
}

#[derive(Debug, Clone, Copy)]
struct Snapshot {
    since: Instant,
    loads: u32,
    /// What the index knew before it began: the snapshot shows at least these records and merges.
    last: u64,
    epoch: u64,
}

/// What one look at a stream gave.
enum Look {
    /// Found at rest, complete as of the snapshot.
    Resting(History),
    /// Absent, open, or a tombstone: needs a fresh snapshot before it is an answer.
    Other(History),
    /// The index knows a record that the snapshot is too old for.
    Behind,
    /// The record that the index names is not there: pruned, or lost.
    Missing(u64),
}

impl Reader {
    pub fn new(conn: Connection) -> Self {
        Self { conn, snapshot: None, data_version: 0, quiet: 0, mapped: false }
    }

    pub fn load(&mut self, shared: &Shared, stream: StreamId, reach: Reach) -> Result<History, StoreError> {
        let history = self.answer(shared, stream, reach);
        // While the writer waits for the WAL, or after an error, nothing is held.
        if history.is_err() || shared.release.load(Ordering::Relaxed) {
            self.end().map_err(refused)?;
        }
        history
    }

    fn answer(&mut self, shared: &Shared, stream: StreamId, reach: Reach) -> Result<History, StoreError> {
        let mut fresh = !self.keep(shared);
        if fresh {
            self.renew(shared)?;
        }
        loop {
            match self.look(shared, stream, reach, fresh)? {
                Look::Resting(history) => return Ok(history),
                Look::Other(history) if fresh => {
                    if history.version == Version::NONE {
                        self.missed(shared)?;
                    }
                    return Ok(history);
                }
                Look::Missing(pos) if fresh => return self.missing(stream, pos),
                Look::Behind | Look::Other(_) | Look::Missing(_) => {
                    self.renew(shared)?;
                    fresh = true;
                }
            }
        }
    }

    /// Nothing was found. Where that happens often, the filter is filled that makes it cheap.
    fn missed(&self, shared: &Shared) -> Result<(), StoreError> {
        if shared.misses.fetch_add(1, Ordering::Relaxed) < MISSES_BEFORE_SCAN {
            return Ok(());
        }
        let Some(after) = shared.index().to_scan() else { return Ok(()) };
        let page = page_after(&self.conn, after).map_err(refused)?;
        shared.index_mut().take_page(after, &page);
        Ok(())
    }

    fn look(&self, shared: &Shared, stream: StreamId, reach: Reach, fresh: bool) -> Result<Look, StoreError> {
        let snapshot = self.snapshot.expect("the caller kept or renewed one");
        let (place, epoch) = {
            let index = shared.index();
            (index.place(&stream), index.epoch)
        };
        match place {
            Some(place) if place.pos > snapshot.last => Ok(Look::Behind),
            Some(place) if place.awake && !fresh => Ok(Look::Other(History::default())),
            Some(place) => {
                let walk = self.walk(row::SELECT_ONE, place.pos as i64, stream, reach)?;
                Ok(walk.unwrap_or(Look::Missing(place.pos)))
            }
            None if epoch > snapshot.epoch => Ok(Look::Behind),
            None => match self.walk(row::SELECT_NEWEST, &stream.0[..], stream, reach)? {
                Some(look) => Ok(look),
                // The fresh snapshot will be asked anyway.
                None if !fresh => Ok(Look::Other(History::default())),
                None => self.unwalkable(stream),
            },
        }
    }

    /// Follows the stream from its newest record, which `sql` finds, back to the first. `None` when it finds nothing.
    fn walk(&self, sql: &str, key: impl ToSql, stream: StreamId, reach: Reach) -> Result<Option<Look>, StoreError> {
        let mut left = match reach {
            Reach::Whole => u64::MAX,
            Reach::Newest(count) => u64::from(count),
        };
        let mut history = History::default();
        let (awake, mut version, mut prev) = {
            // Given back before the next is taken: of one text, the cache holds one statement, and a second one would be prepared anew.
            let mut newest = self.conn.prepare_cached(sql).map_err(refused)?;
            let mut rows = newest.query([key]).map_err(refused)?;
            let Some(row) = rows.next().map_err(refused)? else { return Ok(None) };
            let fields = Fields::of_row(row)?;
            check_link(&fields, stream, fields.version)?;
            history.version = Version(fields.version);
            history.records.reserve_exact(fields.version.min(left).min(64) as usize);
            if left > 0 {
                history.records.push(fields.record());
            }
            (fields.awake(), fields.version, fields.prev)
        };
        if prev != 0 && left > 1 {
            let mut earlier = self.conn.prepare_cached(row::SELECT_ONE).map_err(refused)?;
            while prev != 0 && left > 1 {
                let mut rows = earlier.query([prev as i64]).map_err(refused)?;
                let Some(row) = rows.next().map_err(refused)? else { return Ok(Some(Look::Missing(prev))) };
                let fields = Fields::of_row(row)?;
                (version, left) = (version - 1, left - 1);
                check_link(&fields, stream, version)?;
                history.records.push(fields.record());
                prev = fields.prev;
            }
            history.records.reverse();
        }
        Ok(Some(if awake { Look::Other(history) } else { Look::Resting(history) }))
    }

    /// There is no record where the file's index points: nothing, or a tombstone, or a loss.
    fn unwalkable(&self, stream: StreamId) -> Result<Look, StoreError> {
        Ok(match indexed(&self.conn, &stream).map_err(refused)? {
            None => Look::Other(History::default()),
            Some(pos) if pos < 0 => Look::Other(tombstone(pos)),
            Some(pos) => Look::Missing(pos as u64),
        })
    }

    /// The record is gone in a fresh snapshot. A stream that was pruned says so in the same snapshot.
    fn missing(&self, stream: StreamId, pos: u64) -> Result<History, StoreError> {
        match indexed(&self.conn, &stream).map_err(refused)? {
            Some(pos) if pos < 0 => Ok(tombstone(pos)),
            _ => Err(corrupt(pos, format!("a record of stream {stream} is missing"))),
        }
    }

    /// Whether the held snapshot may serve one more load.
    fn keep(&mut self, shared: &Shared) -> bool {
        match &mut self.snapshot {
            Some(snapshot) if snapshot.loads < SNAPSHOT_LOADS_MAX && snapshot.since.elapsed() < shared.options.snapshot_held_max => {
                snapshot.loads += 1;
                true
            }
            _ => false,
        }
    }

    /// Begins a new snapshot and brings the index up to it. It shows every record up to the position given, unless pruned.
    pub fn renew(&mut self, shared: &Shared) -> Result<u64, StoreError> {
        self.end().map_err(refused)?;
        self.map_when_quiet(shared).map_err(refused)?;
        let moment = shared.moment();
        // Read before the snapshot begins, so that it shows at least this.
        let (last, epoch) = {
            let index = shared.index();
            (index.last, index.epoch)
        };
        self.conn.prepare_cached("BEGIN").and_then(|mut begin| begin.execute([])).map_err(refused)?;
        let last = last.max(self.catch_up(shared)?);
        shared.caught_up(moment);
        let data_version = data_version(&self.conn).map_err(refused)?;
        self.quiet = if data_version == self.data_version { self.quiet.saturating_add(1) } else { 0 };
        self.data_version = data_version;
        self.snapshot = Some(Snapshot { since: Instant::now(), loads: 1, last, epoch });
        shared.sweep_soon();
        Ok(last)
    }

    /// Reading through mapped memory halves the cost of a load, but each write unmaps the whole file: so only a file
    /// that nobody writes is mapped.
    fn map_when_quiet(&mut self, shared: &Shared) -> rusqlite::Result<()> {
        let map = shared.options.map_bytes_max > 0 && self.quiet >= QUIET_SNAPSHOTS;
        if map != self.mapped {
            let bytes = if map { i64::try_from(shared.options.map_bytes_max).unwrap_or(i64::MAX) } else { 0 };
            self.conn.pragma_update(None, "mmap_size", bytes)?;
            self.mapped = map;
        }
        Ok(())
    }

    /// Folds what other processes have committed, as this snapshot shows it, into the index. Gives the newest position.
    fn catch_up(&self, shared: &Shared) -> Result<u64, StoreError> {
        let mut newest = self.conn.prepare_cached("SELECT max(pos) FROM record").map_err(refused)?;
        let newest: Option<i64> = newest.query_row([], |row| row.get(0)).map_err(refused)?;
        let (newest, last) = (newest.unwrap_or(0) as u64, shared.index().last);
        if newest > last {
            let mut noted = Vec::new();
            each_newer(&self.conn, last, |record| noted.push(record))?;
            let mut index = shared.index_mut();
            noted.into_iter().for_each(|record| index.fold(record));
        }
        Ok(newest)
    }

    /// Lets go of the snapshot.
    pub fn end(&mut self) -> rusqlite::Result<()> {
        self.snapshot = None;
        if !self.conn.is_autocommit() {
            self.conn.prepare_cached("COMMIT")?.execute([])?;
        }
        Ok(())
    }

    /// Lets go of a snapshot that has served its time. True when one is still held.
    pub fn end_if_old(&mut self, shared: &Shared) -> bool {
        let old = self.snapshot.is_some_and(|snapshot| snapshot.since.elapsed() >= shared.options.snapshot_held_max);
        // A snapshot that cannot be ended now is ended by the next load or sweep.
        if old && self.end().is_err() {
            return true;
        }
        self.snapshot.is_some()
    }
}

pub const INDEXED: &str = "SELECT pos FROM stream_index WHERE stream = ?1";

/// What `stream_index` says: a position, or the negative version of a tombstone.
pub fn indexed(conn: &Connection, stream: &StreamId) -> rusqlite::Result<Option<i64>> {
    conn.prepare_cached(INDEXED)?.query_row([&stream.0[..]], |row| row.get(0)).optional()
}

fn tombstone(pos: i64) -> History {
    History { version: Version(pos.unsigned_abs()), expired: true, records: Vec::new() }
}

/// Records of one stream must link up: the right stream, versions falling by one, the first without a predecessor.
fn check_link(fields: &Fields<'_>, stream: StreamId, version: u64) -> Result<(), StoreError> {
    if fields.stream != stream {
        return Err(corrupt(fields.pos, format!("a record of stream {} where {stream} was expected", fields.stream)));
    }
    if fields.version != version {
        return Err(corrupt(fields.pos, format!("version {} where {version} was expected", fields.version)));
    }
    if (fields.prev == 0) != (version == 1) || fields.prev >= fields.pos {
        return Err(corrupt(fields.pos, format!("version {version} names position {} as its predecessor", fields.prev)));
    }
    Ok(())
}
