//! Append: many writes, one round trip, one commit.
//!
//! BEGIN, two statements and COMMIT are sent together. The first moves `ledger.pos` and so takes the lock that every append takes,
//! until its commit: appends are one serial order, and no lower position can become visible after a higher one. The second begins when
//! the lock is held, so at READ COMMITTED it sees every earlier append, and tells conflicts exactly; the key (stream, version) stands
//! behind it all the same. It writes only in the transaction that moved the head, which it knows by `now()`: if BEGIN should fail by
//! itself, nothing is written outside.
//!
//! What the server answered before COMMIT's turn is certain. A connection lost after COMMIT was sent leaves it open.

use std::time::{Duration, Instant};

use counterfoil_core::StreamId;
use futures_util::future::join4;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::fault::{again, code, refused, said, unavailable, useless};
use super::link::{Link, jittered};
use super::row::{self, ARRAYS, Columns};
use super::schema::FORMAT;
use super::session::Session;
use crate::remote::StreamPrefix;
use crate::spread::Set;
use crate::{AppendError, Batch, Position, StoreError, Write, Written};

pub const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

/// Takes the ledger's lock and `$1` positions. No row: the ledger was migrated, and this program must not write to it.
pub const ADVANCE: &str = "UPDATE {s}.ledger SET pos = pos + $1, at = now() WHERE id = 1 AND format = $2 RETURNING pos";

/// Which of the streams `$1` are not at their versions `$2`, or are pruned.
pub const CONFLICTS: &str = "SELECT u.stream FROM unnest($1::bytea[], $2::int8[]) AS u(stream, expected) \
     LEFT JOIN {s}.stream s ON s.stream = u.stream WHERE coalesce(s.version, 0) <> u.expected OR s.pruned";

/// A rolled-back transaction is tried again so often before the caller is told.
const TRIES_MAX: u32 = 8;
const TRY_AGAIN: Duration = Duration::from_millis(5);

/// Bodies in one statement. PostgreSQL takes messages of up to 1 GiB; the lock is held while they arrive.
const PART_BYTES_MAX: usize = 32 << 20;

/// A notification carries less than 8000 bytes.
const NOTIFIED_STREAMS_MAX: usize = 7900 / 16;

/// Writes all or nothing. `$14`: how many positions before the last one the first of these writes is. `$15`, `$16`: whom to tell, what.
pub fn append_sql(notifies: bool) -> String {
    // Each table is changed once: CockroachDB refuses an INSERT and an UPDATE of the same table in one statement.
    // Both branches use both parameters, since a statement must know their types.
    let notify = match notifies {
        true => "(SELECT count(pg_notify($15::text, hint.payload)) FROM fit, unnest($16::text[]) AS hint(payload))",
        false => "(SELECT count(hint.payload || $15::text) FROM fit, unnest($16::text[]) AS hint(payload))",
    };
    format!(
        "WITH u AS (SELECT * FROM {ARRAYS}),
         moved AS (
           SELECT u.stream FROM u LEFT JOIN {{s}}.stream s ON s.stream = u.stream
           WHERE coalesce(s.version, 0) <> u.expected OR s.pruned
         ),
         fit AS (SELECT pos - $14::int8 AS base FROM {{s}}.ledger WHERE id = 1 AND at = now() AND NOT EXISTS (SELECT 1 FROM moved)),
         records AS (
           INSERT INTO {{s}}.record(pos, version, at, due, expires, sum, kind, open, stream, tenant, state, tool, run, body)
           SELECT fit.base + u.n, u.expected + 1, u.at, u.due, u.expires, u.sum, u.kind, u.open, u.stream, u.tenant, u.state, u.tool, u.run, u.body
           FROM u, fit
           RETURNING 1
         ),
         streams AS (
           INSERT INTO {{s}}.stream(pos, version, at, due, expires, kind, open, pruned, stream, tenant, state, tool, run)
           SELECT fit.base + u.n, u.expected + 1, u.at, u.due, u.expires, u.kind, u.open, false, u.stream, u.tenant, u.state, u.tool, u.run
           FROM u, fit
           ON CONFLICT (stream) DO UPDATE SET pos = excluded.pos, version = excluded.version, at = excluded.at, due = excluded.due,
             expires = excluded.expires, kind = excluded.kind, open = excluded.open, tenant = excluded.tenant, state = excluded.state,
             tool = excluded.tool, run = excluded.run
         )
         SELECT (SELECT count(*) FROM records), ARRAY(SELECT stream FROM moved), {notify}"
    )
}

pub struct Writer {
    link: Link,
    channel: String,
    /// Statements of two appends must not mix on the one connection.
    turn: tokio::sync::Mutex<()>,
}

/// Why one try failed.
enum Failure {
    Conflict(Vec<StreamId>),
    /// Rolled back for certain, and worth another try.
    Again(StoreError),
    Store(StoreError),
}

impl Writer {
    pub fn new(link: Link, channel: String) -> Self {
        Self { link, channel, turn: tokio::sync::Mutex::new(()) }
    }

    pub fn link(&self) -> &Link {
        &self.link
    }

    /// `batch` is not empty.
    pub async fn append(&self, batch: &Batch) -> Result<Position, AppendError> {
        let deadline = self.link.deadline();
        let _turn = self.turn.lock().await;
        let repeated = repeated(&batch.writes);
        if !repeated.is_empty() {
            return Err(self.conflicts(batch, repeated, deadline).await);
        }
        let mut tries = 0;
        loop {
            let session = self.link.session(deadline).await?;
            match self.attempt(&session, batch).await {
                Ok(position) => return Ok(position),
                Err(Failure::Conflict(streams)) => return Err(AppendError::Conflict { streams }),
                Err(Failure::Store(error)) => return Err(error.into()),
                Err(Failure::Again(error)) => {
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

    /// The usual way: everything is sent before anything is awaited.
    async fn at_once(&self, session: &Session, writes: &[Write]) -> Result<Position, Failed> {
        let (client, prepared) = (&session.client, &session.prepared);
        let (count, part) = (writes.len() as i64, Part::of(writes));
        // The first poll sends all four, in this order.
        let (begun, advanced, written, committed) = join4(
            client.batch_execute(BEGIN),
            client.query_opt(&prepared.advance, &[&count, &FORMAT]),
            client.query_one(&prepared.append, &part.params(&count, &self.channel)),
            client.batch_execute("COMMIT"),
        )
        .await;
        begun.map_err(before_commit)?;
        let position = advanced_to(advanced.map_err(before_commit)?)?;
        let moved = moved(&written.map_err(before_commit)?, writes.len())?;
        if !moved.is_empty() {
            return Err(Failure::Conflict(moved).into());
        }
        committed.map_err(in_commit)?;
        Ok(position)
    }

    /// For batches that are too large for one statement: COMMIT waits until every part was taken.
    async fn in_parts(&self, session: &Session, parts: &[&[Write]]) -> Result<Position, Failed> {
        let (client, prepared) = (&session.client, &session.prepared);
        let mut leaving = Leaving::begin(session);
        let mut left: i64 = parts.iter().map(|part| part.len() as i64).sum();
        client.batch_execute(BEGIN).await.map_err(unsent)?;
        let position = advanced_to(client.query_opt(&prepared.advance, &[&left, &FORMAT]).await.map_err(unsent)?)?;
        let mut conflicts = Vec::new();
        for part in parts {
            let params = Part::of(part);
            let params = params.params(&left, &self.channel);
            let written = client.query_one(&prepared.append, &params).await.map_err(unsent)?;
            conflicts.extend(moved(&written, part.len())?);
            left -= part.len() as i64;
        }
        let end = if conflicts.is_empty() { "COMMIT" } else { "ROLLBACK" };
        let ended = client.batch_execute(end).await;
        leaving.left();
        if !conflicts.is_empty() {
            return Err(Failure::Conflict(conflicts).into());
        }
        ended.map_err(in_commit)?;
        Ok(position)
    }

    /// A batch that names a stream twice is refused; the answer names every stream that is wrong besides.
    async fn conflicts(&self, batch: &Batch, mut streams: Vec<StreamId>, deadline: Instant) -> AppendError {
        let session = match self.link.session(deadline).await {
            Ok(session) => session,
            Err(error) => return error.into(),
        };
        let columns = Columns::of(&batch.writes);
        match session.client.query(&session.prepared.conflicts, &[&columns.stream, &columns.expected]).await {
            Ok(rows) => {
                for moved in rows.iter().map(|row| row::stream(row, 0)) {
                    match moved {
                        Ok(moved) if !streams.contains(&moved) => streams.push(moved),
                        Ok(_) => {}
                        Err(error) => return error.into(),
                    }
                }
                AppendError::Conflict { streams }
            }
            Err(error) => refused(&error).into(),
        }
    }
}

/// Writes as the parameters of one statement.
struct Part<'a> {
    columns: Columns<'a>,
    /// What others are told: the beginnings of the streams' ids, in hex, as many as one notification carries.
    hints: Vec<String>,
}

impl<'a> Part<'a> {
    fn of(writes: &'a [Write]) -> Self {
        let hint = |part: &[Write]| part.iter().map(|write| StreamPrefix::from(&write.stream).to_string()).collect();
        Self { columns: Columns::of(writes), hints: writes.chunks(NOTIFIED_STREAMS_MAX).map(hint).collect() }
    }

    fn params<'p>(&'p self, left: &'p i64, channel: &'p String) -> Vec<&'p (dyn ToSql + Sync)> {
        let mut params: Vec<&(dyn ToSql + Sync)> = self.columns.params().to_vec();
        params.push(left);
        params.push(channel);
        params.push(&self.hints);
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

/// An error of a statement behind which COMMIT was already sent. What the server refused it also rolled back; of what it did not
/// answer nothing is known.
fn before_commit(error: Error) -> Failed {
    match error.code() {
        Some(_) => unsent(error),
        None => Failed { failure: Failure::Store(said(&error, Written::Perhaps)), spoiled: true },
    }
}

/// An error of a statement behind which nothing was sent.
fn unsent(error: Error) -> Failed {
    let told = refused(&error);
    // A key that was taken is a race that the look before did not show; the next look will.
    let failure = if again(&error) || code(&error) == Some("23505") { Failure::Again(told) } else { Failure::Store(told) };
    Failed { failure, spoiled: useless(&error) || error.code().is_none() }
}

/// An error of COMMIT itself.
fn in_commit(error: Error) -> Failed {
    if again(&error) {
        return Failure::Again(refused(&error)).into();
    }
    Failed { failure: Failure::Store(said(&error, Written::Perhaps)), spoiled: error.code().is_none() }
}

/// The position of the batch's last record.
fn advanced_to(row: Option<Row>) -> Result<Position, StoreError> {
    let migrated = "another program has migrated the ledger to a newer format; start this one again, with a newer counterfoil";
    row::position(&row.ok_or_else(|| unavailable(migrated, Written::No))?, 0)
}

/// The streams that moved on; none when all `count` writes were made.
fn moved(answer: &Row, count: usize) -> Result<Vec<StreamId>, StoreError> {
    let written = row::count(answer, 0)?;
    let moved: Vec<&[u8]> = row::column(answer, 1)?;
    if moved.is_empty() && written != count as u64 {
        let certainty = if written == 0 { Written::No } else { Written::Perhaps };
        return Err(unavailable(format!("the database wrote {written} of {count} records"), certainty));
    }
    moved.into_iter().map(row::stream_of).collect()
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

/// The batch in pieces that fit into one statement each.
fn parts(writes: &[Write]) -> Vec<&[Write]> {
    let (mut parts, mut first, mut bytes) = (Vec::new(), 0, 0);
    for (index, write) in writes.iter().enumerate() {
        if index > first && bytes + write.body.len() > PART_BYTES_MAX {
            parts.push(&writes[first..index]);
            (first, bytes) = (index, 0);
        }
        bytes += write.body.len();
    }
    parts.push(&writes[first..]);
    parts
}
