//! Copies of a ledger that is in use.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use counterfoil_runtime::Status;
use serde_json::json;

use crate::disks::Disk;
use crate::lab::{EXIT_BROKEN, EXIT_DONE, EXIT_USAGE, Lab, library_call};

/// A program goes on calling while the ledger is copied by another process. Whatever it was answered before, the copy answers the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_running_ledger_answers_what_was_acknowledged_before_it() {
    let lab = Lab::charging("");
    let runtime = lab.runtime().await;
    let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new([AtomicU64::new(0), AtomicU64::new(0)]));
    let lanes = [0, 1].map(|lane: usize| {
        let (runtime, stop, answered) = (runtime.clone(), stop.clone(), answered.clone());
        tokio::spawn(async move {
            let mut acknowledged = Vec::new();
            while !stop.load(Ordering::SeqCst) {
                let key = format!("{lane}-{}", acknowledged.len());
                let answer = runtime.call(library_call("charge", json!({ "key": key }), &key)).await;
                assert_eq!(answer.status, Status::Success, "{answer:?}");
                acknowledged.push((key, answer.data.expect("a result").to_value()));
                answered[lane].fetch_add(1, Ordering::SeqCst);
            }
            acknowledged
        })
    });
    let by_now = || answered.each_ref().map(|n| n.load(Ordering::SeqCst) as usize);
    while by_now().iter().any(|n| *n < 20) {
        tokio::task::yield_now().await;
    }
    let before = by_now();
    let done = tokio::task::block_in_place(|| lab.json(&["backup", "copy.db"]));
    assert_eq!(done.code, EXIT_DONE, "{done:?}");
    stop.store(true, Ordering::SeqCst);
    let mut acknowledged = Vec::new();
    for lane in lanes {
        acknowledged.push(lane.await.expect("no call panics"));
    }
    let acted = lab.world.acted("/charge");
    assert!(acted > before.iter().sum::<usize>() as u64, "it went on meanwhile");
    // From now on the copy is the ledger, and the world would count what it does not know.
    lab.config(&format!("store: sqlite:copy.db\n{}", crate::lab::charge("")));
    let copy = lab.runtime().await;
    for (key, data) in acknowledged.iter().zip(before).flat_map(|(lane, before)| lane.iter().take(before)) {
        let answer = copy.call(library_call("charge", json!({ "key": key }), key)).await;
        assert_eq!((answer.replayed, answer.data.map(|d| d.to_value())), (true, Some(data.clone())), "{key}");
    }
    assert_eq!(lab.world.acted("/charge"), acted, "every one was answered from the copy");
    let verified = lab.json(&["receipts", "verify"]);
    assert_eq!(verified.code, EXIT_DONE, "{verified:?}");
}

/// A ledger holds what people paid and wrote.
#[test]
fn a_ledger_and_what_is_made_of_it_are_their_owners_alone() {
    let lab = Lab::charging("");
    lab.call("charge", "{}", "k").done();
    assert_eq!(lab.run(&["backup", "copy.db"]).code, EXIT_DONE);
    assert_eq!(lab.run(&["archive", "--before", "2100-01-01", "-o", "old.gz"]).code, EXIT_DONE);
    let rights = |name: &str| lab.path(name).metadata().unwrap().mode() & 0o777;
    for name in ["counterfoil.db", "copy.db", "old.gz"] {
        assert_eq!(rights(name), 0o600, "{name}");
    }
    // Whom its owner lets in may read a copy as well.
    std::fs::set_permissions(lab.path("counterfoil.db"), Permissions::from_mode(0o640)).unwrap();
    lab.call("charge", "{}", "another").done();
    assert_eq!(lab.run(&["backup", "second.db"]).code, EXIT_DONE);
    assert_eq!((rights("counterfoil.db"), rights("second.db")), (0o640, 0o640));
}

#[test]
fn a_backup_overwrites_nothing_and_says_what_it_did() {
    let lab = Lab::charging("");
    lab.call("charge", "{}", "k").done();
    let said = lab.run(&["backup", "copy.db"]);
    assert_eq!(said.code, EXIT_DONE, "{said:?}");
    assert!(said.stdout.is_empty() && said.stderr.contains("records"), "progress is for people: {said:?}");
    let copy = std::fs::read(lab.path("copy.db")).unwrap();
    lab.json(&["backup", "copy.db"]).error(EXIT_USAGE, "backup_exists");
    assert_eq!(std::fs::read(lab.path("copy.db")).unwrap(), copy);
    let again = lab.json(&["backup", "second.db"]);
    assert_eq!((again.code, again.at("/bytes")), (EXIT_DONE, json!(lab.path("second.db").metadata().unwrap().len())), "{again:?}");
    lab.json(&["backup", "copy2.db", "--store", "memory:"]).error(EXIT_USAGE, "backup_unsupported");
    assert_eq!(lab.json(&["call", "charge", "--key", "k", "--store", "sqlite:copy.db"]).replayed().at("/attempt"), 1);
    assert_eq!(lab.world.acted("/charge"), 1);
}

#[test]
fn a_full_disk_leaves_no_half_copy() {
    let lab = Lab::charging("");
    lab.call("charge", &json!({ "text": "x".repeat(100_000) }).to_string(), "k").done();
    let Some(disk) = Disk::mount(lab.path("disk"), "2m") else { return };
    let ballast = disk.fill();
    let refused = lab.json(&["backup", "disk/copy.db"]).error(EXIT_BROKEN, "backup_failed");
    assert!(refused.text("/error/message").contains("there is no copy"), "{refused:?}");
    let left: Vec<_> = std::fs::read_dir(&disk.path).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["ballast"]);
    std::fs::remove_file(ballast).unwrap();
    assert_eq!(lab.json(&["backup", "disk/copy.db"]).code, EXIT_DONE);
}
