//! What operators do over HTTP, and what they see.

use serde_json::json;

use super::server::Server;
use crate::lab::Lab;

#[test]
fn effects_are_listed_page_by_page() {
    let lab = Lab::charging("");
    let server = Server::start(&lab);
    let mut made: Vec<String> = (0..7).map(|n| server.call("charge", &format!("k{n}"), "{}").text("/effect")).collect();
    made.reverse();
    let (mut listed, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = server.get(&format!("/v1/effects?limit=3{cursor}")).ok();
        listed.extend(page.at("/effects").as_array().unwrap().iter().map(|e| e["effect"].as_str().unwrap().to_owned()));
        match page.at("/next").as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(listed, made, "newest first, none twice, none missing");
    assert_eq!(server.get("/v1/effects?tool=charge&state=done,failed").at("/effects").as_array().unwrap().len(), 7);
    assert_eq!(server.get("/v1/effects?run=none").at("/effects"), json!([]));
    for bad in ["state=happy", "limit=0", "limit=-1", "limit=5000", "cursor=x", "older_than=soon", "colour=red", "tool=a%20b"] {
        server.get(&format!("/v1/effects?{bad}")).problem(400, "invalid_query");
    }
    let shown = server.get(&format!("/v1/effects/{}", made[0])).ok();
    assert_eq!(shown.at("/history").as_array().unwrap().len(), 3, "opened, claimed, finished");
    server.get(&format!("/v1/effects/{}", "0".repeat(64))).problem(404, "not_found");
    server.get("/v1/effects/abc").problem(400, "invalid_key");
}

#[test]
fn a_failed_effect_is_tried_again_by_a_person_once_per_request() {
    let lab = Lab::charging("");
    let server = Server::start(&lab);
    lab.world.then("/charge", json!({ "status": 400, "act": false }));
    let failed = server.call("charge", "k", "{}").envelope(200, "error");
    lab.world.then("/charge", json!({}));
    let path = format!("/v1/effects/{}/retry", failed.text("/effect"));
    let done = server.post(&path, "again", r#"{"why":"mended"}"#).envelope(200, "success");
    let again = server.post(&path, "again", r#"{"why":"mended"}"#);
    assert_eq!((&again.body, again.is_replay()), (&done.body, true));
    server.post(&path, "once more", "").problem(409, "wrong_state");
    assert_eq!(lab.world.acted("/charge"), 1);
}

#[test]
fn a_74_cancelling_twice_is_cancelling_once() {
    let lab = Lab::charging("approval: \"true\"");
    let server = Server::start(&lab);
    let waiting = server.call("charge", "k", "{}").envelope(202, "waiting_approval");
    let path = format!("/v1/effects/{}/cancel", waiting.text("/effect"));
    let cancelled = server.post(&path, "c", r#"{"why":"changed our minds"}"#).ok();
    assert_eq!(cancelled.at("/state"), json!("cancelled"));
    assert_eq!(server.post(&path, "c", r#"{"why":"changed our minds"}"#).body, cancelled.body);
    assert_eq!(server.post(&path, "d", "").ok().at("/state"), json!("cancelled"));
    server.call("charge", "k", "{}").envelope(200, "cancelled");
    server.post(&format!("/v1/effects/{}/cancel", "1".repeat(64)), "e", "").problem(404, "not_found");
    assert_eq!(lab.world.acted("/charge"), 0);
}

#[test]
fn a_100_a_breaker_is_opened_and_reset_by_hand_and_survives() {
    let lab = Lab::charging("");
    let server = Server::start(&lab);
    let opened = server.post("/v1/breakers/charge/open", "o", r#"{"why":"the bank is moving"}"#).ok();
    let again = server.post("/v1/breakers/charge/open", "o", r#"{"why":"the bank is moving"}"#);
    assert_eq!((&again.body, again.is_replay()), (&opened.body, true));
    server.kill();
    let server = Server::start(&lab);
    let refused = server.call("charge", "k", "{}").envelope(503, "circuit_open");
    assert!(refused.text("/error/message").contains("the bank is moving"));
    server.post("/v1/breakers/charge/reset", "r", "").ok();
    // The old request again opens nothing: it was answered long ago.
    assert!(server.post("/v1/breakers/charge/open", "o", r#"{"why":"the bank is moving"}"#).is_replay());
    server.call("charge", "k", "{}").envelope(200, "success");
    server.post("/v1/breakers/chrge/open", "x", "").problem(404, "unknown_tool");
    assert_eq!(lab.world.acted("/charge"), 1);
}

#[test]
fn the_feed_goes_on_where_it_was_left() {
    let lab = Lab::charging("");
    let server = Server::start(&lab);
    let ids = |lines: &mut dyn Iterator<Item = String>, count: usize| -> Vec<u64> {
        lines.filter_map(|line| line.strip_prefix("id: ").and_then(|id| id.parse().ok())).take(count).collect()
    };
    let mut feed = server.begin("GET", "/v1/events", &[("last-event-id", "0")], "").lines();
    server.call("charge", "a", "{}").envelope(200, "success");
    let first = ids(&mut feed, 2);
    assert_eq!(first.len(), 2, "claimed and finished");
    drop(feed);
    server.call("charge", "b", "{}").envelope(200, "success");
    let resumed = first[1].to_string();
    let mut feed = server.begin("GET", "/v1/events", &[("last-event-id", &resumed)], "").lines();
    let second = ids(&mut feed, 2);
    assert!(second.len() == 2 && second[0] > first[1], "{first:?} {second:?}");
    server.send("GET", "/v1/events", &[("last-event-id", "x")], "").problem(400, "invalid_query");
}
