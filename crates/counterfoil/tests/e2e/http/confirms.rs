//! F over HTTP: a server is killed in the middle of a run, the world is changed, and the next server asks it before the run goes on.

use serde_json::{Value, json};

use super::runs::{ended, put, started};
use super::server::{Reply, Server};
use crate::lab::Lab;
use crate::runs::until;

const CONFIG: &str = "tools:
  charge:
    http: { method: POST, url: \"WORLD/charge\", json: \"${args}\" }
    verify: { http: { url: \"WORLD/charges/${result.id}\" }, holds: \"response.json.status == 'paid'\", ref: result.id }
    undo: { tool: refund, args: { charge: \"${result.id}\" } }
  refund: { http: { method: POST, url: \"WORLD/refund\", json: \"${args}\" } }
  ship: { http: { method: POST, url: \"WORLD/ship\", json: \"${args}\" }, repeat: keyed, settle_after: 0s }
";

fn order(mode: &str) -> Value {
    json!({ "workflow": "order", "confirm": { "mode": mode }, "steps": [
        { "id": "pay", "tool": "charge", "args": { "cents": 5 } },
        { "id": "send", "tool": "ship", "args": { "charge": "${steps.pay.result.id}" } },
    ] })
}

/// A run that was paid for and is being shipped when its server is killed; nothing was shipped. And a new server.
fn killed(mode: &str) -> (Lab, Server) {
    let lab = Lab::new(CONFIG);
    says(&lab, "paid");
    let server = Server::start(&lab);
    put(&server, "order", &order(mode));
    lab.world.then("/ship", json!({ "before": true }));
    started(&server, "order", "r");
    lab.world.wait_holding("/ship", 1);
    server.kill();
    lab.world.drop_held("/ship");
    lab.world.then("/ship", json!({}));
    says(&lab, "disputed");
    let server = Server::start(&lab);
    (lab, server)
}

fn says(lab: &Lab, status: &str) {
    lab.world.then("/charges/e-1", json!({ "act": false, "body": json!({ "status": status }).to_string() }));
}

/// What was done to the world: charged, refunded, shipped.
fn acted(lab: &Lab) -> [u64; 3] {
    ["/charge", "/refund", "/ship"].map(|path| lab.world.acted(path))
}

/// Holds an answer against what the document says of it.
fn documented(server: &Server, path: &str, reply: &Reply) {
    let document = server.get("/openapi.json").ok().value();
    let schema = document["paths"][path]["post"]["responses"]["200"]["content"]["application/json"]["schema"].clone();
    let whole = json!({ "allOf": [schema], "components": document["components"] });
    let validator = jsonschema::options().should_validate_formats(true).build(&whole).unwrap();
    let mistakes: Vec<String> = validator.iter_errors(&reply.value()).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(mistakes.is_empty(), "{path}: {mistakes:?}: {reply:?}");
}

#[test]
fn a_50_strict_over_http_fails_the_run_and_leaves_what_drifted_alone() {
    let (lab, server) = killed("strict");
    // What was under way is not sent again to find out whether it happened: the run has failed, and a person says so.
    until(|| server.get("/v1/runs/r").ok().at("/compensations/0/waits_for").is_string());
    let shipping = server.get("/v1/runs/r").ok().text("/steps/1/effect");
    server.post(&format!("/v1/effects/{shipping}/resolve"), "n", r#"{"verdict":"did_not_happen"}"#).ok();
    let failed = ended(&server, "r", "compensation_failed");
    assert_eq!((failed.at("/error/code"), acted(&lab)), (json!("world_drifted"), [1, 0, 0]), "{failed:?}");
    assert_eq!((failed.at("/confirmation/judgement"), failed.at("/confirmation/checks/0/finding")), (json!("failed"), json!("drifted")));
    documented(&server, "/v1/runs/{run}/resume", &failed);
    // Dealt with by hand.
    server.post("/v1/runs/r/skip", "s", r#"{"step":"pay","why":"the bank has it"}"#).ok();
    ended(&server, "r", "compensated");
    assert_eq!(acted(&lab), [1, 0, 0]);
}

#[test]
fn a_50_human_over_http_waits_for_a_decision_that_is_heard_once() {
    let (lab, server) = killed("human");
    until(|| server.get("/v1/runs/r").ok().at("/confirmation/waits_for").is_string());
    let held = server.get("/v1/runs/r").ok();
    assert_eq!(
        (held.at("/state"), held.at("/confirmation/judgement"), acted(&lab)),
        (json!("waiting"), json!("needs_person"), [1, 0, 0]),
        "{held:?}"
    );
    server.post("/v1/runs/nobody/confirm", "a", r#"{"accept":true}"#).problem(404, "run_not_found");
    server.post("/v1/runs/r/confirm", "a", "{}").problem(400, "invalid_body");
    let first = server.post("/v1/runs/r/confirm", "b", r#"{"accept":true,"why":"the customer rang"}"#).ok();
    documented(&server, "/v1/runs/{run}/confirm", &first);
    let again = server.post("/v1/runs/r/confirm", "b", r#"{"accept":true,"why":"the customer rang"}"#);
    assert_eq!((&again.body, again.is_replay()), (&first.body, true));
    let ended = ended(&server, "r", "completed");
    assert_eq!((ended.at("/confirmation/judgement"), acted(&lab)), (json!("accepted"), [1, 0, 1]), "{ended:?}");
    server.post("/v1/runs/r/confirm", "c", r#"{"accept":true}"#).ok();
    server.post("/v1/runs/r/confirm", "d", r#"{"accept":false}"#).problem(409, "wrong_state");
}

#[test]
fn a_run_is_replayed_dry_and_an_effect_verified_over_http() {
    let (lab, server) = killed("warn");
    ended(&server, "r", "completed");
    let (questions, done) = (lab.world.seen("/charges/e-1").arrived, acted(&lab));
    assert_eq!((questions, done), (1, [1, 0, 1]));
    let entries = server.get("/v1/runs/r/entries").ok().body;
    let replayed = server.send("POST", "/v1/runs/r/replay", &[], "").ok();
    documented(&server, "/v1/runs/{run}/replay", &replayed);
    let found = |reply: &Reply| (reply.at("/verdict"), reply.at("/steps/0/finding"), reply.at("/steps/1/finding"));
    assert_eq!(found(&replayed), (json!("drifted"), json!("drifted"), json!("unverified")), "{replayed:?}");
    says(&lab, "paid");
    // Nothing is recorded, so the same key asks again.
    let agrees = server.post("/v1/runs/r/replay", "k", "{}").ok();
    assert_eq!(found(&agrees), (json!("agrees"), json!("verified"), json!("unverified")));
    says(&lab, "disputed");
    assert_eq!(server.post("/v1/runs/r/replay", "k", "{}").ok().at("/verdict"), json!("drifted"));
    // Against the definition that is put now.
    let diverged = order("warn").to_string().replace("\"cents\":5", "\"cents\":6");
    server.send("PUT", "/v1/workflows/order", &[("idempotency-key", "p")], &diverged).ok();
    let parted = server.post("/v1/runs/r/replay", "k", r#"{"workflow":"order"}"#).ok();
    documented(&server, "/v1/runs/{run}/replay", &parted);
    assert_eq!((parted.at("/divergence/first/step"), parted.at("/divergence/followed")), (json!("pay"), json!(0)), "{parted:?}");
    server.post("/v1/runs/r/replay", "k", r#"{"workflow":"none"}"#).problem(404, "unknown_workflow");
    server.post("/v1/runs/none/replay", "k", "{}").problem(404, "run_not_found");
    server.post("/v1/runs/r/replay", "k", r#"{"dry":true}"#).problem(400, "invalid_body");

    let effect = replayed.text("/steps/0/effect");
    let verified = server.send("POST", &format!("/v1/effects/{effect}/verify"), &[], "").ok();
    documented(&server, "/v1/effects/{key}/verify", &verified);
    assert_eq!((verified.at("/finding"), verified.at("/step")), (json!("drifted"), json!("pay")), "{verified:?}");
    let shown = server.get(&format!("/v1/effects/{effect}")).ok();
    assert_eq!(shown.at("/state_changed/ref"), json!("e-1"), "{shown:?}");
    server.post(&format!("/v1/effects/{}/verify", "0".repeat(64)), "k", "{}").problem(404, "not_found");
    assert_eq!((acted(&lab), server.get("/v1/runs/r/entries").ok().body), (done, entries), "nobody was called, nothing was written");
}
