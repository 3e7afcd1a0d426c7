//! Runs and workflows of others, and what is wrong with a request: refused, and nothing is changed. And what is kept as it was sent.

use serde_json::json;

use super::access::token;
use super::runs::{ended, lab, order, parcel, put, start, started};
use super::server::Server;

#[test]
fn a_112_runs_of_another_tenant_do_not_exist() {
    let lab = lab();
    let secret =
        |tenant: &str, rights: &str| format!("Bearer {}", token(&lab, &["--tenant", tenant, "--caller", "ann", "--rights", rights]).1);
    let (acme, blue, reader) = (secret("acme", "admin"), secret("blue", "admin"), secret("acme", "call"));
    let server = Server::start(&lab);
    let send = |who: &str, method: &str, path: &str, key: &str, body: &str| {
        server.send(method, path, &[("authorization", who), ("idempotency-key", key)], body)
    };
    let workflow = parcel().to_string();
    send(&reader, "PUT", "/v1/workflows/parcel", "p", &workflow).problem(403, "forbidden");
    assert_eq!(send(&acme, "PUT", "/v1/workflows/parcel", "p", &workflow).status, 201);
    let body = r#"{"workflow":"parcel","run":"r"}"#;
    assert_eq!(send(&reader, "POST", "/v1/runs", "k", body).status, 201, "who may call may start runs");
    let look = |who: &str, path: &str| server.send("GET", path, &[("authorization", who)], "");
    look(&blue, "/v1/workflows/parcel").problem(404, "unknown_workflow");
    send(&blue, "POST", "/v1/runs", "k", body).problem(404, "unknown_workflow");
    for part in ["", "/entries", "/receipts", "/events"] {
        look(&blue, &format!("/v1/runs/r{part}")).problem(404, "run_not_found");
    }
    let changes = [
        ("cancel", "{}"),
        ("signals/packed", r#"{"correlation":"r"}"#),
        ("approve", r#"{"step":"packed"}"#),
        ("deny", r#"{"step":"packed"}"#),
        ("resume", "{}"),
        ("compensate", "{}"),
        ("skip", r#"{"step":"pay"}"#),
        ("fork", r#"{"at":"send"}"#),
    ];
    for (change, body) in changes {
        send(&blue, "POST", &format!("/v1/runs/r/{change}"), "x", body).problem(404, "run_not_found");
        if !change.starts_with("signals") {
            send(&reader, "POST", &format!("/v1/runs/r/{change}"), "x", body).problem(403, "forbidden");
        }
    }
    assert_eq!(look(&blue, "/v1/runs").at("/runs"), json!([]));
    assert_eq!(look(&acme, "/v1/runs").at("/runs/0/run"), json!("r"));
    send(&reader, "POST", "/v1/runs/r/signals/packed", "s", r#"{"correlation":"r","payload":{"box":1}}"#).ok();
    assert_eq!(look(&acme, "/v1/runs/r?wait=30s").at("/state"), json!("completed"));
    assert_eq!((lab.world.acted("/charge"), lab.world.acted("/ship")), (1, 1));
}

#[test]
fn what_is_wrong_is_refused_and_changes_nothing() {
    let lab = lab();
    let server = Server::start(&lab);
    put(&server, "order", &order());
    for (body, status, code) in [
        (r#"{"workflow":"nothing"}"#, 404, "unknown_workflow"),
        (r#"{"workflow":"order"}"#, 400, "invalid_input"),
        (r#"{"workflow":"order","input":{"customer":1,"customer":2}}"#, 400, "invalid_json"),
        (r#"{"workflow":"order","input":{"#, 400, "invalid_json"),
        (r#"{"workflow":"order","input":{"customer":"a"},"more":1}"#, 400, "invalid_body"),
        (r#"{"workflow":"a b"}"#, 400, "invalid_name"),
        (r#"{"workflow":"order","input":{"customer":"a"},"run":""}"#, 400, "invalid_name"),
        ("[]", 400, "invalid_body"),
    ] {
        server.post("/v1/runs", "same", body).problem(status, code);
    }
    let no_tool = json!({ "workflow": "typo", "steps": [{ "id": "a", "tool": "chrage" }] });
    put(&server, "typo", &no_tool);
    let refused = start(&server, "same", json!({ "workflow": "typo" })).problem(409, "unknown_tool");
    assert!(refused.body.contains("charge"), "{refused:?}");
    // Mistakes of a workflow: all of them, each with its place.
    let send = |path: &str, body: &str| server.send("PUT", path, &[("idempotency-key", "w")], body);
    let wrong = "{\n  \"workflow\": \"bad\",\n  \"steps\": [\n    { \"id\": \"a\", \"tool\": \"charge\", \"argss\": {} },\n    { \"id\": \"c\", \"slep\": \"1s\" }\n  ]\n}";
    let refused = send("/v1/workflows/bad", wrong).problem(400, "workflow_invalid");
    let lines: Vec<_> = refused.at("/mistakes").as_array().unwrap().iter().map(|mistake| mistake["line"].clone()).collect();
    assert!(lines.contains(&json!(4)) && lines.contains(&json!(5)), "{refused:?}");
    send("/v1/workflows/other", &order().to_string()).problem(400, "workflow_invalid");
    send("/v1/workflows/other", "workflow: other").problem(400, "invalid_json");
    server.get("/v1/workflows/bad").problem(404, "unknown_workflow");
    for query in ["state=done", "limit=0", "cursor=x", "more=1"] {
        server.get(&format!("/v1/runs?{query}")).problem(400, "invalid_query");
    }
    server.get("/v1/runs/r?wait=1y").problem(400, "invalid_query");
    server.get("/v1/runs/r?wait=2m").problem(400, "invalid_query");
    assert_eq!(server.get("/v1/runs").at("/runs"), json!([]));
    assert_eq!(lab.world.seen("/charge").arrived, 0);
    // The key that was refused so often is still to be had.
    assert_eq!(start(&server, "same", json!({ "workflow": "order", "input": { "customer": "a" } })).status, 201);
}

#[test]
fn a_workflow_is_kept_as_it_was_sent_and_runs_keep_theirs() {
    let lab = lab();
    let server = Server::start(&lab);
    let text = "workflow: hi\nsteps:\n  - { id: pay, tool: charge }   # the first\n";
    let body = json!({ "text": text }).to_string();
    let send = |key: &str, body: &str| server.send("PUT", "/v1/workflows/hi", &[("idempotency-key", key)], body);
    let first = send("a", &body);
    assert_eq!((first.status, first.at("/version"), first.at("/changed")), (201, json!(1), json!(true)), "{first:?}");
    let same = send("b", &body);
    assert_eq!((same.status, same.at("/version"), same.at("/changed")), (200, json!(1), json!(false)));
    assert_eq!((send("b", &body).body, send("a", &body).body), (same.body, first.body.clone()));
    let shown = server.get("/v1/workflows/hi").ok();
    assert_eq!((shown.text("/text"), shown.at("/definition")), (text.to_owned(), first.at("/definition")));
    started(&server, "hi", "r");
    ended(&server, "r", "completed");
    let other = json!({ "workflow": "hi", "description": "grüße \u{1f44b} \\u0041", "steps": [{ "id": "send", "tool": "ship" }] });
    let second = send("c", &other.to_string().replace('\u{1f44b}', "\\ud83d\\udc4b"));
    assert_eq!((second.status, second.at("/version")), (200, json!(2)), "{second:?}");
    assert_eq!(server.get("/v1/workflows/hi").at("/description"), other["description"]);
    assert_eq!(server.get("/v1/workflows").at("/workflows/0/version"), json!(2));
    assert_eq!(server.get("/v1/runs/r").at("/definition"), first.at("/definition"));
    start(&server, "k", json!({ "workflow": "hi", "run": "r" })).problem(409, "definition_diverged");
    assert_eq!((lab.world.acted("/charge"), lab.world.acted("/ship")), (1, 0));
}
