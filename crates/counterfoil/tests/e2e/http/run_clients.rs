//! Runs that a client drives over HTTP: its permits are steps, and what it did is undone when it fails or falls silent.

use serde_json::json;

use super::lend::report;
use super::runs::ended;
use super::server::{Reply, Server};
use crate::lab::Lab;

const CONFIG: &str = r#"
tools:
  pack:
    client: {}
    undo: { tool: unpack, args: { box: "${result.box}" } }
  unpack:
    http: { method: POST, url: "WORLD/unpack", json: "${args}" }
"#;

fn open(server: &Server, more: &str) -> Reply {
    server.post("/v1/runs", "open", &format!(r#"{{"workflow":"packing","driver":"client","run":"r"{more}}}"#))
}

fn acquire(server: &Server, step: &str) -> Reply {
    let body = format!(r#"{{"tool":"pack","args":{{"step":"{step}"}},"run":"r","step":"{step}"}}"#);
    server.post("/v1/effects/acquire", &format!("acquire {step}"), &body)
}

fn packed(server: &Server, step: &str, number: u32) {
    let permit = acquire(server, step);
    assert_eq!(permit.status, 201, "{permit:?}");
    report(server, &permit, "commit", &format!("commit {step}"), &format!(r#""result":{{"box":{number}}}"#)).envelope(200, "success");
}

#[test]
fn a_clients_run_goes_on_over_a_restart_and_ends_when_it_says_so() {
    let lab = Lab::new(CONFIG);
    let server = Server::start(&lab);
    let opened = open(&server, "");
    assert_eq!((opened.status, opened.header("location")), (201, Some("/v1/runs/r")), "{opened:?}");
    assert!(open(&server, "").is_replay());
    let permit = acquire(&server, "one");
    server.post("/v1/runs/r/finish", "early", r#"{"output":1}"#).problem(409, "wrong_state");
    server.kill();
    let server = Server::start(&lab);
    report(&server, &permit, "commit", "c", r#""result":{"box":1}"#).envelope(200, "success");
    packed(&server, "two", 2);
    server.post("/v1/runs/r/finish", "both", r#"{"output":1,"error":{"code":"a","message":"b"}}"#).problem(400, "invalid_body");
    server.post("/v1/runs/r/finish", "f", r#"{"output":{"boxes":2}}"#).ok();
    let view = ended(&server, "r", "completed");
    assert_eq!((view.at("/output"), view.at("/steps/1/outcome")), (json!({ "boxes": 2 }), json!("side_effect_committed")));
    assert!(server.post("/v1/runs/r/finish", "f", r#"{"output":{"boxes":2}}"#).is_replay());
    assert_eq!(lab.world.acted("/unpack"), 0);
    server.post("/v1/runs", "bad", r#"{"workflow":"packing","lease_ms":5000}"#).problem(400, "invalid_lease");
    server.post("/v1/runs", "worse", r#"{"workflow":"packing","driver":"client","run":"x","lease_ms":5}"#).problem(400, "invalid_lease");
}

#[test]
fn what_a_client_did_is_undone_when_it_fails_or_falls_silent() {
    for silent in [false, true] {
        let lab = Lab::new(CONFIG);
        let server = Server::start(&lab);
        open(&server, if silent { r#","lease_ms":1500"# } else { "" });
        packed(&server, "one", 1);
        packed(&server, "two", 2);
        if !silent {
            server.post("/v1/runs/r/finish", "f", r#"{"error":{"code":"sold_out","message":"no more boxes"}}"#).ok();
        } else {
            server.send("POST", "/v1/runs/r/heartbeat", &[], "{}").ok();
        }
        let view = ended(&server, "r", "compensated");
        assert_eq!(view.at("/error/code"), if silent { "client_lost" } else { "sold_out" });
        let undone: Vec<String> = lab.world.seen("/unpack").requests.iter().map(|request| request.body.clone()).collect();
        assert_eq!(undone, [r#"{"box":2}"#, r#"{"box":1}"#]);
        assert_ne!(acquire(&server, "three").status, 201, "a run that is over gives no permit");
    }
}
