//! K. Breakers, limits, modes, and what an operator does.

use std::time::Duration;

use counterfoil::prelude::*;
use serde_json::{Value, json};

use crate::lab::{EXIT_DONE, EXIT_FAILED, EXIT_REFUSED, EXIT_USAGE, Lab, all_at_once, charge, library_call};

/// One attempt for each call, so that each call counts once.
const ONCE: &str = "retry: { attempts: 1, first: 0ms, max: 0ms }";

fn state(lab: &Lab) -> Value {
    lab.json(&["breakers", "list"]).at("/0/state")
}

#[test]
fn a_95_five_failures_in_a_row_open_it() {
    let lab = Lab::charging(ONCE);
    lab.call("charge", "{}", "before").done();
    lab.world.then("/charge", json!({ "status": 503, "act": false }));
    for n in 0..5 {
        assert_eq!(state(&lab), "closed");
        lab.call("charge", "{}", &format!("k{n}")).error(EXIT_FAILED, "retry_exhausted");
    }
    assert_eq!(state(&lab), "open");
    lab.world.then("/charge", json!({}));
    // A process that was not there when it opened knows it as well.
    let refused = lab.call("charge", "{}", "k5").expect(EXIT_REFUSED, "circuit_open");
    let message = refused.text("/error/message");
    assert!(message.contains("5 failures in a row") && message.contains("nothing was sent"), "{message}");
    assert!(refused.at("/error/retry_after_ms").as_u64().unwrap() <= 30_000);
    lab.call("charge", "{}", "before").replayed();
    assert_eq!(lab.world.seen("/charge").arrived, 6, "the refused one never left");
    assert_eq!(lab.json(&["breakers", "reset", "charge"]).code, EXIT_DONE);
    lab.call("charge", "{}", "k5").done();
    assert_eq!(lab.world.acted("/charge"), 2);
}

#[test]
fn a_95_rejections_and_replays_do_not_count() {
    let lab = Lab::charging(ONCE);
    lab.world.then("/charge", json!({ "status": 400, "act": false }));
    for n in 0..7 {
        lab.call("charge", "{}", &format!("k{n}")).error(EXIT_FAILED, "http_400");
    }
    assert_eq!(state(&lab), "closed", "it answered: it is alive");
    lab.world.then("/charge", json!({ "status": 500 }));
    lab.call("charge", "{}", "doubt").in_doubt();
    for _ in 0..6 {
        lab.call("charge", "{}", "doubt").in_doubt();
    }
    assert_eq!(state(&lab), "closed", "one doubt, asked for seven times, is one failure");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_96_half_of_the_last_hundred_open_it_and_one_less_does_not() {
    for (failures, expected) in [(50, "open"), (49, "closed")] {
        let lab = Lab::charging(&format!("{ONCE}\nbreaker: {{ consecutive: 5, rate: 0.5, window: 100, reset: 1h }}"));
        let runtime = lab.runtime().await;
        // Spread evenly, a failure last: never five in a row.
        let fails = |n: u64| (n + 1) * failures / 100 > n * failures / 100;
        let next: Vec<Value> = (0..100).map(|n| if fails(n) { json!({ "status": 503, "act": false }) } else { json!({}) }).collect();
        lab.world.rules("/charge", json!({ "next": next }));
        for n in 0..100 {
            let answer = runtime.call(library_call("charge", json!({}), &format!("k{n}"))).await;
            assert_eq!(answer.status == Status::Success, !fails(n), "{n}: {answer:?}");
        }
        assert_eq!(state(&lab), expected, "{failures} of 100");
        let next = runtime.call(library_call("charge", json!({}), "next")).await;
        assert_eq!(next.status == Status::CircuitOpen, expected == "open", "{next:?}");
        let seen = lab.world.seen("/charge");
        assert_eq!(seen.arrived, if expected == "open" { 100 } else { 101 });
        assert_eq!(seen.acted, seen.arrived - failures);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_97_one_probe_decides() {
    let lab = Lab::charging(&format!("{ONCE}\nbreaker: {{ consecutive: 2, reset: 1s }}"));
    let runtime = lab.runtime().await;
    let call = |n: &str| library_call("charge", json!({}), n);
    lab.world.then("/charge", json!({ "status": 503, "act": false }));
    for n in ["a", "b"] {
        runtime.call(call(n)).await;
    }
    let open = runtime.call(call("c")).await;
    assert_eq!(open.status, Status::CircuitOpen, "{open:?}");
    assert_eq!(lab.world.seen("/charge").arrived, 2);
    // The probe fails: open anew, with a fresh timer.
    wait_until_half_open(&open).await;
    let probe = runtime.call(call("d")).await;
    assert_eq!(probe.error.as_ref().unwrap().code, "retry_exhausted", "it was sent: {probe:?}");
    let open = runtime.call(call("e")).await;
    assert_eq!(open.status, Status::CircuitOpen);
    assert_eq!(lab.world.seen("/charge").arrived, 3);
    // The probe is under way: the others are told to come back.
    lab.world.then("/charge", json!({ "after": true }));
    wait_until_half_open(&open).await;
    let probing = tokio::spawn({
        let (runtime, call) = (runtime.clone(), call("f"));
        async move { runtime.call(call).await }
    });
    lab.world.wait_holding("/charge", 1);
    let others = all_at_once(&runtime, (0..20).map(|n| call(&format!("g{n}"))).collect()).await;
    assert!(others.iter().all(|a| a.status == Status::CircuitOpen), "{others:?}");
    assert_eq!(lab.world.seen("/charge").arrived, 4, "one at a time");
    lab.world.release("/charge");
    assert_eq!(probing.await.unwrap().status, Status::Success);
    let closed = runtime.call(call("g0")).await;
    assert_eq!(closed.status, Status::Success, "{closed:?}");
    assert_eq!(lab.world.acted("/charge"), 2);
}

/// For as long as it said, and a little for clocks that round.
async fn wait_until_half_open(refused: &Answer) {
    let wait = refused.error.as_ref().and_then(|e| e.retry_after_ms).expect("when to come back");
    tokio::time::sleep(Duration::from_millis(wait + 5)).await;
}

#[test]
fn a_100_a_person_may_open_and_reset_it() {
    let lab = Lab::charging("breaker: { reset: 1ms }");
    let opened = lab.json(&["breakers", "open", "charge", "--why", "the bank is down for the night"]);
    assert_eq!((opened.code, opened.at("/state")), (EXIT_DONE, json!("open")));
    for _ in 0..2 {
        // `reset` is long over: only a person ends it. Each of these is a new process.
        let refused = lab.call("charge", "{}", "k").expect(EXIT_REFUSED, "circuit_open");
        assert!(refused.text("/error/message").contains("down for the night"), "{refused:?}");
        assert_eq!(refused.at("/error/retry_after_ms"), Value::Null, "nobody knows when");
    }
    let listed = lab.json(&["breakers", "list"]);
    assert_eq!((listed.at("/0/state"), listed.at("/0/reason")), (json!("open"), json!("the bank is down for the night")));
    assert_eq!(lab.world.seen("/charge").arrived, 0);
    assert_eq!(lab.json(&["breakers", "reset", "charge"]).at("/state"), "closed");
    lab.call("charge", "{}", "k").done();
    assert_eq!(lab.world.acted("/charge"), 1);
    lab.json(&["breakers", "open", "chrage"]).error(EXIT_REFUSED, "unknown_tool");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_102_ten_at_once_and_no_more() {
    let lab = Lab::charging("limits: { concurrency: 10 }");
    lab.world.then("/charge", json!({ "after": true }));
    let runtime = lab.runtime().await;
    let calls = (0..100).map(|n| library_call("charge", json!({}), &format!("k{n}"))).collect();
    let calling = tokio::spawn(async move { all_at_once(&runtime, calls).await });
    lab.world.wait_holding("/charge", 10);
    lab.world.release("/charge");
    let answers = calling.await.unwrap();
    assert!(answers.iter().all(|a| a.status == Status::Success), "{answers:?}");
    let seen = lab.world.seen("/charge");
    assert_eq!((seen.most_at_once, seen.acted), (10, 100));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_102_a_full_queue_refuses() {
    let lab = Lab::charging("limits: { concurrency: 2, queue: 3 }");
    lab.world.then("/charge", json!({ "after": true }));
    let runtime = lab.runtime().await;
    let calls: Vec<_> = (0..20).map(|n| library_call("charge", json!({}), &format!("k{n}"))).collect();
    let calling = tokio::spawn({
        let (runtime, calls) = (runtime.clone(), calls.clone());
        async move { all_at_once(&runtime, calls).await }
    });
    lab.world.wait_holding("/charge", 2);
    lab.world.release("/charge");
    let answers = calling.await.unwrap();
    let refused: Vec<_> = answers.iter().filter(|a| a.status == Status::Error).collect();
    assert!(refused.iter().all(|a| a.error.as_ref().unwrap().code == "limit_queue_full"), "{refused:?}");
    let seen = lab.world.seen("/charge");
    assert_eq!(seen.acted + refused.len() as u64, 20, "each one ran or was refused");
    assert!(seen.most_at_once <= 2);
    let again = all_at_once(&runtime, calls[..2].to_vec()).await;
    assert!(again.iter().all(|a| a.status == Status::Success), "a refusal is not remembered: {again:?}");
}

#[test]
fn a_105_shadow_says_what_it_would_have_stopped() {
    let lab = Lab::new(&format!("mode: shadow\n{}", charge("")));
    let first = lab.call("charge", "{}", "k");
    assert_eq!(first.code, EXIT_DONE);
    assert!(!first.stderr.contains("shadow"), "{first:?}");
    let second = lab.call("charge", "{}", "k");
    assert_eq!((second.code, second.at("/replayed")), (EXIT_DONE, json!(false)));
    assert!(second.stderr.contains("shadow: this call would have been stopped; it runs unprotected"), "{second:?}");
    assert!(!second.stderr.contains('\u{1b}'), "no colours where nobody looks: {second:?}");
    assert_eq!(lab.world.acted("/charge"), 2, "it only watches");
}

#[test]
fn a_105_off_needs_a_second_sign() {
    let lab = Lab::new(&format!("mode: off\n{}", charge("")));
    let refused = lab.call("charge", "{}", "k").error(EXIT_USAGE, "config_invalid");
    assert!(refused.text("/error/message").contains("i_accept_duplicates: true"), "{refused:?}");
    assert_eq!(lab.world.seen("/charge").arrived, 0);
    lab.config(&charge(""));
    let refused = crate::lab::Run::of(
        lab.command(&["call", "charge", "--key", "k", "--json"]).env("TOOL_RELIABILITY_ENABLED", "false").output().unwrap(),
    );
    refused.error(EXIT_USAGE, "config_invalid");
    assert_eq!(lab.world.seen("/charge").arrived, 0);
    lab.config(&format!("mode: off\ni_accept_duplicates: true\n{}", charge("")));
    for _ in 0..2 {
        lab.call("charge", "{}", "k").done();
    }
    assert_eq!(lab.world.acted("/charge"), 2);
    assert_eq!(lab.json(&["effects", "list"]).at("/effects"), json!([]), "nothing is recorded");
}

#[test]
fn a_106_resolving_one_key_leaves_the_others() {
    let lab = Lab::charging("breaker: off");
    lab.world.then("/charge", json!({ "status": 500 }));
    let doubts: Vec<String> = (0..3).map(|n| lab.call("charge", "{}", &format!("k{n}")).in_doubt().effect()).collect();
    lab.world.then("/charge", json!({}));
    let resolve = ["effects", "resolve", &doubts[1], "--give-up", "--by", "ada", "--why", "the order was withdrawn"];
    assert_eq!(lab.json(&resolve).at("/state"), "failed");
    lab.call("charge", "{}", "k0").in_doubt();
    lab.call("charge", "{}", "k1").error(EXIT_FAILED, "gave_up");
    lab.call("charge", "{}", "k2").in_doubt();
    assert_eq!(lab.world.seen("/charge").arrived, 3, "a word is no dispatch");
    let history = lab.json(&["effects", "show", &doubts[1]]).at("/history");
    let audit = history.as_array().unwrap().iter().find_map(|line| line["entry"].get("resolved")).expect("an audit entry");
    assert_eq!((&audit["by"], &audit["why"]), (&json!("ada"), &json!("the order was withdrawn")));
    let receipts = lab.json(&["receipts", "list"]).value();
    let named: Vec<_> = receipts.as_array().unwrap().iter().filter(|r| r["by"] == "ada").map(|r| &r["effect"]).collect();
    assert_eq!(named, [&json!(doubts[1])], "and a receipt, of that one only");
}
