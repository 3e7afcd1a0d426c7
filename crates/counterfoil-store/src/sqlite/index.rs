//! What is known in memory of the ledger: where recent streams stand, and which streams are open.
//!
//! `stream_index` in the file is complete up to the watermark; this index is complete above it, up to `last`. A
//! stream found here is newer than what the file's index says. Rows are folded in exactly once and in order:
//! whatever is at or below `last` is ignored, so the writer and a reader may bring the same rows. `epoch` grows
//! whenever something is dropped because the file now knows it; who held a snapshot from before must take a new one.
//! A damaged row is folded in only where its stream is beyond doubt: one taken for another stream's would make its own look older, or absent.

use std::collections::BTreeMap;

use counterfoil_core::StreamId;
use rusqlite::{Connection, OptionalExtension, Row};

use super::fault::refused;
use super::filter::Filter;
use super::row::{Fields, SELECT_NEWER};
use super::schema::BLOCK_POSITIONS;
use crate::StoreError;
use crate::spread::Map;

/// Where a stream's newest record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub pos: u64,
    pub version: u64,
    /// Not at rest, or due some day.
    pub awake: bool,
}

/// What memory alone tells of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whereabouts {
    At(Place),
    /// No record of it was committed by anyone, as far as this process has looked.
    Nowhere,
}

/// A stream that is open, or due some day.
#[derive(Debug, Clone, Copy)]
pub struct Awake {
    pub pos: u64,
    pub due: Option<i64>,
}

/// What the index takes from one record.
#[derive(Debug, Clone, Copy)]
pub struct Noted {
    pub stream: StreamId,
    pub pos: u64,
    version: u64,
    awake: bool,
    due: Option<i64>,
    expires: Option<i64>,
}

#[derive(Default)]
pub struct Index {
    /// Streams written since the last freeze.
    active: Map<Place>,
    /// Streams on their way into `stream_index`.
    frozen: Map<Place>,
    awake: Map<Awake>,
    /// Block of positions → no stream in it expires sooner. May name superseded records: a hint where to look.
    soonest: BTreeMap<u64, i64>,
    /// Streams that may be in the file and are not here, once `scanned` says that all of them were put in. Whatever leaves this index goes in first.
    known: Filter,
    scanned: Scanned,
    /// Every record up to here is reflected, and positions up to here are taken.
    pub last: u64,
    pub watermark: u64,
    /// `meta.pruned` when it was read last.
    pub pruned: u64,
    /// Another process has pruned: what is here may name streams that are gone, until the row itself was seen.
    pub doubtful: bool,
    pub epoch: u64,
}

/// How far the file's index was read into the filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scanned {
    After(Option<StreamId>),
    All,
}

impl Default for Scanned {
    fn default() -> Self {
        Self::After(None)
    }
}

/// Streams read into the filter at a time.
const SCAN_PAGE: usize = 512;

impl Index {
    /// Whether no record of `stream` was committed by anyone, as far as this process has looked.
    pub fn absent(&self, stream: &StreamId) -> bool {
        // Another process's tombstones were never seen here: then only the file knows.
        self.whereabouts(stream) == Some(Whereabouts::Nowhere)
    }

    /// What is known of `stream` without the file; `None` where only the file knows.
    pub fn whereabouts(&self, stream: &StreamId) -> Option<Whereabouts> {
        match self.place(stream) {
            Some(place) => Some(Whereabouts::At(place)),
            None => (self.scanned == Scanned::All && !self.doubtful && !self.known.may_hold(stream)).then_some(Whereabouts::Nowhere),
        }
    }

    /// Next time, the file is asked: for a stream about which the filter turned out to be wrong.
    pub fn suspect(&mut self, stream: &StreamId) {
        self.known.insert(stream);
    }

    /// Where the next page of the file's index begins, while not all of it is in the filter.
    pub fn to_scan(&self) -> Option<Option<StreamId>> {
        match self.scanned {
            Scanned::After(stream) => Some(stream),
            Scanned::All => None,
        }
    }

    /// Takes in the page that follows `after`. Of two readers that bring the same page, the second brings nothing new.
    pub fn take_page(&mut self, after: Option<StreamId>, page: &[StreamId]) {
        page.iter().for_each(|stream| self.known.insert(stream));
        if self.scanned == Scanned::After(after) {
            self.scanned = if page.len() < SCAN_PAGE { Scanned::All } else { Scanned::After(page.last().copied()) };
        }
    }

    /// Reads the index from the file. The caller holds a transaction, so that everything fits together.
    pub fn read(conn: &Connection) -> Result<Self, StoreError> {
        let meta = Meta::read(conn).map_err(refused)?;
        let mut index = Self { last: meta.watermark, watermark: meta.watermark, pruned: meta.pruned, ..Self::default() };
        index.carry(conn).map_err(refused)?;
        each_newer(conn, meta.watermark, |record| index.fold(record))?;
        index.last = index.last.max(meta.floor);
        Ok(index)
    }

    /// The streams that were awake when the watermark passed them.
    fn carry(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        let mut carried = conn.prepare(
            "SELECT c.stream, c.pos, r.due FROM carry c JOIN stream_index i ON i.stream = c.stream AND i.pos = c.pos \
             JOIN record r ON r.pos = c.pos",
        )?;
        let mut rows = carried.query([])?;
        while let Some(row) = rows.next()? {
            self.awake.insert(StreamId(row.get(0)?), Awake { pos: row.get::<_, i64>(1)? as u64, due: row.get(2)? });
        }
        Ok(())
    }

    pub fn place(&self, stream: &StreamId) -> Option<Place> {
        self.active.get(stream).or_else(|| self.frozen.get(stream)).copied()
    }

    /// Takes in one record; they must come in the order of their positions. What is known already is left as it is.
    pub fn fold(&mut self, record: Noted) {
        if record.pos <= self.last {
            return;
        }
        self.last = record.pos;
        self.active.insert(record.stream, Place { pos: record.pos, version: record.version, awake: record.awake });
        if record.awake {
            self.awake.insert(record.stream, Awake { pos: record.pos, due: record.due });
        } else if !self.awake.is_empty() {
            self.awake.remove(&record.stream);
        }
        if let Some(expires) = record.expires {
            let soonest = self.soonest.entry(record.pos / BLOCK_POSITIONS).or_insert(expires);
            *soonest = expires.min(*soonest);
        }
    }

    pub fn active_len(&self) -> usize {
        self.active.len()
    }

    /// Sets the active streams apart for the merge and returns them. In one step: a stream is always found.
    pub fn freeze(&mut self) -> Vec<(StreamId, Place)> {
        debug_assert!(self.frozen.is_empty(), "one merge at a time");
        self.frozen = std::mem::take(&mut self.active);
        let Self { known, frozen, .. } = self;
        frozen.keys().for_each(|stream| known.insert(stream));
        self.active.reserve(self.frozen.len());
        self.frozen.iter().map(|(stream, place)| (*stream, *place)).collect()
    }

    /// The merge is committed: the file knows every stream up to `watermark`.
    pub fn thaw(&mut self, watermark: u64) {
        self.frozen = Map::default();
        self.rise(watermark);
    }

    /// The file's index is complete up to `watermark`, by this process's merge or another's.
    pub fn rise(&mut self, watermark: u64) {
        self.watermark = self.watermark.max(watermark);
        self.epoch += 1;
        let risen = self.watermark;
        self.soonest.retain(|block, _| (block + 1) * BLOCK_POSITIONS > risen);
    }

    /// Forgets active streams that the file's index knows, after another process has merged them.
    pub fn drop_merged(&mut self) {
        let Self { known, active, watermark, .. } = self;
        active.retain(|stream, place| {
            let stays = place.pos > *watermark;
            if !stays {
                known.insert(stream);
            }
            stays
        });
        self.epoch += 1;
    }

    /// The stream is a tombstone now.
    pub fn forget(&mut self, stream: &StreamId) {
        self.known.insert(stream);
        self.active.remove(stream);
        self.frozen.remove(stream);
        self.awake.remove(stream);
    }

    /// Open streams and those due some day.
    pub fn awake(&self) -> impl Iterator<Item = (&StreamId, &Awake)> {
        self.awake.iter()
    }

    /// Another process has pruned the stream that was awake at `pos`.
    pub fn lull(&mut self, stream: &StreamId, pos: u64) {
        if self.awake.get(stream).is_some_and(|awake| awake.pos == pos) {
            self.awake.remove(stream);
        }
    }

    /// Blocks of positions, not all of them in the file yet, with the soonest expiry in each.
    pub fn soonest(&self) -> impl Iterator<Item = (u64, i64)> {
        self.soonest.iter().map(|(block, soonest)| (*block, *soonest))
    }

    pub fn set_soonest(&mut self, block: u64, soonest: Option<i64>) {
        match soonest {
            Some(soonest) if self.soonest.contains_key(&block) => self.soonest.insert(block, soonest),
            _ => self.soonest.remove(&block),
        };
    }
}

impl Noted {
    pub fn of(fields: &Fields<'_>) -> Self {
        Self {
            stream: fields.stream,
            pos: fields.pos,
            version: fields.version,
            awake: fields.awake(),
            due: fields.due(),
            expires: fields.expires(),
        }
    }

    /// Of a row that does not match its sum, when its predecessor, which does, shows whose it is. Then its stream is refused as soon as it is
    /// loaded, and the others serve. `None` when it may be any stream's.
    fn of_damaged(conn: &Connection, row: &Row<'_>) -> rusqlite::Result<Option<Self>> {
        let (stream, version, prev): ([u8; 32], i64, i64) = (row.get(1)?, row.get(2)?, row.get(3)?);
        let (open, due): (bool, Option<i64>) = (row.get(6)?, row.get(7)?);
        let mut before = conn.prepare_cached(super::row::SELECT_ONE)?;
        let linked = before
            .query_row([prev], |row| {
                let before = Fields::of_row(row).ok();
                Ok(before.is_some_and(|before| before.stream.0 == stream && before.version as i64 == version - 1))
            })
            .optional()?;
        Ok((linked == Some(true)).then_some(Self {
            pos: row.get::<_, i64>(0)? as u64,
            stream: StreamId(stream),
            version: version as u64,
            awake: open || due.is_some(),
            due,
            expires: row.get(8)?,
        }))
    }
}

/// Shows `take` the records above `pos`, as far as the index needs them. Their sums are checked.
pub fn each_newer(conn: &Connection, pos: u64, mut take: impl FnMut(Noted)) -> Result<(), StoreError> {
    let mut statement = conn.prepare_cached(SELECT_NEWER).map_err(refused)?;
    let mut rows = statement.query([pos as i64]).map_err(refused)?;
    while let Some(row) = rows.next().map_err(refused)? {
        let noted = match Fields::of_row(row) {
            Ok(fields) => Noted::of(&fields),
            // A column that holds something else altogether is damage too, so that no error of the look is told instead.
            Err(damage) => Noted::of_damaged(conn, row).ok().flatten().ok_or(damage)?,
        };
        take(noted);
    }
    Ok(())
}

/// The streams of the file's index that follow `after`, a page of them.
pub fn page_after(conn: &Connection, after: Option<StreamId>) -> rusqlite::Result<Vec<StreamId>> {
    let mut page = conn.prepare_cached("SELECT stream FROM stream_index WHERE stream > ?1 ORDER BY stream LIMIT ?2")?;
    let after = after.map_or_else(Vec::new, |stream| stream.0.to_vec());
    let rows = page.query_map(rusqlite::params![after, SCAN_PAGE as i64], |row| row.get(0).map(StreamId))?;
    rows.collect()
}

/// What `meta` says in one transaction.
#[derive(Debug, Clone, Copy)]
pub struct Meta {
    pub watermark: u64,
    pub floor: u64,
    pub pruned: u64,
}

impl Meta {
    pub fn read(conn: &Connection) -> rusqlite::Result<Self> {
        let mut meta = conn.prepare_cached("SELECT value FROM meta WHERE name = ?1")?;
        let mut value = |name: &str| meta.query_row([name], |row| row.get::<_, i64>(0)).map(|value| value as u64);
        Ok(Self { watermark: value("watermark")?, floor: value("floor")?, pruned: value("pruned")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: StreamId = StreamId([7; 32]);

    fn noted(pos: u64, version: u64) -> Noted {
        Noted { stream: STREAM, pos, version, awake: version == 1, due: None, expires: None }
    }

    /// A reader may bring rows that the writer has brought, merged and dropped meanwhile.
    #[test]
    fn what_is_known_is_not_folded_again() {
        let mut index = Index::default();
        index.fold(noted(1, 1));
        index.fold(noted(2, 2));
        index.fold(noted(1, 1));
        assert_eq!(index.place(&STREAM), Some(Place { pos: 2, version: 2, awake: false }));
        assert_eq!(index.awake().count(), 0);
        index.freeze();
        index.thaw(2);
        index.fold(noted(1, 1));
        assert_eq!(index.place(&STREAM), None, "the file knows better");
    }

    #[test]
    fn a_stream_is_found_while_it_is_merged() {
        let mut index = Index::default();
        index.fold(noted(1, 1));
        assert_eq!(index.freeze().len(), 1);
        assert_eq!(index.place(&STREAM).map(|place| place.pos), Some(1));
        index.fold(noted(2, 2));
        assert_eq!(index.place(&STREAM).map(|place| place.pos), Some(2), "the newer place counts");
        let epoch = index.epoch;
        index.thaw(1);
        assert!(index.epoch > epoch, "older snapshots must be renewed");
        assert_eq!(index.place(&STREAM).map(|place| place.pos), Some(2));
    }
}
