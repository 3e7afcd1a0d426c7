//! B. The same call gets the same answer.

use std::time::Duration;

use counterfoil::prelude::*;
use serde_json::{Value, json};

use crate::lab::{EXIT_FAILED, EXIT_REFUSED, EXIT_USAGE, Lab, all_at_once, charge, library_call};

#[test]
fn a_09_the_second_call_is_answered_from_the_record() {
    let lab = Lab::charging("");
    let first = lab.call("charge", r#"{"cents":1}"#, "k").done();
    let again = lab.call("charge", r#"{"cents":1}"#, "k").replayed();
    for same in ["/data", "/effect", "/receipt", "/attempt"] {
        assert_eq!(first.at(same), again.at(same), "{same}");
    }
    assert_ne!(first.at("/execution_id"), again.at("/execution_id"));
    assert_eq!(lab.world.acted("/charge"), 1);
}

#[test]
fn a_10_a_pure_tool_runs_each_time_and_leaves_nothing() {
    let lab = Lab::charging("effect: pure");
    for _ in 0..2 {
        let run = lab.call("charge", "{}", "k").done();
        assert_eq!((run.at("/effect"), run.at("/outcome")), (Value::Null, json!("pure")));
    }
    assert_eq!(lab.world.acted("/charge"), 2);
    assert_eq!(lab.json(&["effects", "list"]).at("/effects"), json!([]));
}

#[test]
fn a_11_an_empty_result_is_a_result() {
    let lab = Lab::charging("");
    for (n, body) in ["null", "false", "0", "\"\"", "{}", "[]", "1.50", "{\"b\":1,  \"a\":2}", ""].into_iter().enumerate() {
        lab.world.then("/charge", json!({ "body": body, "status": if body.is_empty() { 204 } else { 200 } }));
        let key = format!("k{n}");
        let first = lab.call("charge", "{}", &key).done();
        // Whatever it would say now must not matter.
        lab.world.then("/charge", json!({ "body": "\"another\"" }));
        let again = lab.call("charge", "{}", &key).replayed();
        assert_eq!(again.at("/data"), first.at("/data"), "{body}");
        // Byte for byte, spaces and trailing zeros included.
        let shown = lab.run(&["call", "charge", "--key", &key]).stdout;
        assert_eq!(shown.trim_end(), if body.is_empty() { "null" } else { body });
        assert_eq!(lab.world.acted("/charge"), n as u64 + 1, "{body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_12_fifty_at_once_wait_for_the_one() {
    let lab = Lab::charging("");
    lab.world.then("/charge", json!({ "after": true }));
    let runtime = lab.runtime().await;
    let calls = vec![library_call("charge", json!({ "cents": 1 }), "k"); 50];
    let calling = tokio::spawn(async move { all_at_once(&runtime, calls).await });
    lab.world.wait_holding("/charge", 1);
    lab.world.release("/charge");
    let answers = calling.await.unwrap();
    assert!(answers.iter().all(|a| a.status == Status::Success && a.data == answers[0].data), "{answers:#?}");
    assert_eq!(answers.iter().filter(|a| !a.replayed).count(), 1, "the others were told by the record");
    assert_eq!(lab.world.seen("/charge").arrived, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_12_fifty_at_once_conflict_when_told_not_to_wait() {
    let lab = Lab::charging("on_in_flight: conflict");
    lab.world.then("/charge", json!({ "after": true }));
    let runtime = lab.runtime().await;
    let call = library_call("charge", json!({ "cents": 1 }), "k");
    let first = tokio::spawn({
        let (runtime, call) = (runtime.clone(), call.clone());
        async move { runtime.call(call).await }
    });
    lab.world.wait_holding("/charge", 1);
    // All of them are answered while the first is still held.
    for answer in all_at_once(&runtime, vec![call.clone(); 49]).await {
        let error = answer.error.expect("refused");
        assert_eq!((error.code.as_str(), error.retriable), ("in_flight", true));
        assert!(error.retry_after_ms.is_some());
    }
    let other_process = lab.call("charge", r#"{"cents":1}"#, "k").error(EXIT_REFUSED, "in_flight");
    assert!(other_process.at("/error/retry_after_ms").is_u64());
    lab.world.release("/charge");
    assert_eq!(first.await.unwrap().status, Status::Success);
    assert!(runtime.call(call).await.replayed);
    assert_eq!(lab.world.seen("/charge").arrived, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_12_who_waits_too_long_is_told_that_it_is_pending() {
    let lab = Lab::charging("wait_max: 200ms");
    lab.world.then("/charge", json!({ "after": true }));
    let runtime = lab.runtime().await;
    let call = library_call("charge", json!({}), "k");
    let first = tokio::spawn({
        let (runtime, call) = (runtime.clone(), call.clone());
        async move { runtime.call(call).await }
    });
    lab.world.wait_holding("/charge", 1);
    assert_eq!(runtime.call(call).await.status, Status::Pending);
    lab.call("charge", "{}", "k").expect(crate::lab::EXIT_PENDING, "pending");
    lab.world.release("/charge");
    let first = first.await.unwrap();
    let replay = lab.call("charge", "{}", "k").replayed();
    assert_eq!(first.data.map(|d| d.to_value()), Some(replay.at("/data")));
    assert_eq!(lab.world.seen("/charge").arrived, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_13_a_thousand_keys_are_a_thousand_effects() {
    let lab = Lab::charging("limits: { concurrency: 64 }\nrepeat: keyed");
    let runtime = lab.runtime().await;
    let calls = || (0..1000).map(|n| library_call("charge", json!({ "n": n }), &format!("k{n}"))).collect::<Vec<_>>();
    let first = all_at_once(&runtime, calls()).await;
    assert!(first.iter().all(|a| a.status == Status::Success && !a.replayed));
    let again = all_at_once(&runtime, calls()).await;
    for (first, again) in first.iter().zip(&again) {
        assert!(again.replayed && again.data == first.data, "{first:?} {again:?}");
    }
    let seen = lab.world.seen("/charge");
    assert_eq!((seen.arrived, seen.acted, seen.by_key.len()), (1000, 1000, 1000));
}

#[test]
fn a_14_a_key_with_other_arguments_is_refused() {
    let lab = Lab::charging("");
    let first = lab.call("charge", r#"{"cents":1}"#, "k").done();
    let other = lab.call("charge", r#"{"cents":2}"#, "k").error(EXIT_REFUSED, "key_reuse_mismatch");
    assert!(other.text("/error/message").contains("nothing was run"), "{other:?}");
    let again = lab.call("charge", r#"{"cents":1}"#, "k").replayed();
    assert_eq!(again.at("/data"), first.at("/data"));
    assert_eq!(lab.world.seen("/charge").arrived, 1);
}

#[test]
fn a_16_arguments_that_do_not_fit_leave_no_trace() {
    let lab = Lab::charging("input: { type: object, required: [cents], properties: { cents: { type: integer } } }");
    for args in [r#"{"cents":"much"}"#, r#"{}"#, r#"[1]"#] {
        let refused = lab.call("charge", args, "k").error(EXIT_USAGE, "invalid_arguments");
        assert!(refused.text("/error/message").contains("input schema"), "{refused:?}");
    }
    assert_eq!(lab.world.seen("/charge").arrived, 0);
    assert_eq!(lab.json(&["effects", "list"]).at("/effects"), json!([]));
    lab.call("charge", r#"{"cents":1}"#, "k").done();
    assert_eq!(lab.world.acted("/charge"), 1);
}

#[test]
fn a_19_an_error_status_is_never_a_success() {
    let lab = Lab::new(&charge("retry: { attempts: 1, first: 10ms, max: 10ms }\nbreaker: off"));
    for status in [503, 429, 425, 408] {
        lab.world.rules("/charge", json!({ "next": [{ "status": status, "act": false }] }));
        let key = format!("k{status}");
        let failed = lab.call("charge", "{}", &key).error(EXIT_FAILED, "retry_exhausted");
        assert_eq!(failed.at("/error/cause"), format!("http_{status}"));
        assert_eq!((failed.at("/data"), failed.at("/error/retriable")), (Value::Null, json!(true)));
        std::thread::sleep(Duration::from_millis(failed.at("/error/retry_after_ms").as_u64().unwrap()));
        let done = lab.call("charge", "{}", &key).done();
        assert_eq!(done.at("/attempt"), 2);
        lab.call("charge", "{}", &key).replayed();
    }
    for status in [200, 201, 202, 204] {
        lab.world.then("/charge", json!({ "status": status, "body": if status == 204 { "" } else { "{}" } }));
        lab.call("charge", "{}", &format!("k{status}")).done();
    }
    assert_eq!(lab.world.acted("/charge"), 8);
}
