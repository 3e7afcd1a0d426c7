//! Many threads on two values of one ledger, with merges, checkpoints and catching up all the time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use counterfoil_store::sqlite::Sqlite;
use counterfoil_store::{AppendError, Reach, Store};

use crate::child::busy_options;
use crate::{append, check_stream, now, open, stream, write};

const STREAMS: u64 = 24;
const LASTING: Duration = Duration::from_secs(3);

/// Raises streams, and notes each version once it is acknowledged.
fn raise(store: &Sqlite, acknowledged: &[AtomicU64], mut random: u64, until: Instant) -> u64 {
    let mut raised = 0;
    while Instant::now() < until {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let number = (random >> 33) % STREAMS;
        let version = now(store.load(stream(number), Reach::Newest(0))).expect("the ledger serves").version.0;
        match append(store, vec![write(number, version)]) {
            Ok(_) => {
                acknowledged[number as usize].fetch_max(version + 1, Ordering::SeqCst);
                raised += 1;
            }
            Err(AppendError::Conflict { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    raised
}

#[test]
fn a_load_sees_what_was_acknowledged_before_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("ledger.db");
    let (here, there) = (&open(&path, busy_options()), &open(&path, busy_options()));
    let acknowledged_here: &Vec<AtomicU64> = &(0..STREAMS).map(|_| AtomicU64::new(0)).collect();
    let acknowledged_there: &Vec<AtomicU64> = &(0..STREAMS).map(|_| AtomicU64::new(0)).collect();
    let until = Instant::now() + LASTING;
    let raised: u64 = std::thread::scope(|scope| {
        let raising = [
            scope.spawn(move || raise(here, acknowledged_here, 1, until)),
            scope.spawn(move || raise(here, acknowledged_here, 2, until)),
            scope.spawn(move || raise(there, acknowledged_there, 3, until)),
        ];
        for reader in 0..2 {
            scope.spawn(move || {
                for turn in reader.. {
                    if Instant::now() > until {
                        break;
                    }
                    let number = turn % STREAMS;
                    let before = acknowledged_here[number as usize].load(Ordering::SeqCst);
                    let version = check_stream(here, number);
                    assert!(version >= before, "stream {number}: {version} seen after {before} was acknowledged");
                }
            });
        }
        raising.map(|thread| thread.join().expect("no panic")).iter().sum()
    });
    let total: u64 = (0..STREAMS).map(|number| check_stream(&open(&path, busy_options()), number)).sum();
    assert_eq!(total, raised, "every acknowledged record is there once");
    assert!(raised > 50, "too few to show anything: {raised}");
}
