//! C. Failures, and what is tried again.

use std::net::TcpListener;
use std::time::Duration;

use serde_json::{Value, json};

use crate::lab::{EXIT_FAILED, Lab, Run, World, charge};

/// Waits for as long as the answer says.
fn come_back(run: &Run) {
    std::thread::sleep(Duration::from_millis(run.at("/error/retry_after_ms").as_u64().expect("when to come back")));
}

#[test]
fn a_21_before_its_time_the_recorded_failure_is_the_answer() {
    let lab = Lab::charging("retry: { attempts: 1, first: 10ms, max: 10ms }");
    // The other side asks for an hour: nothing may be sent before.
    lab.world.rules("/charge", json!({ "next": [{ "status": 503, "act": false, "headers": { "retry-after": "3600" } }] }));
    let first = lab.call("charge", "{}", "slow").error(EXIT_FAILED, "retry_exhausted");
    let again = lab.call("charge", "{}", "slow").error(EXIT_FAILED, "retry_exhausted");
    assert_eq!((first.at("/replayed"), again.at("/replayed")), (json!(false), json!(true)));
    let hint = again.at("/error/retry_after_ms").as_u64().unwrap();
    assert!((3_000_000..=3_600_000).contains(&hint), "{hint}");
    assert_eq!(lab.world.seen("/charge").arrived, 1);
    // It says nothing, and our own schedule is short: the same key is attempted again.
    lab.world.rules("/charge", json!({ "next": [{ "status": 503, "act": false }] }));
    let first = lab.call("charge", "{}", "quick").error(EXIT_FAILED, "retry_exhausted");
    come_back(&first);
    assert_eq!(lab.call("charge", "{}", "quick").done().at("/attempt"), 2);
    let seen = lab.world.seen("/charge");
    assert_eq!((seen.arrived, seen.acted), (3, 1));
}

#[test]
fn a_22_a_rejection_is_final() {
    let lab = Lab::charging("retry: { attempts: 4, first: 1ms }");
    lab.world.rules("/charge", json!({ "next": [{ "status": 400, "act": false, "body": "{\"why\":\"no funds\"}" }] }));
    let first = lab.call("charge", "{}", "k").error(EXIT_FAILED, "http_400");
    let again = lab.call("charge", "{}", "k").error(EXIT_FAILED, "http_400");
    for run in [&first, &again] {
        assert_eq!(
            (run.at("/error/retriable"), run.at("/error/detail/why"), run.at("/attempt")),
            (json!(false), json!("no funds"), json!(1))
        );
    }
    assert_eq!(again.at("/replayed"), true);
    assert_eq!(again.at("/receipt"), first.at("/receipt"));
    assert_eq!(lab.world.seen("/charge").arrived, 1);
}

#[test]
fn a_23_attempts_are_counted_in_the_world() {
    let lab = Lab::charging("retry: { attempts: 4, first: 10ms, max: 20ms }");
    lab.world.then("/charge", json!({ "status": 503, "act": false }));
    let run = lab.call("charge", "{}", "k").error(EXIT_FAILED, "retry_exhausted");
    assert_eq!((run.at("/error/cause"), run.at("/attempt")), (json!("http_503"), json!(4)));
    let seen = lab.world.seen("/charge");
    assert_eq!(seen.arrived, 4);
    assert!(seen.requests.iter().all(|r| r.key == run.effect()), "one key for all of them: {seen:?}");
}

#[test]
fn a_23_the_deadline_ends_the_attempts() {
    let lab =
        Lab::charging("deadline: 700ms\ntimeout: 500ms\nbreaker: off\nretry: { attempts: 100, first: 200ms, max: 200ms, jitter: off }");
    lab.world.then("/charge", json!({ "status": 503, "act": false }));
    let run = lab.call("charge", "{}", "k").error(EXIT_FAILED, "retry_exhausted");
    let arrived = lab.world.seen("/charge").arrived;
    assert_eq!(run.at("/attempt"), arrived);
    assert!((1..=4).contains(&arrived), "200 ms apart, four fit into 700 ms: {arrived}");
}

#[test]
fn a_24_delays_double_up_to_their_cap_and_jitter_stays_below() {
    let lab = Lab::new(
        r#"
tools:
  exact:  { http: { method: POST, url: "WORLD/exact" }, breaker: off, retry: { attempts: 5, first: 50ms, max: 200ms, jitter: off } }
  spread: { http: { method: POST, url: "WORLD/spread" }, breaker: off, retry: { attempts: 12, first: 50ms, max: 50ms } }
"#,
    );
    for path in ["/exact", "/spread"] {
        lab.world.then(path, json!({ "status": 503, "act": false }));
    }
    let exact = lab.call("exact", "{}", "k").error(EXIT_FAILED, "retry_exhausted");
    let delays = delays_ms(&lab, &exact.effect());
    assert_eq!(delays[..4], [50.0, 100.0, 200.0, 200.0]);
    let seen = lab.world.seen("/exact");
    for (pair, delay) in seen.requests.windows(2).zip(&delays) {
        // A millisecond for the rounding of the world's clock.
        assert!(pair[1].at_ms - pair[0].at_ms + 1 >= *delay as u64, "earlier than said: {seen:?}");
    }
    let spread = lab.call("spread", "{}", "k").error(EXIT_FAILED, "retry_exhausted");
    let delays = delays_ms(&lab, &spread.effect());
    let (last, delays) = delays.split_last().unwrap();
    assert_eq!((*last, lab.world.seen("/spread").arrived), (50.0, 12), "after the last, the whole cap");
    assert!(delays.iter().all(|d| (0.0..=50.0).contains(d)) && delays.iter().any(|d| *d != delays[0]), "{delays:?}");
}

/// From the end of each attempt to the earliest time of the next, as recorded.
fn delays_ms(lab: &Lab, effect: &str) -> Vec<f64> {
    let shown = lab.json(&["effects", "show", effect]).value();
    let history = shown["history"].as_array().unwrap();
    let finished = history.iter().filter_map(|line| line["entry"].get("finished"));
    let micros = |value: &Value| value.as_i64().expect("a time");
    finished.map(|f| (micros(&f["outcome"]["retry"]["not_before"]) - micros(&f["ended"])) as f64 / 1000.0).collect()
}

#[test]
fn a_25_no_answer_after_the_world_acted_is_a_doubt() {
    let lab = Lab::charging("timeout: 2s");
    lab.world.then("/charge", json!({ "after": true }));
    let first = lab.call("charge", "{}", "k").in_doubt();
    assert_eq!((first.at("/error/cause"), first.at("/error/retriable")), (json!("timeout"), json!(false)));
    assert!(
        first.text("/error/message").contains(&format!("counterfoil effects resolve {}", first.effect())),
        "says what to do: {first:?}"
    );
    lab.world.release("/charge");
    lab.call("charge", "{}", "k").in_doubt();
    lab.json(&["recover"]);
    assert_eq!(lab.world.seen("/charge").arrived, 1, "nothing is tried again on a guess");
}

#[test]
fn a_25_whatever_leaves_it_open_is_a_doubt() {
    let lab = Lab::charging("breaker: off");
    for (n, (rule, cause)) in [
        (json!({ "end": "hang_up" }), "connection_lost"),
        (json!({ "end": "half" }), "connection_lost"),
        (json!({ "status": 500 }), "http_500"),
        (json!({ "status": 502 }), "http_502"),
        (json!({ "status": 504 }), "http_504"),
    ]
    .into_iter()
    .enumerate()
    {
        lab.world.then("/charge", rule);
        let key = format!("k{n}");
        let run = lab.call("charge", "{}", &key).in_doubt();
        assert_eq!(run.at("/error/cause"), cause);
        lab.world.then("/charge", json!({}));
        lab.call("charge", "{}", &key).in_doubt();
        assert_eq!(lab.world.seen("/charge").arrived, n as u64 + 1);
    }
    assert_eq!(lab.listed("in_doubt").len(), 5);
}

#[test]
fn a_26_a_tool_that_honours_our_key_is_sent_the_same_key_again() {
    let lab = Lab::charging("repeat: keyed\ntimeout: 2s\nretry: { attempts: 5, first: 1ms, max: 1ms }\nbreaker: off");
    let lost = [
        json!({ "end": "hang_up", "dedupe": true }),
        json!({ "end": "half", "dedupe": true }),
        json!({ "status": 502, "dedupe": true }),
        json!({ "after": true, "dedupe": true }),
    ];
    lab.world.rules("/charge", json!({ "next": lost, "then": { "dedupe": true } }));
    let run = lab.call("charge", "{}", "k").done();
    lab.world.release("/charge");
    let seen = lab.world.seen("/charge");
    assert_eq!((seen.arrived, seen.acted), (5, 1));
    assert!(seen.requests.iter().all(|r| r.key == run.effect()), "{seen:?}");
    assert_eq!(lab.call("charge", "{}", "k").replayed().at("/data"), run.at("/data"));
}

#[test]
fn a_27_a_refused_connection_is_a_definite_failure() {
    let lab = Lab::charging("");
    // A port that nobody listens on, until later.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let text = charge("retry: { attempts: 3, first: 1ms, max: 10ms }").replace("WORLD", &format!("http://127.0.0.1:{port}"));
    lab.config(&text);
    let run = lab.call("charge", "{}", "k").error(EXIT_FAILED, "retry_exhausted");
    assert_eq!(
        (run.at("/error/cause"), run.at("/error/retriable"), run.at("/attempt")),
        (json!("connection_refused"), json!(true), json!(3))
    );
    let world = World::start_at(port);
    come_back(&run);
    assert_eq!(lab.call("charge", "{}", "k").done().at("/attempt"), 4);
    assert_eq!((world.acted("/charge"), world.seen("/charge").arrived), (1, 1));
}
