//! The tables of a ledger in PostgreSQL, how they are made, and the row that says what they are.
//!
//! Plain SQL: no triggers, no extensions, no advisory locks. Any number of processes may start at once on an empty database: every
//! statement tolerates that another made the thing first, and the row in `ledger` comes last, so a schema without it is one that is
//! being made. What is not ours is left as it is.
//!
//! What is there now is what all steps together leave: see the comments of the last one, and ADR 0024 for why.

use std::time::Duration;

use tokio_postgres::Client;

use super::address::Address;
use super::fault::{code, words};
use crate::OpenError;

/// What `ledger.application` says of a ledger.
const APPLICATION: &str = "counterfoil";

/// Each step takes a ledger from the format that is its index to the next. The first makes it from nothing.
/// A later one raises `ledger.format` before it changes anything that is there, which tells older programs to stop: programs of format 1
/// take the lock of that row in every append. Those of format 2 only read it, so a step from there must also wait for what they have
/// begun, by a lock on `record`.
const STEPS: [&str; 2] = [TABLES, SIDE_BY_SIDE];

/// `ledger.format` as this program writes it.
pub const FORMAT: i32 = STEPS.len() as i32;

// Wide columns last: a row's later columns are found by walking over the earlier ones.
const TABLES: &str = "
-- One row.
CREATE TABLE IF NOT EXISTS {s}.ledger(
  id int2 PRIMARY KEY CHECK (id = 1),
  application text NOT NULL,
  format int4 NOT NULL,
  pos int8 NOT NULL,         -- the last position given out
  at timestamptz NOT NULL    -- when the last transaction that holds this row began
);

-- Every record of every stream. Rows are never changed; prune deletes them.
CREATE TABLE IF NOT EXISTS {s}.record(
  pos int8 NOT NULL,
  version int8 NOT NULL,     -- 1, 2, 3, … within the stream
  at int8 NOT NULL,          -- microseconds since 1970
  due int8,
  expires int8,
  sum int4 NOT NULL,         -- CRC-32 of stream, version, at and body
  kind int2 NOT NULL,
  open bool NOT NULL,
  stream bytea NOT NULL,
  tenant text NOT NULL,
  state text NOT NULL,
  tool text,
  run text,
  body text NOT NULL,
  PRIMARY KEY (stream, version)
);
CREATE UNIQUE INDEX IF NOT EXISTS record_pos ON {s}.record(pos);

-- Each stream as it stands now: its newest record without the body, or a tombstone.
CREATE TABLE IF NOT EXISTS {s}.stream(
  pos int8 NOT NULL,
  version int8 NOT NULL,
  at int8 NOT NULL,
  due int8,
  expires int8,
  kind int2 NOT NULL,
  open bool NOT NULL,
  pruned bool NOT NULL,
  stream bytea PRIMARY KEY,
  tenant text NOT NULL,
  state text NOT NULL,
  tool text,
  run text
);
CREATE INDEX IF NOT EXISTS stream_due ON {s}.stream(due, stream) WHERE due IS NOT NULL;
CREATE INDEX IF NOT EXISTS stream_expires ON {s}.stream(expires) WHERE expires IS NOT NULL;
CREATE INDEX IF NOT EXISTS stream_state ON {s}.stream(tenant, kind, state, pos) WHERE NOT pruned;

-- For people: SELECT * FROM counterfoil.effect_log ORDER BY pos DESC LIMIT 20
CREATE OR REPLACE VIEW {s}.effect_log AS
SELECT pos, to_timestamp(at / 1000000.0) AS at, tenant, run, tool, state, version, body, encode(stream, 'hex') AS key
FROM {s}.record WHERE kind = 1;

-- Each effect as it stands now.
CREATE OR REPLACE VIEW {s}.effect AS
SELECT s.pos, to_timestamp(s.at / 1000000.0) AS at, s.tenant, s.run, s.tool, s.state, s.version, s.open,
       to_timestamp(s.due / 1000000.0) AS due, r.body, encode(s.stream, 'hex') AS key
FROM {s}.stream s JOIN {s}.record r ON r.stream = s.stream AND r.version = s.version WHERE s.kind = 1 AND NOT s.pruned;

INSERT INTO {s}.ledger VALUES (1, 'counterfoil', 1, 0, now()) ON CONFLICT (id) DO NOTHING;
";

/// Positions in a batch: a batch draws one number, and its records stand at `number * BATCH_POSITIONS` and behind it. Positions stay
/// below 2^53, so that every JSON reader can hold them, for 2^41 batches.
pub const BATCH_POSITIONS: i64 = 4096;

// Appends no longer take turns at the row of the ledger.
const SIDE_BY_SIDE: &str = "
-- A number for each batch. Numbers are drawn in one order and seen in another, and some are never seen: see settle.rs.
CREATE SEQUENCE IF NOT EXISTS {s}.number;
-- Only by whoever raises the format: the sequence must never go back.
WITH raised AS (UPDATE {s}.ledger SET format = 2 WHERE id = 1 AND format = 1 RETURNING pos)
SELECT setval('{s}.number', pos / 4096 + 1, false) FROM raised;

DROP VIEW IF EXISTS {s}.effect;

-- A tombstone is the first record of its stream, emptied: without a position, and with `grave`, the version that the stream had.
-- A void, at the position where a batch would begin whose number was never seen, belongs to no stream: its stream is empty. Both have
-- kind 0.
ALTER TABLE {s}.record ADD COLUMN IF NOT EXISTS grave int8;
ALTER TABLE {s}.record ALTER COLUMN pos DROP NOT NULL;
INSERT INTO {s}.record(version, at, sum, kind, open, stream, tenant, state, body, grave)
SELECT 1, 0, 0, 0, false, stream, '', '', '', version FROM {s}.stream WHERE pruned ON CONFLICT DO NOTHING;
CREATE INDEX IF NOT EXISTS record_grave ON {s}.record(stream) WHERE grave IS NOT NULL;

-- `ledger.pos` is now the watermark: everything up to it is settled, and `stream` is each stream as it stood there.
DELETE FROM {s}.stream WHERE pruned;
DROP INDEX IF EXISTS {s}.stream_state;
ALTER TABLE {s}.stream DROP COLUMN IF EXISTS pruned;
CREATE INDEX IF NOT EXISTS stream_standing ON {s}.stream(tenant, kind, state, pos);

-- Each effect as it stands now, by its records alone.
CREATE OR REPLACE VIEW {s}.effect AS
SELECT r.pos, to_timestamp(r.at / 1000000.0) AS at, r.tenant, r.run, r.tool, r.state, r.version, r.open,
       to_timestamp(r.due / 1000000.0) AS due, r.body, encode(r.stream, 'hex') AS key
FROM {s}.record r
WHERE r.kind = 1 AND NOT EXISTS (SELECT 1 FROM {s}.record n WHERE n.stream = r.stream AND n.version = r.version + 1);
";

/// A ledger with many millions of streams is migrated in minutes; nobody else may use it meanwhile.
const MIGRATION_MAX: Duration = Duration::from_secs(3600);

/// Losing a race to make the schema costs one more look; so often it is something else.
const TRIES_MAX: u32 = 50;
const TRY_AGAIN: Duration = Duration::from_millis(40);

/// Makes the ledger or brings it up to this program's format. Refuses, and changes nothing, where there is something else.
pub async fn bring_up(client: &Client, address: &Address, patience: Duration) -> Result<(), OpenError> {
    let silent = |_| OpenError::Unreachable { store: address.label.clone(), message: "connected, and then nothing was answered".into() };
    let mut tries = 0;
    loop {
        let (format, first) = match tokio::time::timeout(patience, inspect(client, address)).await.map_err(silent)?? {
            Found::Nothing { schema: true } => (0, String::new()),
            Found::Nothing { schema: false } => (0, format!("CREATE SCHEMA IF NOT EXISTS {};", address.quoted())),
            Found::Ledger { format: FORMAT } => return Ok(()),
            Found::Ledger { format } if format > FORMAT => {
                let (found, supported) = (format.unsigned_abs(), FORMAT.unsigned_abs());
                return Err(OpenError::TooNew { store: address.label.clone(), found, supported });
            }
            Found::Ledger { format } => (format, String::new()),
        };
        let step = STEPS[format as usize];
        // One message, so one transaction where DDL is transactional.
        let most = if format == 0 { patience } else { MIGRATION_MAX };
        let sql = in_schema(&format!("SET LOCAL statement_timeout = {}; {first}{step}", most.as_millis()), address);
        let done = tokio::time::timeout(most, client.batch_execute(&sql)).await.map_err(silent)?;
        tries += 1;
        match done {
            Ok(()) => {}
            Err(error) if tries < TRIES_MAX && is_race(&error) => tokio::time::sleep(TRY_AGAIN).await,
            Err(error) => {
                let message = format!("the schema {} cannot be made or migrated: {}", address.schema, words(&error));
                return Err(OpenError::Unfit { store: address.label.clone(), message });
            }
        }
    }
}

/// `sql` with the schema's name for `{s}`.
pub fn in_schema(sql: &str, address: &Address) -> String {
    sql.replace("{s}", &address.quoted())
}

enum Found {
    /// Nothing, or a ledger that is being made.
    Nothing {
        schema: bool,
    },
    Ledger {
        format: i32,
    },
}

async fn inspect(client: &Client, address: &Address) -> Result<Found, OpenError> {
    let unfit = |error: tokio_postgres::Error| OpenError::Unfit { store: address.label.clone(), message: words(&error) };
    let not_ours = |found: String| OpenError::NotALedger { store: address.label.clone(), found };
    // The catalog also shows what this user may not read.
    let schema = client.query_opt("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1", &[&address.schema]).await.map_err(unfit)?;
    if schema.is_none() {
        return Ok(Found::Nothing { schema: false });
    }
    let relations = "SELECT c.relname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
                     WHERE n.nspname = $1 AND c.relkind NOT IN ('i', 'I', 't', 'c') ORDER BY c.relname";
    let relations = client.query(relations, &[&address.schema]).await.map_err(unfit)?;
    let relations: Vec<String> = relations.iter().map(|row| row.get(0)).collect();
    if relations.is_empty() {
        return Ok(Found::Nothing { schema: true });
    }
    if !relations.iter().any(|name| name == "ledger") {
        return Err(not_ours(format!("the schema {} holds {:?} and no ledger", address.schema, relations[0])));
    }
    let row = client.query_opt(&in_schema("SELECT application, format FROM {s}.ledger", address), &[]).await;
    match row {
        Ok(None) => Ok(Found::Nothing { schema: true }),
        Ok(Some(row)) => match (row.try_get::<_, String>(0), row.try_get::<_, i32>(1)) {
            (Ok(application), Ok(format)) if application == APPLICATION && format > 0 => Ok(Found::Ledger { format }),
            _ => Err(not_ours(format!("{}.ledger was made by another program", address.schema))),
        },
        // Dropped since we looked.
        Err(error) if code(&error) == Some("42P01") => Ok(Found::Nothing { schema: true }),
        Err(error) if error.code().is_some() => Err(not_ours(format!("{}.ledger: {}", address.schema, words(&error)))),
        // The connection, or more than one row.
        Err(error) => Err(unfit(error)),
    }
}

/// Another process made the same thing at the same time.
fn is_race(error: &tokio_postgres::Error) -> bool {
    match code(error) {
        // The second half: someone is faster with the same step, or holds what it changes.
        Some("23505" | "42P06" | "42P07" | "42710" | "42703" | "55P03") => true,
        Some("XX000") => error.as_db_error().is_some_and(|db| db.message().contains("concurrently")),
        Some(code) => code.starts_with("40"),
        None => false,
    }
}
