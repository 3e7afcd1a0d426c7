//! The right to run one attempt, and the lease that bounds it.
//!
//! What must stay true: only the ledger makes a permit, and only of a claim that is durable; once it is lost it stays lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use counterfoil_core::decide::send_within;
use counterfoil_core::entry::Claim;
use counterfoil_core::{Effect, EffectKey, Entry, Fence, Timestamp};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::tool::Stop;

/// The right to run one attempt. Nothing but the ledger makes one: by itself ([`begin`](super::Ledger::begin)) or with another record.
pub struct Permit(Holding);

/// A claim that is made together with another record.
pub struct Claiming {
    /// What it is made on.
    pub effect: Effect,
    pub claim: Claim,
    pub lease: Duration,
    /// Entries that the same record begins with.
    pub before: Vec<Entry>,
}

/// A claim as its holder knows it: enough to extend it and to end the attempt, not to touch the world.
pub struct Holding {
    pub(super) lease: Arc<Lease>,
    pub(super) attempt: u32,
    pub(super) started: Timestamp,
    /// Not later than when it was claimed, by the process's own clock.
    pub(super) claimed: Instant,
}

/// Shared by the holder and the heartbeat that keeps it alive.
pub struct Lease {
    pub fence: Fence,
    pub key: EffectKey,
    pub length: Duration,
    lost: AtomicBool,
    /// Microseconds.
    pub(super) until: AtomicI64,
    stop: Stop,
    /// Guarded, because the heartbeat and the outcome write to the same stream.
    pub(super) effect: Mutex<Effect>,
}

impl Permit {
    /// Its claim is durable.
    pub(super) fn of(holding: Holding) -> Self {
        Self(holding)
    }

    /// Whether the world may still be touched under this permit. A worker that was paused since its claim finds out here. So does one that heard late that
    /// its claim is durable: whoever asks the world about a silent attempt counts on its having been sent soon.
    pub fn holds(&self, now: Timestamp) -> bool {
        let Holding { lease, started, claimed, .. } = &self.0;
        let soon = send_within(lease.length);
        // By both clocks: the one may have been set back, the other stands still while the machine sleeps.
        !lease.lost.load(Ordering::SeqCst) && now < lease.until() && now <= *started + soon && claimed.elapsed() <= soon
    }
    pub fn stop(&self) -> Stop {
        self.0.lease.stop.clone()
    }
    pub fn lease(&self) -> Arc<Lease> {
        self.0.lease.clone()
    }
    /// Not later than when it was claimed.
    pub fn claimed(&self) -> Instant {
        self.0.claimed
    }
    pub fn key(&self) -> EffectKey {
        self.0.lease.key
    }
    pub fn holding(&self) -> &Holding {
        &self.0
    }
    /// The effect as it was claimed. Asked before the lease is watched.
    pub fn effect(&self) -> Effect {
        self.0.lease.effect.try_lock().expect("nobody else has it yet").clone()
    }
}

impl Holding {
    /// Of a claim in `effect`: the one that is running, or one that was lost and may still report. Its lease is `length` long from `claimed` on.
    pub fn of(effect: Effect, claim: &Claim, length: Duration, claimed: Instant) -> Self {
        let lease = Lease {
            fence: claim.fence,
            key: effect.key,
            length,
            lost: AtomicBool::new(false),
            until: AtomicI64::new(claim.lease_until.0),
            stop: Stop::default(),
            effect: Mutex::new(effect),
        };
        Self { lease: Arc::new(lease), attempt: claim.attempt, started: claim.at, claimed }
    }

    pub fn lease(&self) -> &Lease {
        &self.lease
    }
}

impl Lease {
    /// The permit is gone: nothing more is dispatched, and what runs is asked to stop.
    pub fn lose(&self) {
        self.lost.store(true, Ordering::SeqCst);
        self.stop.ask();
    }

    /// When it runs out, as far as it was extended.
    pub fn until(&self) -> Timestamp {
        Timestamp(self.until.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use counterfoil_core::WorkerId;
    use counterfoil_core::ids::Digest32;

    const LEASE: Duration = Duration::from_secs(30);

    fn permit(at: Timestamp, claimed: Instant) -> Permit {
        let claim = Claim { at, attempt: 1, fence: Fence(1), worker: WorkerId::new("w").unwrap(), lease_until: at + LEASE };
        Permit::of(Holding::of(Effect::absent(Digest32::of(b"key")), &claim, LEASE, claimed))
    }

    /// Found by the simulator: by then another may have asked the world, and been told that it did not happen.
    #[test]
    fn what_is_not_sent_soon_is_not_sent() {
        let at = Timestamp(1_700_000_000_000_000);
        let soon = permit(at, Instant::now());
        assert!(soon.holds(at) && soon.holds(at + LEASE / 3));
        assert!(!soon.holds(at + LEASE / 3 + Duration::from_micros(1)), "by the wall clock");
        let long_ago = Instant::now().checked_sub(LEASE / 3 + Duration::from_secs(1)).expect("the machine has run for so long");
        assert!(!permit(at, long_ago).holds(at), "the wall clock was set back meanwhile");
    }
}
