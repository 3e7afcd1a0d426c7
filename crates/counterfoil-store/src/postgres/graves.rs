//! Tombstones, listed and brought in from elsewhere.
//!
//! Needed once in a ledger's life, so nothing is prepared for it and nothing is sent ahead: a statement at a time, under the lock that
//! every append takes.

use tokio_postgres::Error;

use super::address::Address;
use super::fault::{refused, said, unavailable};
use super::link::Link;
use super::row;
use super::schema::{FORMAT, in_schema};
use super::session::Session;
use super::writer::{BEGIN, Leaving};
use crate::graves::{distinct, page};
use crate::{AppendError, Cursor, Graveyard, StoreError, Tombstone, Version, Written};

const LIST: &str = "SELECT stream, version FROM {s}.stream WHERE pruned AND stream > $1 ORDER BY stream LIMIT $2";

/// Buries the streams `$1` at the versions `$2`, all or none. Answers those that stand otherwise, and how many were buried.
const ENTOMB: &str = "WITH u AS (SELECT * FROM unnest($1::bytea[], $2::int8[]) AS u(stream, version)),
     moved AS (
       SELECT u.stream FROM u JOIN {s}.stream s ON s.stream = u.stream
       WHERE CASE WHEN s.pruned THEN s.version <> u.version ELSE s.version > u.version END
     ),
     fit AS (SELECT id FROM {s}.ledger WHERE id = 1 AND at = now() AND NOT EXISTS (SELECT 1 FROM moved)),
     records AS (DELETE FROM {s}.record WHERE stream IN (SELECT u.stream FROM u, fit)),
     graves AS (
       INSERT INTO {s}.stream(pos, version, at, kind, open, pruned, stream, tenant, state)
       SELECT 0, u.version, 0, 0, false, true, u.stream, '', '' FROM u, fit
       ON CONFLICT (stream) DO UPDATE SET version = excluded.version, pruned = true, open = false, due = NULL, expires = NULL, kind = 0,
         tenant = '', state = '', tool = NULL, run = NULL
       RETURNING 1
     )
     SELECT ARRAY(SELECT stream FROM moved), (SELECT count(*) FROM graves)";

pub async fn tombstones(link: &Link, address: &Address, from: Option<Cursor>, limit: usize) -> Result<Graveyard, StoreError> {
    let session = link.session(link.deadline()).await?;
    let from = from.map_or_else(Vec::new, |cursor| cursor.0);
    let rows = session.client.query(&in_schema(LIST, address), &[&from, &row::clamp(limit as u64)]).await;
    let rows = rows.map_err(|error| unread(&session, &error))?;
    let tombstone = |row| Ok(Tombstone { stream: row::stream(row, 0)?, version: Version(row::count(row, 1)?) });
    let found = rows.iter().map(tombstone).collect::<Result<Vec<_>, StoreError>>()?;
    Ok(page(found, limit))
}

pub async fn entomb(link: &Link, address: &Address, turn: &tokio::sync::Mutex<()>, tombstones: &[Tombstone]) -> Result<(), AppendError> {
    let tombstones = distinct(tombstones)?;
    if tombstones.is_empty() {
        return Ok(());
    }
    let _turn = turn.lock().await;
    let session = link.session(link.deadline()).await?;
    let answered = tokio::time::timeout(link.answer_max(), in_transaction(&session, address, &tombstones)).await;
    answered.unwrap_or_else(|_| Err(unavailable("no answer while entombing", Written::Perhaps).into()))
}

async fn in_transaction(session: &Session, address: &Address, tombstones: &[Tombstone]) -> Result<(), AppendError> {
    let client = &session.client;
    let mut leaving = Leaving::begin(session);
    let failed = |error: Error| unread(session, &error);
    client.batch_execute(BEGIN).await.map_err(failed)?;
    let held = client.query_opt(&in_schema(super::prune::HOLD, address), &[&FORMAT]).await.map_err(failed)?;
    if held.is_none() {
        return Err(unavailable("another program has migrated the ledger to a newer format", Written::No).into());
    }
    let streams: Vec<&[u8]> = tombstones.iter().map(|tombstone| &tombstone.stream.0[..]).collect();
    let versions: Vec<i64> = tombstones.iter().map(|tombstone| row::clamp(tombstone.version.0)).collect();
    let answer = client.query_one(&in_schema(ENTOMB, address), &[&streams, &versions]).await.map_err(failed)?;
    let moved: Vec<&[u8]> = row::column(&answer, 0)?;
    let moved = moved.into_iter().map(row::stream_of).collect::<Result<Vec<_>, _>>()?;
    let end = if moved.is_empty() { "COMMIT" } else { "ROLLBACK" };
    let ended = client.batch_execute(end).await;
    leaving.left();
    if !moved.is_empty() {
        return Err(AppendError::Conflict { streams: moved });
    }
    ended.map_err(|error| {
        session.discard();
        said(&error, Written::Perhaps)
    })?;
    match row::count(&answer, 1)? {
        buried if buried == tombstones.len() as u64 => Ok(()),
        buried => Err(unavailable(format!("the database buried {buried} of {} streams", tombstones.len()), Written::Perhaps).into()),
    }
}

/// Of a statement behind which no COMMIT was sent: nothing was written.
fn unread(session: &Session, error: &Error) -> StoreError {
    if error.code().is_none() {
        session.discard();
    }
    refused(error)
}
