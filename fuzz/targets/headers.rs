//! Headers of a request, one in each line of the input as `Name: value`; `{secret}` in a value stands for the token.
//!
//! Holds: whatever is sent is answered, never with a failure of our own. Only exactly one `Authorization` with exactly the token is let in. A tool acts
//! only under exactly one `Idempotency-Key`, and once for it. What is refused leaves no record. A feed goes on from a `Last-Event-ID` that can be one, and from
//! nothing else. A trace that was read is printed and read as the same.
#![no_main]

use counterfoil_core::TraceContext;
use counterfoil_fuzz::{Asked, Server};
use http::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let server = Server::locked();
    let secret = server.secret.clone().expect("it is locked");
    let mut headers = HeaderMap::new();
    for line in data.split(|byte| *byte == b'\n') {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        // Around a value, the wire has optional space that is no part of it.
        let value = with_secret(value.trim_ascii(), &secret);
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(&value)) {
            headers.append(name, value);
        }
    }
    for value in headers.values().filter_map(|value| value.to_str().ok()) {
        if let Ok(trace) = TraceContext::parse(value) {
            assert_eq!(TraceContext::parse(&trace.to_string()), Ok(trace.clone()));
            let with_state = trace.with_state(value);
            assert!(with_state.state().is_none_or(|state| value.contains(state)));
        }
    }
    headers.entry("host").or_insert(HeaderValue::from_static("localhost"));
    headers.entry("content-type").or_insert(HeaderValue::from_static("application/json"));

    let before = server.records();
    let call = Asked { method: "POST", path: "/v1/tools/charge/call", headers: headers.clone(), body: r#"{"args":{"cents":1}}"# };
    for _ in 0..2 {
        let answer = server.ask(&call).expect("a method and a path of our own");
        assert!(answer.status < 500, "{}: {:?}", answer.status, answer.body);
        if answer.is_refusal() {
            assert_eq!(server.records(), before, "{} left a trace: {:?}", answer.status, answer.body);
        }
        assert!(answer.status == 401 || presents(&headers, &secret) || matches!(answer.status, 400 | 403 | 421), "{:?}", answer.body);
    }
    assert!(server.most_acts() <= 1, "it acted {} times", server.most_acts());
    if server.most_acts() == 1 {
        assert!(presents(&headers, &secret), "it acted for somebody without the token");
        assert_eq!(headers.get_all("idempotency-key").iter().count(), 1, "it acted without one key");
    }

    let feed = server.ask(&Asked { method: "GET", path: "/v1/events", headers: headers.clone(), body: "" }).expect("likewise");
    if feed.body.is_none() {
        let place = |id: &HeaderValue| id.to_str().ok().and_then(|text| text.parse::<i64>().ok()).is_some_and(|at| at >= 0);
        assert!(headers.get("last-event-id").is_none_or(place), "it goes on from {:?}", headers.get("last-event-id"));
    }
});

fn with_secret(value: &[u8], secret: &str) -> Vec<u8> {
    const MARK: &[u8] = b"{secret}";
    match value.windows(MARK.len()).position(|window| window == MARK) {
        Some(at) => [&value[..at], secret.as_bytes(), &value[at + MARK.len()..]].concat(),
        None => value.to_vec(),
    }
}

/// Written apart from the guard: one header, the scheme in any case, the token and nothing else.
fn presents(headers: &HeaderMap, secret: &str) -> bool {
    let values: Vec<&HeaderValue> = headers.get_all("authorization").iter().collect();
    let [value] = values[..] else { return false };
    let Ok(text) = value.to_str() else { return false };
    text.len() > 7 && text[..7].eq_ignore_ascii_case("bearer ") && text[7..].trim() == secret
}
