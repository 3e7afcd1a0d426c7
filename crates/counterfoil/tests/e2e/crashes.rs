//! D. Kills at each point of a call's life. "Kill" is SIGKILL: nothing is tidied up. And Ctrl-C, which is no kill.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::lab::{EXIT_DONE, EXIT_REFUSED, Lab, Run, World, charge, tool};
use crate::parts::{Part, Process};
use crate::worker::CONFIG;

const PROBE: &str = r#"settle_after: 0ms
probe:
  http: { url: "WORLD/find?key=${key}" }
  happened: "size(response.json.data) > 0"
  result: "response.json.data[0]""#;

/// Begins a call and kills it when the world has acted and holds the answer back.
fn kill_after_the_world_acted(lab: &Lab) {
    lab.world.then("/charge", json!({ "after": true, "dedupe": true }));
    let mut call = lab.call_begins("charge", "{}", "k");
    lab.world.wait_holding("/charge", 1);
    call.kill();
    lab.world.release("/charge");
    assert_eq!(lab.world.acted("/charge"), 1);
}

#[test]
fn a_31_kill_before_the_claim_is_durable() {
    let lab = Lab::charging("");
    let config = lab.path("counterfoil.yaml");
    let mut caller = Part::start("caller", &[(CONFIG, config.to_str().unwrap())]);
    assert_eq!(caller.hear().as_deref(), Some("open"));
    // Nobody else can write while this transaction is open: the claim cannot become durable.
    let conn = rusqlite::Connection::open(lab.ledger()).unwrap();
    conn.execute_batch("BEGIN IMMEDIATE").unwrap();
    caller.tell("go");
    assert_eq!(caller.hear().as_deref(), Some("calling"));
    caller.process.kill();
    conn.execute_batch("ROLLBACK").unwrap();
    drop(conn);
    assert_eq!(lab.world.seen("/charge").arrived, 0, "no claim, no dispatch");
    lab.call("charge", "{}", "k").done();
    assert_eq!(lab.world.acted("/charge"), 1);
}

#[test]
fn a_31_kill_before_the_arguments_were_read() {
    let lab = Lab::charging("");
    let mut command = lab.command(&["call", "charge", "--key", "k", "--args", "-"]);
    let mut call = Process::spawn(command.stdin(Stdio::piped()));
    call.kill();
    assert!(!lab.ledger().exists(), "a call that was not understood leaves no trace");
    lab.call("charge", "{}", "k").done();
    assert_eq!(lab.world.acted("/charge"), 1);
}

/// The claim is durable and the connection stands, and the world has not read a byte.
#[test]
fn a_32_kill_after_the_claim_before_the_world_is_reached() {
    let lab = Lab::charging("");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    lab.config(&charge("").replace("WORLD", &format!("http://127.0.0.1:{port}")));
    let mut call = lab.call_begins("charge", "{}", "k");
    let connected = listener.accept().unwrap();
    call.kill();
    drop((connected, listener));
    let world = World::start_at(port);
    let doubt = lab.call("charge", "{}", "k").in_doubt();
    assert_eq!(doubt.at("/error/cause"), "worker_lost");
    assert_eq!(world.seen("/charge").arrived, 0, "not run again on a guess");
    let resolved = lab.json(&["effects", "resolve", &doubt.effect(), "--did-not-happen", "--by", "ada", "--why", "asked the bank"]);
    assert_eq!(resolved.code, EXIT_DONE, "{resolved:?}");
    assert_eq!(lab.call("charge", "{}", "k").done().at("/attempt"), 2);
    lab.call("charge", "{}", "k").replayed();
    assert_eq!(world.acted("/charge"), 1);
}

/// The same with a process that blocks before it acts; it dies with the worker, or acts never.
#[test]
fn a_32_kill_while_a_command_has_not_acted() {
    let lab = Lab::new("tools:\n  charge: { command: [\"/bin/sh\", \"-c\", \"read line < go && echo x >> done && echo 1\"] }\n");
    let made = std::process::Command::new("mkfifo").arg(lab.path("go")).status().expect("mkfifo is there");
    assert!(made.success());
    let mut call = lab.call_begins("charge", "{}", "k");
    // Opening a fifo for writing returns when the command has opened it for reading.
    let go = std::fs::OpenOptions::new().write(true).open(lab.path("go")).unwrap();
    call.kill();
    drop(go);
    lab.call("charge", "{}", "k").in_doubt();
    assert!(!lab.path("done").exists());
}

#[test]
fn a_33_kill_after_the_world_acted() {
    let lab = Lab::charging("");
    kill_after_the_world_acted(&lab);
    let doubt = lab.call("charge", "{}", "k").in_doubt();
    assert_eq!((doubt.at("/error/cause"), doubt.at("/error/retriable")), (json!("worker_lost"), json!(false)));
    lab.json(&["recover"]);
    lab.call("charge", "{}", "k").in_doubt();
    let effect = doubt.effect();
    let inbox = lab.listed("in_doubt");
    assert_eq!((inbox.len(), &inbox[0]["effect"]), (1, &json!(effect)));
    let resolved = lab.json(&["effects", "resolve", &effect[..12], "--happened", "--result", r#"{"id":"e-1"}"#, "--by", "ada"]);
    assert_eq!((resolved.code, resolved.at("/state")), (EXIT_DONE, json!("done")), "{resolved:?}");
    let replay = lab.call("charge", "{}", "k").replayed();
    assert_eq!(replay.at("/data"), json!({ "id": "e-1" }));
    assert_eq!(lab.world.seen("/charge").arrived, 1);
    let twice = lab.json(&["effects", "resolve", &effect, "--did-not-happen"]).error(EXIT_REFUSED, "wrong_state");
    assert!(twice.text("/error/message").contains("is done"), "{twice:?}");
}

#[test]
fn doctor_sees_the_claim_of_a_lost_worker() {
    let lab = Lab::charging("lease: 1s");
    kill_after_the_world_acted(&lab);
    // Until its lease has run out it might be another machine's.
    let lost = crate::workers::until("the doctor sees it", || {
        let doctor = lab.json(&["doctor"]);
        let findings = doctor.at("/findings");
        findings.as_array().expect("a list").iter().find(|f| f["what"] == "running" && f["ok"] == false).cloned()
    });
    assert!(lost["text"].as_str().expect("a text").contains("1 of lost workers: counterfoil recover"), "{lost}");
}

#[test]
fn who_cancels_a_running_effect_is_told_that_it_may_still_act() {
    let lab = Lab::charging("");
    lab.world.then("/charge", json!({ "after": true }));
    let call = lab.call_begins("charge", "{}", "k");
    lab.world.wait_holding("/charge", 1);
    let running = lab.listed("running");
    let effect = running[0]["effect"].as_str().expect("a key");
    let told = lab.run(&["effects", "cancel", effect, "--by", "ada"]);
    assert!(told.code == EXIT_DONE && told.stderr.contains("its tool was at work"), "{told:?}");
    let inbox = lab.run(&["effects", "list", "--state", "in_doubt"]).stdout;
    assert!(inbox.contains("cancelled by ada while at work"), "{inbox}");
    lab.world.release("/charge");
    drop(call);
    let again = lab.run(&["effects", "cancel", effect, "--by", "ada"]);
    assert!(!again.stderr.contains("its tool was at work"), "{again:?}");
}

/// Begins a call and, when the world has acted and holds the answer back, presses Ctrl-C; back when it was heard.
fn interrupted_after_the_world_acted(lab: &Lab) -> Process {
    lab.world.then("/charge", json!({ "after": true }));
    let mut call = lab.call_begins("charge", "{}", "k");
    lab.world.wait_holding("/charge", 1);
    call.signal(Signal::INT);
    let mut told = String::new();
    BufReader::new(call.child.stderr.as_mut().expect("a pipe")).read_line(&mut told).expect("text");
    assert!(told.starts_with("waiting for the call to end"), "{told}");
    call
}

#[test]
fn ctrl_c_waits_for_the_answer() {
    let lab = Lab::charging("");
    let call = interrupted_after_the_world_acted(&lab);
    lab.world.release("/charge");
    let done = Run::ended(call).done();
    assert_eq!(lab.call("charge", "{}", "k").replayed().at("/data"), done.at("/data"));
    assert_eq!(lab.world.acted("/charge"), 1);
}

#[test]
fn a_second_ctrl_c_quits_and_leaves_a_doubt() {
    let lab = Lab::charging("");
    let call = interrupted_after_the_world_acted(&lab);
    call.signal(Signal::INT);
    let quit = Run::ended(call);
    assert_eq!((quit.code, quit.stdout.as_str()), (130, ""));
    lab.world.release("/charge");
    lab.call("charge", "{}", "k").in_doubt();
    assert_eq!(lab.world.acted("/charge"), 1);
}

#[test]
fn a_33_a_probe_settles_it() {
    for by_recover in [true, false] {
        let lab = Lab::charging(PROBE);
        kill_after_the_world_acted(&lab);
        if by_recover {
            let recovered = lab.json(&["recover"]);
            assert_eq!(recovered.at("/recovered/0/answer/data"), json!({ "id": "e-1" }), "{recovered:?}");
            lab.call("charge", "{}", "k").replayed();
        } else {
            assert_eq!(lab.call("charge", "{}", "k").expect(EXIT_DONE, "success").at("/data"), json!({ "id": "e-1" }));
        }
        let replay = lab.call("charge", "{}", "k").replayed();
        assert_eq!(replay.at("/data"), json!({ "id": "e-1" }), "the world's own word");
        assert_eq!(lab.world.seen("/charge").arrived, 1);
    }
}

#[test]
fn a_33_a_probe_that_finds_nothing_lets_it_run() {
    let lab = Lab::charging(PROBE);
    lab.world.then("/charge", json!({ "before": true }));
    let mut call = lab.call_begins("charge", "{}", "k");
    lab.world.wait_holding("/charge", 1);
    call.kill();
    // This request never acts: the world forgot it.
    let forgotten = lab.world.seen("/charge");
    assert_eq!((forgotten.arrived, forgotten.acted), (1, 0));
    lab.world.then("/charge", json!({}));
    lab.call("charge", "{}", "k").done();
    lab.call("charge", "{}", "k").replayed();
    assert_eq!(lab.world.acted("/charge"), 1);
}

#[test]
fn a_33_a_probe_that_cannot_tell_settles_nothing() {
    let lab = Lab::charging(PROBE);
    kill_after_the_world_acted(&lab);
    lab.world.then("/find", json!({ "status": 503, "act": false }));
    lab.call("charge", "{}", "k").in_doubt();
    assert_eq!(lab.world.seen("/charge").arrived, 1, "trouble with the question is no answer");
}

#[test]
fn a_33_a_keyed_repeat_settles_it() {
    for by_recover in [true, false] {
        let lab = Lab::charging("repeat: keyed");
        kill_after_the_world_acted(&lab);
        if by_recover {
            assert_eq!(lab.json(&["recover"]).at("/recovered/0/answer/status"), "success");
        }
        let run = lab.call("charge", "{}", "k").expect(EXIT_DONE, "success");
        assert_eq!(run.at("/data"), json!({ "id": "e-1" }), "the answer of the first");
        lab.call("charge", "{}", "k").replayed();
        let seen = lab.world.seen("/charge");
        assert_eq!((seen.arrived, seen.acted, seen.by_key.len()), (2, 1, 1));
    }
}

/// The reply is longer than a pipe holds, and nobody reads it: what was read at all was committed before.
#[test]
fn a_34_kill_after_commit_before_the_reply() {
    let lab = Lab::charging("");
    let long = json!({ "text": "x".repeat(300_000) });
    lab.world.then("/charge", json!({ "body": long.to_string() }));
    let mut call = lab.call_begins("charge", "{}", "k");
    call.child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    call.kill();
    let replay = lab.call("charge", "{}", "k").replayed();
    assert_eq!(replay.at("/data"), long);
    assert_eq!(lab.world.seen("/charge").arrived, 1);
}

#[test]
fn a_34_kill_a_program_after_its_call_was_committed() {
    let lab = Lab::charging("");
    let config = lab.path("counterfoil.yaml");
    let mut caller = Part::start("caller", &[(CONFIG, config.to_str().unwrap())]);
    assert_eq!(caller.hear().as_deref(), Some("open"));
    caller.tell("go");
    assert_eq!(caller.hear().as_deref(), Some("calling"));
    assert_eq!(caller.hear().as_deref(), Some("answered success"));
    caller.process.kill();
    lab.call("charge", "{}", "k").replayed();
    assert_eq!(lab.world.acted("/charge"), 1);
}

/// The world dies in the middle, not we.
#[test]
fn a_33_the_world_dies_after_it_acted() {
    let lab = Lab::charging("");
    lab.world.then("/charge", json!({ "end": "exit" }));
    let doubt = lab.call("charge", "{}", "k").in_doubt();
    assert_eq!(doubt.at("/error/cause"), "connection_lost");
    let again = lab.call("charge", "{}", "k").in_doubt();
    assert_eq!(again.at("/attempt"), 1);
}

#[test]
fn a_38_ten_processes_race_for_one_key() {
    let lab = Lab::charging("");
    lab.world.then("/charge", json!({ "after": true }));
    let calls: Vec<Process> = (0..10).map(|_| lab.call_begins("charge", "{}", "k")).collect();
    lab.world.wait_holding("/charge", 1);
    lab.world.release("/charge");
    let runs: Vec<Run> = calls.into_iter().map(Run::ended).collect();
    let data = lab.call("charge", "{}", "k").replayed().at("/data");
    for run in &runs {
        assert!((run.code, run.at("/data")) == (EXIT_DONE, data.clone()), "{run:?}");
    }
    assert_eq!(runs.iter().filter(|run| run.at("/replayed") == false).count(), 1, "one of them ran it");
    assert_eq!(lab.world.seen("/charge").arrived, 1);
}

#[test]
fn a_38_processes_on_one_ledger_see_each_others_work() {
    let lab = Lab::new(&tool("charge", ""));
    let keys: Vec<String> = (0..12).map(|n| format!("k{n}")).collect();
    let calls: Vec<Process> = keys.iter().map(|key| lab.call_begins("charge", "{}", key)).collect();
    let first: Vec<Value> = calls.into_iter().map(|call| Run::ended(call).done().at("/data")).collect();
    for (key, data) in keys.iter().zip(first) {
        assert_eq!(lab.call("charge", "{}", key).replayed().at("/data"), data);
    }
    assert_eq!(lab.world.acted("/charge"), 12);
    let verified = lab.json(&["receipts", "verify"]);
    assert_eq!(verified.at("/verified"), 12, "their receipts are one chain: {verified:?}");
}
