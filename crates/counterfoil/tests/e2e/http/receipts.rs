//! Receipts over HTTP: found, paged, proven; another tenant's are not there.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::server::{Reply, Server};
use crate::lab::{EXIT_DONE, Lab};

fn json_of(reply: &Reply) -> Value {
    serde_json::from_str(&reply.body).unwrap_or_else(|error| panic!("{error}: {reply:?}"))
}

fn ids(page: &Value) -> Vec<String> {
    page["receipts"].as_array().expect("a list").iter().map(|receipt| receipt["id"].as_str().expect("an id").to_owned()).collect()
}

#[test]
fn receipts_are_listed_by_run_effect_and_key_and_in_pages() {
    let lab = Lab::charging("");
    let server = Server::start(&lab);
    let mut all = Vec::new();
    for n in 0..7 {
        let body = match n % 2 {
            0 => json!({ "args": { "n": n } }),
            _ => json!({ "args": { "n": n }, "run": "trip", "step": format!("s{n}") }),
        };
        let called = json_of(&server.post("/v1/tools/charge/call", &format!("k{n}"), &body.to_string()));
        all.push((called["receipt"].as_str().expect("a receipt").to_owned(), called["effect"].as_str().expect("its digits").to_owned()));
    }
    let of = |wanted: fn(usize) -> bool| (0..7).filter(|n| wanted(*n)).map(|n| all[n].0.clone()).collect::<Vec<_>>();
    let listed = |query: &str| json_of(&server.get(&format!("/v1/receipts{query}")));
    assert_eq!(ids(&listed("")), of(|_| true), "everything, in the order of the ledger");
    assert_eq!(ids(&listed("?run=trip")), of(|n| n % 2 == 1));
    assert_eq!(ids(&listed(&format!("?effect={}", all[2].1))), [all[2].0.clone()]);
    assert_eq!(ids(&listed("?key=k4&tool=charge")), [all[4].0.clone()]);
    for query in ["?limit=2", "?limit=2&run=trip"] {
        let (mut found, mut next) = (Vec::new(), String::new());
        loop {
            let page = listed(&format!("{query}{next}"));
            found.extend(ids(&page));
            let Some(cursor) = page["next"].as_str() else { break };
            next = format!("&cursor={cursor}");
        }
        assert_eq!(found, if query.contains("run") { of(|n| n % 2 == 1) } else { of(|_| true) }, "{query}");
    }
    for (query, word) in
        [("?key=k4", "go together"), ("?cursor=x", "cursor"), ("?limit=0", "limit"), ("?effect=ab", "effect"), ("?what=1", "what")]
    {
        let refused = server.get(&format!("/v1/receipts{query}"));
        assert_eq!(
            (refused.status, refused.body.contains("invalid_query") && refused.body.contains(word)),
            (400, true),
            "{query}: {refused:?}"
        );
    }
    assert_eq!(ids(&listed("?run=nobody")), Vec::<String>::new());
}

#[test]
fn a_receipt_is_proven_once_it_is_sealed() {
    let lab = Lab::charging("");
    let server = Server::start(&lab);
    let called = json_of(&server.call("charge", "k", "{}"));
    let (id, effect) = (called["receipt"].as_str().expect("an id"), called["effect"].as_str().expect("its digits"));
    let proof = format!("/v1/receipts/{id}/proof");
    let early = server.get(&proof);
    assert_eq!((early.status, early.headers.contains_key("retry-after")), (409, true), "{early:?}");
    assert!(early.body.contains("not_sealed"), "{early:?}");
    assert_eq!(server.get("/v1/log/head").status, 404);
    assert_eq!(json_of(&server.get(&format!("/v1/receipts/{id}")))["leaf"], Value::Null);
    assert_eq!(lab.json(&["receipts", "seal"]).at("/added"), 1);
    let proven = server.get(&format!("{proof}?effect={effect}"));
    assert_eq!(proven.status, 200, "{proven:?}");
    lab.write("http.proof", &proven.body);
    let head = json_of(&server.get("/v1/log/head"));
    assert_eq!((&head["number"], &head["head"]["size"]), (&json!(1), &json!(1)));
    let key = head["head"]["key"].as_str().expect("a key");
    let verified = lab.json(&["receipts", "verify", "http.proof", "--key", key]);
    assert_eq!((verified.code, verified.at("/evidence/receipt/receipt/id")), (EXIT_DONE, json!(id)), "{verified:?}");
    let shown = json_of(&server.get(&format!("/v1/receipts/{id}")));
    assert_eq!((&shown["leaf"], &shown["receipt"]["id"]), (&json!(0), &json!(id)));
    assert_eq!(server.get(&format!("/v1/receipts/{}", "0".repeat(64))).status, 404);
    assert_eq!(server.get("/v1/receipts/abc").status, 400);
    server.signal(Signal::TERM);
    assert_eq!(server.ended(), EXIT_DONE);
}

#[test]
fn a_tenant_sees_its_own_receipts_only() {
    let lab = Lab::charging("");
    let token = |tenant: &str| lab.json(&["tokens", "create", "--caller", "agent", "--tenant", tenant]).text("/secret");
    let (ours, theirs) = (token("ours"), token("theirs"));
    let server = Server::start(&lab);
    let bearer = |token: &str| format!("Bearer {token}");
    let ask = |token: &str, path: &str| server.send("GET", path, &[("authorization", &bearer(token))], "");
    let headers = [("authorization", bearer(&ours)), ("idempotency-key", "k".to_owned())];
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let called = json_of(&server.send("POST", "/v1/tools/charge/call", &headers, r#"{"args":{},"run":"trip","step":"s"}"#));
    let (id, effect) = (called["receipt"].as_str().expect("an id"), called["effect"].as_str().expect("its digits"));
    for path in ["/v1/receipts", "/v1/receipts?run=trip", &format!("/v1/receipts?effect={effect}"), "/v1/receipts?key=k&tool=charge"] {
        assert_eq!(ids(&json_of(&ask(&ours, path))), [id], "{path}");
        assert_eq!(ids(&json_of(&ask(&theirs, path))), Vec::<String>::new(), "{path}");
    }
    for path in [format!("/v1/receipts/{id}"), format!("/v1/receipts/{id}?effect={effect}"), format!("/v1/receipts/{id}/proof?run=trip")] {
        assert_eq!(ask(&theirs, &path).status, 404, "{path}");
        assert_ne!(ask(&ours, &path).status, 404, "{path}");
    }
    assert_eq!(server.get("/v1/receipts").status, 401);
}
