//! Client-driven effects: the client runs its own tool under our permit, and may die, lie low or come late.

use serde_json::json;

use super::server::{Reply, Server};
use crate::lab::Lab;

pub const CONFIG: &str =
    "tools:\n  pack:\n    client: {}\n    lease: 30s\n  charge:\n    http: { method: POST, url: \"WORLD/charge\", json: \"${args}\" }\n";

pub fn acquire(server: &Server, request: &str, key: &str, more: &str) -> Reply {
    server.post("/v1/effects/acquire", request, &format!(r#"{{"tool":"pack","args":{{"box":7}},"key":"{key}"{more}}}"#))
}

pub fn report(server: &Server, permit: &Reply, word: &str, request: &str, body: &str) -> Reply {
    let path = format!("/v1/effects/{}/{word}", permit.text("/effect"));
    server.post(&path, request, &format!(r#"{{"fence":{},{body}}}"#, permit.at("/fence")))
}

#[test]
fn a_client_acts_under_a_permit_and_its_result_is_replayed() {
    let lab = Lab::new(CONFIG);
    let server = Server::start(&lab);
    let permit = acquire(&server, "r1", "box-7", "");
    assert_eq!((permit.status, permit.at("/attempt"), permit.at("/fence")), (201, json!(1), json!(1)));
    // A client that lost the answer asks again under the same request: the same permit. Another worker does not get it.
    let again = acquire(&server, "r1", "box-7", "");
    assert_eq!((&again.body, again.is_replay()), (&permit.body, true));
    acquire(&server, "r2", "box-7", "").problem(409, "in_flight");
    server.send("POST", &format!("/v1/effects/{}/heartbeat", permit.text("/effect")), &[], r#"{"fence":1,"lease":"1m"}"#).ok();
    // The server that lent it is gone; another takes the report.
    server.kill();
    let server = Server::start(&lab);
    let done = report(&server, &permit, "commit", "c1", r#""result":{"packed": 1.0}"#).envelope(200, "success");
    assert_eq!(done.body.matches("1.0").count(), 1, "kept byte for byte: {}", done.body);
    let again = report(&server, &permit, "commit", "c1", r#""result":{"packed": 1.0}"#);
    assert_eq!((&again.body, again.is_replay()), (&done.body, true));
    report(&server, &permit, "commit", "c2", r#""result":{"packed": 1.0}"#).envelope(200, "success");
    report(&server, &permit, "commit", "c3", r#""result":{"packed": 2}"#).problem(409, "report_mismatch");
    let replayed = acquire(&server, "r3", "box-7", "").envelope(200, "success");
    assert_eq!((replayed.at("/data"), replayed.is_replay()), (json!({ "packed": 1.0 }), true));
    let other = r#"{"tool":"pack","args":{"box":8},"key":"box-7"}"#;
    server.post("/v1/effects/acquire", "r4", other).problem(422, "key_reuse_mismatch");
}

#[test]
fn a_dead_clients_effect_is_in_doubt_and_its_late_word_closes_it() {
    let lab = Lab::new(CONFIG);
    let server = Server::start(&lab);
    let permit = acquire(&server, "r1", "box-7", r#","lease":"1s""#);
    let key = permit.text("/effect");
    // The lease ends, and the server's worker notices by itself.
    let feed = server.begin("GET", "/v1/events?after=0", &[], "");
    assert!(feed.lines().any(|line| line.contains(&key) && line.contains("\"state\":\"in_doubt\"")));
    acquire(&server, "r2", "box-7", "").envelope(200, "in_doubt");
    let late = report(&server, &permit, "commit", "c1", r#""result":"after all""#).problem(409, "permit_lost");
    assert_eq!(late.at("/effect_state/recorded_late"), json!(true));
    let settled = acquire(&server, "r3", "box-7", "").envelope(200, "success");
    assert_eq!(settled.at("/data"), json!("after all"));
    let heartbeat = format!("/v1/effects/{key}/heartbeat");
    server.send("POST", &heartbeat, &[], r#"{"fence":1}"#).problem(409, "permit_lost");
}

#[test]
fn a_failure_that_may_be_tried_again_is_a_new_attempt_with_a_new_fence() {
    let lab = Lab::new(CONFIG);
    let server = Server::start(&lab);
    let first = acquire(&server, "r1", "box-7", "");
    let failed = report(&server, &first, "fail", "f1", r#""kind":"retriable","code":"no_tape","message":"out of tape","retry_after_ms":1"#);
    assert_eq!((failed.status, failed.at("/error/code")), (200, json!("no_tape")), "{failed:?}");
    let second = loop {
        let reply = acquire(&server, "r2", "box-7", "");
        if reply.status == 201 {
            break reply;
        }
        assert_eq!(reply.at("/error/code"), json!("no_tape"), "{reply:?}");
    };
    assert_eq!(second.at("/attempt"), json!(2));
    assert!(second.at("/fence").as_u64() > first.at("/fence").as_u64(), "{second:?}");
    report(&server, &first, "commit", "c1", r#""result":1"#).problem(409, "permit_lost");
    let gone = report(&server, &second, "fail", "f2", r#""kind":"rejected","code":"no_box","message":"there is no such box""#);
    assert_eq!((gone.at("/status"), gone.at("/error/code")), (json!("error"), json!("no_box")));
    assert!(acquire(&server, "r3", "box-7", "").envelope(200, "error").is_replay());
    let doubt = acquire(&server, "r4", "box-8", "");
    report(&server, &doubt, "fail", "f3", r#""kind":"unknown","message":"the line went dead""#).envelope(200, "in_doubt");
}

#[test]
fn permits_are_lent_for_what_clients_run_and_for_nothing_else() {
    let lab = Lab::new(CONFIG);
    let server = Server::start(&lab);
    server.call("pack", "k", "{}").problem(409, "tool_runs_elsewhere");
    server.post("/v1/effects/acquire", "r", r#"{"tool":"charge","key":"k"}"#).problem(409, "tool_runs_here");
    server.post("/v1/effects/acquire", "r", r#"{"tool":"pakc","key":"k"}"#).problem(404, "unknown_tool");
    server.post("/v1/effects/acquire", "r", r#"{"tool":"pack"}"#).problem(400, "idempotency_key_required");
    server.send("POST", "/v1/effects/acquire", &[], r#"{"tool":"pack","key":"k"}"#).problem(400, "idempotency_key_required");
    for lease in ["0s", "2h", "30", "soon", "-1s"] {
        let body = format!(r#"{{"tool":"pack","key":"k","lease":"{lease}"}}"#);
        server.post("/v1/effects/acquire", "r", &body).problem(400, "invalid_lease");
    }
    let none = format!("/v1/effects/{}/commit", "0".repeat(64));
    server.post(&none, "c", r#"{"fence":1,"result":1}"#).problem(404, "not_found");
    assert_eq!(server.get("/v1/effects").at("/effects"), json!([]));
    assert_eq!(lab.world.seen("/charge").arrived, 0);
}
