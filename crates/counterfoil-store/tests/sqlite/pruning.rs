//! Pruning next to held snapshots, closed ledgers and other values on the same file.

use std::time::Duration;

use counterfoil_core::{Summary, Timestamp};
use counterfoil_store::sqlite::{Options, Sqlite};
use counterfoil_store::{AppendError, Pruned, Store, Write};

use crate::{append, load, now, open, stream, write};

/// Snapshots are held for ever, and every append merges.
fn holding() -> Options {
    Options { merge_entries: 2, readers: 1, snapshot_held_max: Duration::from_secs(3600), ..Options::default() }
}

pub fn expiring(number: u64) -> Write {
    let write = write(number, 0);
    Write { summary: Summary { open: false, state: "done", expires: Some(Timestamp(10)), ..write.summary }, ..write }
}

fn prune(store: &Sqlite) -> u64 {
    let pruned = now(store.prune(Timestamp(11), 1000)).expect("the ledger serves");
    assert_eq!(pruned, Pruned { more: false, ..pruned });
    pruned.streams
}

#[test]
fn a_held_snapshot_does_not_show_what_was_pruned() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(&dir.path().join("ledger.db"), holding());
    append(&store, vec![expiring(1), expiring(2)]).expect("new streams");
    for number in 10..20 {
        append(&store, vec![write(number, 0), write(number + 100, 0)]).expect("new streams");
    }
    assert_eq!(load(&store, 1).version.0, 1);
    assert_eq!(prune(&store), 2);
    assert!(load(&store, 1).expired, "acknowledged, so seen");
    assert!(load(&store, 2).expired);
}

#[test]
fn positions_are_not_given_out_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("ledger.db");
    let (store, other) = (open(&path, holding()), open(&path, holding()));
    append(&store, vec![write(1, 0)]).expect("a new stream");
    let last = append(&store, vec![expiring(2), expiring(3)]).expect("new streams");
    assert_eq!(prune(&store), 2);
    let next = append(&other, vec![write(4, 0), expiring(5)]).expect("new streams");
    assert!(next.0 == last.0 + 2, "another value goes on above what it never saw: {next:?} after {last:?}");
    assert_eq!(prune(&other), 1);
    drop((store, other));
    let again = append(&open(&path, holding()), vec![write(6, 0)]).expect("a new stream");
    assert!(again > next, "also after opening: {again:?} after {next:?}");
}

/// What one value pruned, another still has in memory.
#[test]
fn pruned_by_another_value() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("ledger.db");
    let options = || Options { snapshot_held_max: Duration::ZERO, ..Options::default() };
    let (here, there) = (open(&path, options()), open(&path, options()));
    let due = |number| Write { summary: Summary { due: Some(Timestamp(5)), ..expiring(number).summary }, ..expiring(number) };
    append(&here, (0..10).map(due).collect()).expect("new streams");
    assert_eq!(now(here.due(Timestamp(5), 100)).expect("the ledger serves").len(), 10);
    assert_eq!(prune(&there), 10);
    for number in 0..10 {
        assert!(load(&here, number).expired);
        assert_eq!(append(&here, vec![write(number, 1)]), Err(AppendError::Conflict { streams: vec![stream(number)] }));
    }
    assert_eq!(now(here.due(Timestamp(5), 100)).expect("the ledger serves"), []);
    assert_eq!(prune(&here), 0);
}
