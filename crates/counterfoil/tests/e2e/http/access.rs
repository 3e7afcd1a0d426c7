//! Who may do what: tokens, tenants, rights, rates.

use serde_json::json;

use super::server::{Reply, Server};
use crate::lab::{EXIT_DONE, Lab};

pub fn token(lab: &Lab, args: &[&str]) -> (String, String) {
    let made = lab.json(&[&["tokens", "create"], args].concat());
    assert_eq!(made.code, EXIT_DONE, "{made:?}");
    (made.text("/id"), made.text("/secret"))
}

struct As<'a> {
    server: &'a Server,
    authorization: String,
}

impl As<'_> {
    fn send(&self, method: &str, path: &str, key: &str, body: &str) -> Reply {
        let headers = [("authorization", self.authorization.as_str()), ("idempotency-key", key)];
        self.server.send(method, path, &headers, body)
    }
    fn get(&self, path: &str) -> Reply {
        self.server.send("GET", path, &[("authorization", &self.authorization)], "")
    }
    fn call(&self, key: &str) -> Reply {
        self.send("POST", "/v1/tools/charge/call", key, "{}")
    }
}

fn with<'a>(server: &'a Server, secret: &str) -> As<'a> {
    As { server, authorization: format!("Bearer {secret}") }
}

#[test]
fn a_112_tenants_never_meet() {
    let lab = Lab::charging("approval: \"has(args.ask)\"");
    let rights = ["--rights", "admin"];
    let (_, a) = token(&lab, &[&["--tenant", "acme", "--caller", "ann"], &rights[..]].concat());
    let (_, b) = token(&lab, &[&["--tenant", "blue", "--caller", "bob"], &rights[..]].concat());
    let server = Server::start(&lab);
    let (acme, blue) = (with(&server, &a), with(&server, &b));
    let (theirs, ours) = (acme.call("k").envelope(200, "success"), blue.call("k").envelope(200, "success"));
    assert_ne!(theirs.at("/effect"), ours.at("/effect"), "the same key of two tenants is two effects");
    assert_eq!(lab.world.acted("/charge"), 2);
    let effect = format!("/v1/effects/{}", theirs.text("/effect"));
    acme.get(&effect).ok();
    blue.get(&effect).problem(404, "not_found");
    for (path, body) in [("resolve", r#"{"verdict":"give_up"}"#), ("cancel", "{}"), ("undo", "{}"), ("retry", "{}")] {
        blue.send("POST", &format!("{effect}/{path}"), "x", body).problem(404, "not_found");
    }
    let listed = blue.get("/v1/effects").ok();
    assert_eq!((listed.at("/effects").as_array().unwrap().len(), listed.at("/effects/0/effect")), (1, ours.at("/effect")));
    // Tools that one registers do not exist for the other, and requests of one are not replayed to the other.
    let tool = r#"{"http":{"method":"POST","url":"https://api.example.com/"}}"#;
    assert_eq!(acme.send("PUT", "/v1/tools/own", "t", tool).status, 201);
    blue.get("/v1/tools/own").problem(404, "unknown_tool");
    blue.send("POST", "/v1/tools/own/call", "z", "{}").problem(404, "unknown_tool");
    let own = blue.send("PUT", "/v1/tools/own", "t", tool);
    assert_eq!((own.status, own.is_replay()), (201, false));
    blue.send("DELETE", "/v1/tools/own", "d", "").ok();
    acme.get("/v1/tools/own").ok();
    // Approvals and the feed.
    let waiting = acme.send("POST", "/v1/tools/charge/call", "ask", r#"{"args":{"ask":1}}"#).envelope(202, "waiting_approval");
    assert_eq!(blue.get("/v1/approvals").at("/approvals"), json!([]));
    blue.send("POST", &format!("/v1/approvals/{}/approve", waiting.text("/effect")), "y", "").problem(404, "not_found");
    let feed = server.begin("GET", "/v1/events?after=0", &[("authorization", &blue.authorization)], "");
    let first = feed.lines().find(|line| line.starts_with("data: ")).unwrap();
    assert!(first.contains(&ours.text("/effect")), "the feed of one shows nothing of the other: {first}");
    assert_eq!(lab.world.acted("/charge"), 2);
}

#[test]
fn a_token_allows_what_it_says_and_no_more() {
    let lab = Lab::charging("");
    let (_, call) = token(&lab, &["--caller", "agent"]);
    let (_, operate) = token(&lab, &["--caller", "on-call", "--rights", "operate"]);
    let server = Server::start(&lab);
    for authorization in
        ["", "Bearer", "Bearer ", "Basic abc", "Bearer nonsense", &format!("Bearer {call}x"), &format!("Bearer {call} {call}")]
    {
        let headers = [("authorization", authorization), ("idempotency-key", "k")];
        let refused = server.send("POST", "/v1/tools/charge/call", &headers, "{}").problem(401, "unauthorized");
        assert!(refused.header("www-authenticate").is_some());
    }
    server.call("charge", "k", "{}").problem(401, "unauthorized");
    server.get("/v1/tools").problem(401, "unauthorized");
    server.get("/healthz").ok();
    server.get("/readyz").ok();
    assert_eq!(lab.world.seen("/charge").arrived, 0);
    let agent = with(&server, &call);
    let done = agent.call("k").envelope(200, "success");
    agent.send("POST", &format!("/v1/effects/{}/cancel", done.text("/effect")), "c", "").problem(403, "forbidden");
    agent.send("POST", "/v1/breakers/charge/open", "o", "").problem(403, "forbidden");
    agent.send("PUT", "/v1/tools/x", "t", "{}").problem(403, "forbidden");
    let operator = with(&server, &operate);
    operator.send("POST", "/v1/breakers/charge/open", "o", "").ok();
    operator.send("PUT", "/v1/tools/x", "t", "{}").problem(403, "forbidden");
    // What the ledger says of who asked comes from the token.
    assert_eq!(operator.get(&format!("/v1/effects/{}", done.text("/effect"))).at("/caller"), json!("agent"));
    assert_eq!(lab.world.acted("/charge"), 1);
}

#[test]
fn a_revoked_token_is_refused_soon_and_a_rate_is_kept() {
    let lab = Lab::charging("");
    let (id, secret) = token(&lab, &["--caller", "agent"]);
    let (_, slow) = token(&lab, &["--caller", "slow", "--rate", "2/h"]);
    let server = Server::start_with(&lab, &["--listen", "0.0.0.0:0"]);
    let agent = with(&server, &secret);
    agent.call("k").envelope(200, "success");
    assert_eq!(lab.json(&["tokens", "revoke", &id]).code, EXIT_DONE);
    let began = std::time::Instant::now();
    loop {
        let reply = agent.get("/v1/tools");
        if reply.status != 200 {
            reply.problem(401, "unauthorized");
            break;
        }
        assert!(began.elapsed().as_secs() < 30, "a revoked token is still accepted");
    }
    let slow = with(&server, &slow);
    slow.get("/v1/tools").ok();
    slow.get("/v1/tools").ok();
    let refused = slow.call("x").problem(429, "too_many_requests");
    assert!(refused.header("retry-after").is_some_and(|after| after.parse::<u64>().is_ok_and(|after| after > 60)));
    assert_eq!(lab.world.acted("/charge"), 1);
}

#[test]
fn the_first_token_closes_a_server_that_was_open() {
    let lab = Lab::charging("");
    let server = Server::start(&lab);
    server.call("charge", "k", "{}").envelope(200, "success");
    let (_, secret) = token(&lab, &["--caller", "agent"]);
    let began = std::time::Instant::now();
    while server.get("/v1/tools").status == 200 {
        assert!(began.elapsed().as_secs() < 30, "requests without a token are still answered");
    }
    server.call("charge", "k2", "{}").problem(401, "unauthorized");
    assert!(with(&server, &secret).call("k").envelope(200, "success").is_replay());
    assert_eq!(lab.world.acted("/charge"), 1);
}
