//! An append takes a stream for new without a look at the file, once this value knows of every stream there is. It must not be fooled by anyone.

use counterfoil_core::Timestamp;
use counterfoil_store::sqlite::{Options, Sqlite};
use counterfoil_store::{AppendError, Store};

use crate::pruning::expiring;
use crate::{append, load, now, open, stream, write};

/// Every append merges, so that hardly anything is known in memory.
fn options() -> Options {
    Options { merge_entries: 2, ..Options::default() }
}

/// Many loads that find nothing, after which the filter holds all of the file's index.
fn knows_all(store: &Sqlite) {
    (1_000_000..1_001_000).for_each(|number| assert_eq!(load(store, number).version.0, 0));
}

fn taken(store: &Sqlite, number: u64) {
    match append(store, vec![write(number, 0)]) {
        Err(AppendError::Conflict { streams }) => assert_eq!(streams, [stream(number)]),
        other => panic!("stream {number} was written to before: {other:?}"),
    }
}

/// In one life: its own merges, burials, and streams of which a part was in the file when it was opened.
#[test]
fn what_leaves_memory_is_never_taken_for_new() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("ledger.db");
    let few = || Options { merge_entries: 40, ..Options::default() };
    let first = open(&path, few());
    for number in 0..100 {
        append(&first, vec![write(number, 0)]).expect("a new stream");
    }
    // Their second records are above what is merged.
    append(&first, (0..10).map(|number| write(number, 1)).collect()).expect("the next records");
    drop(first);
    let store = open(&path, few());
    knows_all(&store);
    for number in 200..400 {
        append(&store, vec![write(number, 0)]).expect("a new stream");
        (0..10).chain(200..=number).step_by(7).for_each(|number| taken(&store, number));
    }
    append(&store, (500..600).map(expiring).collect()).expect("new streams");
    for number in 700..800 {
        append(&store, vec![write(number, 0)]).expect("a new stream");
    }
    assert_eq!(now(store.prune(Timestamp(11), 1000)).expect("the ledger serves").streams, 100);
    (0..100).chain(200..400).chain(500..600).chain(700..800).for_each(|number| taken(&store, number));
}

#[test]
fn a_stream_that_is_there_is_never_taken_for_new() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("ledger.db");
    let first = open(&path, options());
    for number in 0..700 {
        append(&first, vec![write(number, 0)]).expect("a new stream");
    }
    drop(first);
    // One that found all of it in the file, and has a few merged since.
    let (here, there) = (open(&path, options()), open(&path, options()));
    knows_all(&here);
    for number in 700..710 {
        append(&here, vec![write(number, 0)]).expect("a new stream");
    }
    (0..710).for_each(|number| taken(&here, number));
    // What another value wrote, and merged, and what it buried.
    for number in 800..810 {
        append(&there, vec![write(number, 0)]).expect("a new stream");
    }
    append(&there, (900..910).map(expiring).collect()).expect("new streams");
    (800..810).chain(900..910).for_each(|number| taken(&here, number));
    knows_all(&here);
    append(&there, (910..920).map(expiring).collect()).expect("new streams");
    assert_eq!(now(there.prune(Timestamp(11), 1000)).expect("the ledger serves").streams, 20);
    (0..710).chain(800..810).chain(900..920).for_each(|number| taken(&here, number));
    append(&here, vec![write(2000, 0)]).expect("and what is new is new");
}
