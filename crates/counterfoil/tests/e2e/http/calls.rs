//! Calls over HTTP: the envelope, the key, the same answer.

use serde_json::json;

use super::server::Server;
use crate::lab::Lab;

#[test]
fn a_9_the_second_call_is_answered_from_the_record() {
    let lab = Lab::charging("");
    let server = Server::start(&lab);
    let first = server.call("charge", "k", r#"{"cents":5}"#).envelope(200, "success");
    let again = server.call("charge", "k", r#"{ "cents": 5.0 }"#).envelope(200, "success");
    assert_eq!((first.at("/replayed"), again.at("/replayed")), (json!(false), json!(true)));
    assert_eq!((first.is_replay(), again.is_replay()), (false, true));
    assert_eq!(first.at("/data"), again.at("/data"));
    assert_eq!(first.header("location"), again.header("location"));
    let shown = server.get(first.header("location").unwrap()).ok();
    assert_eq!((shown.at("/state"), shown.at("/effect")), (json!("done"), first.at("/effect")));
    assert_eq!(lab.world.acted("/charge"), 1);
}

/// A-7: the key of a call is the same wherever it is asked.
#[test]
fn a_7_the_key_is_the_same_from_the_command_line() {
    let lab = Lab::charging("");
    let server = Server::start(&lab);
    let over_http = server.call("charge", "k", "{}").envelope(200, "success");
    let typed = lab.call("charge", "{}", "k").replayed();
    assert_eq!(over_http.text("/effect"), typed.effect());
    assert_eq!(lab.world.acted("/charge"), 1);
}

#[test]
fn a_12_fifty_at_once_are_one() {
    let lab = Lab::charging("");
    let server = Server::start(&lab);
    lab.world.then("/charge", json!({ "before": true }));
    let asking: Vec<_> =
        (0..50).map(|_| server.begin("POST", "/v1/tools/charge/call", &[("idempotency-key", "k")], r#"{"args":{}}"#)).collect();
    lab.world.wait_holding("/charge", 1);
    lab.world.release("/charge");
    let replies: Vec<_> = asking.into_iter().map(|asking| asking.reply().unwrap().envelope(200, "success")).collect();
    assert!(replies.iter().all(|reply| reply.at("/data") == replies[0].at("/data")));
    assert_eq!(lab.world.acted("/charge"), 1);
}

#[test]
fn a_12_conflict_mode_says_so_at_once() {
    let lab = Lab::charging("on_in_flight: conflict");
    let server = Server::start(&lab);
    lab.world.then("/charge", json!({ "before": true }));
    let first = server.begin("POST", "/v1/tools/charge/call", &[("idempotency-key", "k")], "{}");
    lab.world.wait_holding("/charge", 1);
    let refused = server.call("charge", "k", "{}").problem(409, "in_flight");
    assert!(refused.header("retry-after").is_some_and(|after| after.parse::<u64>().is_ok_and(|after| after >= 1)));
    lab.world.release("/charge");
    first.reply().unwrap().envelope(200, "success");
    assert_eq!(lab.world.acted("/charge"), 1);
}

#[test]
fn a_14_a_key_with_other_arguments_is_refused() {
    let lab = Lab::charging("");
    let server = Server::start(&lab);
    let first = server.call("charge", "k", r#"{"cents":5}"#).envelope(200, "success");
    server.call("charge", "k", r#"{"cents":6}"#).problem(422, "key_reuse_mismatch");
    assert_eq!(server.call("charge", "k", r#"{"cents":5}"#).at("/data"), first.at("/data"), "the original is intact");
    assert_eq!(lab.world.acted("/charge"), 1);
}

#[test]
fn a_88_a_key_is_needed_and_must_be_one() {
    let lab = Lab::charging("");
    let server = Server::start(&lab);
    let path = "/v1/tools/charge/call";
    server.send("POST", path, &[], r#"{"args":{}}"#).problem(400, "idempotency_key_required");
    let long = "k".repeat(300);
    for bad in ["", "\"\"", "\"open", "a\tb", "sch\u{fc}ssel", long.as_str()] {
        server.send("POST", path, &[("idempotency-key", bad)], "{}").problem(400, "invalid_idempotency_key");
    }
    server.send("POST", path, &[("idempotency-key", "a"), ("idempotency-key", "b")], "{}").problem(400, "invalid_idempotency_key");
    server.send("POST", path, &[("idempotency-key", "a")], r#"{"key":"b"}"#).problem(400, "key_conflict");
    assert_eq!(lab.world.seen("/charge").arrived, 0);
    // The same key in both places, quoted or bare, is one key.
    server.send("POST", path, &[("idempotency-key", "\"a\"")], r#"{"key":"a"}"#).envelope(200, "success");
    assert!(server.send("POST", path, &[], r#"{"key":"a"}"#).envelope(200, "success").is_replay());
    // Within a run the call is identified by where it stands.
    server.send("POST", path, &[], r#"{"run":"r","step":"s"}"#).envelope(200, "success");
    assert!(server.send("POST", path, &[], r#"{"run":"r","step":"s"}"#).is_replay());
    assert_eq!(lab.world.acted("/charge"), 2);
}

#[test]
fn refusals_are_precise_and_run_nothing() {
    let lab = Lab::charging("input: { type: object, required: [cents] }");
    let server = Server::start(&lab);
    let near = server.call("chrge", "k", "{}").problem(404, "unknown_tool");
    assert!(near.text("/detail").contains("did you mean charge?"), "{near:?}");
    server.call("charge", "k", "{}").problem(400, "invalid_arguments");
    server.call("charge", "k", r#"{"cents":1,"cents":2}"#).problem(400, "invalid_json");
    server.post("/v1/tools/charge/call", "k", "{").problem(400, "invalid_body");
    server.post("/v1/tools/charge/call", "k", r#"{"arg":{}}"#).problem(400, "invalid_body");
    let typed = [("idempotency-key", "k"), ("content-type", "text/plain")];
    server.send("POST", "/v1/tools/charge/call", &typed, "{}").problem(415, "unsupported_media_type");
    let large = format!(r#"{{"args":{{"cents":1,"note":"{}"}}}}"#, "x".repeat(10 << 20));
    server.post("/v1/tools/charge/call", "k", &large).problem(413, "body_too_large");
    assert_eq!(lab.world.seen("/charge").arrived, 0);
    // A-16: the key is still usable.
    server.call("charge", "k", r#"{"cents":1}"#).envelope(200, "success");
    assert_eq!(lab.world.acted("/charge"), 1);
}

#[test]
fn a_dropped_connection_neither_stops_the_call_nor_leaves_the_key_stuck() {
    let lab = Lab::charging("");
    let server = Server::start(&lab);
    lab.world.then("/charge", json!({ "before": true }));
    let asking = server.begin("POST", "/v1/tools/charge/call", &[("idempotency-key", "k")], "{}");
    lab.world.wait_holding("/charge", 1);
    asking.hang_up();
    // A second client waits for the same call, which nobody waited for.
    let second = server.begin("POST", "/v1/tools/charge/call", &[("idempotency-key", "k")], "{}");
    lab.world.release("/charge");
    second.reply().unwrap().envelope(200, "success");
    assert!(server.call("charge", "k", "{}").envelope(200, "success").is_replay());
    assert_eq!(lab.world.acted("/charge"), 1);
}

#[test]
fn what_is_recorded_is_answered_200_whatever_it_says() {
    let lab = Lab::charging("retry: { attempts: 1 }");
    let server = Server::start(&lab);
    lab.world.then("/charge", json!({ "status": 400, "act": false, "body": "{\"why\":\"no\"}" }));
    let failed = server.call("charge", "bad", "{}").envelope(200, "error");
    assert_eq!((failed.at("/error/code"), failed.at("/error/retriable")), (json!("http_400"), json!(false)));
    assert!(server.call("charge", "bad", "{}").envelope(200, "error").is_replay());
    lab.world.then("/charge", json!({ "end": "hang_up" }));
    let doubt = server.call("charge", "lost", "{}").envelope(200, "in_doubt");
    assert_eq!(doubt.at("/outcome"), json!("in_doubt"));
    let listed = server.get("/v1/effects?state=in_doubt").ok();
    assert_eq!(listed.at("/effects/0/effect"), doubt.at("/effect"));
    assert_eq!(lab.world.seen("/charge").arrived, 2);
}

#[test]
fn a_95_an_open_breaker_answers_at_once() {
    let lab = Lab::charging("retry: { attempts: 1, first: 0ms, max: 0ms }");
    let server = Server::start(&lab);
    lab.world.then("/charge", json!({ "status": 503, "act": false }));
    for n in 0..5 {
        server.call("charge", &format!("k{n}"), "{}").envelope(200, "error");
    }
    let refused = server.call("charge", "k5", "{}").envelope(503, "circuit_open");
    assert!(refused.header("retry-after").is_some());
    assert_eq!(refused.header("location"), None, "there is nothing to look at");
    assert_eq!(server.get("/v1/breakers").at("/breakers/0/state"), json!("open"));
    assert_eq!(lab.world.seen("/charge").arrived, 5);
    server.post("/v1/breakers/charge/reset", "r", "").ok();
    lab.world.then("/charge", json!({}));
    server.call("charge", "k5", "{}").envelope(200, "success");
    assert_eq!(lab.world.acted("/charge"), 1);
}

#[test]
fn a_102_a_concurrency_limit_holds() {
    let lab = Lab::charging("limits: { concurrency: 10 }");
    let server = Server::start(&lab);
    lab.world.then("/charge", json!({ "before": true }));
    let asking: Vec<_> =
        (0..100).map(|n| server.begin("POST", "/v1/tools/charge/call", &[("idempotency-key", &format!("k{n}"))], "{}")).collect();
    lab.world.wait_holding("/charge", 10);
    lab.world.release("/charge");
    for asking in asking {
        asking.reply().unwrap().envelope(200, "success");
    }
    let seen = lab.world.seen("/charge");
    assert_eq!((seen.acted, seen.most_at_once), (100, 10));
}
