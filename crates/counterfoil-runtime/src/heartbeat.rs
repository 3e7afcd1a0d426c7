//! Keeps the leases of running attempts alive: one task for all of them.
//!
//! An attempt shorter than a third of its lease never costs a write. One whose lease could not be extended is told that its permit is lost: because
//! someone else has it, or because it ran out while the store said nothing. No lease waits for the extension of another.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use counterfoil_core::EffectKey;
use counterfoil_store::{StoreError, Written};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::ledger::{Lease, Ledger, LedgerError, Permit};
use crate::stripes::Stripes;

/// A lease is extended when a third of it has passed: two more tries before it runs out.
const EXTEND_AT: u32 = 3;

pub struct Heartbeat {
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    /// A lease is watched where its attempt began.
    watched: Stripes<Mutex<Watched>>,
    /// A lease was added that may be due before the others.
    sooner: Notify,
}

#[derive(Default)]
struct Watched {
    next: u64,
    /// In the order in which they were added here: so are they extended.
    leases: BTreeMap<u64, Entry>,
    /// When the task will wake by itself, or sooner.
    wakes_at: Option<Instant>,
}

struct Entry {
    lease: Arc<Lease>,
    /// `None` while it is being extended.
    due: Option<Instant>,
}

/// Ends the watch when dropped.
pub struct Watch<'a> {
    watched: &'a Mutex<Watched>,
    id: u64,
}

impl Heartbeat {
    pub fn start(ledger: Arc<Ledger>) -> Self {
        let shared = Arc::new(Shared::default());
        let task = tokio::spawn(beat(shared.clone(), ledger));
        Self { shared, task }
    }

    pub fn watch(&self, permit: &Permit) -> Watch<'_> {
        let lease = permit.lease();
        let due = permit.claimed() + lease.length / EXTEND_AT;
        let own = self.shared.watched.own();
        let mut watched = lock(own);
        let id = watched.next;
        watched.next += 1;
        watched.leases.insert(id, Entry { lease, due: Some(due) });
        if watched.wakes_at.is_none_or(|at| due < at) {
            self.shared.sooner.notify_one();
        }
        Watch { watched: own, id }
    }
}

impl Heartbeat {
    /// The effect was cancelled in this process: its attempt need not wait for the next beat to learn it.
    pub fn lose(&self, key: &EffectKey) {
        for watched in self.shared.watched.all() {
            lock(watched).leases.values().filter(|entry| entry.lease.key == *key).for_each(|entry| entry.lease.lose());
        }
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        lock(self.watched).leases.remove(&self.id);
    }
}

fn lock(watched: &Mutex<Watched>) -> MutexGuard<'_, Watched> {
    // A map that is whole at every moment.
    watched.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn beat(shared: Arc<Shared>, ledger: Arc<Ledger>) {
    let mut extending = FuturesUnordered::new();
    loop {
        let soonest = |watched: &Mutex<Watched>| {
            let mut watched = lock(watched);
            watched.wakes_at = watched.leases.values().filter_map(|e| e.due).min();
            watched.wakes_at
        };
        let wake = shared.watched.all().filter_map(soonest).min();
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {
                let now = Instant::now();
                // Together, so that all of them share one flush.
                for watched in shared.watched.all() {
                    for (id, entry) in lock(watched).leases.iter_mut().filter(|(_, entry)| entry.due.is_some_and(|due| due <= now)) {
                        entry.due = None;
                        extending.push(extend(&ledger, (watched, *id), entry.lease.clone()));
                    }
                }
            }
            Some((place, lease, result)) = extending.next() => settle(place, &ledger, &lease, result),
            () = shared.sooner.notified() => {}
        }
    }
}

/// Where a lease is watched.
type Place<'a> = (&'a Mutex<Watched>, u64);

/// Not longer than it can help: a store that says nothing is as good as one that says no.
async fn extend<'a>(ledger: &Ledger, place: Place<'a>, lease: Arc<Lease>) -> (Place<'a>, Arc<Lease>, Result<(), LedgerError>) {
    // One that ran out, as after a pause, is tried once all the same: it may be that nobody took over.
    let within = ledger.left(&lease).max(again_after(&lease));
    let result = tokio::time::timeout(within, ledger.extend(&lease)).await.unwrap_or_else(|_| {
        let message = format!("no answer within {within:?}");
        Err(StoreError::Unavailable { message, written: Written::Perhaps }.into())
    });
    (place, lease, result)
}

fn settle((watched, id): Place<'_>, ledger: &Ledger, lease: &Lease, result: Result<(), LedgerError>) {
    let mut watched = lock(watched);
    let again = match result {
        Ok(()) => lease.length / EXTEND_AT,
        Err(LedgerError::Conflict) => {
            tracing::warn!(effect = %lease.key, "the permit was lost: another worker took over, or the effect was cancelled");
            watched.leases.remove(&id);
            return;
        }
        Err(error) if ledger.left(lease).is_zero() => {
            tracing::error!(effect = %lease.key, %error, "the permit was lost: the lease ran out and could not be extended");
            lease.lose();
            watched.leases.remove(&id);
            return;
        }
        Err(error) => {
            tracing::error!(effect = %lease.key, %error, "a lease could not be extended");
            again_after(lease)
        }
    };
    if let Some(entry) = watched.leases.get_mut(&id) {
        entry.due = Some(Instant::now() + again);
    }
}

/// When an extension that failed is tried again.
fn again_after(lease: &Lease) -> Duration {
    (lease.length / EXTEND_AT / 4).max(Duration::from_millis(10))
}
