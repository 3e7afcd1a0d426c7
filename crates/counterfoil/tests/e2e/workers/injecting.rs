//! The crash laboratory on the ledgers behind a network: the database's own system calls fail, or kill it, at each flush and write of a call.
//!
//! strace is attached to the real server. After each fault the server is brought back on what it kept, and the same call is made again: the world has the
//! charge once in the end, and what was acknowledged is the answer for ever. So it is when Redis fails at writing its file anew. Every write of Redis, not every third: COUNTERFOIL_FAULTS=all.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, Command, Stdio};

use serde_json::json;

use super::shared::{Kind, Shared};
use super::until;
use crate::injected::{FAULTS, NO_STRACE, everywhere};
use crate::lab::{EXIT_DONE, charge};
use crate::report::{Row, skipped};

/// Of one kind of call that one process of the server makes for one effect.
const NTH_MAX: u32 = 12;
/// What Redis calls only when it writes its file anew: then that is done after the call.
const REWRITES: &str = "fsync";
/// Redis writes to its clients by the same call: there are many, and each third is enough unless all are asked for.
const WRITES_EACH: u32 = 3;
/// What a session of PostgreSQL has to write, the server's own writer may have written just before: that process is not traced. So often it is tried again.
const MISSED_MAX: u32 = 5;

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
        // Ended if it hangs, so that the test fails and does not hang with it.
        let mut strace = Command::new("timeout")
            .args(["--kill-after=10", "300", "strace", "-f"])
            .args(["-e", &format!("trace={call}"), "-e", &format!("inject={call}:{fault}:when={nth}"), "-o"])
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
        assert!(!first.is_empty(), "strace says nothing, not even why it cannot");
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
    lease: 1s
    breaker: off
    probe: { http: { url: \"WORLD/find?key=${key}\" }, happened: \"size(response.json.data) > 0\", result: \"response.json.data[0]\", settle_after: 0s }";
    let shared = Shared::new(kind, &charge(policy));
    let lab = &shared.lab;
    assert_eq!(lab.call("charge", "{}", "first").code, EXIT_DONE);
    let calls = if kind == Kind::Redis { &["fdatasync", "write", REWRITES][..] } else { &["fdatasync", "pwrite64"] };
    for (fault, injection) in FAULTS {
        let mut row = Row::new(fault, kind);
        for call in calls.iter().copied() {
            // A claim of a worker that died on another machine is waited out, so a case takes long.
            let each: u32 = if everywhere() || call != "write" { 1 } else { WRITES_EACH };
            let before_all = row.rounds;
            let (mut nth, mut missed) = (1, 0);
            while nth <= NTH_MAX {
                let place = format!("{kind:?} {fault:?} at {call} {nth}");
                let key = format!("{call}-{fault:?}-{nth}-{missed}");
                let before = lab.world.acted("/charge");
                let Some(tap) = Tap::on(&shared, call, injection, nth) else {
                    println!("skipped: {NO_STRACE}");
                    return skipped(fault, kind, NO_STRACE);
                };
                let hurt = lab.call("charge", "{}", &key);
                if call == REWRITES {
                    shared.rewrite();
                }
                let hit = tap.hit();
                drop(tap);
                // PostgreSQL goes on when one of its processes dies; this way it also has no memory of what it could not write.
                if kind == Kind::Postgres {
                    shared.restart()
                } else {
                    shared.revive()
                }
                let again = until(&place, || {
                    // What was killed may have been on its way out when it was looked for first.
                    shared.revive();
                    let again = lab.call("charge", "{}", &key);
                    if again.code != EXIT_DONE {
                        println!("{place}: not yet: {again:?}");
                    }
                    (again.code == EXIT_DONE).then_some(again)
                });
                match lab.world.acted("/charge") - before {
                    0 => row.lost.push(format!("{place}: {again:?}, and not done, after {hurt:?}")),
                    1 => {}
                    n => row.twice.push(format!("{place}: {n} times: {hurt:?}, then {again:?}")),
                }
                // What was acknowledged, with or without the fault, is the answer for ever.
                row.acknowledged += 1;
                let later = lab.call("charge", "{}", &key);
                let told = if hurt.code == EXIT_DONE { vec![&hurt, &again] } else { vec![&again] };
                if told.iter().any(|told| told.at("/data") != later.at("/data")) || later.at("/replayed") != json!(true) {
                    row.lost.push(format!("{place}: {hurt:?}, {again:?}, then {later:?}"));
                }
                if hit {
                    row.rounds += 1;
                    nth += each;
                } else if nth == 1 && missed < MISSED_MAX {
                    missed += 1;
                } else {
                    break;
                }
            }
            assert!(row.rounds > before_all, "{kind:?} {fault:?}: no {call} is made");
        }
        row.in_doubt = lab.listed("in_doubt").len() as u64;
        row.tell();
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
