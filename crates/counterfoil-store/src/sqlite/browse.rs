//! What people and sweeps ask for: due, tail, search. All on one connection of their own, each in a fresh snapshot.
//!
//! Search scans records newest first. A record counts only when it is its stream's newest; a stream that changes while
//! the scan runs may therefore be missing from that page. States that no stream at rest has ever had are answered
//! from the open streams in memory, so that an operator's inbox does not scan the ledger.

use counterfoil_core::{StreamId, Timestamp};
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use super::Shared;
use super::fault::refused;
use super::reader::{Reader, indexed};
use super::row::{self, Fields};
use crate::{Found, Page, Position, Query, Recorded, StoreError, Version};

/// A merge that ends during a search moves what is known from memory to the file behind the snapshot's back; then
/// the search is done again, but not for ever.
const SEARCHES_MAX: u32 = 3;

impl Reader {
    pub fn due(&mut self, shared: &Shared, now: Timestamp, limit: usize) -> Result<Vec<StreamId>, StoreError> {
        let shown = self.renew(shared)?;
        let mut due: Vec<(i64, StreamId, u64)> = {
            let index = shared.index();
            let due = index.awake().filter_map(|(stream, awake)| Some((awake.due?, *stream, awake.pos)));
            due.filter(|(due, ..)| *due <= now.0).collect()
        };
        due.sort_unstable();
        let mut streams = Vec::new();
        for (_, stream, pos) in due {
            if streams.len() == limit {
                break;
            }
            // Another process may have pruned it. A record that is newer than the snapshot is ours.
            if pos > shown || exists(&self.conn, pos).map_err(refused)? {
                streams.push(stream);
            } else {
                shared.index_mut().lull(&stream, pos);
            }
        }
        Ok(streams)
    }

    pub fn tail(&mut self, shared: &Shared, after: Position, limit: usize) -> Result<Vec<Recorded>, StoreError> {
        self.renew(shared)?;
        let sql = format!("{} WHERE pos > ?1 ORDER BY pos LIMIT ?2", row::SELECT);
        let mut statement = self.conn.prepare_cached(&sql).map_err(refused)?;
        let mut rows = statement.query([clamp(after.0), clamp(limit as u64)]).map_err(refused)?;
        let mut tail = Vec::new();
        while let Some(row) = rows.next().map_err(refused)? {
            let fields = Fields::of_row(row)?;
            tail.push(Recorded { stream: fields.stream, summary: fields.summary()?, record: fields.record() });
        }
        Ok(tail)
    }

    pub fn search(&mut self, shared: &Shared, query: &Query) -> Result<Page, StoreError> {
        if query.limit == 0 {
            return Ok(Page::default());
        }
        let mut page = Page::default();
        for _ in 0..SEARCHES_MAX {
            let epoch = shared.index().epoch;
            self.renew(shared)?;
            page = if self.only_awake(query).map_err(refused)? { self.search_awake(shared, query)? } else { self.scan(shared, query)? };
            if shared.index().epoch == epoch {
                break;
            }
        }
        Ok(page)
    }

    /// Whether every stream in one of these states is open, or due some day.
    fn only_awake(&self, query: &Query) -> rusqlite::Result<bool> {
        let mut resting = self.conn.prepare_cached("SELECT 1 FROM resting WHERE kind = ?1 AND state = ?2")?;
        for state in &query.states {
            if resting.exists((query.kind as u8, state))? {
                return Ok(false);
            }
        }
        Ok(!query.states.is_empty())
    }

    fn search_awake(&mut self, shared: &Shared, query: &Query) -> Result<Page, StoreError> {
        let below = query.below.map_or(u64::MAX, |below| below.0);
        let mut awake: Vec<u64> = shared.index().awake().map(|(_, awake)| awake.pos).filter(|pos| *pos < below).collect();
        awake.sort_unstable_by_key(|pos| std::cmp::Reverse(*pos));
        // Again, so that the snapshot shows every record that the index has just named.
        self.renew(shared)?;
        let mut statement = self.conn.prepare_cached(row::SELECT_ONE).map_err(refused)?;
        let mut page = Page::default();
        for pos in awake {
            let mut rows = statement.query([pos as i64]).map_err(refused)?;
            // Missing: pruned by another process.
            let Some(row) = rows.next().map_err(refused)? else { continue };
            let found = found(&Fields::of_row(row)?)?;
            if query.matches(&found) && !take(&mut page, query, found) {
                break;
            }
        }
        Ok(page)
    }

    fn scan(&self, shared: &Shared, query: &Query) -> Result<Page, StoreError> {
        let (sql, values) = statement(query);
        let mut statement = self.conn.prepare_cached(&sql).map_err(refused)?;
        let mut rows = statement.query(params_from_iter(values)).map_err(refused)?;
        let mut page = Page::default();
        while let Some(row) = rows.next().map_err(refused)? {
            let fields = Fields::of_row(row)?;
            if is_newest(&self.conn, shared, &fields).map_err(refused)? && !take(&mut page, query, found(&fields)?) {
                break;
            }
        }
        Ok(page)
    }
}

/// Adds to the page, or says that it is full: then there is more.
fn take(page: &mut Page, query: &Query, found: Found) -> bool {
    if page.found.len() == query.limit {
        page.next = page.found.last().map(|last| last.position);
        return false;
    }
    page.found.push(found);
    true
}

fn statement(query: &Query) -> (String, Vec<Value>) {
    let mut sql = format!("{} WHERE kind = ? AND tenant = ?", row::SELECT);
    let mut values = vec![Value::Integer(query.kind as i64), Value::Text(query.tenant.to_string())];
    let mut and = |condition: &str, value: Value| {
        sql.push_str(" AND ");
        sql.push_str(condition);
        values.push(value);
    };
    if let Some(below) = query.below {
        and("pos < ?", Value::Integer(clamp(below.0)));
    }
    if let Some(before) = query.before {
        and("at < ?", Value::Integer(before.0));
    }
    if let Some(tool) = &query.tool {
        and("tool = ?", Value::Text(tool.to_string()));
    }
    if let Some(run) = &query.run {
        and("run = ?", Value::Text(run.to_string()));
    }
    if !query.states.is_empty() {
        sql.push_str(" AND state IN (?");
        sql.push_str(&", ?".repeat(query.states.len() - 1));
        sql.push(')');
        values.extend(query.states.iter().map(|state| Value::Text((*state).to_owned())));
    }
    sql.push_str(" ORDER BY pos DESC");
    (sql, values)
}

fn is_newest(conn: &Connection, shared: &Shared, fields: &Fields<'_>) -> rusqlite::Result<bool> {
    let place = shared.index().place(&fields.stream);
    match place {
        Some(place) => Ok(place.pos == fields.pos),
        None => Ok(indexed(conn, &fields.stream)? == Some(fields.pos as i64)),
    }
}

fn found(fields: &Fields<'_>) -> Result<Found, StoreError> {
    Ok(Found {
        stream: fields.stream,
        version: Version(fields.version),
        position: Position(fields.pos),
        at: Timestamp(fields.at),
        summary: fields.summary()?,
    })
}

fn exists(conn: &Connection, pos: u64) -> rusqlite::Result<bool> {
    conn.prepare_cached("SELECT 1 FROM record WHERE pos = ?1")?.exists([pos as i64])
}

fn clamp(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
