//! How long nothing was heard of those who hold leases, by this process's own monotonic clock.
//!
//! Where everyone is on one machine, leases are counted by its wall clock, and that may be set: forward, and all of them have run out at once, although their
//! holders live and are about to extend them. What they sent may still be on its way, so that neither a probe nor a repeat is safe. A lease that ran out by the
//! clock therefore counts against a process that lives only when nothing was heard of it for half a lease here, in which a worker that is not stuck
//! is heard of. Whoever waited for it from the beginning waits no longer for that.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use counterfoil_core::EffectKey;
use counterfoil_core::effect::{Effect, State};
use tokio::time::Instant;

/// Of a lease, which is extended after a third.
const LISTEN_FOR: u32 = 2;

/// Claims that are remembered. When there are more, all are listened to anew: that costs time and nothing else.
const CLAIMS_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub struct Silences {
    /// By effect: how many records it had, and since when it has had no more.
    since: Mutex<HashMap<EffectKey, (u64, Instant)>>,
}

impl Silences {
    /// An effect was looked at.
    pub fn note(&self, effect: &Effect) {
        if matches!(effect.state, State::Running(_)) {
            self.since(effect);
        }
    }

    /// How much longer to listen for the holder of its claim.
    pub fn left(&self, effect: &Effect, lease: Duration) -> Duration {
        (lease / LISTEN_FOR).saturating_sub(self.since(effect).elapsed())
    }

    fn since(&self, effect: &Effect) -> Instant {
        let (now, mut since) = (Instant::now(), self.lock());
        if since.len() >= CLAIMS_MAX {
            since.clear();
        }
        let (version, heard) = since.entry(effect.key).or_insert((effect.version, now));
        if *version != effect.version {
            (*version, *heard) = (effect.version, now);
        }
        *heard
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<EffectKey, (u64, Instant)>> {
        // A map that is whole at every moment.
        self.since.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
