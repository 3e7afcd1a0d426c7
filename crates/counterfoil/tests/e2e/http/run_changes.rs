//! What is done to a run over HTTP: heard once, however often it is sent.

use serde_json::{Value, json};

use super::runs::{comes_to, ended, lab, order, parcel, put, start, started};
use super::server::Server;

fn boss() -> Value {
    json!({ "workflow": "boss", "steps": [{ "id": "ask", "wait": { "approval": "really?" } }, { "id": "pay", "tool": "charge" }] })
}

#[test]
fn a_107_a_signal_is_heard_once_also_after_a_restart() {
    let lab = lab();
    let server = Server::start(&lab);
    put(&server, "parcel", &parcel());
    started(&server, "parcel", "r");
    comes_to(&server, "r", "packed", "running");
    let path = "/v1/runs/r/signals/packed";
    server.post(path, "wrong", r#"{"correlation":"other","payload":{"box":1}}"#).problem(400, "invalid_signal");
    server.post("/v1/runs/r/signals/unknown", "wrong", "{}").problem(400, "invalid_signal");
    server.send("POST", path, &[], r#"{"correlation":"r"}"#).problem(400, "idempotency_key_required");
    server.kill();
    let server = Server::start(&lab);
    let body = r#"{"correlation":"r","payload":{"box":7}}"#;
    let heard = server.post(path, "s", body);
    assert_eq!(heard.status, 200, "{heard:?}");
    ended(&server, "r", "completed");
    // Sent again, when the run has moved on: the same answer. Under another key but with the same id: 200, and nothing new.
    let again = server.post(path, "s", body);
    assert_eq!((again.status, &again.body, again.is_replay()), (200, &heard.body, true));
    let same = server.send("POST", path, &[], r#"{"id":"s","correlation":"r","payload":{"box":7}}"#);
    assert_eq!((same.status, same.text("/state")), (200, "completed".to_owned()));
    server.send("POST", path, &[], r#"{"id":"s","correlation":"r","payload":{"box":8}}"#).problem(400, "invalid_signal");
    server.post(path, "late", body).problem(409, "wrong_state");
    assert_eq!((lab.world.acted("/charge"), lab.world.acted("/ship")), (1, 1));
    assert_eq!(serde_json::from_str::<Value>(&lab.world.seen("/ship").requests[0].body).unwrap(), json!({ "box": 7 }));
}

#[test]
fn a_108_nothing_is_done_before_a_person_says_yes_and_nothing_after_a_no() {
    let lab = lab();
    let server = Server::start(&lab);
    put(&server, "boss", &boss());
    for (run, word) in [("yes", "approve"), ("no", "deny")] {
        started(&server, "boss", run);
        comes_to(&server, run, "ask", "running");
        assert_eq!(lab.world.seen("/charge").arrived, u64::from(run == "no"), "not before it is approved");
        let path = format!("/v1/runs/{run}/{word}");
        server.post(&path, "x", r#"{"step":"nothing"}"#).problem(404, "step_not_found");
        server.post(&path, "x", r#"{"step":"pay"}"#).problem(409, "wrong_state");
        let first = server.post(&path, "a", r#"{"step":"ask","why":"asked the boss"}"#).ok();
        let again = server.post(&path, "a", r#"{"step":"ask","why":"asked the boss"}"#);
        assert_eq!((&again.body, again.is_replay()), (&first.body, true));
        server.post(&path, "b", r#"{"step":"ask"}"#).ok();
        if run == "yes" {
            ended(&server, "yes", "completed");
        }
    }
    let denied = ended(&server, "no", "failed");
    assert_eq!(denied.at("/error/code"), json!("approval_denied"));
    server.post("/v1/runs/yes/deny", "c", r#"{"step":"ask"}"#).problem(409, "wrong_state");
    assert_eq!(lab.world.acted("/charge"), 1);
}

#[test]
fn a_cancelled_run_is_undone_when_that_is_asked_for() {
    let lab = lab();
    let server = Server::start(&lab);
    put(&server, "parcel", &parcel());
    for (run, body, end) in [("keeps", "{}", "cancelled"), ("undoes", r#"{"undo":true,"why":"not wanted"}"#, "compensated")] {
        started(&server, "parcel", run);
        comes_to(&server, run, "packed", "running");
        let path = format!("/v1/runs/{run}/cancel");
        let first = server.post(&path, run, body).ok();
        let again = server.post(&path, run, body);
        assert_eq!((&again.body, again.is_replay()), (&first.body, true));
        ended(&server, run, end);
        server.post(&path, &format!("{run} again"), body).ok();
    }
    assert_eq!(["/charge", "/refund", "/ship"].map(|path| lab.world.acted(path)), [2, 1, 0]);
    // What has ended and what never was.
    put(&server, "order", &order());
    start(&server, "o", json!({ "workflow": "order", "input": { "customer": "a" }, "run": "o" })).ok();
    ended(&server, "o", "completed");
    let over = server.post("/v1/runs/o/cancel", "c2", "{}").problem(409, "wrong_state");
    assert_eq!(over.at("/state"), json!("completed"));
    server.post("/v1/runs/nothing/cancel", "c3", "{}").problem(404, "run_not_found");
}

#[test]
fn what_a_run_did_is_undone_once_and_a_failed_undo_can_be_tried_again_or_skipped() {
    let lab = lab();
    let server = Server::start(&lab);
    put(&server, "order", &order());
    for run in ["a", "b"] {
        start(&server, run, json!({ "workflow": "order", "input": { "customer": "a" }, "run": run })).ok();
        ended(&server, run, "completed");
    }
    server.send("POST", "/v1/runs/a/compensate", &[], "{}").problem(400, "idempotency_key_required");
    lab.world.rules("/refund", json!({ "next": [{ "act": false, "status": 400 }] }));
    let first = server.post("/v1/runs/a/compensate", "u", r#"{"why":"sent back"}"#).ok();
    ended(&server, "a", "compensation_failed");
    assert_eq!(server.post("/v1/runs/a/compensate", "u", r#"{"why":"sent back"}"#).body, first.body);
    assert_eq!(lab.world.acted("/refund"), 0);
    server.post("/v1/runs/a/skip", "s", r#"{"step":"send"}"#).problem(409, "wrong_state");
    server.post("/v1/runs/a/skip", "s", r#"{"step":"pay"}"#).ok();
    ended(&server, "a", "compensated");
    server.post("/v1/runs/b/compensate", "x", r#"{"from":"pay"}"#).ok();
    let undone = ended(&server, "b", "compensated");
    assert_eq!(undone.at("/compensations"), json!([{ "step": "pay", "status": "undone" }]));
    server.post("/v1/runs/b/compensate", "v", "{}").ok();
    server.post("/v1/runs/b/resume", "w", "{}").problem(409, "wrong_state");
    assert_eq!((lab.world.acted("/charge"), lab.world.acted("/refund")), (2, 1));
}

/// A fork is a run of its own: what was done before the step is taken over, and not done again.
#[test]
fn a_fork_does_again_what_comes_after_and_nothing_before() {
    let lab = lab();
    let server = Server::start(&lab);
    put(&server, "order", &order());
    start(&server, "k", json!({ "workflow": "order", "input": { "customer": "a" }, "run": "r" })).ok();
    ended(&server, "r", "completed");
    let first = server.post("/v1/runs/r/fork", "f", r#"{"at":"send"}"#);
    let again = server.post("/v1/runs/r/fork", "f", r#"{"at":"send"}"#);
    assert_eq!((first.status, &again.body, again.is_replay()), (201, &first.body, true));
    ended(&server, &first.text("/run"), "completed");
    server.post("/v1/runs/r/fork", "g", r#"{"at":"send","run":"r"}"#).problem(409, "run_exists");
    server.post("/v1/runs/r/fork", "g", r#"{"at":"nowhere"}"#).problem(404, "step_not_found");
    assert_eq!((lab.world.acted("/charge"), lab.world.acted("/ship")), (1, 2));
}
