//! What is erased is in no file of the ledger any more, wherever its page was before.

use std::path::Path;

use counterfoil_store::sqlite::{Options, Sqlite};
use counterfoil_store::{AppendError, Graves, Store, Tombstone, Version, Write, Written};

use crate::{append, check_stream, load, now, open, stream, write};

fn secret(number: u64) -> Write {
    let write = write(number, 0);
    Write { body: format!("{} {}", write.body, text(number)), ..write }
}

fn text(number: u64) -> String {
    format!("secret-{number}-{}", "k".repeat(40))
}

fn found(file: &Path, number: u64) -> bool {
    let names = [file.to_owned(), file.with_extension("db-wal")];
    names.iter().filter_map(|name| std::fs::read(name).ok()).any(|bytes| {
        let text = text(number);
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    })
}

fn erase(store: &Sqlite, number: u64) -> Result<(), AppendError> {
    now(store.erase(&Tombstone { stream: stream(number), version: Version(1) }))
}

/// The first records of a file are in the page that becomes the root; pages split, merge and go while it grows.
#[test]
fn nothing_is_left_of_what_is_erased() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("ledger.db");
    let store = open(&file, Options { merge_entries: 60, checkpoint_pages: 50, ..Options::default() });
    let others = || (0..3_000).filter(|n| n % 100 != 7);
    for first in (0..3_000).step_by(20) {
        let some = (first..first + 20).map(|number| if number % 100 == 7 { secret(number) } else { write(number, 0) });
        append(&store, some.collect()).expect("appended");
    }
    let secrets: Vec<u64> = (0..3_000).filter(|n| n % 100 == 7).collect();
    assert!(secrets.iter().all(|number| found(&file, *number)), "what is looked for would be found");
    let (gone, stay) = secrets.split_at(20);
    for number in gone {
        erase(&store, *number).unwrap();
        assert!(load(&store, *number).expired);
    }
    assert_eq!(gone.iter().filter(|number| found(&file, **number)).count(), 0);
    assert!(stay.iter().all(|number| found(&file, *number)));
    // Asked for again it is done again, and changes nothing.
    erase(&store, gone[0]).unwrap();
    others().for_each(|number| assert_eq!(check_stream(&store, number), 1));
    append(&store, vec![write(5_000, 0)]).expect("appends go on");
    drop(store);
    let store = open(&file, Options::default());
    assert!(load(&store, gone[3]).expired && !load(&store, stay[0]).expired);
}

/// Somebody who reads an older state of the file keeps the log: then it is not said to be gone.
#[test]
fn a_log_that_is_held_is_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("ledger.db");
    let store = open(&file, Options { busy_timeout: std::time::Duration::from_millis(50), ..Options::default() });
    append(&store, vec![secret(1)]).expect("appended");
    let reader = rusqlite::Connection::open(&file).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM record;").unwrap();
    let error = erase(&store, 1).expect_err("the reader holds the log");
    let AppendError::Store(counterfoil_store::StoreError::Unavailable { written, message }) = error else { panic!("{error:?}") };
    assert_eq!(written, Written::Perhaps, "{message}");
    assert!(load(&store, 1).expired && found(&file, 1));
    reader.execute_batch("COMMIT").unwrap();
    erase(&store, 1).unwrap();
    assert!(!found(&file, 1));
    let position = now(store.append(&counterfoil_store::Batch::default())).unwrap();
    assert!(position.0 >= 1);
}
