//! Pruning: expired streams become tombstones, in short transactions beside the appends.
//!
//! Which have expired is read from `stream`, as it stands at the watermark; whether that is still so is seen when their newest records are
//! held (bury.rs). One that is just being appended to is left alone: it is not at rest.

use std::time::Duration;

use counterfoil_core::Timestamp;
use tokio_postgres::Error;

use super::bury::{HOLD, Streams, bury, unmoved};
use super::fault::{again, refused, said, unavailable};
use super::link::{Link, jittered};
use super::row::count;
use super::schema::{FORMAT, in_schema};
use super::session::Session;
use super::settle::{catch_up, migrated};
use super::writer::{BEGIN, Leaving};
use crate::{Pruned, StoreError, Written};

/// Holds the newest records of up to `$2` streams that expired before `$1`.
const PICK: &str = "SELECT s.stream, s.version FROM {s}.stream s JOIN {s}.record r ON r.stream = s.stream AND r.version = s.version \
     WHERE s.expires < $1 ORDER BY s.expires LIMIT $2 FOR UPDATE OF r SKIP LOCKED";

/// How many there could be, `$2` at most.
const EXPIRED: &str = "SELECT count(*) FROM (SELECT 1 FROM {s}.stream WHERE expires < $1 LIMIT $2) AS c";

/// Streams in one transaction: whoever folds waits for it.
const SLICE_STREAMS_MAX: usize = 250;

/// A rolled-back slice is tried again so often before the caller is told; and so often one in which every stream was being appended to.
const TRIES_MAX: u32 = 8;

/// What is held back by a writer that does not end is pruned another time.
const PATIENCE: Duration = Duration::from_millis(100);

pub async fn prune(link: &Link, turn: &tokio::sync::Mutex<()>, before: Timestamp, limit: usize) -> Result<Pruned, StoreError> {
    let mut total = Pruned::default();
    let mut tries = 0;
    loop {
        let wanted = SLICE_STREAMS_MAX.min(limit - total.streams as usize);
        catch_up(link, PATIENCE.min(link.patience())).await?;
        let _turn = turn.lock().await;
        match slice(link, before, wanted).await {
            Ok(pruned) => {
                total = Pruned { streams: total.streams + pruned.streams, more: pruned.more };
                if !pruned.more || total.streams as usize >= limit || tries == TRIES_MAX {
                    return Ok(total);
                }
                if pruned.streams > 0 {
                    continue;
                }
            }
            Err(Failed { again: true, .. }) if tries < TRIES_MAX => {}
            Err(failed) => return Err(failed.error),
        }
        tries += 1;
        tokio::time::sleep(jittered(Duration::from_millis(1 << tries))).await;
    }
}

struct Failed {
    error: StoreError,
    /// Rolled back for certain, because of others' work.
    again: bool,
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self { error, again: false }
    }
}

async fn slice(link: &Link, before: Timestamp, wanted: usize) -> Result<Pruned, Failed> {
    let session = link.session(link.deadline()).await?;
    let Ok(pruned) = tokio::time::timeout(link.answer_max(), in_transaction(link, &session, before, wanted)).await else {
        return Err(unavailable("no answer while pruning", Written::Perhaps).into());
    };
    pruned
}

async fn in_transaction(link: &Link, session: &Session, before: Timestamp, wanted: usize) -> Result<Pruned, Failed> {
    let mut leaving = Leaving::begin(session);
    let done = all(link, session, before, wanted).await;
    let ended = session.client.batch_execute(if done.is_ok() { "COMMIT" } else { "ROLLBACK" }).await;
    if ended.is_ok() {
        leaving.left();
    }
    let pruned = done?;
    ended.map_err(|error| Failed { again: again(&error), error: said(&error, Written::Perhaps) })?;
    Ok(pruned)
}

async fn all(link: &Link, session: &Session, before: Timestamp, wanted: usize) -> Result<Pruned, Failed> {
    let (client, address) = (&session.client, link.address());
    let failed = |error: Error| Failed { again: again(&error), error: refused(&error) };
    client.batch_execute(BEGIN).await.map_err(failed)?;
    client.query_opt(&in_schema(HOLD, address), &[&FORMAT]).await.map_err(failed)?.ok_or_else(migrated)?;
    let (wanted, one_more) = (wanted as i64, wanted as i64 + 1);
    let expired = client.query_one(&in_schema(EXPIRED, address), &[&before.0, &one_more]).await.map_err(failed)?;
    let mut held = Streams::default();
    for row in client.query(&in_schema(PICK, address), &[&before.0, &wanted]).await.map_err(failed)? {
        held.push(row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?);
    }
    let still = unmoved(client, address, &held).await.map_err(failed)?;
    let streams = bury(client, address, &still).await.map_err(failed)?;
    Ok(Pruned { streams, more: count(&expired, 0)? > streams })
}
