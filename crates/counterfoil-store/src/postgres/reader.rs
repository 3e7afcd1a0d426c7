//! What is read: what is due, the tail, searches. (One stream is read in `loads`.)
//!
//! The tail shows settled positions and nothing above them. What is due and what is searched for is read from `stream`, which is brought
//! up to date first: what was acknowledged before is seen. A writer that does not end holds back what is behind it: the tail then
//! says so where it has nothing to show, and does not pretend to have ended; the others answer as of the moment before.

use std::time::Duration;

use counterfoil_core::summary::STATES;
use counterfoil_core::{StreamId, Timestamp};

use super::link::Link;
use super::row::{self, clamp};
use super::settle::{catch_up, settle};
use crate::{Page, Position, Query, Recorded, StoreError};

pub const DUE: &str = "SELECT stream FROM {s}.stream WHERE due <= $1 ORDER BY due, stream LIMIT $2";

pub const TAIL: &str = "SELECT stream, pos, version, at, sum, body, kind, open, due, expires, tenant, state, tool, run \
     FROM {s}.record WHERE pos > $1 AND pos <= $2 AND kind > 0 ORDER BY pos LIMIT $3";

/// A sweep does not wait long for a writer that does not end: it comes again.
const DUE_PATIENCE: Duration = Duration::from_millis(100);

/// Newest first within each state, by the index; then the newest of all states.
pub const SEARCH: &str = "SELECT f.* FROM unnest($3::text[]) AS w(state) CROSS JOIN LATERAL (
       SELECT s.stream, s.pos, s.version, s.at, s.kind, s.open, s.due, s.expires, s.tenant, s.state, s.tool, s.run FROM {s}.stream s
       WHERE s.tenant = $1 AND s.kind = $2 AND s.state = w.state AND s.pos < $4
         AND ($5::int8 IS NULL OR s.at < $5) AND ($6::text IS NULL OR s.tool = $6) AND ($7::text IS NULL OR s.run = $7)
       ORDER BY s.pos DESC LIMIT $8
     ) f ORDER BY f.pos DESC LIMIT $8";

pub async fn due(link: &Link, now: Timestamp, limit: usize) -> Result<Vec<StreamId>, StoreError> {
    catch_up(link, DUE_PATIENCE.min(link.patience())).await?;
    let rows = link.query(|prepared| &prepared.due, &[&now.0, &clamp(limit as u64)]).await?;
    rows.iter().map(|row| row::stream(row, 0)).collect()
}

pub async fn tail(link: &Link, after: Position, limit: usize) -> Result<Vec<Recorded>, StoreError> {
    let horizon = settle(link, link.patience()).await?;
    let rows = link.query(|prepared| &prepared.tail, &[&clamp(after.0), &horizon.settled, &clamp(limit as u64)]).await?;
    if rows.is_empty() && limit > 0 && horizon.top > clamp(after.0) {
        // Nothing to show is the end only if there is nothing more.
        horizon.whole()?;
    }
    rows.iter().map(row::recorded).collect()
}

pub async fn search(link: &Link, query: &Query) -> Result<Page, StoreError> {
    if query.limit == 0 {
        return Ok(Page::default());
    }
    catch_up(link, link.patience()).await?;
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
