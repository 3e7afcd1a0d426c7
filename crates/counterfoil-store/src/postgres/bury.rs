//! How a stream becomes a tombstone, whoever wants it: its first record is emptied and keeps its key, the others are deleted, all in one
//! transaction.
//!
//! What must stay true: the caller holds the row of the ledger, so nobody folds or prunes meanwhile; and it holds the newest record of
//! each stream alone and has seen, in a later statement, that there is no next one ([`unmoved`]). Then no append can go on from it (writer.rs). Only
//! streams below the watermark are buried: a record that is deleted above it would look like a gap.

use tokio_postgres::{Client, Error};

use super::address::Address;
use super::schema::in_schema;

/// Takes the lock of those who fold and bury, and tells the watermark. No row: the ledger was migrated.
pub const HOLD: &str = "SELECT pos FROM {s}.ledger WHERE id = 1 AND format = $1 FOR UPDATE";

/// Which of the streams `$1` end with the versions `$2`.
const UNMOVED: &str = "SELECT u.stream, u.version FROM unnest($1::bytea[], $2::int8[]) AS u(stream, version) \
     WHERE NOT EXISTS (SELECT 1 FROM {s}.record r WHERE r.stream = u.stream AND r.version = u.version + 1)";

const DELETE: &str = "DELETE FROM {s}.record WHERE stream = ANY($1::bytea[]) AND version > 1";

const EMPTY: &str = "UPDATE {s}.record AS r SET pos = NULL, at = 0, due = NULL, expires = NULL, sum = 0, kind = 0, open = false, tenant = '', \
     state = '', tool = NULL, run = NULL, body = '', grave = u.version \
     FROM unnest($1::bytea[], $2::int8[]) AS u(stream, version) WHERE r.stream = u.stream AND r.version = 1";

const UNLIST: &str = "DELETE FROM {s}.stream WHERE stream = ANY($1::bytea[])";

/// Streams, and a version for each.
#[derive(Default)]
pub struct Streams {
    pub stream: Vec<Vec<u8>>,
    pub version: Vec<i64>,
}

impl Streams {
    pub fn push(&mut self, stream: Vec<u8>, version: i64) {
        self.stream.push(stream);
        self.version.push(version);
    }

    pub fn len(&self) -> usize {
        self.stream.len()
    }
}

/// Those that have no record behind the one that is held.
pub async fn unmoved(client: &Client, address: &Address, held: &Streams) -> Result<Streams, Error> {
    let mut unmoved = Streams::default();
    for row in client.query(&in_schema(UNMOVED, address), &[&held.stream, &held.version]).await? {
        unmoved.push(row.try_get(0)?, row.try_get(1)?);
    }
    Ok(unmoved)
}

/// Each of these has records, and keeps the version that is said here. Answers how many were buried.
pub async fn bury(client: &Client, address: &Address, streams: &Streams) -> Result<u64, Error> {
    client.execute(&in_schema(DELETE, address), &[&streams.stream]).await?;
    client.execute(&in_schema(UNLIST, address), &[&streams.stream]).await?;
    client.execute(&in_schema(EMPTY, address), &[&streams.stream, &streams.version]).await
}
