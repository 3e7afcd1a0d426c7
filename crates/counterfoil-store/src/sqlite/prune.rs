//! Pruning: expired streams become tombstones, in short transactions between the appends.
//!
//! `expiry`, and the index above the watermark, say for each block of positions when its first stream expires; only
//! blocks that are due are looked at. A stream goes as a whole: its records and its place in one transaction.

use std::collections::BTreeMap;

use counterfoil_core::StreamId;
use rusqlite::{Connection, OptionalExtension, params};

use super::Shared;
use super::fault::refused;
use super::schema::BLOCK_POSITIONS;
use super::writer::{Finder, Stand, Writer};
use crate::{Pruned, StoreError};

/// Records deleted in one transaction; a stream longer than this goes in one all the same. 2000 at once were seen
/// to hold up the writer for 0.15–0.37 s.
const SLICE_RECORDS_MAX: u64 = 500;

/// The newest record of a stream that expires some day.
struct Expiring {
    pos: u64,
    stream: StreamId,
    version: u64,
    expires: i64,
}

#[derive(Default)]
struct Slice {
    streams: Vec<StreamId>,
    records: u64,
    /// Blocks that were looked through, with their new soonest expiry.
    blocks: BTreeMap<u64, Option<i64>>,
    more: bool,
}

impl Writer {
    /// Prunes up to `limit` streams in one transaction; fewer when they have many records.
    pub fn prune(&mut self, shared: &Shared, before: i64, limit: usize) -> Result<Pruned, StoreError> {
        self.begin(shared)?;
        let slice = match self.prune_slice(shared, before, limit) {
            Ok(slice) => slice,
            Err(error) => {
                self.roll_back();
                return Err(error);
            }
        };
        let pruned = Pruned { streams: slice.streams.len() as u64, more: slice.more };
        if slice.streams.is_empty() && slice.blocks.is_empty() {
            self.roll_back();
            return Ok(pruned);
        }
        self.commit()?;
        {
            let mut index = shared.index_mut();
            slice.streams.iter().for_each(|stream| index.forget(stream));
            slice.blocks.iter().for_each(|(block, soonest)| index.set_soonest(*block, *soonest));
            index.pruned += u64::from(!slice.streams.is_empty());
            index.epoch += 1;
        }
        self.committed(shared);
        Ok(pruned)
    }

    fn prune_slice(&self, shared: &Shared, before: i64, limit: usize) -> Result<Slice, StoreError> {
        let mut slice = Slice::default();
        for block in self.blocks_due(shared, before).map_err(refused)? {
            let mut soonest: Option<i64> = None;
            for found in self.expiring(shared, block)? {
                if found.expires >= before {
                    soonest = Some(soonest.map_or(found.expires, |soonest| soonest.min(found.expires)));
                    continue;
                }
                let full = !slice.streams.is_empty() && slice.records + found.version > SLICE_RECORDS_MAX;
                if full || slice.streams.len() >= limit {
                    slice.more = true;
                    break;
                }
                slice.records += bury(&self.conn, &found.stream, found.pos, found.version).map_err(refused)?;
                slice.streams.push(found.stream);
            }
            if slice.more {
                break;
            }
            set_soonest(&self.conn, block, soonest).map_err(refused)?;
            slice.blocks.insert(block, soonest);
        }
        if !slice.streams.is_empty() {
            mark_pruned(&self.conn, shared.index().last).map_err(refused)?;
        }
        Ok(slice)
    }

    /// Blocks of positions in which something may have expired before `before`, oldest first.
    fn blocks_due(&self, shared: &Shared, before: i64) -> rusqlite::Result<Vec<u64>> {
        let mut statement = self.conn.prepare_cached("SELECT block FROM expiry WHERE soonest < ?1")?;
        let blocks = statement.query_map([before], |row| row.get::<_, i64>(0))?;
        let mut blocks: Vec<u64> = blocks.map(|block| block.map(|block| block as u64)).collect::<Result<_, _>>()?;
        blocks.extend(shared.index().soonest().filter(|(_, soonest)| *soonest < before).map(|(block, _)| block));
        blocks.sort_unstable();
        blocks.dedup();
        Ok(blocks)
    }

    /// The streams of a block that expire some day and whose newest record is in it.
    fn expiring(&self, shared: &Shared, block: u64) -> Result<Vec<Expiring>, StoreError> {
        let candidates = candidates(&self.conn, block).map_err(refused)?;
        let mut expiring = Vec::with_capacity(candidates.len());
        let mut finder = Finder::new(&self.conn, shared.index().doubtful).map_err(refused)?;
        for candidate in candidates {
            let place = shared.index().place(&candidate.stream);
            let stand = finder.stand(&candidate.stream, place)?;
            if matches!(stand, Stand::Live { pos, .. } if pos == candidate.pos) {
                expiring.push(candidate);
            }
        }
        Ok(expiring)
    }
}

fn candidates(conn: &Connection, block: u64) -> rusqlite::Result<Vec<Expiring>> {
    let mut statement = conn.prepare_cached(
        "SELECT pos, stream, version, expires FROM record WHERE pos >= ?1 AND pos < ?2 AND expires IS NOT NULL ORDER BY pos",
    )?;
    let bounds = [(block * BLOCK_POSITIONS) as i64, ((block + 1) * BLOCK_POSITIONS) as i64];
    let rows = statement.query_map(bounds, |row| {
        Ok(Expiring {
            pos: row.get::<_, i64>(0)? as u64,
            stream: StreamId(row.get(1)?),
            version: row.get::<_, i64>(2)? as u64,
            expires: row.get(3)?,
        })
    })?;
    rows.collect()
}

/// Positions up to `last` stay taken, and other processes notice that streams are gone.
pub fn mark_pruned(conn: &Connection, last: u64) -> rusqlite::Result<()> {
    conn.prepare_cached("UPDATE meta SET value = max(value, ?1) WHERE name = 'floor'")?.execute([last as i64])?;
    super::writer::run(conn, "UPDATE meta SET value = value + 1 WHERE name = 'pruned'")
}

/// Deletes the stream's records, the newest of which is at `pos` (0: there are none), and leaves a tombstone. Says how many there were.
pub fn bury(conn: &Connection, stream: &StreamId, pos: u64, version: u64) -> rusqlite::Result<u64> {
    let mut delete = conn.prepare_cached("DELETE FROM record WHERE pos = ?1 RETURNING prev")?;
    let (mut pos, mut records) = (pos as i64, 0);
    while pos != 0 {
        let prev = delete.query_row([pos], |row| row.get(0)).optional()?;
        records += u64::from(prev.is_some());
        pos = prev.unwrap_or(0);
    }
    let mut point = conn.prepare_cached("INSERT INTO stream_index VALUES(?1, ?2) ON CONFLICT(stream) DO UPDATE SET pos = excluded.pos")?;
    point.execute(params![&stream.0[..], -(version as i64)])?;
    Ok(records)
}

fn set_soonest(conn: &Connection, block: u64, soonest: Option<i64>) -> rusqlite::Result<()> {
    match soonest {
        Some(soonest) => {
            let mut update = conn.prepare_cached("UPDATE expiry SET soonest = ?2 WHERE block = ?1")?;
            update.execute(params![block as i64, soonest])?;
        }
        None => {
            conn.prepare_cached("DELETE FROM expiry WHERE block = ?1")?.execute([block as i64])?;
        }
    }
    Ok(())
}
