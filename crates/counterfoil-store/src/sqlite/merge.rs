//! Moving the index from memory into the file: sorted, a slice per transaction.
//!
//! Random keys one by one would dirty a page each; sorted, neighbours share pages, and an effect whose claim and
//! outcome fall into one window costs one row instead of two. Slices ride on the transactions of appends, so there
//! is no pause. Two processes may merge the same streams: a row only ever moves to a newer position, never off a
//! tombstone, and the watermark only rises.

use counterfoil_core::StreamId;
use rusqlite::{Connection, params};

use super::index::{Index, Place};
use super::schema::BLOCK_POSITIONS;

pub struct Merge {
    entries: Vec<(StreamId, Place)>,
    done: usize,
    /// The file's index is complete up to here once every entry is in.
    pub upto: u64,
}

/// What a slice did, to be taken over once its transaction is committed.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    done: usize,
    pub finished: bool,
}

impl Merge {
    pub fn begin(index: &mut Index) -> Self {
        let mut entries = index.freeze();
        entries.sort_unstable_by_key(|(stream, _)| *stream);
        Self { entries, done: 0, upto: index.last }
    }

    /// Writes the next `count` entries; with the last ones also what says that they are all in.
    pub fn slice(&self, conn: &Connection, count: usize, soonest: impl FnOnce() -> Vec<(u64, i64)>) -> rusqlite::Result<Step> {
        let done = self.entries.len().min(self.done + count);
        let mut point = conn.prepare_cached(
            "INSERT INTO stream_index VALUES(?1, ?2) \
             ON CONFLICT(stream) DO UPDATE SET pos = excluded.pos WHERE excluded.pos > pos AND pos > 0",
        )?;
        for (stream, place) in &self.entries[self.done..done] {
            point.execute(params![&stream.0[..], place.pos as i64])?;
            if place.awake {
                carry(conn, stream, place.pos)?;
            }
        }
        let finished = done == self.entries.len();
        if finished {
            self.finish(conn, &soonest())?;
        }
        Ok(Step { done, finished })
    }

    pub fn committed(&mut self, step: Step) {
        self.done = step.done;
    }

    fn finish(&self, conn: &Connection, soonest: &[(u64, i64)]) -> rusqlite::Result<()> {
        let mut expiry = conn.prepare_cached(
            "INSERT INTO expiry VALUES(?1, ?2) ON CONFLICT(block) DO UPDATE SET soonest = min(soonest, excluded.soonest)",
        )?;
        for (block, soonest) in soonest.iter().filter(|(block, _)| *block <= self.upto / BLOCK_POSITIONS) {
            expiry.execute(params![*block as i64, soonest])?;
        }
        conn.execute(
            "DELETE FROM carry WHERE NOT EXISTS \
             (SELECT 1 FROM stream_index i WHERE i.stream = carry.stream AND i.pos = carry.pos)",
            [],
        )?;
        conn.execute("UPDATE meta SET value = max(value, ?1) WHERE name = 'watermark'", [self.upto as i64])?;
        Ok(())
    }
}

fn carry(conn: &Connection, stream: &StreamId, pos: u64) -> rusqlite::Result<()> {
    conn.prepare_cached("INSERT INTO carry VALUES(?1, ?2) ON CONFLICT(stream) DO UPDATE SET pos = excluded.pos WHERE excluded.pos > pos")?
        .execute(params![&stream.0[..], pos as i64])?;
    Ok(())
}
