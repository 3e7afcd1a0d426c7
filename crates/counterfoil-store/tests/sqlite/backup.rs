//! Copies of a ledger that is in use, and places where no copy can be made.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use counterfoil_store::sqlite::{BackupError, Options, Sqlite};
use counterfoil_store::{Position, Store};

use crate::full::Small;
use crate::{Ending, append, check_stream, is_root, large, now, open, write};

const WRITERS: u64 = 2;
/// Streams of one writer, so that appends also follow on streams that the copy has begun to read.
const STREAMS: u64 = 40;

/// The number of the stream that a writer raises in its turn.
fn number(writer: u64, turn: u64) -> u64 {
    writer * STREAMS + turn % STREAMS
}

fn names(dir: &Path) -> Vec<PathBuf> {
    let mut names: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    names
}

#[test]
fn a_copy_made_while_two_threads_append_has_all_that_was_acknowledged_before() {
    let dir = tempfile::tempdir().expect("a directory");
    let copies = tempfile::tempdir().expect("a directory");
    // Merges and checkpoints all the time.
    let options = || Options { merge_entries: 60, checkpoint_pages: 50, ..Options::default() };
    let store = &open(&dir.path().join("ledger.db"), options());
    for n in 0..2000 {
        append(store, vec![large(1_000_000 + n, 0)]).expect("appended");
    }
    let (stop, turns) = (&AtomicBool::new(false), &[AtomicU64::new(0), AtomicU64::new(0)]);
    std::thread::scope(|scope| {
        let _ending = Ending(stop);
        for writer in 0..WRITERS {
            scope.spawn(move || {
                for turn in 0.. {
                    append(store, vec![write(number(writer, turn), turn / STREAMS)]).expect("a backup holds up no append");
                    turns[writer as usize].store(turn + 1, Ordering::SeqCst);
                    if stop.load(Ordering::SeqCst) {
                        break;
                    }
                }
            });
        }
        for round in 0..3 {
            let before: Vec<u64> = turns.iter().map(|turn| turn.load(Ordering::SeqCst)).collect();
            let to = copies.path().join(format!("copy-{round}.db"));
            let mut told = Vec::new();
            let mut meanwhile = 0;
            let done = store
                .backup(&to, |progress| {
                    told.push(progress);
                    // The copy is under way: it does not go on before both have appended once more.
                    let at = |writer: usize| turns[writer].load(Ordering::SeqCst);
                    let seen = (at(0), at(1));
                    while at(0) == seen.0 || at(1) == seen.1 {
                        std::thread::yield_now();
                    }
                    meanwhile += 1;
                })
                .unwrap_or_else(|error| panic!("{error}"));
            assert!(meanwhile > 1, "the copy took one step only: it shows nothing");
            let last = told.last().expect("it says how far it is");
            assert_eq!((last.bytes, last.bytes_total), (done.bytes, done.bytes));
            assert_eq!(done.bytes, to.metadata().unwrap().len());
            check_copy(&to, &before, done.records);
        }
    });
    assert_eq!(names(copies.path()).len(), 3, "three copies and nothing beside them");
}

/// The copy is a ledger of its own: what was acknowledged before is in it, what is in it is whole, and it can be written.
fn check_copy(path: &Path, acknowledged: &[u64], records: u64) {
    let copy = open(path, Options::default());
    let mut found = 0;
    for (writer, turns) in acknowledged.iter().enumerate() {
        for stream in 0..STREAMS {
            let versions = check_stream(&copy, writer as u64 * STREAMS + stream);
            let before = turns / STREAMS + u64::from(stream < turns % STREAMS);
            assert!(versions >= before, "stream {stream} of writer {writer}: {versions} of the {before} before the backup");
            found += versions;
        }
    }
    assert!((0..2000).all(|n| check_stream(&copy, 1_000_000 + n) == 1));
    assert_eq!(found + 2000, records, "as many as were said");
    let tail = now(copy.tail(Position(0), usize::MAX >> 1)).unwrap();
    assert_eq!(tail.len() as u64, records);
    append(&copy, vec![write(2_000_000, 0)]).expect("it can be gone on with");
    drop(copy);
    assert!(!path.with_extension("db-wal").exists());
}

fn small_ledger(dir: &Path) -> Sqlite {
    let store = open(&dir.join("ledger.db"), Options::default());
    for n in 0..300 {
        let plain = write(n, 0);
        append(&store, vec![counterfoil_store::Write { body: format!("{} {}", plain.body, "x".repeat(20_000)), ..plain }]).unwrap();
    }
    store
}

#[test]
fn nothing_is_overwritten_and_what_is_in_the_way_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = small_ledger(dir.path());
    let to = dir.path().join("copy.db");
    for end in ["", "-wal", "-shm", "-journal"] {
        let there = dir.path().join(format!("copy.db{end}"));
        std::fs::write(&there, "mine").unwrap();
        let refused = store.backup(&to, |_| panic!("it did not begin")).unwrap_err();
        assert!(matches!(&refused, BackupError::Exists { path } if *path == there), "{refused}");
        assert_eq!(std::fs::read(&there).unwrap(), b"mine");
        std::fs::remove_file(&there).unwrap();
    }
    let partial = dir.path().join("copy.db.partial");
    std::fs::write(&partial, "another's").unwrap();
    let refused = store.backup(&to, |_| panic!("it did not begin")).unwrap_err();
    assert!(refused.to_string().contains("broken off"), "{refused}");
    assert_eq!(std::fs::read(&partial).unwrap(), b"another's");
    std::fs::remove_file(&partial).unwrap();
    let nowhere = store.backup(&dir.path().join("none/copy.db"), |_| {}).unwrap_err();
    assert!(nowhere.to_string().contains("does not exist"), "{nowhere}");
    let itself = store.backup(store.path(), |_| {}).unwrap_err();
    assert!(matches!(itself, BackupError::Exists { .. }), "{itself}");
    assert_eq!(store.backup(&to, |_| {}).unwrap().records, 300);
}

#[test]
fn a_read_only_directory_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = small_ledger(dir.path());
    let closed = dir.path().join("closed");
    std::fs::create_dir(&closed).unwrap();
    let mut permissions = closed.metadata().unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(&closed, permissions).unwrap();
    let refused = store.backup(&closed.join("copy.db"), |_| {}).unwrap_err();
    assert!(matches!(&refused, BackupError::Target { message, .. } if message.contains("read-only")), "{refused}");
    assert!(names(&closed).is_empty());
}

#[test]
fn a_full_disk_leaves_no_half_copy() {
    if !is_root() {
        return println!("skipped: only root can mount");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let store = small_ledger(dir.path());
    let Some(disk) = Small::mount() else { return println!("skipped: cannot mount here") };
    let ballast = disk.path().join("ballast");
    std::fs::write(&ballast, vec![0; 3 << 20]).expect("space for the ballast");
    let to = disk.path().join("copy.db");
    let refused = store.backup(&to, |_| {}).unwrap_err();
    assert!(matches!(&refused, BackupError::Target { message, .. } if message.contains("full")), "{refused}");
    assert_eq!(names(disk.path()), std::slice::from_ref(&ballast), "neither a copy nor a part of one");
    assert!((0..300).all(|number| check_stream(&store, number) == 1), "the ledger is as it was");
    append(&store, vec![write(300, 0)]).expect("and serves");
    std::fs::remove_file(ballast).unwrap();
    assert_eq!(store.backup(&to, |_| {}).unwrap().records, 301);
    assert_eq!(names(disk.path()), [to]);
}
