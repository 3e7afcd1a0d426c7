//! The write-ahead log stays short, whoever reads meanwhile.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use counterfoil_store::sqlite::{Options, PAGE_BYTES};

use crate::{Ending, append, large, load, open, write};

const PAGES: u32 = 100;

fn options() -> Options {
    Options { checkpoint_pages: PAGES, ..Options::default() }
}

/// The file never shrinks, so its length is the longest the log has been.
fn wal_pages(path: &Path) -> u64 {
    path.with_extension("db-wal").metadata().map_or(0, |wal| wal.len() / u64::from(PAGE_BYTES))
}

#[test]
fn busy_readers_do_not_let_it_grow() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("ledger.db");
    let store = open(&path, options());
    append(&store, (0..100).flat_map(|number| [write(number, 0)]).collect()).expect("new streams");
    append(&store, (0..100).flat_map(|number| [write(number, 1)]).collect()).expect("at rest");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ending = Ending(&stop);
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    (0..100).for_each(|number| assert_eq!(load(&store, number).version.0, 2));
                }
            });
        }
        for number in 100..1600 {
            append(&store, (0..4).map(|part| write(number * 4 + part, 0)).collect()).expect("new streams");
        }
    });
    let pages = wal_pages(&path);
    assert!(pages <= 6 * u64::from(PAGES), "{pages} pages of log for checkpoints each {PAGES}");
}

/// Snapshots that idle readers of *another* value hold: its sweeper ends them, since nobody else can.
#[test]
fn idle_readers_let_go_by_themselves() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("ledger.db");
    let (idle, busy) = (open(&path, options()), open(&path, options()));
    append(&busy, vec![write(1, 0)]).expect("a new stream");
    append(&busy, vec![write(1, 1)]).expect("at rest");
    for _ in 0..8 {
        assert_eq!(load(&idle, 1).version.0, 2);
    }
    std::thread::sleep(options().snapshot_held_max * 5);
    let began = Instant::now();
    for number in 100..1600 {
        append(&busy, (0..4).map(|part| write(number * 4 + part, 0)).collect()).expect("new streams");
    }
    let pages = wal_pages(&path);
    assert!(pages <= 3 * u64::from(PAGES), "{pages} pages of log for checkpoints each {PAGES}");
    assert!(began.elapsed() < Duration::from_secs(60));
}

/// A file that nobody writes is mapped after a few snapshots; what is written then is seen all the same.
#[test]
fn writes_to_a_mapped_file_are_seen() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("ledger.db");
    let options =
        || Options { snapshot_held_max: Duration::ZERO, readers: 1, checkpoint_pages: 5, map_bytes_max: 1 << 30, ..Options::default() };
    let (here, there) = (open(&path, options()), open(&path, options()));
    for expected in 0..40 {
        append(if expected % 3 == 0 { &here } else { &there }, vec![large(1, expected), large(expected + 2, 0)]).expect("in turns");
        for _ in 0..10 {
            assert_eq!(crate::check_stream(&here, 1), expected + 1);
            assert_eq!(crate::check_stream(&here, expected + 2), 1);
        }
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    if cfg!(target_os = "linux") {
        assert!(maps.lines().any(|line| line.ends_with(path.to_str().expect("plain"))), "the file is mapped by now");
    }
}
