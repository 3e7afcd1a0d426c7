//! E. Many processes on one ledger: PostgreSQL, Redis and, where it says something, SQLite.
//!
//! Each test starts a database of its own. What must stay true whatever is paused, cut off or killed: the world counts each effect once, what
//! was acknowledged is still the answer, and nothing runs that is not recorded.

mod breaking;
mod clocks;
mod cutting;
mod filling;
mod injecting;
mod killing;
mod lending;
mod limiting;
mod load;
mod losing;
mod outages;
mod pausing;
mod proxy;
mod racing;
mod registering;
mod running;
mod shared;
mod waking;

pub use shared::Kind;

use std::time::{Duration, Instant};

/// Nothing takes that long; whoever waits longer has found a bug.
const PATIENCE: Duration = Duration::from_secs(90);

/// Looks until it is so.
#[track_caller]
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
