//! Tells other processes what was committed, behind the commits.
//!
//! A notification takes a lock of the whole server from its commit's beginning to its flush: sent with an append, it makes all appends of all
//! processes take turns at the disk. So it goes afterwards, on the connection that listens, in a transaction of its own that waits for no
//! disk. A lone one goes at once; what is committed in the pause after it goes with the next, since each wakes every process. It is a hint: one that is lost with its connection is not sent again, and
//! whoever waits looks by itself after a while.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::link::Link;
use crate::Write;
use crate::remote::StreamPrefix;

/// A notification carries less than 8000 bytes.
const TOLD_STREAMS_MAX: usize = 7900 / 16;

/// How long two notifications are apart. Everyone who listens is woken by each, in the server and here.
const PAUSE: Duration = Duration::from_millis(10);

/// More than this at once is "anything".
const WAITING_MAX: usize = 20_000;

/// Not the beginning of a stream's id, so it is read as "anything".
const ANYTHING: &str = "*";

pub struct Tell {
    queue: Arc<Queue>,
    task: Option<AbortHandle>,
}

#[derive(Default)]
struct Queue {
    waiting: Mutex<Vec<StreamPrefix>>,
    bell: Notify,
}

impl Tell {
    /// Tells nobody, where the server cannot notify.
    pub fn start(link: Arc<Link>, notifies: bool) -> Self {
        let queue = Arc::new(Queue::default());
        let task = notifies.then(|| tokio::spawn(send(queue.clone(), link)).abort_handle());
        Self { queue, task }
    }

    pub fn tell(&self, writes: &[Write]) {
        if self.task.is_none() {
            return;
        }
        let mut waiting = self.queue.lock();
        let room = (WAITING_MAX + 1).saturating_sub(waiting.len());
        waiting.extend(writes.iter().take(room).map(|write| StreamPrefix::from(&write.stream)));
        drop(waiting);
        self.queue.bell.notify_one();
    }
}

impl Drop for Tell {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Vec<StreamPrefix>> {
        // A panic while the lock is held leaves a list, which is whole at every moment.
        self.waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

async fn send(queue: Arc<Queue>, link: Arc<Link>) {
    loop {
        queue.bell.notified().await;
        let waiting = std::mem::take(&mut *queue.lock());
        if waiting.is_empty() {
            continue;
        }
        let Ok(session) = link.session(link.deadline()).await else { continue };
        let sql = notifying(&link.address().schema, &waiting);
        let sent = tokio::time::timeout(link.answer_max(), session.client.batch_execute(&sql)).await;
        if !matches!(sent, Ok(Ok(()))) {
            tracing::debug!(store = %link.address().label, "a notification was lost");
            session.discard();
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// One message, and so one transaction. The schema's name was checked, and the rest are hex digits.
fn notifying(channel: &str, streams: &[StreamPrefix]) -> String {
    let mut sql = "SET LOCAL synchronous_commit = off".to_owned();
    if streams.len() > WAITING_MAX {
        return format!("{sql}; SELECT pg_notify('{channel}', '{ANYTHING}')");
    }
    for part in streams.chunks(TOLD_STREAMS_MAX) {
        let payload: String = part.iter().map(ToString::to_string).collect();
        sql.push_str(&format!("; SELECT pg_notify('{channel}', '{payload}')"));
    }
    sql
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::watch::parse;
    use crate::remote::Heard;

    #[test]
    fn too_many_are_anything() {
        let streams = vec![StreamPrefix([7; 8]); WAITING_MAX + 1];
        assert!(notifying("books", &streams).ends_with("pg_notify('books', '*')"));
        assert_eq!(parse(ANYTHING), Heard::Anything);
        let some = notifying("books", &streams[..TOLD_STREAMS_MAX + 1]);
        assert_eq!(some.matches("pg_notify").count(), 2);
        assert!(some.split('\'').all(|part| part.len() < 8000));
    }
}
