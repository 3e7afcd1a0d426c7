//! The wall clock as one process reads it.
//!
//! On one machine all processes read the same clock: it never shows one of them an older time than another has seen, unless somebody set it back.
//! On several machines each knows the time only within an error, and says how early and how late it may be.

use std::sync::Arc;

use counterfoil_core::Timestamp;
use counterfoil_runtime::Clock;
use tokio::time::Instant;

use crate::bugs::Bug;
use crate::state::{Hub, Life, Micros};

/// When simulated time begins: some day in 2023.
const EPOCH: i64 = 1_700_000_000_000_000;

pub struct SimClock {
    pub hub: Arc<Hub>,
    pub life: Life,
    /// Of the process's own timers, and when that was.
    pub started: Instant,
    pub born: Micros,
    /// How far off it may be, on several machines.
    pub error: i64,
}

impl SimClock {
    fn shown(&self) -> i64 {
        let own = self.born + self.started.elapsed().as_micros() as Micros;
        let mut state = self.hub.lock();
        state.high = state.high.max(own);
        let frozen = if state.bug == Some(Bug::FrozenClock) { state.lives[self.life].slept as i64 } else { 0 };
        EPOCH + state.high as i64 + state.clock_set - frozen
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.shown() - self.error)
    }

    fn latest(&self) -> Timestamp {
        Timestamp(self.shown() + self.error)
    }
}
