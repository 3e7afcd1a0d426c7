//! Loads: those that come while one is on its way are sent together as the next. A lone one goes at once; there is no timer.
//!
//! Each query is one statement and so one snapshot of the one database that is written to: what was acknowledged before is seen. What is
//! loaded is read from `record` by its key; `stream` follows behind, and is only compared: an index that knows more than the records, or
//! that does not know what it was told, says that something is gone.
//!
//! The queries are made by tasks of their own: a caller who no longer waits takes nobody's answer with it.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use counterfoil_core::StreamId;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;
use tokio_postgres::Row;

use super::fault::{corrupt, unavailable};
use super::link::Link;
use super::row::{self, clamp, column, count};
use crate::{History, Reach, Record, StoreError, Version, Written};

/// Beside each of the streams `$1`, its newest `$2` records and where the index stands. In any order.
pub const LOAD: &str = "SELECT q.place, s.version, l.pos, r.pos, r.version, r.at, r.sum, r.body, r.grave \
     FROM unnest($1::bytea[], $2::int8[]) WITH ORDINALITY AS q(stream, most, place) \
     CROSS JOIN (SELECT pos FROM {s}.ledger WHERE id = 1) AS l \
     LEFT JOIN {s}.stream s ON s.stream = q.stream \
     LEFT JOIN LATERAL (SELECT * FROM {s}.record r WHERE r.stream = q.stream ORDER BY r.version DESC LIMIT q.most) AS r ON true";

/// Streams in one query.
const TOGETHER_MAX: usize = 1000;

/// How often a reader without a connection looks whether the others have theirs.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

pub struct Loads {
    queue: Arc<Queue>,
    tasks: Vec<AbortHandle>,
}

#[derive(Default)]
struct Queue {
    asks: Mutex<Vec<Ask>>,
    bell: Notify,
}

struct Ask {
    stream: StreamId,
    most: u64,
    reply: oneshot::Sender<Result<History, StoreError>>,
}

impl Loads {
    /// Must be called inside a Tokio runtime.
    pub fn start(readers: &[Arc<Link>]) -> Self {
        let queue = Arc::new(Queue::default());
        let serving = |own: usize| tokio::spawn(serve(queue.clone(), readers.to_vec(), own)).abort_handle();
        let tasks = (0..readers.len()).map(serving).collect();
        Self { queue, tasks }
    }

    pub async fn load(&self, stream: StreamId, reach: Reach) -> Result<History, StoreError> {
        let most = match reach {
            Reach::Whole => u64::MAX >> 1,
            Reach::Newest(count) => u64::from(count),
        };
        let (reply, answer) = oneshot::channel();
        self.queue.lock().push(Ask { stream, most, reply });
        self.queue.bell.notify_one();
        answer.await.unwrap_or_else(|_| Err(unavailable("the ledger was closed", Written::No)))
    }
}

impl Drop for Loads {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Vec<Ask>> {
        // A panic while the lock is held leaves a list, which is whole at every moment.
        self.asks.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn take(&self) -> Vec<Ask> {
        let mut asks = self.lock();
        let most = asks.len().min(TOGETHER_MAX);
        asks.drain(..most).collect()
    }
}

/// One reader: takes what waits, asks, answers. While it waits for an answer the next query gathers.
async fn serve(queue: Arc<Queue>, readers: Vec<Arc<Link>>, own: usize) {
    let link = &readers[own];
    loop {
        if queue.lock().is_empty() {
            // One call to the bell is kept for whoever comes next, so none is missed.
            queue.bell.notified().await;
        }
        if !link.is_up() && readers.iter().any(|reader| reader.is_up()) {
            // Left to those that are connected. If none is, whoever asks is told so after the usual wait.
            queue.bell.notify_one();
            drop(tokio::time::timeout(LOOK_AGAIN, link.session(link.deadline())).await);
            continue;
        }
        // Callers that one commit has woken ask one after the other: let those go first that are ready to.
        tokio::task::yield_now().await;
        let asks = queue.take();
        if asks.is_empty() {
            continue;
        }
        if asks.len() == TOGETHER_MAX {
            queue.bell.notify_one();
        }
        for (ask, history) in answers(link, asks).await {
            // Nobody may be waiting any more.
            drop(ask.reply.send(history));
        }
    }
}

async fn answers(link: &Link, asks: Vec<Ask>) -> Vec<(Ask, Result<History, StoreError>)> {
    let streams: Vec<&[u8]> = asks.iter().map(|ask| &ask.stream.0[..]).collect();
    // The newest record says the version, also when no record is wanted.
    let most: Vec<i64> = asks.iter().map(|ask| clamp(ask.most.max(1))).collect();
    let rows = match link.query(|prepared| &prepared.load, &[&streams, &most]).await {
        Ok(rows) => rows,
        Err(error) => return asks.into_iter().map(|ask| (ask, Err(error.clone()))).collect(),
    };
    let mut found: Vec<Vec<&Row>> = vec![Vec::new(); asks.len()];
    for row in &rows {
        let place = count(row, 0).ok().and_then(|place| usize::try_from(place.checked_sub(1)?).ok());
        match place.and_then(|place| found.get_mut(place)) {
            Some(rows) => rows.push(row),
            None => {
                let error = corrupt("the database", "an answer to nobody's question");
                return asks.into_iter().map(|ask| (ask, Err(error.clone()))).collect();
            }
        }
    }
    let histories: Vec<_> = asks.iter().zip(&found).map(|(ask, rows)| history(&ask.stream, ask.most, rows)).collect();
    asks.into_iter().zip(histories).collect()
}

fn history(stream: &StreamId, most: u64, rows: &[&Row]) -> Result<History, StoreError> {
    let Some(first) = rows.first() else { return Err(corrupt("the database", "the row of the ledger is missing")) };
    let (indexed, low): (Option<i64>, i64) = (column(first, 1)?, column(first, 2)?);
    if column::<Option<i64>>(first, 4)?.is_none() {
        // No record at all.
        check_index(stream, indexed, false, 0)?;
        return Ok(History::default());
    }
    if let Some(version) = grave(rows)? {
        if indexed.is_some() || rows.len() > 1 {
            return Err(corrupt(format!("stream {stream}"), format!("stream {stream} is a tombstone, and not only that")));
        }
        return Ok(History { version: Version(version), expired: true, records: Vec::new() });
    }
    let mut records = rows.iter().map(|row| row::record(row, 3, stream)).collect::<Result<Vec<_>, _>>()?;
    records.sort_unstable_by_key(|record| record.version);
    let newest = records.last().expect("there is a row with a record");
    let (version, position) = (newest.version, newest.position);
    check_index(stream, indexed, clamp(position.0) <= low, version.0)?;
    check_whole(stream, &records, most.max(1))?;
    let kept = usize::try_from(most).unwrap_or(usize::MAX).min(records.len());
    records.drain(..records.len() - kept);
    Ok(History { version, expired: false, records })
}

/// The version that a tombstone keeps.
fn grave(rows: &[&Row]) -> Result<Option<u64>, StoreError> {
    for row in rows {
        if column::<Option<i64>>(row, 8)?.is_some() {
            return count(row, 8).map(Some);
        }
    }
    Ok(None)
}

/// The index never knows more than the records, and knows all of what is `folded`.
fn check_index(stream: &StreamId, indexed: Option<i64>, folded: bool, version: u64) -> Result<(), StoreError> {
    let indexed = indexed.unwrap_or(0).unsigned_abs();
    if indexed > version || (folded && indexed != version) {
        let message = format!("stream {stream} has {version} records, and the index knows of {indexed}");
        return Err(corrupt(format!("stream {stream}"), message));
    }
    Ok(())
}

/// The records must be the last of an unbroken row: 1, 2, 3, …
fn check_whole(stream: &StreamId, records: &[Record], most: u64) -> Result<(), StoreError> {
    let version = records.last().map_or(0, |newest| newest.version.0);
    let wanted = version.min(most);
    let versions = version - wanted + 1..=version;
    if records.len() as u64 != wanted || !records.iter().map(|record| record.version.0).eq(versions) {
        let found = records.len();
        let message = format!("{found} records of stream {stream} were found where {wanted} of {version} belong");
        return Err(corrupt(format!("stream {stream}"), message));
    }
    Ok(())
}
