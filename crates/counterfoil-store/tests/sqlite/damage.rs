//! A ledger that was changed behind its back is refused, at the place where it was changed.

use std::path::Path;

use counterfoil_store::sqlite::Options;
use counterfoil_store::{Position, Reach, Store, StoreError};

use crate::{append, load, now, open, stream, write};

/// Two streams of three records at positions 1–6, the first in the odd ones.
fn ledger(path: &Path) {
    let store = open(path, Options::default());
    for expected in 0..3 {
        append(&store, vec![write(1, expected), write(2, expected)]).expect("a new ledger");
    }
}

#[test]
fn changed_records_are_refused() {
    let changes = [
        ("UPDATE record SET body = body || ' ' WHERE pos = 3", 3),
        ("UPDATE record SET version = 7 WHERE pos = 3", 3),
        ("UPDATE record SET at = at + 1 WHERE pos = 1", 1),
        ("UPDATE record SET state = 'failed' WHERE pos = 5", 5),
        ("UPDATE record SET open = 1 - open WHERE pos = 5", 5),
        ("UPDATE record SET expires = 1 WHERE pos = 1", 1),
        ("UPDATE record SET tenant = 'other' WHERE pos = 3", 3),
        ("UPDATE record SET sum = sum + 1 WHERE pos = 3", 3),
        ("UPDATE record SET prev = 2 WHERE pos = 5", 5),
        ("UPDATE record SET pos = 9 WHERE pos = 3", 9),
        ("DELETE FROM record WHERE pos = 3", 3),
        ("UPDATE record SET stream = (SELECT stream FROM record WHERE pos = 2) WHERE pos = 3", 3),
    ];
    for (change, pos) in changes {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("ledger.db");
        ledger(&path);
        rusqlite::Connection::open(&path).and_then(|conn| conn.execute_batch(change)).expect("a change");
        let store = open(&path, Options::default());
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
