//! A full disk: refusals, no losses, and service again once there is space.

use std::path::Path;
use std::process::Command;

use counterfoil_store::sqlite::{Options, Sqlite};
use counterfoil_store::{AppendError, StoreError, Write, Written};

use crate::{append, check_stream, is_root, open, write};

/// A small file system of its own, unmounted when dropped.
pub struct Small(tempfile::TempDir);

impl Small {
    pub fn mount() -> Option<Self> {
        let dir = tempfile::tempdir().expect("a directory");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"]).arg(dir.path()).status();
        mounted.is_ok_and(|status| status.success()).then_some(Self(dir))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

fn large(number: u64, expected: u64) -> Write {
    let write = write(number, expected);
    Write { body: format!("{} {}", write.body, "x".repeat(20_000)), ..write }
}

/// Appends until the disk is full; returns how many streams are at version 1.
fn fill(store: &Sqlite, from: u64) -> u64 {
    for number in from.. {
        match append(store, vec![large(number, 0)]) {
            Ok(_) => assert!(number < 10_000, "the disk never fills"),
            Err(AppendError::Store(StoreError::Unavailable { message, written })) => {
                assert_eq!(written, Written::No, "{message}");
                assert!(message.contains("full"), "{message}");
                return number;
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    unreachable!("the loop returns")
}

#[test]
fn a_full_disk_refuses_and_recovers() {
    if !is_root() {
        return println!("skipped: only root can mount");
    }
    let Some(disk) = Small::mount() else { return println!("skipped: cannot mount here") };
    let (path, ballast) = (disk.path().join("ledger.db"), disk.path().join("ballast"));
    std::fs::write(&ballast, vec![0; 3 << 20]).expect("space for the ballast");
    let options = || Options { merge_entries: 20, checkpoint_pages: 100, ..Options::default() };
    let store = open(&path, options());
    let filled = fill(&store, 0);
    assert!(filled > 20, "{filled} before it was full");
    for _ in 0..5 {
        let again = append(&store, vec![large(filled, 0)]);
        assert!(matches!(again, Err(AppendError::Store(StoreError::Unavailable { written: Written::No, .. }))), "{again:?}");
    }
    assert!((0..filled).all(|number| check_stream(&store, number) == 1), "what was acknowledged is served");
    assert_eq!(check_stream(&store, filled), 0, "what was refused is not there");

    std::fs::remove_file(&ballast).expect("space");
    assert_eq!(append(&store, vec![large(filled, 1)]), Err(AppendError::Conflict { streams: vec![crate::stream(filled)] }));
    let refilled = fill(&store, filled);
    assert!(refilled > filled + 20, "it serves again: {refilled} after {filled}");
    assert!((0..refilled).all(|number| check_stream(&store, number) == 1));
    drop(store);
    let store = open(&path, options());
    assert!((0..refilled).all(|number| check_stream(&store, number) == 1), "also after opening it again");
    assert_eq!(check_stream(&store, refilled), 0);
}
