//! A-78 and A-83: every end has one receipt, which speaks of its call and of no other; a run's receipts are all and only its own.

use std::collections::BTreeMap;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{exported, public_key, verified_elsewhere};
use crate::lab::{EXIT_BROKEN, EXIT_DONE, EXIT_FAILED, EXIT_PENDING, EXIT_REFUSED, EXIT_USAGE, Lab, Run, library_call};

const CONFIG: &str = r#"tools:
  charge:
    http: { method: POST, url: "WORLD/charge", json: "${args}" }
    undo: { tool: refund, args: { charge: "${result.id}" } }
    lease: 1s
    wait_max: 60s
  refund:
    http: { method: POST, url: "WORLD/refund", json: "${args}" }
  busy:
    http: { method: POST, url: "WORLD/busy", json: "${args}" }
    retry: { attempts: 2, first: 1ms, max: 1ms }
  asked:
    http: { method: POST, url: "WORLD/asked", json: "${args}" }
    probe:
      http: { url: "WORLD/find?key=${key}" }
      happened: "size(response.json.data) > 0"
      result: "response.json.data[0]"
      settle_after: 0s
  wire:
    http: { method: POST, url: "WORLD/wire", json: "${args}" }
    approval: true
"#;

/// Ends in every way there is, in one run. By outcome: the effects that ended so.
fn every_end(lab: &Lab) -> BTreeMap<&'static str, Vec<String>> {
    let mut ends: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
    let mut ended = |outcome: &'static str, effect: &str| ends.entry(outcome).or_default().push(effect.to_owned());
    let call =
        |tool: &str, step: &str| lab.json(&["call", tool, "--args", &json!({ "for": step }).to_string(), "--run", "trip", "--step", step]);
    let effects = |args: &[&str]| {
        let run = lab.json(&[&["effects"], args, &["--by", "ada", "--why", "she asked the bank"]].concat());
        assert_eq!(run.code, EXIT_DONE, "{args:?}: {run:?}");
    };
    ended("done", &call("charge", "done").done().effect());
    lab.world.rules("/charge", json!({ "next": [{ "status": 422, "act": false }] }));
    ended("failed", &call("charge", "failed").error(EXIT_FAILED, "http_422").effect());
    lab.world.then("/busy", json!({ "status": 503, "act": false }));
    ended("retry_exhausted", &call("busy", "busy").expect(EXIT_FAILED, "error").effect());
    for (step, word) in [("denied", "deny"), ("cancelled", "cancel")] {
        let waiting = call("wire", step).expect(EXIT_PENDING, "waiting_approval").effect();
        effects(&[word, &waiting]);
        ended(if word == "deny" { "denied" } else { "cancelled" }, &waiting);
    }
    for (outcome, flags) in [
        ("resolved_happened", &["--happened", "--result", r#"{"id":"e-9"}"#][..]),
        ("resolved_did_not_happen", &["--did-not-happen"]),
        ("resolved_gave_up", &["--give-up"]),
    ] {
        lab.world.rules("/charge", json!({ "next": [{ "end": "hang_up" }] }));
        let doubt = call("charge", outcome).in_doubt().effect();
        effects(&[&["resolve", &doubt], flags].concat());
        ended(outcome, &doubt);
    }
    lab.world.rules("/asked", json!({ "next": [{ "end": "hang_up" }] }));
    ended("probed_happened", &call("asked", "probed").expect(EXIT_DONE, "success").effect());
    for outcome in ["undone", "undo_failed"] {
        let done = call("charge", outcome).done().effect();
        if outcome == "undo_failed" {
            lab.world.then("/refund", json!({ "status": 422, "act": false }));
        }
        drop(lab.json(&["effects", "undo", &done, "--by", "ada", "--why", "a test"]));
        ended("done", &done);
        ended(outcome, &done);
        let history = lab.json(&["effects", "show", &done]).at("/history");
        let undo =
            history.as_array().expect("a list").iter().find_map(|line| line["entry"]["undo_started"]["undo"].as_str()).expect("an undo");
        ended(if outcome == "undone" { "done" } else { "failed" }, undo);
    }
    // Its worker is paused until its lease is over: what it then reports is late, and closes the doubt.
    lab.world.then("/charge", json!({ "after": true }));
    let args = json!({ "for": "late" }).to_string();
    let mut command = lab.command(&["call", "charge", "--args", &args, "--run", "trip", "--step", "late", "--json"]);
    let paused = crate::parts::Process::spawn(command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()));
    lab.world.wait_holding("/charge", 1);
    paused.signal(Signal::STOP);
    let doubt = call("charge", "late").in_doubt().effect();
    lab.world.release("/charge");
    paused.signal(Signal::CONT);
    assert_eq!(Run::ended(paused).code, EXIT_DONE);
    ended("late_done", &doubt);
    lab.world.then("/charge", json!({}));
    let flushed = call("charge", "flushed").done().effect();
    effects(&["flush", &flushed]);
    ended("done", &flushed);
    ended("flushed", &flushed);
    ends
}

#[test]
fn a_78_every_end_has_one_receipt_and_says_who_and_why() {
    let lab = Lab::new(CONFIG);
    let ends = every_end(&lab);
    let listed = lab.json(&["receipts", "list", "--run", "trip"]).value();
    let receipts: Vec<&Value> = listed.as_array().expect("a list").iter().collect();
    let mut found: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for receipt in &receipts {
        let (outcome, effect) = (receipt["outcome"].as_str().unwrap(), receipt["effect"].as_str().unwrap());
        found.entry(outcome).or_default().push(effect.to_owned());
        let (started, ended) = (receipt["started"].as_i64().unwrap(), receipt["ended"].as_i64().unwrap());
        assert_eq!(receipt["duration_us"].as_i64(), Some(ended - started), "{receipt}");
        let personal = ["denied", "cancelled", "flushed"].contains(&outcome) || outcome.starts_with("resolved_");
        assert_eq!((receipt["by"] == "ada", receipt["why"].is_string()), (personal, personal), "{receipt}");
    }
    assert_eq!(found, ends, "each end, once");
    let outcomes: Vec<&str> = found.keys().copied().collect();
    assert_eq!(outcomes.len(), 13, "{outcomes:?}");
    // And all of it is evidence, for both verifiers, with the reason in the entry.
    let bundle = exported(&lab, &["trip"], "trip.evidence");
    assert!(bundle.contains("she asked the bank"));
    let verified = verified_elsewhere(&lab.path("trip.evidence"), &public_key(&lab));
    assert_eq!((verified.code, verified.at("/evidence/bundle/receipts")), (EXIT_DONE, json!(receipts.len())), "{verified:?}");
    super::bundles::python_agrees(&lab, &[("trip.evidence", true)]);
    // In one who is looked at alone, the receipts of his effect.
    let undone = &found["undone"][0];
    let of_effect = lab.json(&["receipts", "list", "--effect", undone]).value();
    let outcomes: Vec<&str> = of_effect.as_array().unwrap().iter().map(|receipt| receipt["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["done", "undone"]);
    let some = lab.json(&["receipts", "list", "--run", "trip", "--outcome", "undone,flushed", "--limit", "1"]).value();
    assert_eq!((some.as_array().map(Vec::len), &some[0]["outcome"]), (Some(1), &json!("flushed")));
}

#[test]
fn a_78_a_receipt_is_of_its_call_and_of_its_replays_and_of_no_other() {
    let lab = Lab::charging("");
    let args = r#"{"cents":1999,"order":{"b":1,"a":2}}"#;
    let first = lab.call("charge", args, "order-7").done();
    let again = lab.call("charge", r#"{"order":{"a":2,"b":1},"cents":1999.0}"#, "order-7").replayed();
    assert_eq!(first.text("/receipt"), again.text("/receipt"), "a replay has the receipt of what it replays");
    let receipt = first.text("/receipt");
    let covers = |tool: &str, args: &str| {
        let run = lab.json(&["receipts", "verify", "--receipt", &receipt, "--tool", tool, "--args", args]);
        let covers = run.at("/covers").as_bool().unwrap_or_else(|| panic!("{run:?}"));
        assert_eq!(run.code, if covers { EXIT_DONE } else { EXIT_BROKEN });
        covers
    };
    assert!(covers("charge", args) && covers("charge", r#"{"order":{"a":2,"b":1},"cents":1999.0}"#));
    assert!(!covers("charge", r#"{"cents":2000,"order":{"b":1,"a":2}}"#) && !covers("refund", args));
    // By key and tool, by effect, by id.
    let by_key = lab.json(&["receipts", "list", "--key", "order-7", "--tool", "charge"]);
    assert_eq!(by_key.at("/0/id"), json!(receipt), "{by_key:?}");
    let shown = lab.json(&["receipts", "show", &receipt]);
    assert_eq!((shown.at("/receipt/id"), shown.at("/leaf")), (json!(receipt), Value::Null), "not sealed yet: {shown:?}");
    assert_eq!(lab.json(&["receipts", "seal"]).at("/added"), 1);
    let shown = lab.json(&["receipts", "show", &receipt, "--effect", &first.effect()]);
    assert_eq!((shown.at("/leaf"), shown.at("/head/size")), (json!(0), json!(1)), "{shown:?}");
    assert!(lab.run(&["receipts", "show", &receipt]).stdout.contains("outcome     done"));
    lab.json(&["receipts", "show", &"0".repeat(64)]).error(EXIT_REFUSED, "not_found");
    lab.json(&["receipts", "show", "17"]).error(EXIT_USAGE, "invalid_receipt");
    lab.json(&["receipts", "list", "--effect", &"0".repeat(64)]).error(EXIT_REFUSED, "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_78_the_library_verifies_a_receipt_against_a_call() {
    let lab = Lab::charging("");
    let runtime = lab.runtime().await;
    let call = |cents: u64| library_call("charge", json!({ "cents": cents }), "k");
    let (first, again) = (runtime.call(call(5)).await, runtime.call(call(5)).await);
    assert_eq!((again.replayed, again.receipt), (true, first.receipt));
    let receipts = runtime.ledger().receipts(&call(5).tenant, None).await.expect("a chain");
    assert_eq!(receipts.len(), 1);
    assert!(counterfoil::verify(&receipts[0], &call(5)) && !counterfoil::verify(&receipts[0], &call(6)));
}

#[test]
fn a_83_a_runs_receipts_are_all_and_only_its_own_in_their_order() {
    let lab = Lab::charging("");
    // Two runs and calls outside of them, in turns.
    let call =
        |run: &str, n: usize| lab.json(&["call", "charge", "--args", &format!("[{n}]"), "--run", run, "--step", &format!("s{n}")]).done();
    let mut of = BTreeMap::from([("a", Vec::new()), ("b", Vec::new())]);
    for n in 0..4 {
        for run in ["a", "b"] {
            of.get_mut(run).expect("one of them").push(call(run, n).text("/receipt"));
        }
        lab.call("charge", "{}", &format!("k{n}")).done();
    }
    for (run, receipts) in &of {
        let listed = lab.json(&["receipts", "list", "--run", run]).value();
        let ids: Vec<&str> = listed.as_array().unwrap().iter().map(|receipt| receipt["id"].as_str().unwrap()).collect();
        assert_eq!(&ids, receipts, "in the order in which they ended");
        let bundle = exported(&lab, &[run], "run.evidence");
        let in_bundle: Vec<String> = bundle
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).unwrap()["receipt"]["text"].as_str().map(str::to_owned))
            .map(|text| serde_json::from_str::<Value>(&text).unwrap()["id"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(&in_bundle, receipts);
        assert_eq!(verified_elsewhere(&lab.path("run.evidence"), &public_key(&lab)).code, EXIT_DONE);
        let third = lab.json(&["receipts", "show", "3", "--run", run]);
        assert_eq!(third.at("/receipt/id"), json!(receipts[2]));
    }
    assert_eq!(lab.json(&["receipts", "list"]).value().as_array().map(Vec::len), Some(4), "outside of runs");
    lab.json(&["receipts", "export", "nobody"]).error(EXIT_REFUSED, "not_found");
}
