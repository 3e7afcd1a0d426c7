//! A. Which calls are one call.

use serde_json::json;

use crate::lab::{Lab, Run, charge, library_call};

/// Two tools, so that one can be told from the other.
const TWO_TOOLS: &str = r#"
tools:
  charge: { http: { method: POST, url: "WORLD/charge", json: "${args}" } }
  refund: { http: { method: POST, url: "WORLD/charge", json: "${args}" } }
"#;

fn in_run(lab: &Lab, args: &str) -> Run {
    lab.json(&["call", "charge", "--run", "r1", "--step", "pay", "--args", args])
}

#[test]
fn a_01_member_order_does_not_matter() {
    let lab = Lab::charging("");
    let (one, other) = (r#"{"a":{"x":1,"y":[{"p":1,"q":2}]},"b":2}"#, r#"{ "b": 2, "a": {"y":[{"q":2,"p":1}],"x":1} }"#);
    let first = in_run(&lab, one).done();
    let again = in_run(&lab, other).replayed();
    assert_eq!((again.effect(), again.at("/data")), (first.effect(), first.at("/data")));
    lab.call("charge", one, "k").done();
    lab.call("charge", other, "k").replayed();
    assert_eq!(lab.world.acted("/charge"), 2, "one in the run, one by its key");
}

#[test]
fn a_02_array_order_matters() {
    let lab = Lab::charging("");
    let first = in_run(&lab, r#"{"items":[1,2]}"#).done();
    let second = in_run(&lab, r#"{"items":[2,1]}"#).done();
    assert_ne!(first.effect(), second.effect());
    assert_eq!(lab.world.acted("/charge"), 2);
}

#[test]
fn a_03_run_step_ordinal_tool_and_tenant_are_part_of_the_call() {
    let lab = Lab::new(TWO_TOOLS);
    let mut effects = vec![];
    let calls: [&[&str]; 7] = [
        &["call", "charge", "--run", "r1", "--step", "a"],
        &["call", "charge", "--run", "r1", "--step", "b"],
        &["call", "charge", "--run", "r2", "--step", "a"],
        &["call", "charge", "--run", "r1", "--step", "a", "--ordinal", "1"],
        &["call", "refund", "--run", "r1", "--step", "a"],
        &["call", "charge", "--key", "k"],
        &["call", "refund", "--key", "k"],
    ];
    for call in calls {
        effects.push(lab.json(call).done().effect());
        assert_eq!(lab.json(call).replayed().effect(), *effects.last().unwrap());
    }
    lab.config(&format!("tenant: other\n{TWO_TOOLS}"));
    for call in [calls[0], calls[5]] {
        effects.push(lab.json(call).done().effect());
    }
    assert_eq!(lab.world.acted("/charge"), 9);
    effects.sort();
    effects.dedup();
    assert_eq!(effects.len(), 9, "all of them are different");
}

#[test]
fn a_05_values_that_are_equal_and_values_that_only_look_so() {
    let lab = Lab::charging("");
    // Each line holds ways to write one value; no two lines hold the same.
    let lines: [&[&str]; 9] = [
        &[r#"{"n":1}"#, r#"{"n":1.0}"#, r#"{"n":10e-1}"#],
        &[r#"{"n":"1"}"#],
        &[r#"{"n":null}"#],
        &[r#"{}"#],
        &[r#"{"n":"é"}"#, r#"{"n":"\u00e9"}"#],
        &[r#"{"n":9007199254740992}"#],
        &[r#"{"n":9007199254740993}"#],
        &[r#"{"n":123456789012345678901234567890}"#],
        &[r#"{"n":123456789012345678901234567891}"#],
    ];
    let mut effects = vec![];
    for line in lines {
        let first = in_run(&lab, line[0]).done();
        for other in &line[1..] {
            assert_eq!(in_run(&lab, other).replayed().effect(), first.effect(), "{other}");
        }
        effects.push(first.effect());
    }
    assert_eq!(lab.world.acted("/charge"), lines.len() as u64);
    // Stable across releases and hosts: a key that changes is a second charge.
    assert_eq!(effects[0], GOLDEN_RUN, "{effects:#?}");
    assert_eq!(effects[6], GOLDEN_LARGE, "{effects:#?}");
}

/// `charge {"n":1}` in run r1, step pay.
const GOLDEN_RUN: &str = "478029947554c14676bbcae362a243f7ef125f2472ff3ecc89f4413d52b38894";
/// The same with 9007199254740993.
const GOLDEN_LARGE: &str = "ab45bf426890126aa71cf4aca72558fdb22a6d7d904d6a7e52dc8acf534670ed";
/// `charge` with the key order-7.
const GOLDEN_KEY: &str = "2c661eb6576c1b4ba1b147fcb33d7eb028862430299632a683613d919b784268";

#[tokio::test(flavor = "multi_thread")]
async fn a_07_one_key_from_the_command_line_and_the_library() {
    let lab = Lab::new(&charge(""));
    let cli = lab.call("charge", r#"{"cents":5}"#, "order-7").done();
    let effect = cli.effect();
    assert!(effect.len() == 64 && effect.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)), "{effect}");
    let library = lab.runtime().await.call(library_call("charge", json!({ "cents": 5 }), "order-7")).await;
    assert_eq!(library.effect.map(|e| e.to_string()), Some(effect.clone()));
    assert!(library.replayed);
    let seen = lab.world.seen("/charge");
    assert_eq!((seen.acted, seen.requests[0].key.as_str()), (1, effect.as_str()), "the same digits go downstream");
    assert_eq!(effect, GOLDEN_KEY);
}
