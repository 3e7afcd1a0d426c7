//! L. A person must agree first.

use serde_json::json;

use super::server::Server;
use crate::lab::Lab;

#[test]
fn a_108_approved_once_it_runs_once() {
    let lab = Lab::charging("approval: \"args.cents > 100\"");
    let server = Server::start(&lab);
    server.call("charge", "small", r#"{"cents":5}"#).envelope(200, "success");
    let waiting = server.call("charge", "large", r#"{"cents":500}"#).envelope(202, "waiting_approval");
    assert_eq!(lab.world.acted("/charge"), 1);
    let listed = server.get("/v1/approvals").ok();
    assert_eq!((listed.at("/approvals/0/effect"), listed.at("/approvals/0/args")), (waiting.at("/effect"), json!({ "cents": 500 })));
    let path = format!("/v1/approvals/{}/approve", waiting.text("/effect"));
    server.send("POST", &path, &[], "").problem(400, "idempotency_key_required");
    let approved = server.post(&path, "a", r#"{"why":"fine"}"#).envelope(200, "success");
    let again = server.post(&path, "a", r#"{"why":"fine"}"#);
    assert_eq!((&again.body, again.is_replay()), (&approved.body, true));
    // Single use: another approval of the same call finds nothing that waits.
    server.post(&path, "b", "").problem(409, "wrong_state");
    assert!(server.call("charge", "large", r#"{"cents":500}"#).envelope(200, "success").is_replay());
    // Bound to the arguments: the same key with others is no approved call.
    server.call("charge", "large", r#"{"cents":501}"#).problem(422, "key_reuse_mismatch");
    assert_eq!(lab.world.acted("/charge"), 2);
}

#[test]
fn a_108_denied_or_too_late_it_never_runs() {
    let lab = Lab::charging("approval: \"true\"\napproval_expires: 1s");
    let server = Server::start(&lab);
    let denied = server.call("charge", "no", "{}").envelope(202, "waiting_approval");
    let path = |reply: &super::server::Reply, word: &str| format!("/v1/approvals/{}/{word}", reply.text("/effect"));
    server.post(&path(&denied, "deny"), "d", r#"{"why":"no"}"#).ok();
    let told = server.call("charge", "no", "{}").envelope(200, "error");
    assert_eq!(told.at("/error/code"), json!("approval_denied"));
    server.post(&path(&denied, "approve"), "a", "").problem(409, "wrong_state");
    let late = server.call("charge", "late", "{}").envelope(202, "waiting_approval");
    // The server's own worker notices that nobody agreed in time.
    let events = server.begin("GET", "/v1/events?after=0", &[], "");
    let key = late.text("/effect");
    assert!(events.lines().any(|line| line.contains(&key) && line.contains("\"state\":\"failed\"")));
    server.post(&path(&late, "approve"), "b", "").problem(409, "wrong_state");
    assert_eq!(lab.world.acted("/charge"), 0);
}

#[test]
fn an_approval_survives_a_kill_and_runs_once() {
    let lab = Lab::charging("approval: \"true\"");
    let server = Server::start(&lab);
    let waiting = server.call("charge", "k", "{}").envelope(202, "waiting_approval");
    let path = format!("/v1/approvals/{}/approve", waiting.text("/effect"));
    server.kill();
    let server = Server::start(&lab);
    lab.world.then("/charge", json!({ "before": true }));
    let asking = server.begin("POST", &path, &[("idempotency-key", "a")], "");
    lab.world.wait_holding("/charge", 1);
    asking.hang_up();
    lab.world.release("/charge");
    let approved = loop {
        let reply = server.post(&path, "a", "");
        if reply.status != 409 {
            break reply.envelope(200, "success");
        }
        reply.problem(409, "request_in_flight");
    };
    assert!(server.post(&path, "a", "").is_replay());
    assert_eq!(approved.at("/attempt"), json!(1));
    assert_eq!(lab.world.acted("/charge"), 1);
}
