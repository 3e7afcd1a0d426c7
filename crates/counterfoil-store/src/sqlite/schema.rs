//! The tables of a ledger file, and the mark that says it is one.
//!
//! Cost in SQLite is dirty pages, so what is written on the hot path is one append-only table in commit order and
//! nothing else: no UPDATE, no second index. The index from stream to newest position is brought up to date in sorted
//! slices ([`super::merge`]); until then it lives in memory ([`super::index`]).

use rusqlite::Connection;

/// `PRAGMA application_id` of a ledger: "CFOL".
pub const APPLICATION_ID: u32 = 0x4346_4f4c;

/// `PRAGMA user_version`: raised when an older program would misread the file.
pub const FORMAT: u32 = 1;

/// How many positions share one row of `expiry`.
pub const BLOCK_POSITIONS: u64 = 1024;

// Small columns come first: a row's later columns are found by walking over the earlier ones.
const TABLES: &str = "
-- Every record of every stream, in commit order. Rows are never changed; prune deletes them.
CREATE TABLE record(
  pos INTEGER PRIMARY KEY,
  stream BLOB NOT NULL,
  version INTEGER NOT NULL,   -- 1, 2, 3, … within the stream
  prev INTEGER NOT NULL,      -- pos of the stream's previous record, or 0
  at INTEGER NOT NULL,        -- microseconds since 1970
  kind INTEGER NOT NULL,
  open INTEGER NOT NULL,
  due INTEGER,
  expires INTEGER,
  sum INTEGER NOT NULL,       -- CRC-32 of all other columns
  tenant TEXT NOT NULL,
  state TEXT NOT NULL,
  tool TEXT,
  run TEXT,
  body TEXT NOT NULL
) STRICT;

-- Stream to newest position, complete for every position up to the watermark in `meta`.
-- A negative pos is a tombstone: the stream was pruned and had that many records.
CREATE TABLE stream_index(stream BLOB PRIMARY KEY, pos INTEGER NOT NULL) STRICT, WITHOUT ROWID;

-- Streams that were open, or due some day, when the watermark passed them. A row counts only while the index agrees.
CREATE TABLE carry(stream BLOB PRIMARY KEY, pos INTEGER NOT NULL) STRICT, WITHOUT ROWID;

-- For each block of positions up to the watermark, no stream in it expires sooner than this.
CREATE TABLE expiry(block INTEGER PRIMARY KEY, soonest INTEGER NOT NULL) STRICT;

-- States that some record had while its stream was at rest: a search for other states need not look at streams at rest.
CREATE TABLE resting(kind INTEGER NOT NULL, state TEXT NOT NULL, PRIMARY KEY(kind, state)) STRICT, WITHOUT ROWID;

CREATE TABLE meta(name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO meta VALUES
  ('watermark', 0),  -- stream_index, carry and expiry know every record up to here
  ('floor', 0),      -- positions up to here were given out, also where prune has deleted them
  ('pruned', 0);     -- grows with every transaction that prunes

-- For people: sqlite3 -readonly ledger.db 'SELECT * FROM effect_log'
CREATE VIEW effect_log AS
SELECT pos, strftime('%Y-%m-%d %H:%M:%f', at / 1000000.0, 'unixepoch') AS at, tenant, run, tool, state, version, body,
       lower(hex(stream)) AS key
FROM record WHERE kind = 1 ORDER BY pos;

-- Each effect as it stands now.
CREATE VIEW effect AS
SELECT pos, strftime('%Y-%m-%d %H:%M:%f', at / 1000000.0, 'unixepoch') AS at, tenant, run, tool, state, version, open,
       strftime('%Y-%m-%d %H:%M:%f', due / 1000000.0, 'unixepoch') AS due, body, lower(hex(stream)) AS key
FROM record WHERE kind = 1 AND pos NOT IN (SELECT prev FROM record) ORDER BY pos;
";

/// Makes an empty database a ledger. The caller holds a write transaction: it is one or it is not.
pub fn create(conn: &Connection) -> rusqlite::Result<()> {
    conn.execute_batch(TABLES)?;
    conn.pragma_update(None, "application_id", APPLICATION_ID)?;
    conn.pragma_update(None, "user_version", FORMAT)
}
