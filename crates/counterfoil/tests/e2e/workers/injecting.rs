//! The crash laboratory on the ledgers behind a network: the database's own system calls fail, or kill it, at each flush and write of a call.
//!
//! strace is attached to the real server. After each fault the server is brought back on what it kept, and the same call is made again: the world has the
//! charge once in the end, and what was acknowledged is the answer for ever. Writes and a full disk as well: COUNTERFOIL_FAULTS=all.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, Command, Stdio};

use serde_json::json;

use super::shared::{Kind, Shared};
use super::until;
use crate::lab::{EXIT_DONE, charge};

const FAULTS: [(&str, &str); 3] = [("killed", "signal=SIGKILL"), ("broken", "error=EIO"), ("full", "error=ENOSPC")];
/// Of one kind of call that one process of the server makes for one effect.
const NTH_MAX: u32 = 12;

/// strace on a running server, until it is dropped.
struct Tap {
    strace: Child,
    /// Held: strace ends when nobody hears it.
    _said: BufReader<ChildStderr>,
    log: std::path::PathBuf,
}

impl Tap {
    /// `None`: strace cannot trace here.
    fn on(shared: &Shared, call: &str, fault: &str, nth: u32) -> Option<Self> {
        let log = shared.lab.path("tap.log");
        let mut strace = Command::new("strace")
            .args(["-f", "-e", &format!("trace={call}"), "-e", &format!("inject={call}:{fault}:when={nth}"), "-o"])
            .arg(&log)
            .args(["-p", &shared.pid().to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .ok()?;
        let mut said = BufReader::new(strace.stderr.take()?);
        let mut first = String::new();
        said.read_line(&mut first).ok()?;
        if !first.contains("attached") {
            drop((strace.kill(), strace.wait()));
            return None;
        }
        Some(Self { strace, _said: said, log })
    }

    fn hit(&self) -> bool {
        std::fs::read_to_string(&self.log).is_ok_and(|log| log.contains("INJECTED") || log.contains("killed by SIGKILL"))
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        // It lets go of what it traces when it is told to end.
        let pid = rustix::process::Pid::from_child(&self.strace);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it is our child");
        self.strace.wait().expect("it ends");
    }
}

fn attack(kind: Kind) {
    let policy = "timeout: 5s
    breaker: off
    probe: { http: { url: \"WORLD/find?key=${key}\" }, happened: \"size(response.json.data) > 0\", result: \"response.json.data[0]\", settle_after: 0s }";
    let shared = Shared::new(kind, &charge(policy));
    let lab = &shared.lab;
    assert_eq!(lab.call("charge", "{}", "first").code, EXIT_DONE);
    let writes = if kind == Kind::Redis { "write" } else { "pwrite64" };
    // A claim of a worker that died on another machine is waited out, so a case takes long.
    let all = std::env::var("COUNTERFOIL_FAULTS").is_ok_and(|all| all == "all");
    let (calls, faults) = if all { (&["fdatasync", writes][..], &FAULTS[..]) } else { (&["fdatasync"][..], &FAULTS[..2]) };
    for call in calls {
        for (word, fault) in faults {
            let (mut cases, mut acknowledged) = (0, 0);
            for nth in 1..=NTH_MAX {
                let key = format!("{call}-{word}-{nth}");
                let before = lab.world.acted("/charge");
                let Some(tap) = Tap::on(&shared, call, fault, nth) else { return println!("skipped: strace does not run here") };
                let hurt = lab.call("charge", "{}", &key);
                let hit = tap.hit();
                drop(tap);
                shared.revive();
                let place = format!("{kind:?} {word} at {call} {nth}");
                let acted = lab.world.acted("/charge") - before;
                assert!(acted <= 1, "{place}: the world was charged {acted} times");
                if hurt.code == EXIT_DONE {
                    assert_eq!(acted, 1, "{place}: acknowledged, and not done: {hurt:?}");
                }
                let again = until(&place, || {
                    let again = lab.call("charge", "{}", &key);
                    (again.code == EXIT_DONE).then_some(again)
                });
                assert_eq!(lab.world.acted("/charge") - before, 1, "{place}: {hurt:?}, then {again:?}");
                if hurt.code == EXIT_DONE {
                    acknowledged += 1;
                    assert_eq!((again.at("/data"), again.at("/replayed")), (hurt.at("/data"), json!(true)), "{place}: another answer");
                }
                if !hit {
                    break;
                }
                cases += 1;
            }
            eprintln!("| {kind:?} | {word:6} | {call:9} | {cases:2} cases | {acknowledged:2} acknowledged | 0 twice, 0 lost |");
        }
    }
    assert_eq!(lab.run(&["store", "check"]).code, EXIT_DONE);
}

#[test]
fn every_flush_and_write_of_postgres_fails_once() {
    attack(Kind::Postgres);
}

#[test]
fn every_flush_and_write_of_redis_fails_once() {
    attack(Kind::Redis);
}
