//! Bodies of requests, as the server decodes them: each line of the input is one, `ROUTE BODY`.
//!
//! Holds: whatever is sent is answered, as JSON and never with a failure of our own; what is refused leaves no record; the same request sent again
//! under its key gets the same answer, and nothing acts twice.
#![no_main]

use counterfoil_fuzz::{Answered, Asked, Server};
use http::{HeaderMap, HeaderValue};
use libfuzzer_sys::fuzz_target;

/// Requests of one input: an input is to be short, not a load.
const LINES_MAX: usize = 6;

/// `{effect}` is the effect of the answer before.
const ROUTES: &[(&str, &str, &str)] = &[
    ("call", "POST", "/v1/tools/charge/call"),
    ("acquire", "POST", "/v1/effects/acquire"),
    ("heartbeat", "POST", "/v1/effects/{effect}/heartbeat"),
    ("commit", "POST", "/v1/effects/{effect}/commit"),
    ("fail", "POST", "/v1/effects/{effect}/fail"),
    ("resolve", "POST", "/v1/effects/{effect}/resolve"),
    ("cancel", "POST", "/v1/effects/{effect}/cancel"),
    ("undo", "POST", "/v1/effects/{effect}/undo"),
    ("retry", "POST", "/v1/effects/{effect}/retry"),
    ("tool", "PUT", "/v1/tools/own"),
    ("workflow", "PUT", "/v1/workflows/trip"),
    ("schedule", "PUT", "/v1/schedules/nightly"),
    ("run", "POST", "/v1/runs"),
    ("signal", "POST", "/v1/runs/r/signals/go"),
    ("stop", "POST", "/v1/runs/r/cancel"),
    ("approve", "POST", "/v1/runs/r/approve"),
    ("compensate", "POST", "/v1/runs/r/compensate"),
    ("skip", "POST", "/v1/runs/r/skip"),
    ("fork", "POST", "/v1/runs/r/fork"),
    ("beat", "POST", "/v1/runs/r/heartbeat"),
    ("finish", "POST", "/v1/runs/r/finish"),
    ("flush", "POST", "/v1/admin/flush"),
    ("mode", "PUT", "/v1/admin/mode"),
    ("breaker", "POST", "/v1/breakers/charge/open"),
];

fuzz_target!(|text: &str| {
    let server = Server::open();
    let (mut effect, mut runs) = ("0".repeat(64), false);
    for (n, line) in text.lines().take(LINES_MAX).enumerate() {
        let (word, body) = line.split_once(' ').unwrap_or((line, ""));
        let Some((_, method, path)) = ROUTES.iter().find(|(route, ..)| *route == word) else { continue };
        let path = path.replace("{effect}", &effect);
        let mut headers = HeaderMap::new();
        headers.insert("host", HeaderValue::from_static("localhost"));
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        headers.insert("idempotency-key", HeaderValue::from(n));
        let asked = Asked { method, path: &path, headers, body };
        let before = server.records();
        let first = answered(&server, &asked);
        // A run goes on by itself beside what is asked.
        runs |= matches!(word, "run" | "fork") && first.status < 300;
        if first.is_refusal() && !runs {
            assert_eq!(server.records(), before, "{} left a trace: {:?}", first.status, first.body);
        }
        if let Some(key) = first.json()["effect"].as_str() {
            key.clone_into(&mut effect);
        }
        let again = answered(&server, &asked);
        if (200..300).contains(&first.status) {
            assert!((200..300).contains(&again.status), "{word}: {} and then {}: {:?}", first.status, again.status, again.body);
            // A call is known again by its envelope, a heartbeat says how long it holds now: neither is a record of a request.
            if !matches!(word, "call" | "heartbeat" | "beat") {
                assert_eq!((first.status, told(&first)), (again.status, told(&again)), "{word}: another answer to the same request");
            }
        }
        // Whoever may switch protection off may have it off.
        if word == "mode" && first.status < 300 {
            return;
        }
        assert!(server.most_acts() <= 1, "{word}: an effect acted {} times", server.most_acts());
    }
});

/// What it says, but for the name of this asking: where the request changes nothing, since it was done before under another key, each asking has its own.
fn told(answer: &Answered) -> serde_json::Value {
    let mut told = answer.json();
    if let Some(told) = told.as_object_mut() {
        told.remove("execution_id");
    }
    told
}

fn answered(server: &Server, asked: &Asked<'_>) -> Answered {
    let answer = server.ask(asked).expect("it can be sent");
    let body = answer.json();
    // A breaker that somebody opened is no failure of ours.
    assert!(answer.status < 500 || body["status"] == "circuit_open", "{} {}: {body}", asked.path, answer.status);
    assert!(answer.status < 400 || body["code"].is_string() || body["status"].is_string(), "{}: {body}", answer.status);
    answer
}
