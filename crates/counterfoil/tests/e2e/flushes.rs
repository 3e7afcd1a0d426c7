//! Keys that an operator frees.

use serde_json::json;

use crate::lab::{EXIT_DONE, EXIT_REFUSED, EXIT_USAGE, Lab};

#[test]
fn a_106_a_flush_acts_on_one_key_only_and_leaves_an_entry() {
    let lab = Lab::charging("");
    let first = lab.call("charge", r#"{"cents":5}"#, "k1").done();
    let other = lab.call("charge", r#"{"cents":7}"#, "k2").done();
    let effect = first.effect();
    let flushed = lab.json(&["effects", "flush", &effect, "--by", "ada", "--why", "twice is meant"]);
    assert_eq!((flushed.code, flushed.at("/state")), (EXIT_DONE, json!("flushed")), "{flushed:?}");
    assert_eq!(lab.world.acted("/charge"), 2, "a flush runs nothing");
    assert_eq!(lab.listed("flushed").len(), 1);
    // A new call, also with other arguments; and then as sticky as any other.
    let again = lab.call("charge", r#"{"cents":6}"#, "k1").done();
    assert_eq!(again.effect(), effect);
    assert_ne!(again.at("/data"), first.at("/data"));
    assert_eq!(lab.call("charge", r#"{"cents":6}"#, "k1").replayed().at("/data"), again.at("/data"));
    lab.call("charge", r#"{"cents":5}"#, "k1").error(EXIT_REFUSED, "key_reuse_mismatch");
    assert_eq!(lab.call("charge", r#"{"cents":7}"#, "k2").replayed().at("/data"), other.at("/data"));
    assert_eq!(lab.world.acted("/charge"), 3);
    let shown = lab.json(&["effects", "show", &effect]);
    let history = shown.at("/history");
    let entry = history.as_array().unwrap().iter().find_map(|line| line["entry"].get("flushed")).expect("an entry");
    assert_eq!((&entry["by"], &entry["why"]), (&json!("ada"), &json!("twice is meant")));
    let receipts = lab.json(&["receipts", "list"]);
    assert_eq!(receipts.code, EXIT_DONE, "the chain holds: {receipts:?}");
    let other_history = lab.json(&["effects", "show", &other.effect()]).stdout;
    assert!(!other_history.contains("flushed"), "{other_history}");
}

#[test]
fn a_provider_that_honours_keys_takes_a_flushed_call_for_a_new_one() {
    let lab = Lab::charging("repeat: keyed");
    lab.world.then("/charge", json!({ "dedupe": true }));
    let first = lab.call("charge", "{}", "k").done();
    lab.run(&["effects", "flush", &first.effect(), "--why", "again"]);
    let again = lab.call("charge", "{}", "k").done();
    assert_ne!(again.at("/data"), first.at("/data"));
    assert_eq!(lab.world.acted("/charge"), 2);
}

#[test]
fn a_doubt_is_not_flushed() {
    let lab = Lab::charging("");
    lab.world.then("/charge", json!({ "end": "hang_up" }));
    let effect = lab.call("charge", "{}", "k").in_doubt().effect();
    lab.world.then("/charge", json!({}));
    let refused = lab.json(&["effects", "flush", &effect, "--why", "away with it"]).error(EXIT_REFUSED, "wrong_state");
    assert!(refused.text("/error/message").contains("resolve a doubt first"), "{refused:?}");
    lab.call("charge", "{}", "k").in_doubt();
    assert_eq!(lab.world.seen("/charge").arrived, 1);
    assert_eq!(lab.run(&["effects", "resolve", &effect, "--happened"]).code, EXIT_DONE);
    assert_eq!(lab.run(&["effects", "flush", &effect, "--why", "it was looked into"]).code, EXIT_DONE);
    lab.call("charge", "{}", "k").done();
    assert_eq!(lab.world.acted("/charge"), 2);
}

#[test]
fn all_of_a_tool_are_flushed_after_a_confirmation_only() {
    let two = r#"
tools:
  charge: { http: { method: POST, url: "WORLD/charge", json: "${args}" } }
  mail: { http: { method: POST, url: "WORLD/mail", json: "${args}" } }
"#;
    let lab = Lab::new(two);
    for key in ["a", "b", "c"] {
        lab.call("charge", "{}", key).done();
    }
    lab.call("mail", "{}", "a").done();
    lab.world.then("/charge", json!({ "end": "hang_up" }));
    lab.call("charge", "{}", "doubt").in_doubt();
    lab.world.then("/charge", json!({}));
    let asked = lab.json(&["effects", "flush", "--tool", "charge"]).error(EXIT_USAGE, "confirmation_needed");
    assert_eq!(asked.at("/error/detail/would_flush"), 3, "{asked:?}");
    lab.call("charge", "{}", "a").replayed();
    let done = lab.json(&["effects", "flush", "--tool", "charge", "--yes", "--by", "ada", "--why", "a new year"]);
    assert_eq!((done.code, done.at("/flushed"), done.at("/skipped")), (EXIT_DONE, json!(3), json!(0)), "{done:?}");
    for key in ["a", "b", "c"] {
        lab.call("charge", "{}", key).done();
    }
    lab.call("mail", "{}", "a").replayed();
    lab.call("charge", "{}", "doubt").in_doubt();
    assert_eq!((lab.world.acted("/charge"), lab.world.acted("/mail")), (7, 1), "three twice, the doubt once");
    assert_eq!(lab.run(&["effects", "flush", "--tool", "chrge", "--yes"]).code, EXIT_REFUSED);
    assert_eq!(lab.run(&["effects", "flush"]).code, EXIT_USAGE);
}
