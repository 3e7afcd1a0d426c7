//! A ledger made by real calls, with effects in every state that matters, and what it must answer wherever it is.

use serde_json::{Value, json};

use crate::lab::{EXIT_CANCELLED, EXIT_DONE, EXIT_FAILED, EXIT_IN_DOUBT, EXIT_PENDING, EXIT_REFUSED, Lab, Run};

const CONFIG: &str = r#"tools:
  charge:
    http: { method: POST, url: "WORLD/charge", json: "${args}" }
    undo: { tool: refund, args: { charge: "${result.id}" } }
  refund:
    http: { method: POST, url: "WORLD/refund", json: "${args}" }
  bounce:
    http: { method: POST, url: "WORLD/bounce", json: "${args}" }
  vanish:
    http: { method: POST, url: "WORLD/vanish", json: "${args}" }
  brief:
    http: { method: POST, url: "WORLD/brief", json: "${args}" }
    retain: 1ms
  wire:
    http: { method: POST, url: "WORLD/wire", json: "${args}" }
    approval: true
"#;

/// Tool and key of each call, and how it answers when it is made again.
const AGAIN: [(&str, &str, i32); 9] = [
    ("charge", "done", EXIT_DONE),
    ("charge", "undone", EXIT_DONE),
    ("bounce", "failed", EXIT_FAILED),
    ("vanish", "doubt", EXIT_IN_DOUBT),
    ("brief", "pruned", EXIT_REFUSED),
    ("wire", "waiting", EXIT_PENDING),
    ("wire", "denied", EXIT_FAILED),
    ("wire", "cancelled", EXIT_CANCELLED),
    ("wire", "approved", EXIT_DONE),
];

/// In the SQLite file of the lab's config.
pub fn made() -> Lab {
    let lab = Lab::new(CONFIG);
    lab.world.then("/bounce", json!({ "act": false, "status": 400 }));
    lab.world.then("/vanish", json!({ "end": "hang_up" }));
    let call = |tool: &str, key: &str| lab.call(tool, &json!({ "key": key }).to_string(), key);
    let effects =
        |word: &str, call: &Run| assert_eq!(lab.json(&["effects", word, &call.effect(), "--by", "ada"]).code, EXIT_DONE, "{word}");
    call("charge", "done").done();
    effects("undo", &call("charge", "undone").done());
    call("bounce", "failed").error(EXIT_FAILED, "http_400");
    call("vanish", "doubt").in_doubt();
    // So short that the answer itself may be over before it is given.
    call("brief", "pruned");
    assert_eq!(lab.world.acted("/brief"), 1);
    call("wire", "waiting").expect(EXIT_PENDING, "waiting_approval");
    lab.json(&["effects", "deny", &call("wire", "denied").effect(), "--by", "ada"]);
    effects("cancel", &call("wire", "cancelled"));
    effects("approve", &call("wire", "approved"));
    for step in ["a", "b", "c"] {
        let in_run = lab.json(&["call", "charge", "--args", "{}", "--run", "trip", "--step", step]);
        assert_eq!(in_run.code, EXIT_DONE, "{in_run:?}");
    }
    assert_eq!(lab.json(&["effects", "prune"]).code, EXIT_DONE);
    assert_eq!(tombstones(&lab, "sqlite:counterfoil.db"), 1);
    lab
}

pub fn tombstones(lab: &Lab, store: &str) -> u64 {
    sound(lab, store).at("/tombstones").as_u64().expect("a count")
}

/// What a check says of a store that must be sound.
#[track_caller]
pub fn sound(lab: &Lab, store: &str) -> Run {
    let checked = lab.json(&["store", "check", store]);
    assert_eq!((checked.code, checked.at("/ok"), checked.at("/problems")), (EXIT_DONE, json!(true), json!([])), "{checked:?}");
    checked
}

/// What operators see of a ledger, all of it, without positions, which are each store's own, and ages.
pub fn seen(lab: &Lab, store: &str) -> Vec<Value> {
    let ask = |args: &[&str]| lab.json(&[args, &["--store", store]].concat()).value();
    let listed = ask(&["effects", "list", "--limit", "1000"]);
    let mut all = Vec::new();
    for effect in listed["effects"].as_array().expect("a list") {
        all.push(ask(&["effects", "show", effect["effect"].as_str().expect("its digits")]));
        all.push(effect.clone());
    }
    assert!(all.len() > 20, "{all:?}");
    for receipts in [&["receipts", "list"][..], &["receipts", "list", "--run", "trip"]] {
        let receipts = ask(receipts);
        assert!(receipts.as_array().is_some_and(|receipts| receipts.len() >= 3), "{receipts}");
        all.push(receipts);
    }
    all.iter_mut().for_each(without_positions);
    all
}

fn without_positions(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.remove("position");
            members.remove("age_ms");
            members.values_mut().for_each(without_positions);
        }
        Value::Array(items) => items.iter_mut().for_each(without_positions),
        _ => {}
    }
}

/// Every call made again on this store is answered from it, and the world sees none of them.
pub fn answers(lab: &Lab, store: &str) {
    let arrived = || ["/charge", "/refund", "/bounce", "/vanish", "/brief", "/wire"].map(|path| lab.world.seen(path).arrived);
    let before = arrived();
    for (tool, key, exit) in AGAIN {
        let args = json!({ "key": key }).to_string();
        let again = lab.json(&["call", tool, "--args", &args, "--key", key, "--store", store]);
        assert_eq!(again.code, exit, "{tool} {key} in {store}: {again:?}");
        if key == "pruned" {
            again.error(EXIT_REFUSED, "key_expired");
        }
    }
    assert_eq!(arrived(), before, "everything is answered from {store}");
}
