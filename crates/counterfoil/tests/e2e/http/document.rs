//! What the server says of itself, and that it is so.

use serde_json::{Value, json};

use super::server::Server;
use crate::lab::Lab;

/// The document and its page need no token, and are refused to pages of elsewhere like all else.
#[test]
fn the_document_and_its_page_are_served() {
    let lab = Lab::charging("");
    let server = Server::start(&lab);
    let document = server.get("/openapi.json").ok();
    assert_eq!(document.header("content-type"), Some("application/json"));
    assert_eq!((document.at("/openapi"), document.at("/info/version")), (json!("3.1.0"), json!(env!("CARGO_PKG_VERSION"))));

    let page = server.get("/docs").ok();
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let policy = page.header("content-security-policy").unwrap_or_default();
    assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"), "{policy}");
    let command = format!("curl &#39;http://{}/v1/tools&#39;", server.address);
    assert!(page.body.contains(&command), "its commands go to this server");
    server.send("GET", "/docs", &[("origin", "http://evil.example")], "").problem(403, "cross_origin");
}

#[test]
fn a_path_says_which_methods_it_has() {
    let lab = Lab::charging("");
    let server = Server::start(&lab);
    for (path, allow) in [("/v1/tools/charge", "GET, HEAD, PUT, DELETE"), ("/v1/tools/charge/call", "POST"), ("/openapi.json", "GET, HEAD")]
    {
        let refused = server.send("PATCH", path, &[], "").problem(405, "method_not_allowed");
        assert_eq!(refused.header("allow"), Some(allow), "{path}");
    }
    server.get("/v1/nothing").problem(404, "no_such_route");
}

/// HEAD is answered like GET, without the body; also where the body would never end.
#[test]
fn a_head_is_a_get_without_its_body() {
    let lab = Lab::charging("");
    let server = Server::start(&lab);
    for (path, status) in [("/v1/tools/charge", "200"), ("/v1/tools/ch%61rge", "200"), ("/v1/nothing", "404"), ("/v1/events", "200")] {
        let lines: Vec<String> = server.begin("HEAD", path, &[], "").lines().collect();
        let answered = lines.iter().position(String::is_empty).expect("a head has an end");
        assert_eq!((lines[0].split(' ').nth(1), lines.len()), (Some(status), answered + 1), "{path}: {lines:?}");
        let length = lines.iter().find_map(|line| line.strip_prefix("content-length: ").map(str::to_owned));
        let whole = (path != "/v1/events").then(|| server.get(path).body.len().to_string());
        assert_eq!(length, whole, "{path}");
    }
}

/// The header goes before the query, and a mistake in either is said.
#[test]
fn a_feed_starts_where_it_is_told() {
    let lab = Lab::charging("");
    let server = Server::start(&lab);
    server.call("charge", "k", "{}").envelope(200, "success");
    for (path, id) in [("/v1/events?after=null", "0"), ("/v1/events?after=0", "null"), ("/v1/events?after=9223372036854775808", "0")] {
        server.send("GET", path, &[("last-event-id", id)], "").problem(400, "invalid_query");
    }
    let mut lines = server.begin("GET", "/v1/events?after=999999", &[("last-event-id", "0")], "").lines();
    let data = lines.find_map(|line| line.strip_prefix("data: ").map(str::to_owned)).expect("an event");
    let event: Value = serde_json::from_str(&data).unwrap();
    let document = server.get("/openapi.json").ok().value();
    let schema = json!({ "$ref": "#/components/schemas/Event", "components": document["components"] });
    let mistakes: Vec<String> = jsonschema::validator_for(&schema).unwrap().iter_errors(&event).map(|error| error.to_string()).collect();
    assert!(mistakes.is_empty(), "{event}: {mistakes:?}");
}
