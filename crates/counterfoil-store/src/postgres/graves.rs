//! Tombstones, listed and brought in from elsewhere.
//!
//! Needed once in a ledger's life, so nothing is prepared for it and nothing is sent ahead: a statement at a time, as a burial is
//! made (bury.rs).

use tokio_postgres::Error;

use super::bury::{HOLD, Streams, bury, unmoved};
use super::fault::{again, code, corrupt, refused, said, unavailable};
use super::link::{Link, jittered};
use super::row::{self, clamp};
use super::schema::{FORMAT, in_schema};
use super::session::Session;
use super::settle::{catch_up, migrated};
use super::writer::{BEGIN, Leaving};
use crate::graves::{distinct, page};
use crate::spread::Map;
use crate::{AppendError, Cursor, Graveyard, StoreError, Tombstone, Version, Written};

const LIST: &str = "SELECT stream, grave FROM {s}.record WHERE grave IS NOT NULL AND stream > $1 ORDER BY stream LIMIT $2";

/// Holds the newest rows of the streams `$1`.
const PICK: &str = "SELECT r.stream, r.version, r.pos, r.grave FROM unnest($1::bytea[]) AS u(stream) JOIN {s}.record r ON r.stream = u.stream \
     WHERE NOT EXISTS (SELECT 1 FROM {s}.record n WHERE n.stream = r.stream AND n.version > r.version) FOR UPDATE OF r";

/// Of streams that are not known here. Whoever appends to one of them at the same time takes the same key.
const INSERT: &str = "INSERT INTO {s}.record(version, at, sum, kind, open, stream, tenant, state, body, grave) \
     SELECT 1, 0, 0, 0, false, u.stream, '', '', '', u.version FROM unnest($1::bytea[], $2::int8[]) AS u(stream, version)";

/// A burial that met others' appends is tried again so often.
const TRIES_MAX: u32 = 12;

pub async fn tombstones(link: &Link, from: Option<Cursor>, limit: usize) -> Result<Graveyard, StoreError> {
    let session = link.session(link.deadline()).await?;
    let from = from.map_or_else(Vec::new, |cursor| cursor.0);
    let rows = session.client.query(&in_schema(LIST, link.address()), &[&from, &row::clamp(limit as u64)]).await;
    let rows = rows.map_err(|error| {
        if error.code().is_none() {
            session.discard();
        }
        refused(&error)
    })?;
    let tombstone = |row| Ok(Tombstone { stream: row::stream(row, 0)?, version: Version(row::count(row, 1)?) });
    let found = rows.iter().map(tombstone).collect::<Result<Vec<_>, StoreError>>()?;
    Ok(page(found, limit))
}

pub async fn entomb(link: &Link, turn: &tokio::sync::Mutex<()>, tombstones: &[Tombstone]) -> Result<(), AppendError> {
    let tombstones = distinct(tombstones)?;
    if tombstones.is_empty() {
        return Ok(());
    }
    let mut tries = 0;
    loop {
        catch_up(link, link.patience()).await?;
        let _turn = turn.lock().await;
        let session = link.session(link.deadline()).await?;
        let answered = tokio::time::timeout(link.answer_max(), in_transaction(link, &session, &tombstones)).await;
        match answered.unwrap_or_else(|_| Err(Failed::Store(unavailable("no answer while entombing", Written::Perhaps)))) {
            Ok(()) => return Ok(()),
            Err(Failed::Conflict(streams)) => return Err(AppendError::Conflict { streams }),
            Err(Failed::Store(error)) => return Err(error.into()),
            Err(Failed::Again(error)) if tries == TRIES_MAX => return Err(error.into()),
            Err(Failed::Again(_)) => tries += 1,
        }
        tokio::time::sleep(jittered(std::time::Duration::from_millis(1 << tries.min(8)))).await;
    }
}

enum Failed {
    Conflict(Vec<counterfoil_core::StreamId>),
    /// Rolled back for certain, because of others' work.
    Again(StoreError),
    Store(StoreError),
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Of a statement behind which no COMMIT was sent: nothing was written.
impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        let told = refused(&error);
        if again(&error) || code(&error) == Some("23505") { Self::Again(told) } else { Self::Store(told) }
    }
}

async fn in_transaction(link: &Link, session: &Session, tombstones: &[Tombstone]) -> Result<(), Failed> {
    let mut leaving = Leaving::begin(session);
    let done = all(link, session, tombstones).await;
    let ended = session.client.batch_execute(if done.is_ok() { "COMMIT" } else { "ROLLBACK" }).await;
    if ended.is_ok() {
        leaving.left();
    }
    done?;
    ended.map_err(|error| Failed::Store(said(&error, Written::Perhaps)))
}

async fn all(link: &Link, session: &Session, tombstones: &[Tombstone]) -> Result<(), Failed> {
    let (client, address) = (&session.client, link.address());
    client.batch_execute(BEGIN).await?;
    let held = client.query_opt(&in_schema(HOLD, address), &[&FORMAT]).await?.ok_or_else(migrated)?;
    let low: i64 = row::column(&held, 0)?;
    let plan = plan(&client.query(&in_schema(PICK, address), &[&streams(tombstones)]).await?, low, tombstones)?;
    let still = unmoved(client, address, &plan.held).await?;
    if plan.unsettled || still.len() != plan.held.len() {
        return Err(Failed::Again(unavailable("a stream is being appended to", Written::No)));
    }
    let buried = bury(client, address, &plan.known).await?;
    let made = client.execute(&in_schema(INSERT, address), &[&plan.unknown.stream, &plan.unknown.version]).await?;
    if (buried, made) != (plan.known.len() as u64, plan.unknown.len() as u64) {
        return Err(corrupt("the database", "a stream has records, and none that is the first").into());
    }
    Ok(())
}

fn streams(tombstones: &[Tombstone]) -> Vec<&[u8]> {
    tombstones.iter().map(|tombstone| &tombstone.stream.0[..]).collect()
}

#[derive(Default)]
struct Plan {
    /// Where each stream that has records ends.
    held: Streams,
    /// The same streams, with the version that their tombstones keep.
    known: Streams,
    unknown: Streams,
    /// A stream has records that are not below the watermark yet.
    unsettled: bool,
}

/// `found` are the newest rows of those that have any.
fn plan(found: &[tokio_postgres::Row], low: i64, tombstones: &[Tombstone]) -> Result<Plan, Failed> {
    let mut newest = Map::default();
    for row in found {
        newest.insert(row::stream(row, 0)?, row);
    }
    let (mut plan, mut conflicts) = (Plan::default(), Vec::new());
    for Tombstone { stream, version } in tombstones {
        let (bytes, keeps) = (stream.0.to_vec(), clamp(version.0));
        let Some(row) = newest.get(stream) else {
            plan.unknown.push(bytes, keeps);
            continue;
        };
        let (ends, pos, grave): (i64, Option<i64>, Option<i64>) = (row::column(row, 1)?, row::column(row, 2)?, row::column(row, 3)?);
        match grave {
            Some(grave) if grave == keeps => {}
            Some(_) => conflicts.push(*stream),
            None if ends > keeps => conflicts.push(*stream),
            None => {
                plan.held.push(bytes.clone(), ends);
                plan.known.push(bytes, keeps);
                plan.unsettled |= pos.is_none_or(|pos| pos > low);
            }
        }
    }
    if conflicts.is_empty() { Ok(plan) } else { Err(Failed::Conflict(conflicts)) }
}
