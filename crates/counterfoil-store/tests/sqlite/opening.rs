//! Files that are no ledgers, and places where none can be: each refusal says what is wrong.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use counterfoil_store::sqlite::{Options, Sqlite};
use counterfoil_store::{AppendError, OpenError, StoreError, Written};

use crate::{append, is_root, load, open, write};

fn refusal(path: &Path) -> OpenError {
    Sqlite::open(path, Options::default()).err().unwrap_or_else(|| panic!("{} was opened", path.display()))
}

fn check(path: &Path, expected: &str) {
    assert_eq!(refusal(path).to_string(), format!("{}: {expected}", path.display()));
}

#[test]
fn other_files_are_left_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name);
    let advice = "name another file or schema, or move this one away";

    std::fs::write(path("notes.txt"), "buy milk\n").expect("a file");
    check(&path("notes.txt"), &format!("this is not a Counterfoil ledger (it is a text file); {advice}"));
    std::fs::write(path("noise"), [0xff; 5000]).expect("a file");
    check(&path("noise"), &format!("this is not a Counterfoil ledger (it is not an SQLite database); {advice}"));
    let sql = "PRAGMA journal_mode = WAL; CREATE TABLE song(title TEXT)";
    rusqlite::Connection::open(path("songs.db")).and_then(|conn| conn.execute_batch(sql)).expect("a database");
    let before = std::fs::read(path("songs.db")).expect("the database");
    check(&path("songs.db"), &format!("this is not a Counterfoil ledger (it is another SQLite database); {advice}"));
    assert_eq!(std::fs::read(path("songs.db")).expect("the database"), before);
    let names: Vec<_> = std::fs::read_dir(dir.path()).expect("a directory").map(|entry| entry.expect("an entry").file_name()).collect();
    assert_eq!(names.len(), 3, "nothing was left beside them: {names:?}");
    check(dir.path(), "this is a directory; name a file in it");
    let missing = path("missing");
    check(&missing.join("ledger.db"), &format!("the directory {} does not exist; make it first", missing.display()));
    check(&path("notes.txt").join("ledger.db"), "its parent is not a directory");
}

#[test]
fn newer_formats_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("ledger.db");
    drop(open(&path, Options::default()));
    rusqlite::Connection::open(&path).and_then(|conn| conn.pragma_update(None, "user_version", 7)).expect("a change");
    assert!(matches!(refusal(&path), OpenError::TooNew { found: 7, supported: 1, .. }));
    check(&path, "this ledger has format 7; this program reads up to 1; use a newer counterfoil");
}

#[test]
fn read_only_files_and_directories_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("ledger.db");
    drop(open(&path, Options::default()));
    let set = |path: &Path, readonly: bool| {
        let mut permissions = path.metadata().expect("there").permissions();
        permissions.set_readonly(readonly);
        std::fs::set_permissions(path, permissions).expect("permissions");
    };
    set(&path, true);
    check(&path, "cannot be written: the file is read-only; a ledger must be writable, also its directory");
    set(&path, false);
    set(dir.path(), true);
    check(&path, "cannot be written: its directory is read-only; a ledger must be writable, also its directory");
    set(dir.path(), false);
    drop(open(&path, Options::default()));
}

#[test]
fn a_read_only_file_system_is_refused() {
    if !is_root() {
        return println!("skipped: only root can mount");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let mount = |args: &[&str]| Command::new("mount").args(args).arg(dir.path()).status().is_ok_and(|status| status.success());
    if !mount(&["-t", "tmpfs", "-o", "size=4m", "tmpfs"]) {
        return println!("skipped: cannot mount here");
    }
    let path = dir.path().join("ledger.db");
    let store = open(&path, Options::default());
    append(&store, vec![write(1, 0)]).expect("a new ledger");
    drop(store);
    // A process that another test has just begun may hold the file for the moment before it becomes its own program.
    let until = Instant::now() + Duration::from_secs(10);
    let mut read_only = mount(&["-o", "remount,ro"]);
    while !read_only && Instant::now() < until {
        std::thread::yield_now();
        read_only = mount(&["-o", "remount,ro"]);
    }
    let refused = read_only.then(|| refusal(&path));
    let _ = Command::new("umount").arg(dir.path()).status();
    assert!(matches!(refused, Some(OpenError::ReadOnly { .. })), "{refused:?}");
}

#[test]
fn an_empty_file_becomes_a_ledger_and_stays_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("ledger.db");
    std::fs::write(&path, "").expect("a file");
    let store = open(&path, Options::default());
    append(&store, vec![write(1, 0)]).expect("a new ledger");
    drop(store);
    assert!(!dir.path().join("ledger.db-wal").exists(), "closing leaves one file");
    assert_eq!(load(&open(&path, Options::default()), 1).records.len(), 1);
}

/// Whoever closes a file takes all locks of its process on that file away (POSIX). A second value of one process, which came and went, must not leave the
/// first without: another process would take itself for the last, and remove the log that the first writes to.
#[test]
fn a_value_that_comes_and_goes_leaves_the_others_their_locks() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("ledger.db");
    let first = open(&path, Options::default());
    append(&first, vec![write(1, 0)]).expect("a new stream");
    // The kernel's list is read in pieces, and misses lines while others come and go: what is never in it is not there.
    let locked = || {
        let file = format!(":{} ", std::os::unix::fs::MetadataExt::ino(&path.metadata().expect("the ledger")));
        (0..100).any(|_| std::fs::read_to_string("/proc/locks").unwrap_or_default().lines().any(|line| line.contains(&file)))
    };
    assert!(locked());
    drop(open(&path, Options::default()));
    assert!(locked(), "its locks on the file, as the kernel has them");
    let other = crate::child::spawn("close", &path, 2).wait().expect("a child");
    assert!(other.success());
    assert!(dir.path().join("ledger.db-wal").exists(), "someone writes to it");
    append(&first, vec![write(3, 0)]).expect("a new stream");
    assert!((1..=3).all(|number| load(&first, number).version.0 == 1));
}

/// Many at once on a new file: one makes the ledger, none fails.
#[test]
fn opened_by_many_at_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("ledger.db");
    std::thread::scope(|scope| {
        for number in 0..6 {
            let path = &path;
            scope.spawn(move || append(&open(path, Options::default()), vec![write(number, 0)]).expect("a stream of its own"));
        }
    });
    let store = open(&path, Options::default());
    assert!((0..6).all(|number| load(&store, number).version.0 == 1));
}

/// Another process in the middle of a long write: opening and loading do not wait, appending says that it did.
#[test]
fn a_held_write_lock_is_no_obstacle_to_reading() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("ledger.db");
    append(&open(&path, Options::default()), vec![write(1, 0)]).expect("a new ledger");
    let holder = rusqlite::Connection::open(&path).expect("the ledger");
    holder.execute_batch("BEGIN IMMEDIATE").expect("the write lock");
    let began = Instant::now();
    let store = open(&path, Options { busy_timeout: Duration::from_millis(50), ..Options::default() });
    assert_eq!(load(&store, 1).version.0, 1);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    let refused = append(&store, vec![write(1, 1)]);
    assert!(matches!(refused, Err(AppendError::Store(StoreError::Unavailable { written: Written::No, .. }))), "{refused:?}");
    holder.execute_batch("ROLLBACK").expect("the write lock is free");
    append(&store, vec![write(1, 1)]).expect("free again");
}

#[test]
fn people_can_read_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("ledger.db");
    let store = open(&path, Options::default());
    append(&store, vec![write(1, 0), write(2, 0)]).expect("a new ledger");
    append(&store, vec![write(1, 1)]).expect("the next record");
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let conn = rusqlite::Connection::open_with_flags(&path, flags).expect("the ledger");
    let rows = |sql: &str| -> Vec<(String, String)> {
        let mut statement = conn.prepare(sql).expect("a view");
        let rows = statement.query_map([], |row| Ok((row.get("state")?, row.get("body")?))).expect("a view");
        rows.map(|row| row.expect("a row")).collect()
    };
    let row = |state: &str, body: &str| (state.to_owned(), body.to_owned());
    assert_eq!(rows("SELECT * FROM effect_log"), [row("running", "1/1"), row("running", "2/1"), row("done", "1/2")]);
    assert_eq!(rows("SELECT * FROM effect"), [row("running", "2/1"), row("done", "1/2")]);
}
