//! Waiters are woken by the commit, not by polling: by their own process at once, by another's where the store tells of it.
//!
//! A waiter registers, looks at the effect once more, and only then sleeps: a commit between the look and the sleep still wakes it.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use counterfoil_core::StreamId;
use counterfoil_store::remote::{Heard, StreamPrefix};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// How often a waiter looks when another process has the claim and cannot wake it.
const DEAF_LOOK_EVERY: Duration = Duration::from_millis(50);
/// And when it can: what is told may be lost.
const HEARING_LOOK_EVERY: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct Wakeups {
    /// Lets a commit that nobody waits for pass without the lock.
    waiting: AtomicUsize,
    streams: Mutex<HashMap<StreamId, Waiters>>,
    /// For those who follow everything that is committed.
    committed: Notify,
    /// The store tells of what other processes commit.
    hears: AtomicBool,
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

    /// From now on the store tells of what other processes commit.
    pub fn hears(&self) {
        self.hears.store(true, Ordering::Relaxed);
    }

    /// How long a waiter sleeps at most when another process has the claim.
    pub fn look_every(&self) -> Duration {
        if self.hears.load(Ordering::Relaxed) { HEARING_LOOK_EVERY } else { DEAF_LOOK_EVERY }
    }

    /// The store told of a commit, perhaps another process's.
    pub fn hear(&self, heard: &Heard) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let named: Option<HashSet<StreamPrefix>> = match heard {
                Heard::Streams(streams) => Some(streams.iter().copied().collect()),
                Heard::Anything => None,
            };
            let registered = self.lock();
            let meant = registered.iter().filter(|(stream, _)| named.as_ref().is_none_or(|named| named.contains(&(*stream).into())));
            meant.for_each(|(_, waiters)| waiters.notify.notify_waiters());
        }
        self.wake_followers();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn woken(waiter: &Waiter<'_>, wake: impl FnOnce()) -> bool {
        let mut notified = std::pin::pin!(waiter.notify.notified());
        notified.as_mut().enable();
        wake();
        notified.enable()
    }

    #[test]
    fn what_is_heard_wakes_whom_it_names_and_a_gap_wakes_everyone() {
        let wakeups = Wakeups::default();
        let (one, other) = (StreamId([1; 32]), StreamId([2; 32]));
        let (first, second) = (wakeups.register(one), wakeups.register(other));
        let named = Heard::Streams(vec![StreamPrefix::from(&one)]);
        assert!(woken(&first, || wakeups.hear(&named)));
        assert!(!woken(&second, || wakeups.hear(&named)));
        assert!(woken(&second, || wakeups.hear(&Heard::Anything)));
    }
}
