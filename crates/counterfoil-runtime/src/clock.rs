//! Where the time comes from. The only file that asks.

use std::time::{SystemTime, UNIX_EPOCH};

use counterfoil_core::Timestamp;
use counterfoil_store::remote::RemoteClock;

pub trait Clock: Send + Sync + 'static {
    /// It is at least as late as this: whose lease ended before it has none.
    fn now(&self) -> Timestamp;

    /// It is at most as late as this: whose lease ends after it has one. The same as `now` where everyone reads one clock.
    fn latest(&self) -> Timestamp {
        self.now()
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }
}

/// Workers on several machines agree on the store's time, each as far as it knows it.
impl Clock for RemoteClock {
    fn now(&self) -> Timestamp {
        self.earliest()
    }

    fn latest(&self) -> Timestamp {
        RemoteClock::latest(self)
    }
}
