//! What is counted, and what administrators do.

use serde_json::json;

use super::server::{Reply, Server};
use crate::lab::{EXIT_DONE, Lab};

#[test]
fn a_106_a_flush_frees_one_key_and_says_who_and_why() {
    let lab = Lab::charging("");
    let server = Server::start(&lab);
    let (first, other) = (server.call("charge", "k", "{}"), server.call("charge", "other", "{}"));
    let body = format!(r#"{{"key":"{}","why":"poisoned"}}"#, first.text("/effect"));
    let flushed = server.post("/v1/admin/flush", "f", &body).ok();
    assert_eq!(flushed.at("/state"), json!("flushed"));
    let again = server.post("/v1/admin/flush", "f", &body);
    assert_eq!((&again.body, again.is_replay()), (&flushed.body, true), "sent again, it frees nothing again");
    let renewed = server.call("charge", "k", r#"{"now":"other arguments"}"#).envelope(200, "success");
    assert_eq!((renewed.is_replay(), renewed.at("/data") == first.at("/data")), (false, false));
    assert!(server.post("/v1/admin/flush", "f", &body).is_replay());
    assert!(server.call("charge", "k", r#"{"now":"other arguments"}"#).is_replay());
    assert!(server.call("charge", "other", "{}").is_replay(), "no other key was touched");
    let history = server.get(&format!("/v1/effects/{}", first.text("/effect"))).at("/history").to_string();
    assert!(history.contains("poisoned") && history.contains("\"by\":\"local\""), "{history}");
    assert_eq!(other.at("/status"), json!("success"));
    assert_eq!(lab.world.acted("/charge"), 3);
}

#[test]
fn a_doubt_is_never_flushed_and_a_whole_tool_only_when_confirmed() {
    let lab = Lab::charging("");
    let server = Server::start(&lab);
    for n in 0..4 {
        server.call("charge", &format!("k{n}"), "{}").envelope(200, "success");
    }
    lab.world.then("/charge", json!({ "end": "hang_up" }));
    let doubt = server.call("charge", "lost", "{}").envelope(200, "in_doubt");
    lab.world.then("/charge", json!({}));
    server.post("/v1/admin/flush", "a", &format!(r#"{{"key":"{}"}}"#, doubt.text("/effect"))).problem(409, "wrong_state");
    let asked = server.post("/v1/admin/flush", "b", r#"{"tool":"charge"}"#).problem(409, "confirmation_needed");
    assert_eq!(asked.at("/would_flush"), json!(4));
    assert!(server.call("charge", "k0", "{}").is_replay(), "nothing was changed");
    let done = server.post("/v1/admin/flush", "c", r#"{"tool":"charge","confirm":true,"why":"all wrong"}"#).ok();
    assert_eq!(done.at("/flushed"), json!(4));
    assert_eq!(server.post("/v1/admin/flush", "c", r#"{"tool":"charge","confirm":true,"why":"all wrong"}"#).body, done.body);
    assert!(!server.call("charge", "k0", "{}").envelope(200, "success").is_replay());
    server.call("charge", "lost", "{}").envelope(200, "in_doubt");
    for bad in ["{}", r#"{"key":"x"}"#, r#"{"key":"a","tool":"b"}"#] {
        assert_eq!(server.post("/v1/admin/flush", "d", bad).status, 400);
    }
    assert_eq!(lab.world.acted("/charge"), 6);
}

#[test]
fn a_105_a_mode_is_switched_while_it_runs() {
    let lab = Lab::charging("");
    let server = Server::start(&lab);
    server.call("charge", "k", "{}").envelope(200, "success");
    let set = |key: &str, body: &str| server.send("PUT", "/v1/admin/mode", &[("idempotency-key", key)], body);
    set("off", r#"{"mode":"off"}"#).problem(409, "duplicates_not_accepted");
    set("bad", r#"{"mode":"lax"}"#).problem(400, "invalid_body");
    set("none", r#"{"mode":"shadow","tool":"chrge"}"#).problem(404, "unknown_tool");
    let switched = set("s", r#"{"mode":"shadow","tool":"charge","why":"a trial"}"#).ok();
    assert_eq!(set("s", r#"{"mode":"shadow","tool":"charge","why":"a trial"}"#).body, switched.body);
    // A live call is never stopped in shadow mode, only told of: this is the duplicate that enforce would have replayed.
    server.call("charge", "k", "{}").envelope(200, "success");
    assert_eq!(lab.world.acted("/charge"), 2);
    let shown = server.get("/v1/admin/mode").ok();
    assert_eq!(shown.at("/shadowed/replayed"), json!(1));
    assert!(shown.at("/modes").to_string().contains("a trial"), "{shown:?}");
    server.kill();
    let server = Server::start(&lab);
    server.call("charge", "k", "{}").envelope(200, "success");
    assert_eq!(lab.world.acted("/charge"), 3, "a switch survives a restart");
    server.send("DELETE", "/v1/admin/mode?tool=charge", &[("idempotency-key", "r")], "").ok();
    assert!(server.call("charge", "k", "{}").envelope(200, "success").is_replay());
    assert_eq!(lab.world.acted("/charge"), 3);
}

#[test]
fn a_backup_is_a_ledger_of_its_own() {
    let lab = Lab::charging("");
    let server = Server::start(&lab);
    for n in 0..20 {
        server.call("charge", &format!("k{n}"), "{}").envelope(200, "success");
    }
    let made = server.post("/v1/admin/backup", "b", r#"{"name":"nightly.db"}"#);
    assert_eq!((made.status, made.at("/records").as_u64() >= Some(40)), (201, true), "{made:?}");
    assert!(server.post("/v1/admin/backup", "b", r#"{"name":"nightly.db"}"#).is_replay());
    server.post("/v1/admin/backup", "c", r#"{"name":"nightly.db"}"#).problem(409, "backup_exists");
    for bad in ["../x.db", "/tmp/x.db", "", ".hidden", "a b", "x/y"] {
        server.post("/v1/admin/backup", "d", &json!({ "name": bad }).to_string()).problem(400, "invalid_name");
    }
    let copy = format!("sqlite:{}", lab.path("counterfoil.db-backups/nightly.db").display());
    let replayed = lab.json(&["--store", &copy, "call", "charge", "--args", "{}", "--key", "k7"]);
    assert_eq!((replayed.code, replayed.at("/replayed")), (EXIT_DONE, json!(true)));
    server.post("/v1/admin/prune", "p", "").ok();
    assert_eq!(lab.world.acted("/charge"), 20);
}

#[test]
fn the_whole_ledger_is_the_operators_business() {
    let lab = Lab::charging("");
    let token = |args: &[&str]| lab.json(&[&["tokens", "create", "--rights", "admin"], args].concat()).text("/secret");
    let (own, other) = (token(&["--caller", "ops"]), token(&["--caller", "ann", "--tenant", "acme"]));
    let server = Server::start(&lab);
    let send = |token: &str, method: &str, path: &str, body: &str| -> Reply {
        server.send(method, path, &[("authorization", &format!("Bearer {token}")), ("idempotency-key", "k")], body)
    };
    for (method, path, body) in [
        ("POST", "/v1/admin/prune", ""),
        ("POST", "/v1/admin/backup", r#"{"name":"b.db"}"#),
        ("PUT", "/v1/admin/mode", r#"{"mode":"shadow"}"#),
        ("DELETE", "/v1/admin/mode", ""),
    ] {
        send(&other, method, path, body).problem(403, "forbidden");
        send(&own, method, path, body).ok();
    }
    assert!(lab.path("counterfoil.db-backups/b.db").exists());
}

fn counted(server: &Server, series: &str) -> f64 {
    let text = server.get("/metrics").ok().body;
    let found = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok());
    found.unwrap_or(0.0)
}

#[test]
fn a_103_calls_replays_retries_and_breakers_are_counted() {
    let lab = Lab::charging("retry: { attempts: 2, first: 0ms, max: 0ms }");
    let server = Server::start(&lab);
    server.call("charge", "k", "{}").envelope(200, "success");
    server.call("charge", "k", "{}").envelope(200, "success");
    let total = |status: &str| counted(&server, &format!("tool_execution_total{{tool=\"charge\",status=\"{status}\"}}"));
    assert_eq!(total("success"), 2.0);
    assert_eq!(counted(&server, "idempotency_cache_hits_total{tool=\"charge\"}"), 1.0);
    assert_eq!(counted(&server, "tool_duration_seconds_count{tool=\"charge\"}"), 1.0, "a replay takes no time of the tool's");
    assert_eq!(counted(&server, "circuit_breaker_state{tool=\"charge\",state=\"closed\"}"), 1.0);
    lab.world.then("/charge", json!({ "status": 503, "act": false }));
    for n in 0..3 {
        server.call("charge", &format!("bad{n}"), "{}");
    }
    assert_eq!(counted(&server, "circuit_breaker_state{tool=\"charge\",state=\"open\"}"), 1.0);
    assert_eq!(counted(&server, "circuit_breaker_state{tool=\"charge\",state=\"closed\"}"), 0.0);
    assert!(total("circuit_open") >= 1.0 || total("error") >= 2.0);
    for n in 0..50 {
        server.call(&format!("no-such-tool-{n}"), "k", "{}").problem(404, "unknown_tool");
    }
    let text = server.get("/metrics").ok().body;
    assert!(!text.contains("no-such-tool"), "labels are bounded");
    assert_eq!(counted(&server, "effects_in_doubt"), 0.0);
    server.post("/v1/breakers/charge/reset", "r", "").ok();
    lab.world.then("/charge", json!({ "end": "hang_up" }));
    server.call("charge", "lost", "{}").envelope(200, "in_doubt");
    assert_eq!(counted(&server, "effects_in_doubt"), 1.0);
}

#[test]
fn a_104_the_callers_trace_reaches_the_world() {
    let lab = Lab::charging("retry: { attempts: 2, first: 0ms, max: 0ms }");
    let server = Server::start(&lab);
    lab.world.rules("/charge", json!({ "next": [{ "status": 503, "act": false }] }));
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let headers = [("idempotency-key", "k"), ("traceparent", parent)];
    server.send("POST", "/v1/tools/charge/call", &headers, "{}").envelope(200, "success");
    let traces: Vec<String> = lab.world.seen("/charge").requests.iter().map(|request| request.trace.clone()).collect();
    assert_eq!(traces.len(), 2, "two attempts");
    assert!(traces.iter().all(|trace| trace.starts_with("00-0af7651916cd43dd8448eb211c80319c-")), "{traces:?}");
    assert!(
        traces[0] != traces[1] && !traces.iter().any(|trace| trace.contains("b7ad6b7169203331")),
        "a span for each attempt: {traces:?}"
    );
}
