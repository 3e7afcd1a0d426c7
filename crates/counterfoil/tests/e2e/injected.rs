//! The crash laboratory on the embedded ledger: at each of its system calls the process is killed, or the call fails as on a broken or a full disk.
//!
//! strace makes the faults, so the program and the kernel are the real ones. After each fault the same call is made again without one. What must stay true,
//! whatever was hit: the world has the charge once in the end; what was acknowledged is the answer for ever; what was refused did not happen.
//! More keys for each fault: COUNTERFOIL_FAULTS=all.

use std::fs;
use std::process::Command;

use serde_json::json;

use crate::lab::{EXIT_DONE, Lab, Run, charge};
use crate::report::{Fault, Row, skipped};
use crate::workers::Kind;

/// What the ledger's file goes through.
const FILE: [&str; 3] = ["fdatasync", "pwrite64", "ftruncate"];
/// What the world and the caller are told by.
const TALK: [&str; 3] = ["connect", "write", "unlink"];
pub const FAULTS: [(Fault, &str); 3] =
    [(Fault::KilledAtWrite, "signal=SIGKILL"), (Fault::BrokenAtWrite, "error=EIO"), (Fault::FullAtWrite, "error=ENOSPC")];
pub const NO_STRACE: &str = "strace does not run here";
/// More than any call makes of one kind; reaching it means that something goes on for ever.
const CALLS_MAX: u32 = 400;

/// The same arguments under strace. `None`: strace cannot trace here.
fn faulty(lab: &Lab, call: &str, fault: &str, nth: u32, args: &[&str]) -> Option<(Run, bool)> {
    let log = lab.path("strace.log");
    let plain = lab.command(args);
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-e", &format!("trace={call}"), "-e", &format!("inject={call}:{fault}:when={nth}"), "-o"]).arg(&log);
    command.arg(plain.get_program()).args(plain.get_args()).current_dir(lab.dir.path());
    let run = Run::of(command.output().ok()?);
    let log = fs::read_to_string(log).ok()?;
    // A call that is killed on its way in is not marked as the others are.
    let hit = log.contains("INJECTED") || log.contains("killed by SIGKILL");
    Some((run, hit))
}

/// Everywhere, not only here and there.
pub fn everywhere() -> bool {
    std::env::var("COUNTERFOIL_FAULTS").is_ok_and(|all| all == "all")
}

/// One kind of fault at each call of one kind, on a ledger that is new, and on one that is there. `None`: strace cannot trace here.
fn attack(call: &str, (word, fault): (Fault, &str), fresh: bool, row: &mut Row) -> Option<()> {
    let probe = "timeout: 5s
    breaker: off
    probe: { http: { url: \"WORLD/find?key=${key}\" }, happened: \"size(response.json.data) > 0\", result: \"response.json.data[0]\", settle_after: 0s }";
    let before_all = row.rounds;
    let mut lab = Lab::new(&charge(probe));
    let each = if everywhere() { 1 } else { 3 };
    for nth in (1..CALLS_MAX).step_by(if call == "pwrite64" { each } else { 1 }) {
        if fresh {
            lab = Lab::new(&charge(probe));
        } else if nth == 1 {
            assert_eq!(lab.call("charge", "{}", "first").code, EXIT_DONE);
        }
        let before = lab.world.acted("/charge");
        let key = format!("k-{nth}");
        let args = ["call", "charge", "--args", "{}", "--key", &key, "--json"];
        let (hurt, hit) = faulty(&lab, call, fault, nth, &args)?;
        let place = format!("{word:?} at {call} {nth}, {}", if fresh { "new ledger" } else { "old ledger" });
        if !hit {
            assert_eq!(hurt.code, EXIT_DONE, "{place}: nothing was injected: {hurt:?}");
            assert!(row.rounds > before_all, "{place}: no such call is made");
            return Some(());
        }
        row.rounds += 1;
        let acted = lab.world.acted("/charge") - before;
        let told = (hurt.code == EXIT_DONE).then(|| hurt.at("/data"));
        if told.is_some() {
            row.lost.extend((acted == 0).then(|| format!("{place}: acknowledged, and not done: {hurt:?}")));
        }
        let refused = hurt.stdout.contains("\"store_unavailable\"") && !hurt.stdout.contains("in_doubt");
        if refused && hurt.at("/status") == json!("error") {
            assert_eq!(acted, 0, "{place}: refused, and done all the same: {hurt:?}");
        }
        // The disk is whole again.
        let again = lab.call("charge", "{}", &key);
        assert_eq!(again.code, EXIT_DONE, "{place}: {again:?}\nafter {hurt:?}");
        match lab.world.acted("/charge") - before {
            0 => row.lost.push(format!("{place}: {again:?}, and not done, after {hurt:?}")),
            1 => {}
            n => row.twice.push(format!("{place}: {n} times: {hurt:?}, then {again:?}")),
        }
        if let Some(told) = told.filter(|told| *told != again.at("/data")) {
            row.lost.push(format!("{place}: {told} was acknowledged, now {again:?}"));
        }
        // What was acknowledged, with or without the fault, is the answer for ever.
        row.acknowledged += 1;
        let later = lab.call("charge", "{}", &key);
        if (later.at("/data"), later.at("/replayed")) != (again.at("/data"), json!(true)) {
            row.lost.push(format!("{place}: {again:?}, then {later:?}"));
        }
        assert_eq!(lab.run(&["store", "check"]).code, EXIT_DONE, "{place}");
    }
    panic!("{word:?} at {call}: it goes on for ever");
}

fn campaign(calls: &[&str], fault: (Fault, &str)) {
    let mut row = Row::new(fault.0, Kind::Sqlite);
    for call in calls {
        for fresh in [true, false] {
            if attack(call, fault, fresh, &mut row).is_none() {
                println!("skipped: {NO_STRACE}");
                return skipped(fault.0, Kind::Sqlite, NO_STRACE);
            }
        }
    }
    row.tell();
}

#[test]
fn a_35_killed_at_every_flush_and_write() {
    campaign(&FILE, FAULTS[0]);
}

#[test]
fn a_33_a_34_killed_while_it_talks() {
    campaign(&TALK, FAULTS[0]);
}

#[test]
fn a_37_every_flush_and_write_fails_once() {
    campaign(&FILE, FAULTS[1]);
}

#[test]
fn a_37_the_disk_is_full_at_every_flush_and_write() {
    campaign(&FILE, FAULTS[2]);
}
