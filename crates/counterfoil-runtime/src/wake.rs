//! Waiters in one process are woken by the commit, not by polling.
//!
//! A waiter registers, looks at the effect once more, and only then sleeps: a commit between the look and the sleep still wakes it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use counterfoil_core::StreamId;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

#[derive(Default)]
pub struct Wakeups {
    /// Lets a commit that nobody waits for pass without the lock.
    waiting: AtomicUsize,
    streams: Mutex<HashMap<StreamId, Waiters>>,
    /// For those who follow everything that is committed.
    committed: Notify,
}

struct Waiters {
    notify: Arc<Notify>,
    count: usize,
}

/// Registered as long as it lives.
pub struct Waiter<'a> {
    wakeups: &'a Wakeups,
    stream: StreamId,
    pub notify: Arc<Notify>,
}

impl Wakeups {
    pub fn register(&self, stream: StreamId) -> Waiter<'_> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut streams = self.lock();
        let waiters = streams.entry(stream).or_insert_with(|| Waiters { notify: Arc::new(Notify::new()), count: 0 });
        waiters.count += 1;
        Waiter { wakeups: self, stream, notify: waiters.notify.clone() }
    }

    /// Ready at the next commit of this process. Must be enabled before the look that it is to follow.
    pub fn committed(&self) -> Notified<'_> {
        self.committed.notified()
    }

    /// A batch was committed.
    pub fn wake_followers(&self) {
        self.committed.notify_waiters();
    }

    pub fn wake(&self, streams: impl Iterator<Item = StreamId>) {
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let registered = self.lock();
        for stream in streams {
            if let Some(waiters) = registered.get(&stream) {
                waiters.notify.notify_waiters();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<StreamId, Waiters>> {
        // Counts and handles only: whole at every moment.
        self.streams.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut streams = self.wakeups.lock();
        if let Some(waiters) = streams.get_mut(&self.stream) {
            waiters.count -= 1;
            if waiters.count == 0 {
                streams.remove(&self.stream);
            }
        }
        drop(streams);
        self.wakeups.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}
