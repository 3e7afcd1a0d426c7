//! Keeps the leases of running attempts alive: one task for all of them.
//!
//! An attempt shorter than a third of its lease never costs a write. One whose lease could not be extended is told that its permit is lost.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use counterfoil_core::EffectKey;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::ledger::{Lease, Ledger, LedgerError, Permit};

/// A lease is extended when a third of it has passed: two more tries before it runs out.
const EXTEND_AT: u32 = 3;

pub struct Heartbeat {
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    watched: Mutex<Watched>,
    /// A lease was added that may be due before the others.
    sooner: Notify,
}

#[derive(Default)]
struct Watched {
    next: u64,
    leases: HashMap<u64, Entry>,
    /// When the task will wake by itself.
    wakes_at: Option<Instant>,
}

struct Entry {
    lease: Arc<Lease>,
    due: Instant,
}

/// Ends the watch when dropped.
pub struct Watch {
    shared: Arc<Shared>,
    id: u64,
}

impl Heartbeat {
    pub fn start(ledger: Arc<Ledger>) -> Self {
        let shared = Arc::new(Shared::default());
        let task = tokio::spawn(beat(shared.clone(), ledger));
        Self { shared, task }
    }

    pub fn watch(&self, permit: &Permit) -> Watch {
        let lease = permit.lease();
        let due = Instant::now() + lease.length / EXTEND_AT;
        let mut watched = self.shared.lock();
        let id = watched.next;
        watched.next += 1;
        watched.leases.insert(id, Entry { lease, due });
        if watched.wakes_at.is_none_or(|at| due < at) {
            self.shared.sooner.notify_one();
        }
        Watch { shared: self.shared.clone(), id }
    }
}

impl Heartbeat {
    /// The effect was cancelled in this process: its attempt need not wait for the next beat to learn it.
    pub fn lose(&self, key: &EffectKey) {
        for entry in self.shared.lock().leases.values().filter(|entry| entry.lease.key == *key) {
            entry.lease.lose();
        }
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.lock().leases.remove(&self.id);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Watched> {
        // A map that is whole at every moment.
        self.watched.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

async fn beat(shared: Arc<Shared>, ledger: Arc<Ledger>) {
    loop {
        let wake = {
            let mut watched = shared.lock();
            let soonest = watched.leases.values().map(|e| e.due).min();
            watched.wakes_at = soonest;
            soonest
        };
        let sooner = shared.sooner.notified();
        match wake {
            None => sooner.await,
            Some(at) => {
                tokio::select! {
                    () = sooner => continue,
                    () = tokio::time::sleep_until(at) => {}
                }
            }
        }
        let now = Instant::now();
        let due: Vec<(u64, Arc<Lease>)> =
            shared.lock().leases.iter().filter(|(_, e)| e.due <= now).map(|(id, e)| (*id, e.lease.clone())).collect();
        // Together, so that all of them share one flush.
        let extended = futures_util::future::join_all(due.iter().map(|(_, lease)| ledger.extend(lease))).await;
        let mut watched = shared.lock();
        for ((id, lease), result) in due.iter().zip(extended) {
            let again = match result {
                Ok(()) => lease.length / EXTEND_AT,
                Err(LedgerError::Conflict) => {
                    tracing::warn!(effect = %lease.key, "the permit was lost: another worker took over, or the effect was cancelled");
                    watched.leases.remove(id);
                    continue;
                }
                Err(error) => {
                    tracing::error!(effect = %lease.key, %error, "a lease could not be extended");
                    (lease.length / EXTEND_AT / 4).max(Duration::from_millis(10))
                }
            };
            if let Some(entry) = watched.leases.get_mut(id) {
                entry.due = now + again;
            }
        }
    }
}
