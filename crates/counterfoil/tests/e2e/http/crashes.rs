//! D over HTTP: the server is killed, and what it knew is in the ledger.

use serde_json::json;

use super::server::Server;
use crate::lab::Lab;

const KEY: &[(&str, &str)] = &[("idempotency-key", "k")];

#[test]
fn a_33_killed_after_the_world_acted_it_is_a_doubt_that_a_person_closes() {
    let lab = Lab::charging("");
    let server = Server::start(&lab);
    lab.world.then("/charge", json!({ "after": true }));
    let asking = server.begin("POST", "/v1/tools/charge/call", KEY, "{}");
    lab.world.wait_holding("/charge", 1);
    server.kill();
    lab.world.drop_held("/charge");
    assert!(asking.reply().is_err());
    let server = Server::start(&lab);
    let doubt = server.call("charge", "k", "{}").envelope(200, "in_doubt");
    let resolve = format!("/v1/effects/{}/resolve", doubt.text("/effect"));
    let body = r#"{"verdict":"happened","result":{"id": "e-1"},"why":"the bank says so"}"#;
    let resolved = server.post(&resolve, "r", body).ok();
    assert_eq!(resolved.at("/state"), json!("done"));
    // Sent again, as by a client that never heard the answer: the same answer. Under another key: too late.
    let again = server.post(&resolve, "r", body);
    assert_eq!((again.status, &again.body, again.is_replay()), (200, &resolved.body, true));
    server.post(&resolve, "other", body).problem(409, "wrong_state");
    server.kill();
    let server = Server::start(&lab);
    assert_eq!(server.post(&resolve, "r", body).body, resolved.body);
    let replayed = server.call("charge", "k", "{}").envelope(200, "success");
    assert_eq!((replayed.at("/data"), replayed.is_replay()), (json!({ "id": "e-1" }), true));
    assert_eq!(lab.world.acted("/charge"), 1);
}

#[test]
fn a_34_killed_after_the_answer_was_recorded_it_is_replayed() {
    let lab = Lab::charging("");
    let server = Server::start(&lab);
    let first = server.call("charge", "k", "{}").envelope(200, "success");
    server.kill();
    let server = Server::start(&lab);
    let again = server.call("charge", "k", "{}").envelope(200, "success");
    assert_eq!((again.at("/data"), again.is_replay()), (first.at("/data"), true));
    assert_eq!(lab.world.acted("/charge"), 1);
}

/// A doubt that the tool's own probe can settle needs nobody: the restarted server's worker asks by itself.
#[test]
fn a_restarted_server_settles_what_can_be_settled() {
    let probe = "settle_after: 0s\nprobe:\n  http: { method: GET, url: \"WORLD/find?key=${key}\" }\n  happened: \"size(response.json.data) > 0\"\n  result: \"response.json.data[0]\"";
    let lab = Lab::charging(probe);
    let server = Server::start(&lab);
    lab.world.then("/charge", json!({ "after": true }));
    let asking = server.begin("POST", "/v1/tools/charge/call", KEY, "{}");
    lab.world.wait_holding("/charge", 1);
    server.kill();
    lab.world.drop_held("/charge");
    drop(asking);
    let server = Server::start(&lab);
    let events = server.begin("GET", "/v1/events?after=0", &[], "");
    let done = events.lines().any(|line| line.starts_with("data: ") && line.contains("\"state\":\"done\""));
    assert!(done, "the feed ended before it was settled");
    assert!(server.call("charge", "k", "{}").envelope(200, "success").is_replay());
    assert_eq!(lab.world.acted("/charge"), 1);
}

/// An undo that was under way when the server died goes on, and the request that asked for it gets the undo's answer.
#[test]
fn an_undo_that_was_interrupted_goes_on_under_the_same_key() {
    let config = "tools:\n  charge:\n    http: { method: POST, url: \"WORLD/charge\", json: \"${args}\" }\n    undo: { tool: refund, args: { charge: \"${result.id}\" } }\n  refund:\n    http: { method: POST, url: \"WORLD/refund\", json: \"${args}\" }\n    repeat: keyed\n    settle_after: 0s\n";
    let lab = Lab::new(config);
    let server = Server::start(&lab);
    let charged = server.call("charge", "k", "{}").envelope(200, "success");
    let undo = format!("/v1/effects/{}/undo", charged.text("/effect"));
    server.send("POST", &undo, &[], "").problem(400, "idempotency_key_required");
    lab.world.then("/refund", json!({ "before": true, "dedupe": true }));
    let asking = server.begin("POST", &undo, &[("idempotency-key", "u")], "");
    lab.world.wait_holding("/refund", 1);
    // The same request, sent again while it is under way.
    server.post(&undo, "u", "").problem(409, "request_in_flight");
    server.kill();
    lab.world.drop_held("/refund");
    assert!(asking.reply().is_err());
    lab.world.then("/refund", json!({ "dedupe": true }));
    let server = Server::start(&lab);
    let undone = loop {
        let reply = server.post(&undo, "u", "");
        if reply.status == 200 && reply.at("/status") == json!("success") {
            break reply;
        }
        assert!(matches!(reply.status, 200 | 202 | 409), "{reply:?}");
    };
    let again = server.post(&undo, "u", "");
    assert_eq!((&again.body, again.is_replay()), (&undone.body, true));
    assert_eq!(server.get(&format!("/v1/effects/{}", charged.text("/effect"))).at("/state"), json!("undone"));
    assert_eq!((lab.world.acted("/charge"), lab.world.acted("/refund")), (1, 1));
}

#[test]
fn a_38_two_servers_on_one_ledger_make_one_effect() {
    let lab = Lab::charging("");
    let (one, two) = (Server::start(&lab), Server::start(&lab));
    for round in 0..20 {
        let key = format!("k{round}");
        let headers = [("idempotency-key", key.as_str())];
        let asking: Vec<_> = [&one, &two, &one, &two].map(|server| server.begin("POST", "/v1/tools/charge/call", &headers, "{}")).into();
        let replies: Vec<_> = asking.into_iter().map(|asking| asking.reply().unwrap().envelope(200, "success")).collect();
        assert!(replies.iter().all(|reply| reply.at("/data") == replies[0].at("/data")), "{replies:?}");
    }
    assert_eq!(lab.world.acted("/charge"), 20);
}
