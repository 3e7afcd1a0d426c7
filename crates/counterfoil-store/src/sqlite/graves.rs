//! Tombstones, listed and brought in from elsewhere.
//!
//! A tombstone that is brought in is written as prune writes one, in one transaction with whatever it displaces.

use counterfoil_core::StreamId;
use rusqlite::params;

use super::Shared;
use super::fault::{commit_failed, refused};
use super::prune::{bury, mark_pruned};
use super::reader::{Reader, indexed};
use super::writer::{Finder, Stand, Writer};
use crate::graves::{distinct, page};
use crate::{AppendError, Cursor, Graveyard, StoreError, Tombstone, Version, Written};

impl Reader {
    pub fn tombstones(&mut self, shared: &Shared, from: Option<Cursor>, limit: usize) -> Result<Graveyard, StoreError> {
        self.renew(shared)?;
        let sql = "SELECT stream, pos FROM stream_index WHERE stream > ?1 AND pos < 0 ORDER BY stream LIMIT ?2";
        let mut statement = self.conn.prepare_cached(sql).map_err(refused)?;
        let from = from.map_or_else(Vec::new, |cursor| cursor.0);
        let most = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = statement.query_map(params![from, most], |row| {
            Ok(Tombstone { stream: StreamId(row.get(0)?), version: Version(row.get::<_, i64>(1)?.unsigned_abs()) })
        });
        let found = rows.and_then(Iterator::collect).map_err(refused)?;
        Ok(page(found, limit))
    }
}

impl Writer {
    pub fn entomb(&mut self, shared: &Shared, tombstones: &[Tombstone]) -> Result<(), AppendError> {
        let tombstones = distinct(tombstones)?;
        if tombstones.is_empty() {
            return Ok(());
        }
        self.begin(shared)?;
        if let Err(error) = self.entomb_all(shared, &tombstones) {
            self.roll_back();
            return Err(error);
        }
        self.commit()?;
        {
            let mut index = shared.index_mut();
            for tombstone in &tombstones {
                index.forget(&tombstone.stream);
                // Never seen here before, perhaps: from now on the file is asked.
                index.suspect(&tombstone.stream);
            }
            index.pruned += 1;
            index.epoch += 1;
        }
        self.committed(shared);
        Ok(())
    }

    /// What is deleted is overwritten, in the database and in its log.
    pub fn erase(&mut self, shared: &Shared, tombstone: &Tombstone) -> Result<(), AppendError> {
        self.conn.pragma_update(None, "secure_delete", true).map_err(refused)?;
        let entombed = self.entomb(shared, std::slice::from_ref(tombstone));
        // Every other deletion stays as cheap as it was.
        self.conn.pragma_update(None, "secure_delete", "FAST").map_err(refused)?;
        entombed?;
        if !self.empty_log(shared).map_err(commit_failed)? {
            let message = "the stream is buried, and other processes hold the log that may still have its bytes; ask again";
            return Err(StoreError::Unavailable { message: message.into(), written: Written::Perhaps }.into());
        }
        Ok(())
    }

    fn entomb_all(&self, shared: &Shared, tombstones: &[Tombstone]) -> Result<(), AppendError> {
        let mut finder = Finder::new(&self.conn, shared.index().doubtful).map_err(refused)?;
        let (mut conflicts, mut graves) = (Vec::new(), Vec::new());
        for tombstone in tombstones {
            let place = shared.index().place(&tombstone.stream);
            match finder.stand(&tombstone.stream, place)? {
                Stand::Absent => graves.push((tombstone, 0)),
                Stand::Live { pos, version } if version <= tombstone.version.0 => graves.push((tombstone, pos)),
                Stand::Live { .. } => conflicts.push(tombstone.stream),
                Stand::Tombstone => {
                    let version = indexed(&self.conn, &tombstone.stream).map_err(refused)?.map(i64::unsigned_abs);
                    if version != Some(tombstone.version.0) {
                        conflicts.push(tombstone.stream);
                    }
                }
            }
        }
        if !conflicts.is_empty() {
            return Err(AppendError::Conflict { streams: conflicts });
        }
        for (tombstone, pos) in graves {
            bury(&self.conn, &tombstone.stream, pos, tombstone.version.0).map_err(refused)?;
        }
        mark_pruned(&self.conn, shared.index().last).map_err(refused)?;
        Ok(())
    }
}
