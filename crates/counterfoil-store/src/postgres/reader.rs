//! What is read: one stream, what is due, the tail, searches. Each is one statement and so one snapshot of the one database that is
//! written to: what was acknowledged before is seen.

use counterfoil_core::summary::STATES;
use counterfoil_core::{StreamId, Timestamp};

use super::fault::corrupt;
use super::link::Link;
use super::row::{self, clamp, column, count};
use crate::{History, Page, Position, Query, Reach, Recorded, StoreError, Version};

pub const NEWEST: &str = "SELECT pos FROM {s}.ledger WHERE id = 1";

/// The stream's row, and beside it each of its records above version minus `$2`, newest first.
pub const LOAD: &str = "SELECT s.version, s.pruned, r.pos, r.version, r.at, r.sum, r.body FROM {s}.stream s \
     LEFT JOIN {s}.record r ON r.stream = s.stream AND r.version > s.version - $2 \
     WHERE s.stream = $1 ORDER BY r.version DESC";

pub const DUE: &str = "SELECT stream FROM {s}.stream WHERE due <= $1 ORDER BY due, stream LIMIT $2";

pub const TAIL: &str = "SELECT stream, pos, version, at, sum, body, kind, open, due, expires, tenant, state, tool, run \
     FROM {s}.record WHERE pos > $1 ORDER BY pos LIMIT $2";

/// Newest first within each state, by the index; then the newest of all states.
pub const SEARCH: &str = "SELECT f.* FROM unnest($3::text[]) AS w(state) CROSS JOIN LATERAL (
       SELECT s.stream, s.pos, s.version, s.at, s.kind, s.open, s.due, s.expires, s.tenant, s.state, s.tool, s.run FROM {s}.stream s
       WHERE s.tenant = $1 AND s.kind = $2 AND s.state = w.state AND NOT s.pruned AND s.pos < $4
         AND ($5::int8 IS NULL OR s.at < $5) AND ($6::text IS NULL OR s.tool = $6) AND ($7::text IS NULL OR s.run = $7)
       ORDER BY s.pos DESC LIMIT $8
     ) f ORDER BY f.pos DESC LIMIT $8";

/// The last position given out.
pub async fn newest(link: &Link) -> Result<Position, StoreError> {
    let rows = link.query(|prepared| &prepared.newest, &[]).await?;
    match rows.first() {
        Some(row) => row::position(row, 0),
        None => Err(corrupt("the database", "the row of the ledger is missing")),
    }
}

pub async fn load(link: &Link, stream: StreamId, reach: Reach) -> Result<History, StoreError> {
    let most = match reach {
        Reach::Whole => u64::MAX >> 1,
        Reach::Newest(count) => u64::from(count),
    };
    let rows = link.query(|prepared| &prepared.load, &[&&stream.0[..], &clamp(most)]).await?;
    let Some(first) = rows.first() else { return Ok(History::default()) };
    let (version, expired) = (count(first, 0)?, column(first, 1)?);
    let mut history = History { version: Version(version), expired, records: Vec::new() };
    if !expired && column::<Option<i64>>(first, 2)?.is_some() {
        history.records = rows.iter().map(|row| row::record(row, 2, &stream)).collect::<Result<_, _>>()?;
        history.records.reverse();
    }
    check_whole(&stream, &history, most)?;
    Ok(history)
}

/// The records must be the last of an unbroken row: 1, 2, 3, …
fn check_whole(stream: &StreamId, history: &History, most: u64) -> Result<(), StoreError> {
    let wanted = if history.expired { 0 } else { history.version.0.min(most) };
    let versions = history.version.0 - wanted + 1..=history.version.0;
    if history.records.len() as u64 != wanted || !history.records.iter().map(|record| record.version.0).eq(versions) {
        let found = history.records.len();
        let message = format!("{found} records of stream {stream} were found where {wanted} of {} belong", history.version.0);
        return Err(corrupt(format!("stream {stream}"), message));
    }
    Ok(())
}

pub async fn due(link: &Link, now: Timestamp, limit: usize) -> Result<Vec<StreamId>, StoreError> {
    let rows = link.query(|prepared| &prepared.due, &[&now.0, &clamp(limit as u64)]).await?;
    rows.iter().map(|row| row::stream(row, 0)).collect()
}

pub async fn tail(link: &Link, after: Position, limit: usize) -> Result<Vec<Recorded>, StoreError> {
    let rows = link.query(|prepared| &prepared.tail, &[&clamp(after.0), &clamp(limit as u64)]).await?;
    rows.iter().map(row::recorded).collect()
}

pub async fn search(link: &Link, query: &Query) -> Result<Page, StoreError> {
    if query.limit == 0 {
        return Ok(Page::default());
    }
    // No state asked for is every state there is: so one index serves both.
    let mut states = if query.states.is_empty() { STATES.to_vec() } else { query.states.clone() };
    states.sort_unstable();
    states.dedup();
    let below = query.below.map_or(i64::MAX, |below| clamp(below.0));
    let (tool, run) = (query.tool.as_ref().map(|tool| tool.as_str()), query.run.as_ref().map(|run| run.as_str()));
    // One more than asked for says whether there is more.
    let limit = clamp(query.limit as u64).saturating_add(1);
    let (tenant, kind, before) = (query.tenant.as_str(), query.kind as i16, query.before.map(|before| before.0));
    let rows = link.query(|prepared| &prepared.search, &[&tenant, &kind, &states, &below, &before, &tool, &run, &limit]).await?;
    let found = rows.iter().take(query.limit).map(row::found).collect::<Result<Vec<_>, _>>()?;
    let next = if rows.len() > query.limit { found.last().map(|last| last.position) } else { None };
    Ok(Page { found, next })
}
