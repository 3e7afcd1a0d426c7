//! Pruning: expired streams become tombstones, in short transactions between the appends.
//!
//! A slice holds the same lock as an append, so that neither sees half of the other.

use counterfoil_core::Timestamp;
use futures_util::future::join4;

use super::fault::{again, refused, said, unavailable};
use super::link::{Link, jittered};
use super::row::count;
use super::schema::FORMAT;
use super::writer::BEGIN;
use crate::{Pruned, StoreError, Written};

/// Takes the ledger's lock.
pub const HOLD: &str = "UPDATE {s}.ledger SET at = now() WHERE id = 1 AND format = $1 RETURNING pos";

/// Buries up to `$2` streams that expired before `$1`. Answers how many it was, and how many it could have been, one more at most.
pub const PRUNE: &str = "WITH held AS (SELECT id FROM {s}.ledger WHERE id = 1 AND at = now()),
     gone AS (SELECT s.stream FROM held, {s}.stream s WHERE s.expires < $1 ORDER BY s.expires LIMIT $2),
     records AS (DELETE FROM {s}.record WHERE stream IN (SELECT stream FROM gone)),
     tombstones AS (
       UPDATE {s}.stream SET pruned = true, open = false, due = NULL, expires = NULL, kind = 0, tenant = '', state = '', tool = NULL, run = NULL
       WHERE stream IN (SELECT stream FROM gone) RETURNING 1
     )
     SELECT (SELECT count(*) FROM tombstones), (SELECT count(*) FROM (SELECT 1 FROM {s}.stream WHERE expires < $1 LIMIT $2 + 1) AS c)";

/// Streams in one transaction: appends wait for it.
const SLICE_STREAMS_MAX: usize = 250;

/// A rolled-back slice is tried again so often before the caller is told.
const TRIES_MAX: u32 = 8;

pub async fn prune(link: &Link, turn: &tokio::sync::Mutex<()>, before: Timestamp, limit: usize) -> Result<Pruned, StoreError> {
    let mut total = Pruned::default();
    let mut tries = 0;
    loop {
        let wanted = SLICE_STREAMS_MAX.min(limit - total.streams as usize);
        let _turn = turn.lock().await;
        match slice(link, before, wanted).await {
            Ok(pruned) => {
                total = Pruned { streams: total.streams + pruned.streams, more: pruned.more };
                if !pruned.more || total.streams as usize >= limit {
                    return Ok(total);
                }
            }
            Err(Failed { again: true, .. }) if tries < TRIES_MAX => {
                tries += 1;
                tokio::time::sleep(jittered(std::time::Duration::from_millis(5 << tries))).await;
            }
            Err(failed) => return Err(failed.error),
        }
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
    let (client, prepared) = (&session.client, &session.prepared);
    let wanted = wanted as i64;
    // Sent together, as an append is.
    let all = async {
        join4(
            client.batch_execute(BEGIN),
            client.query_opt(&prepared.hold, &[&FORMAT]),
            client.query_one(&prepared.prune, &[&before.0, &wanted]),
            client.batch_execute("COMMIT"),
        )
        .await
    };
    let Ok((begun, held, pruned, committed)) = tokio::time::timeout(link.answer_max(), all).await else {
        session.discard();
        return Err(unavailable("no answer while pruning", Written::Perhaps).into());
    };
    let failed = |error: tokio_postgres::Error| {
        if error.code().is_none() {
            session.discard();
        }
        let told = if error.code().is_some() { refused(&error) } else { said(&error, Written::Perhaps) };
        Failed { error: told, again: again(&error) }
    };
    begun.map_err(failed)?;
    if held.map_err(failed)?.is_none() {
        return Err(unavailable("another program has migrated the ledger to a newer format", Written::No).into());
    }
    let pruned = pruned.map_err(failed)?;
    committed.map_err(failed)?;
    let (streams, candidates) = (count(&pruned, 0)?, count(&pruned, 1)?);
    Ok(Pruned { streams, more: candidates > streams })
}
