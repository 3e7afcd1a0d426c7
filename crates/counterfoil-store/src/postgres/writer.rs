//! Append: many writes, one statement, one commit, beside other processes' appends.
//!
//! The statement is a transaction of its own. It looks whether streams that should be new are, and holds the records that it goes on from; where
//! all is as it should be it draws a number (settle.rs), and inserts. Whether a stream has gone on meanwhile, its key tells. Appends take no lock
//! that others' appends take, so PostgreSQL flushes many at once.
//!
//! What must stay true, though at READ COMMITTED a statement sees what was committed before it began and others go on meanwhile:
//! - *Two appends to one stream*: both insert the same key (stream, version); one waits for the other and is rolled back.
//! - *An append and a burial* (bury.rs), where the stream has records: the append shares the lock of the newest one, the burial takes
//!   it alone and then looks whether a next one is there. Whoever comes second waits for the first; then the burial sees the append,
//!   or the append finds its record gone or emptied, however old its snapshot is. Also of an append that slept while the stream went on and was buried: the
//!   record that it goes on from is not there any more.
//! - *Where the stream has none*: the key (stream, 1) is never given back, since a tombstone keeps it. Whoever else took it meanwhile is met there.
//!
//! Where something was not as it should be, nothing is written, and a second statement names the streams that have moved. Where none has, others
//! were in the way, and it is tried again. What the server answered as an error is certainly not written; it may end the session after its commit,
//! though, so the end of a session leaves it open, as a lost connection does.

use std::time::{Duration, Instant};

use counterfoil_core::StreamId;
use futures_util::future::select_all;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::fault::{again, code, lost, refused, said, unavailable, useless};
use super::link::{Link, jittered};
use super::row::{self, ARRAYS, Columns};
use super::schema::{BATCH_POSITIONS, FORMAT};
use super::session::Session;
use super::settle::migrated;
use super::tell::Tell;
use crate::spread::Set;
use crate::{AppendError, Batch, Position, StoreError, Write, Written};

pub const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

/// Which of the streams `$1` are not at their versions `$2`, or are tombstones.
pub const CONFLICTS: &str = "SELECT u.stream FROM unnest($1::bytea[], $2::int8[]) AS u(stream, expected) \
     LEFT JOIN LATERAL (SELECT r.version, r.grave FROM {s}.record r WHERE r.stream = u.stream ORDER BY r.version DESC LIMIT 1) AS r ON true \
     WHERE coalesce(r.version, 0) <> u.expected OR r.grave IS NOT NULL";

/// A rolled-back transaction is tried again so often before the caller is told.
const TRIES_MAX: u32 = 8;
const TRY_AGAIN: Duration = Duration::from_millis(5);

/// Bodies in one statement. PostgreSQL takes messages of up to 1 GiB.
const PART_BYTES_MAX: usize = 32 << 20;

/// Writes all or nothing. `$15`: the format that this program writes. `$16`: how many of the writes go on from a record.
///
/// Each stream is looked up once, by its whole key: (stream, 1) is there from a stream's first record on for ever. `LATERAL` with a limit or a lock,
/// because the plan is made while the table may be empty: as a plain join, it might then read the whole of the table for each stream.
pub fn append_sql() -> String {
    // Each table is changed once: CockroachDB refuses two changes of the same table in one statement.
    format!(
        "WITH met AS (
           SELECT 1 FROM unnest($1::bytea[], $2::int8[]) AS u(stream, expected)
           CROSS JOIN LATERAL (SELECT 1 FROM {{s}}.record r WHERE r.stream = u.stream AND r.version = 1 LIMIT 1) AS r WHERE u.expected = 0
         ),
         kept AS (
           SELECT r.version FROM unnest($1::bytea[], $2::int8[]) AS u(stream, expected)
           CROSS JOIN LATERAL (
             SELECT r.version FROM {{s}}.record r
             WHERE r.stream = u.stream AND r.version = u.expected AND r.grave IS NULL FOR KEY SHARE
           ) AS r
           WHERE u.expected > 0 AND NOT EXISTS (SELECT 1 FROM met)
         ),
         fit AS (
           SELECT l.id FROM {{s}}.ledger l
           WHERE l.id = 1 AND l.format = $15 AND NOT EXISTS (SELECT 1 FROM met) AND (SELECT count(*) FROM kept) = $16
         ),
         base AS (SELECT nextval('{{s}}.number') * 4096 AS pos FROM fit),
         records AS (
           INSERT INTO {{s}}.record(pos, version, at, due, expires, sum, kind, open, stream, tenant, state, tool, run, body)
           SELECT base.pos + u.place, u.expected + 1, u.at, u.due, u.expires, u.sum, u.kind, u.open, u.stream, u.tenant, u.state, u.tool, u.run, u.body
           FROM base, {ARRAYS}
           RETURNING 1
         )
         SELECT (SELECT count(*) FROM records), (SELECT pos FROM base), (SELECT l.format FROM {{s}}.ledger l WHERE l.id = 1)"
    )
}

pub struct Writer {
    lines: Vec<Line>,
    tell: Tell,
}

/// A connection for one append at a time.
struct Line {
    link: Link,
    /// Statements of two appends must not mix on the one connection.
    turn: tokio::sync::Mutex<()>,
}

/// Why one try failed.
enum Failure {
    /// Certainly not written, because of what others have written or are writing.
    Met(StoreError),
    Store(StoreError),
}

impl Writer {
    /// As many links as appends may be on their way at once; one at least.
    pub fn new(links: impl IntoIterator<Item = Link>, tell: Tell) -> Self {
        let lines: Vec<Line> = links.into_iter().map(|link| Line { link, turn: tokio::sync::Mutex::new(()) }).collect();
        assert!(!lines.is_empty(), "an append needs a connection");
        Self { lines, tell }
    }

    pub fn links(&self) -> impl Iterator<Item = &Link> {
        self.lines.iter().map(|line| &line.link)
    }

    /// `batch` is not empty.
    pub async fn append(&self, batch: &Batch) -> Result<Position, AppendError> {
        let deadline = self.lines[0].link.deadline();
        // A connection that is being made again is waited for only where there is no other.
        let up: Vec<&Line> = self.lines.iter().filter(|line| line.link.is_up()).collect();
        let lines = if up.is_empty() { self.lines.iter().collect() } else { up };
        let idle = lines.iter().find_map(|line| Some((*line, line.turn.try_lock().ok()?)));
        let (line, _turn) = match idle {
            Some(idle) => idle,
            None => {
                let turns = lines.iter().map(|line| Box::pin(async move { (*line, line.turn.lock().await) }));
                select_all(turns).await.0
            }
        };
        let appended = line.append(batch, deadline).await;
        if !matches!(
            &appended,
            Err(AppendError::Conflict { .. } | AppendError::Store(StoreError::Unavailable { written: Written::No, .. }))
        ) {
            self.tell.tell(&batch.writes);
        }
        appended
    }
}

impl Line {
    async fn append(&self, batch: &Batch, deadline: Instant) -> Result<Position, AppendError> {
        let repeated = repeated(&batch.writes);
        if !repeated.is_empty() {
            let session = self.link.session(deadline).await?;
            return Err(AppendError::Conflict { streams: self.moved(&session, batch, repeated).await? });
        }
        let mut tries = 0;
        loop {
            let session = self.link.session(deadline).await?;
            match self.attempt(&session, batch).await {
                Ok(position) => return Ok(position),
                Err(Failure::Store(error)) => return Err(error.into()),
                Err(Failure::Met(error)) => {
                    let streams = self.moved(&session, batch, Vec::new()).await?;
                    if !streams.is_empty() {
                        return Err(AppendError::Conflict { streams });
                    }
                    tries += 1;
                    if tries == TRIES_MAX || Instant::now() >= deadline {
                        return Err(error.into());
                    }
                    tokio::time::sleep(jittered(TRY_AGAIN * (1 << tries))).await;
                }
            }
        }
    }

    async fn attempt(&self, session: &Session, batch: &Batch) -> Result<Position, Failure> {
        let parts = parts(&batch.writes);
        let answered = match parts.as_slice() {
            [whole] => tokio::time::timeout(self.link.answer_max(), self.at_once(session, whole)).await,
            parts => tokio::time::timeout(self.link.answer_max(), self.in_parts(session, parts)).await,
        };
        let failed = match answered {
            Ok(Ok(position)) => return Ok(position),
            Ok(Err(failed)) => failed,
            Err(_) => {
                // What was sent may still be carried out. Nothing more must follow it on this connection.
                session.discard();
                let message = format!("no answer within {} s", self.link.answer_max().as_secs());
                return Err(Failure::Store(unavailable(message, Written::Perhaps)));
            }
        };
        if failed.spoiled {
            session.discard();
        }
        Err(failed.failure)
    }

    /// The usual way: one statement, and its answer comes after its commit.
    async fn at_once(&self, session: &Session, writes: &[Write]) -> Result<Position, Failed> {
        let part = Part::of(writes);
        // Ready only when the server is ready for the next query, which is after the commit.
        let answer = session.client.query_one(&session.prepared.append, &part.params()).await.map_err(committing)?;
        written(&answer, writes.len())
    }

    /// For batches that are too large for one statement: COMMIT waits until every part was taken.
    async fn in_parts(&self, session: &Session, parts: &[&[Write]]) -> Result<Position, Failed> {
        let (client, prepared) = (&session.client, &session.prepared);
        let mut leaving = Leaving::begin(session);
        client.batch_execute(BEGIN).await.map_err(unsent)?;
        let mut position = Position::default();
        for part in parts {
            let answered = client.query_one(&prepared.append, &Part::of(part).params()).await.map_err(unsent);
            match answered.and_then(|answer| written(&answer, part.len())) {
                Ok(last) => position = last,
                Err(failed) => {
                    if !failed.spoiled && client.batch_execute("ROLLBACK").await.is_ok() {
                        leaving.left();
                    }
                    return Err(failed);
                }
            }
        }
        let ended = client.batch_execute("COMMIT").await;
        leaving.left();
        ended.map_err(committing)?;
        Ok(position)
    }

    /// `streams`, and those of the batch that are not as it expects.
    async fn moved(&self, session: &Session, batch: &Batch, mut streams: Vec<StreamId>) -> Result<Vec<StreamId>, StoreError> {
        let (named, expected): (Vec<&[u8]>, Vec<i64>) =
            batch.writes.iter().map(|write| (&write.stream.0[..], row::expected(write))).unzip();
        let params: [&(dyn ToSql + Sync); 2] = [&named, &expected];
        let asked = tokio::time::timeout(self.link.answer_max(), session.client.query(&session.prepared.conflicts, &params)).await;
        let rows = match asked {
            Ok(Ok(rows)) => rows,
            Ok(Err(error)) => return Err(refused(&error)),
            Err(_) => {
                session.discard();
                return Err(unavailable("no answer to which streams have moved", Written::No));
            }
        };
        for moved in rows.iter().map(|row| row::stream(row, 0)) {
            let moved = moved?;
            if !streams.contains(&moved) {
                streams.push(moved);
            }
        }
        Ok(streams)
    }
}

/// Writes as the parameters of one statement.
struct Part<'a> {
    columns: Columns<'a>,
    going_on: i64,
}

impl<'a> Part<'a> {
    fn of(writes: &'a [Write]) -> Self {
        let columns = Columns::of(writes);
        let going_on = columns.expected.iter().filter(|expected| **expected > 0).count() as i64;
        Self { columns, going_on }
    }

    fn params(&self) -> Vec<&(dyn ToSql + Sync)> {
        let mut params: Vec<&(dyn ToSql + Sync)> = self.columns.params().to_vec();
        params.push(&FORMAT);
        params.push(&self.going_on);
        params
    }
}

/// A transaction that is left half-way, also by a caller who no longer waits, takes its connection and so its lock with it.
pub struct Leaving<'a> {
    session: &'a Session,
    in_transaction: bool,
}

impl<'a> Leaving<'a> {
    pub fn begin(session: &'a Session) -> Self {
        Self { session, in_transaction: true }
    }

    /// It was ended in order.
    pub fn left(&mut self) {
        self.in_transaction = false;
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if self.in_transaction {
            self.session.discard();
        }
    }
}

/// Why one try failed, and whether its connection can be used again.
struct Failed {
    failure: Failure,
    spoiled: bool,
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        Self { failure, spoiled: false }
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Failure::Store(error).into()
    }
}

/// An error of what ends with a commit. An error that leaves the session alive is certain; one that ends it may have come after the commit.
fn committing(error: Error) -> Failed {
    match open(&error) {
        false => unsent(error),
        true => Failed { failure: Failure::Store(said(&error, Written::Perhaps)), spoiled: true },
    }
}

/// Nobody knows whether it was committed: the connection was lost, the session was ended, or the server says so itself.
fn open(error: &Error) -> bool {
    lost(error) || code(error).is_none_or(|code| code.starts_with("08") || code.starts_with("57P") || code == "40003")
}

/// An error of a statement behind which no commit was sent.
fn unsent(error: Error) -> Failed {
    let told = refused(&error);
    // A key that was taken: a stream has gone on, or a position was taken.
    let failure = if again(&error) || code(&error) == Some("23505") { Failure::Met(told) } else { Failure::Store(told) };
    Failed { failure, spoiled: useless(&error) || error.code().is_none() }
}

/// The position of the last record of one part.
fn written(answer: &Row, count: usize) -> Result<Position, Failed> {
    if row::column::<Option<i32>>(answer, 2)? != Some(FORMAT) {
        return Err(migrated().into());
    }
    let written = row::count(answer, 0)?;
    match row::column::<Option<i64>>(answer, 1)? {
        Some(base) if written == count as u64 => Ok(Position(base.unsigned_abs() + written - 1)),
        None => Err(Failure::Met(unavailable("others were writing to the same streams", Written::No)).into()),
        Some(_) => Err(unavailable(format!("the database wrote {written} of {count} records"), Written::Perhaps).into()),
    }
}

/// Streams that are named more than once, each once.
fn repeated(writes: &[Write]) -> Vec<StreamId> {
    let mut seen = Set::default();
    let mut repeated: Vec<StreamId> = Vec::new();
    for write in writes {
        if !seen.insert(write.stream) && !repeated.contains(&write.stream) {
            repeated.push(write.stream);
        }
    }
    repeated
}

/// The batch in pieces that fit into one statement and one number each.
fn parts(writes: &[Write]) -> Vec<&[Write]> {
    let (mut parts, mut first, mut bytes) = (Vec::new(), 0, 0);
    for (index, write) in writes.iter().enumerate() {
        let full = bytes + write.body.len() > PART_BYTES_MAX || index - first == BATCH_POSITIONS as usize;
        if index > first && full {
            parts.push(&writes[first..index]);
            (first, bytes) = (index, 0);
        }
        bytes += write.body.len();
    }
    parts.push(&writes[first..]);
    parts
}
