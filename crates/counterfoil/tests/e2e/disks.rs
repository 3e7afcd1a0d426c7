//! D. The ledger's file: damaged, full, read-only, large.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use counterfoil::prelude::*;
use counterfoil_core::effect::Effect;
use counterfoil_core::entry::{Claim, Ended, Entry, Finished, Opened};
use counterfoil_core::ids::WorkerId;
use counterfoil_core::receipt::ReceiptId;
use counterfoil_core::{Caller, Fence, Json, StreamId, Success, Tenant, Timestamp, ToolName, codec};
use counterfoil_store::sqlite::Sqlite;
use counterfoil_store::{Batch, Store, Version, Write as StoreWrite};
use serde_json::{Value, json};

use crate::lab::{EXIT_BROKEN, EXIT_DONE, EXIT_IN_DOUBT, EXIT_USAGE, Lab, Run, all_at_once, charge, library_call};
use crate::parts::{Part, Process};
use crate::worker::CONFIG;

/// A call whose process was killed after it was answered: its log is still beside the ledger.
fn killed_after_its_answer(lab: &Lab) -> PathBuf {
    let config = lab.path("counterfoil.yaml");
    let mut caller = Part::start("caller", &[(CONFIG, config.to_str().unwrap())]);
    caller.tell("go");
    while caller.hear().expect("it answers") != "answered success" {}
    caller.process.kill();
    lab.path("counterfoil.db-wal")
}

#[test]
fn a_36_a_torn_tail_is_dropped() {
    let lab = Lab::charging("");
    let wal = killed_after_its_answer(&lab);
    // Half a frame of a commit that never became durable.
    OpenOptions::new().append(true).open(&wal).unwrap().write_all(&[0x5a; 2000]).unwrap();
    lab.call("charge", "{}", "k").replayed();
    assert_eq!(lab.world.acted("/charge"), 1);
}

/// A disk that lies loses the end of the log. What is left is a claim without an outcome: a doubt, never a second charge.
#[test]
fn a_36_a_truncated_tail_is_a_doubt() {
    let lab = Lab::charging("");
    let wal = killed_after_its_answer(&lab);
    let length = wal.metadata().unwrap().len();
    OpenOptions::new().write(true).open(&wal).unwrap().set_len(length - 1).unwrap();
    lab.call("charge", "{}", "k").in_doubt();
    assert_eq!(lab.world.seen("/charge").arrived, 1);
}

#[test]
fn a_36_a_flipped_byte_is_refused_loudly() {
    let lab = Lab::charging("");
    let body = r#"{"id":"a-charge-of-its-own"}"#;
    lab.world.then("/charge", json!({ "body": body }));
    lab.call("charge", "{}", "k").done();
    let sound = std::fs::read(lab.ledger()).unwrap();
    let mut damaged = sound.clone();
    let at = damaged.windows(13).position(|w| w == b"charge-of-its").expect("the result is in the file");
    damaged[at] ^= 1;
    std::fs::write(lab.ledger(), &damaged).unwrap();
    let refused = lab.call("charge", "{}", "k").error(EXIT_BROKEN, "ledger_corrupt");
    let message = refused.text("/error/message");
    assert!(message.contains("damaged at position") && message.contains("Nothing was run"), "{message}");
    assert!(!refused.stdout.contains("charge-of-its"), "what cannot be trusted is not shown");
    let effect = refused.at("/effect");
    assert_eq!(lab.world.seen("/charge").arrived, 1, "{effect}");
    // Once the file is back, so is the answer.
    std::fs::write(lab.ledger(), &sound).unwrap();
    assert_eq!(lab.call("charge", "{}", "k").replayed().at("/data"), serde_json::from_str::<Value>(body).unwrap());
}

/// A file system of its own, gone when the test ends. `None` where this process may not mount one.
pub struct Disk {
    pub path: PathBuf,
}

impl Disk {
    pub fn mount(path: PathBuf, size: &str) -> Option<Self> {
        std::fs::create_dir(&path).unwrap();
        let options = format!("size={size}");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&path).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self { path });
        }
        println!("skipped: a file system of its own needs the right to mount one");
        None
    }

    fn remount(&self, mode: &str) {
        let options = format!("remount,{mode}");
        let mounted = Command::new("mount").args(["-o", &options]).arg(&self.path).status().unwrap();
        assert!(mounted.success());
    }

    /// Takes all the space that is left; the file it is in.
    pub fn fill(&self) -> PathBuf {
        let path = self.path.join("ballast");
        let mut file = File::create(&path).unwrap();
        for size in [4096, 1] {
            while file.write(&vec![0; size]).is_ok_and(|n| n > 0) {}
        }
        path
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.path).status());
    }
}

fn on_disk(policy: &str) -> String {
    format!("store: sqlite:disk/counterfoil.db\n{}", charge(policy))
}

#[test]
fn a_37_a_full_disk_refuses_and_loses_nothing() {
    let lab = Lab::new(&on_disk(""));
    let Some(disk) = Disk::mount(lab.path("disk"), "2m") else { return };
    let first = lab.call("charge", "{}", "k1").done();
    let ballast = disk.fill();
    let refused = lab.call("charge", "{}", "k2").error(EXIT_BROKEN, "store_unavailable");
    let message = refused.text("/error/message");
    assert!(message.contains("full") && message.to_lowercase().contains("nothing was run"), "{message}");
    assert_eq!(lab.world.seen("/charge").arrived, 1, "no durable claim, no effect");
    let told = lab.run(&["call", "charge", "--key", "k2"]).stderr;
    assert!(told.contains("full") && told.contains("nothing was run"), "{told}");
    let doctor = lab.json(&["doctor"]);
    let disk = doctor.at("/findings").as_array().expect("a list").iter().find(|f| f["what"] == "disk").cloned();
    let disk = disk.unwrap_or_default();
    assert!(disk["text"].as_str().is_some_and(|text| text.starts_with("0 MiB left")), "{doctor:?}");
    assert_eq!((doctor.code, &disk["ok"]), (EXIT_BROKEN, &json!(false)), "{doctor:?}");
    std::fs::remove_file(ballast).unwrap();
    assert_eq!(lab.call("charge", "{}", "k1").replayed().at("/data"), first.at("/data"));
    lab.call("charge", "{}", "k2").done();
    assert_eq!(lab.world.acted("/charge"), 2);
}

/// The process is running when the disk fills up, and goes on when there is space again.
#[tokio::test(flavor = "multi_thread")]
async fn a_37_a_disk_that_fills_up_under_a_running_program() {
    let lab = Lab::new(&on_disk(""));
    let Some(disk) = Disk::mount(lab.path("disk"), "2m") else { return };
    let runtime = lab.runtime().await;
    let first = runtime.call(library_call("charge", json!({}), "k1")).await;
    let ballast = disk.fill();
    // What was reserved before may still take a few; then none.
    let mut acknowledged = vec![(1, first)];
    let refused = loop {
        let n = acknowledged.len() + 1;
        let answer = runtime.call(library_call("charge", json!({ "text": "x".repeat(8000) }), &format!("k{n}"))).await;
        match answer.status {
            Status::Success => acknowledged.push((n, answer)),
            _ => break answer,
        }
        assert!(n < 1000, "the disk is full");
    };
    let error = refused.error.as_ref().unwrap();
    assert_eq!((refused.status, error.code.as_str()), (Status::Error, "store_unavailable"), "{refused:?}");
    assert_eq!(lab.world.acted("/charge"), acknowledged.len() as u64);
    let replay = runtime.call(library_call("charge", json!({}), "k1")).await;
    assert!(replay.replayed, "what is recorded still answers: {replay:?}");
    std::fs::remove_file(ballast).unwrap();
    let n = acknowledged.len() + 1;
    let done = runtime.call(library_call("charge", json!({ "text": "x".repeat(8000) }), &format!("k{n}"))).await;
    assert_eq!(done.status, Status::Success, "{done:?}");
    for (n, answer) in &acknowledged {
        let args = if *n == 1 { "{}".to_owned() } else { json!({ "text": "x".repeat(8000) }).to_string() };
        let replay = lab.call("charge", &args, &format!("k{n}")).replayed();
        assert_eq!(Some(replay.at("/data")), answer.data.as_ref().map(Json::to_value), "k{n}");
    }
    assert_eq!(lab.world.acted("/charge"), n as u64);
}

/// The disk fills up between the claim and the outcome: it happened, and it is not acknowledged.
#[test]
fn a_37_an_outcome_that_cannot_be_recorded_is_a_doubt() {
    let lab = Lab::new(&on_disk(""));
    let Some(disk) = Disk::mount(lab.path("disk"), "2m") else { return };
    // Too long for whatever space the log has left in its last block.
    lab.world.then("/charge", json!({ "after": true, "body": json!({ "text": "x".repeat(100_000) }).to_string() }));
    let call = lab.call_begins("charge", "{}", "k");
    lab.world.wait_holding("/charge", 1);
    let ballast = disk.fill();
    lab.world.release("/charge");
    let run = Run::ended(call).in_doubt();
    assert_eq!((run.at("/error/code"), run.at("/data")), (json!("store_unavailable"), Value::Null), "{run:?}");
    assert!(run.text("/error/message").contains("could not be recorded"), "{run:?}");
    std::fs::remove_file(ballast).unwrap();
    lab.call("charge", "{}", "k").in_doubt();
    assert_eq!(lab.world.seen("/charge").arrived, 1);
}

#[test]
fn a_37_who_reads_is_told_what_is_lost_and_what_to_do() {
    let lab = Lab::new(&on_disk(""));
    let Some(disk) = Disk::mount(lab.path("disk"), "2m") else { return };
    lab.world.then("/charge", json!({ "after": true, "body": json!({ "text": "x".repeat(100_000) }).to_string() }));
    let mut command = lab.command(&["call", "charge", "--key", "k"]);
    let call = Process::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    lab.world.wait_holding("/charge", 1);
    disk.fill();
    lab.world.release("/charge");
    let told = Run::ended(call);
    assert_eq!((told.code, told.stdout.as_str()), (EXIT_IN_DOUBT, ""), "nobody is shown what is not durable");
    for part in ["the ledger does not take it", "IN DOUBT", "what the tool said is lost", "counterfoil effects resolve "] {
        assert!(told.stderr.contains(part), "says nothing of {part:?}: {}", told.stderr);
    }
    assert_eq!(lab.world.seen("/charge").arrived, 1);
}

#[test]
fn a_read_only_place_is_refused_and_works_when_it_is_writable() {
    let lab = Lab::charging("");
    let first = lab.call("charge", "{}", "k1").done();
    let dir = lab.dir.path().to_owned();
    writable(&dir, false);
    let refused = lab.call("charge", "{}", "k2");
    writable(&dir, true);
    check_read_only(refused);
    writable(&lab.ledger(), false);
    let refused = lab.call("charge", "{}", "k2");
    writable(&lab.ledger(), true);
    check_read_only(refused);
    assert_eq!(lab.world.acted("/charge"), 1);
    assert_eq!(lab.call("charge", "{}", "k1").replayed().at("/data"), first.at("/data"));
    lab.call("charge", "{}", "k2").done();
}

#[test]
fn a_read_only_file_system_is_refused_and_works_when_it_is_writable() {
    let lab = Lab::new(&on_disk(""));
    let Some(disk) = Disk::mount(lab.path("disk"), "2m") else { return };
    let first = lab.call("charge", "{}", "k1").done();
    disk.remount("ro");
    check_read_only(lab.call("charge", "{}", "k2"));
    assert_eq!(lab.world.acted("/charge"), 1);
    disk.remount("rw");
    assert_eq!(lab.call("charge", "{}", "k1").replayed().at("/data"), first.at("/data"));
    lab.call("charge", "{}", "k2").done();
}

fn writable(path: &Path, yes: bool) {
    use std::os::unix::fs::PermissionsExt;
    let mode = if path.is_dir() { 0o555 } else { 0o444 } | if yes { 0o200 } else { 0 };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[track_caller]
fn check_read_only(run: Run) {
    let run = run.error(EXIT_USAGE, "ledger_read_only");
    let message = run.text("/error/message");
    for name in ["counterfoil.db", "read-only", "must be writable"] {
        assert!(message.contains(name), "{message}");
    }
}

/// As many effects as a busy month leaves, written the way the ledger writes them.
#[tokio::test(flavor = "multi_thread")]
async fn a_40_a_hundred_thousand_records_still_dedupe() {
    const RECORDS: u64 = 100_000;
    let lab = Lab::charging("retain: 3650d");
    {
        let store = Sqlite::open(lab.ledger(), Default::default()).unwrap();
        for slice in 0..RECORDS / 5000 {
            let writes = (0..5000).map(|n| recorded(slice * 5000 + n)).collect();
            store.append(&Batch { writes }).await.unwrap();
        }
    }
    let began = Instant::now();
    let doctor = lab.json(&["doctor"]);
    println!("looked at in {} ms: {}", began.elapsed().as_millis(), doctor.at("/findings"));
    assert_eq!(doctor.code, EXIT_DONE, "{doctor:?}");
    assert!(doctor.stdout.contains("opened in"), "the time it takes is reported: {doctor:?}");
    let began = Instant::now();
    assert_eq!(lab.call("charge", r#"{"n":0}"#, "k0").replayed().at("/data"), 0);
    println!("one call in {} ms", began.elapsed().as_millis());
    let runtime = lab.runtime().await;
    for slice in 0..RECORDS / 5000 {
        let keys = slice * 5000..(slice + 1) * 5000;
        let answers =
            all_at_once(&runtime, keys.clone().map(|n| library_call("charge", json!({ "n": n }), &format!("k{n}"))).collect()).await;
        for (n, answer) in keys.zip(answers) {
            assert!(answer.replayed && answer.data.as_ref().is_some_and(|d| d.as_str() == n.to_string()), "k{n}: {answer:?}");
        }
    }
    assert_eq!(lab.world.seen("/charge").arrived, 0);
    lab.call("charge", r#"{"n":0}"#, "a-new-one").done();
    assert_eq!(lab.world.acted("/charge"), 1);
}

/// `charge {"n": n}` with the key `k<n>`, done, with the result n.
fn recorded(n: u64) -> StoreWrite {
    let call = library_call("charge", json!({ "n": n }), &format!("k{n}"));
    let policy = Policy::default();
    let Ok(counterfoil_core::call::Identity::Fixed(key)) = call.identity(&call.args, &policy) else { panic!("an explicit key is fixed") };
    let at = Timestamp::from_millis(1_790_000_000_000);
    let opened = Opened {
        at,
        tenant: Tenant::new("default").unwrap(),
        caller: Caller::new("seed").unwrap(),
        tool: ToolName::new("charge").unwrap(),
        fingerprint: call.args.fingerprint(),
        args: call.args,
        run: None,
        step: None,
        redacted: false,
        settles: false,
        lent: false,
        retain_ms: u64::from(u32::MAX) * 1000,
    };
    let claim = Claim { at, attempt: 1, fence: Fence(1), worker: WorkerId::new("seed").unwrap(), lease_until: at };
    let success = Success::new(Json::parse(&n.to_string()).unwrap());
    let outcome = Ended::Done { success, undo: None, receipt: ReceiptId::new(&key, 1) };
    let finished = Finished { fence: Fence(1), attempt: 1, started: at, ended: at, outcome, answers: None };
    let entries = vec![Entry::Opened(opened), Entry::Claimed(claim), Entry::Finished(finished)];
    let body = codec::encode(&entries);
    let mut effect = Effect::absent(key);
    effect.apply(entries).unwrap();
    StoreWrite { stream: StreamId::effect(&key), expected: Version::NONE, at, body, summary: effect.summary() }
}
