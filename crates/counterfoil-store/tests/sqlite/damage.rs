//! A ledger that was changed behind its back is refused, at the place where it was changed.

use std::path::{Path, PathBuf};

use counterfoil_store::sqlite::{Options, Sqlite};
use counterfoil_store::{OpenError, Position, Reach, Store, StoreError};

use crate::{append, load, now, open, stream, write};

/// Two streams of three records at positions 1–6, the first in the odd ones.
fn ledger(path: &Path) {
    let store = open(path, Options::default());
    for expected in 0..3 {
        append(&store, vec![write(1, expected), write(2, expected)]).expect("a new ledger");
    }
}

/// What `change` does to the ledger, and what opening it says then.
fn damaged(path: &Path, change: &str) -> Result<Sqlite, OpenError> {
    rusqlite::Connection::open(path).and_then(|conn| conn.execute_batch(change)).expect("a change");
    Sqlite::open(path, Options::default())
}

fn fresh() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("ledger.db");
    (dir, path)
}

/// Where the record before shows whose it is, one stream is refused and the others serve.
#[test]
fn changed_records_are_refused() {
    let changes = [
        ("UPDATE record SET body = body || ' ' WHERE pos = 3", 3),
        ("UPDATE record SET at = at + 1 WHERE pos = 3", 3),
        ("UPDATE record SET state = 'failed' WHERE pos = 5", 5),
        ("UPDATE record SET open = 1 - open WHERE pos = 5", 5),
        ("UPDATE record SET expires = 1 WHERE pos = 3", 3),
        ("UPDATE record SET tenant = 'other' WHERE pos = 3", 3),
        ("UPDATE record SET sum = sum + 1 WHERE pos = 3", 3),
        ("UPDATE record SET pos = 9 WHERE pos = 3", 9),
        ("DELETE FROM record WHERE pos = 3", 3),
    ];
    for (change, pos) in changes {
        let (_dir, path) = fresh();
        ledger(&path);
        let store = damaged(&path, change).unwrap_or_else(|error| panic!("{change}: {error}"));
        match now(store.load(stream(1), Reach::Whole)) {
            Err(StoreError::Corrupt { place, .. }) => assert_eq!(place, format!("position {pos}"), "{change}"),
            other => panic!("{change}: {other:?}"),
        }
        assert_eq!(load(&store, 2).records.len(), 3, "{change}: the other stream serves");
        if !change.starts_with("DELETE") {
            let tail = now(store.tail(Position(0), 10));
            assert!(matches!(tail, Err(StoreError::Corrupt { .. })), "{change}: {tail:?}");
        }
    }
}

/// Where it may be any stream's record, none can be answered for: its own would look older than it is, or absent, and be run again.
#[test]
fn records_that_may_be_any_streams_are_refused_for_all() {
    let other = "(SELECT stream FROM record WHERE pos = 2)";
    for (change, pos) in [
        (format!("UPDATE record SET stream = {other} WHERE pos = 5"), 5),
        (format!("UPDATE record SET stream = {other} WHERE pos = 3"), 3),
        ("UPDATE record SET stream = zeroblob(32) WHERE pos = 1".to_owned(), 1),
        ("UPDATE record SET stream = x'00' WHERE pos = 5".to_owned(), 5),
        ("UPDATE record SET at = at + 1 WHERE pos = 1".to_owned(), 1),
        ("UPDATE record SET version = 7 WHERE pos = 3".to_owned(), 3),
        ("UPDATE record SET prev = 2 WHERE pos = 5".to_owned(), 5),
    ] {
        let (_dir, path) = fresh();
        ledger(&path);
        let opened = damaged(&path, &change);
        match opened.err().expect(&change) {
            OpenError::Store(StoreError::Corrupt { place, .. }) => assert_eq!(place, format!("position {pos}"), "{change}"),
            error => panic!("{change}: {error}"),
        }
    }
}

/// Another process's record, damaged before this one has seen it: neither loads nor appends go on as if it were not there.
#[test]
fn damage_found_while_catching_up_stops_loads_and_appends() {
    let (_dir, path) = fresh();
    let store = open(&path, Options::default());
    append(&store, vec![write(1, 0)]).expect("a new ledger");
    let other = open(&path, Options::default());
    append(&other, vec![write(2, 0)]).expect("the other process");
    let change = "UPDATE record SET stream = zeroblob(32) WHERE pos = 2";
    rusqlite::Connection::open(&path).and_then(|conn| conn.execute_batch(change)).expect("a change");
    let loaded = now(store.load(stream(2), Reach::Whole));
    assert!(matches!(loaded, Err(StoreError::Corrupt { .. })), "{loaded:?}");
    for _ in 0..2 {
        assert!(append(&store, vec![write(2, 0)]).is_err(), "it is not absent");
    }
}

/// A byte of a body flipped on disk, as a failing disk would.
#[test]
fn a_flipped_byte_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("ledger.db");
    ledger(&path);
    let mut bytes = std::fs::read(&path).expect("the ledger");
    let at = bytes.windows(3).position(|window| window == b"1/2").expect("a body");
    bytes[at] ^= 1;
    std::fs::write(&path, bytes).expect("the ledger");
    let store = open(&path, Options::default());
    let answer = now(store.load(stream(1), Reach::Whole));
    assert!(matches!(&answer, Err(StoreError::Corrupt { place, .. }) if place == "position 3"), "{answer:?}");
    assert_eq!(answer.unwrap_err().to_string(), "the ledger is damaged at position 3: the record does not match its checksum");
}
