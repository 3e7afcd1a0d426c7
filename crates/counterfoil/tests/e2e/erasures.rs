//! A subject is erased: its data is in no file of the ledger, before and after, and what others can check still holds.

use std::path::Path;

use serde_json::json;

use crate::evidence::{exported, public_key, verified_elsewhere};
use crate::lab::{EXIT_DONE, EXIT_REFUSED, EXIT_USAGE, Lab};

const CONFIG: &str = r#"tools:
  charge:
    http: { method: POST, url: "WORLD/charge", json: "${args}", result: args }
    subject: args.customer
  lose:
    http: { method: POST, url: "WORLD/lose", json: "${args}" }
    subject: args.customer
  plain: { http: { method: POST, url: "WORLD/plain", json: "${args}" } }
"#;

const TRIP: &str = "workflow: trip\nsubject: input.customer\nsteps:\n  - { id: a, tool: plain, args: { whose: \"${input.customer}\", \
                    room: \"${input.room}\" } }\n  - { id: b, tool: plain, args: { again: \"${steps.a.result}\" } }\n";

fn lab() -> Lab {
    let lab = Lab::new(CONFIG);
    lab.world.then("/lose", json!({ "status": 500 }));
    lab.write("trip.yaml", TRIP);
    lab
}

/// In which files below the ledger's folder some text is.
fn found(lab: &Lab, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let file = format!("{}{suffix}", lab.ledger().display());
        let Ok(bytes) = std::fs::read(Path::new(&file)) else { continue };
        if bytes.windows(text.len()).any(|window| window == text.as_bytes()) {
            found.push(file);
        }
    }
    found
}

/// The hex digits of every subject's key, as they are stored.
fn keys(lab: &Lab) -> Vec<String> {
    let file = lab.ledger();
    let opened = rusqlite::Connection::open_with_flags(file, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let mut statement = opened.prepare("SELECT body FROM record WHERE kind = 19").unwrap();
    let bodies = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
    bodies
        .map(|body| serde_json::from_str::<serde_json::Value>(&body.unwrap()[1..]).unwrap()[0]["key"].as_str().unwrap().to_owned())
        .collect()
}

fn holds(lab: &Lab) {
    let checked = lab.json(&["store", "check"]);
    assert_eq!((checked.code, checked.at("/problems")), (EXIT_DONE, json!([])), "{checked:?}");
    for args in [&["receipts", "verify"][..], &["receipts", "verify", "--run", "t-1"]] {
        let verified = lab.run(args);
        assert_eq!(verified.code, EXIT_DONE, "{verified:?}");
    }
}

#[test]
fn nothing_of_a_subject_is_in_the_files_and_chains_hold_before_and_after() {
    let lab = lab();
    let args = r#"{"customer":"cus-ada-42","card":"4111-2222"}"#;
    let first = lab.call("charge", args, "k-ada").done();
    lab.call("charge", r#"{"customer":"cus-bob-43","card":"5111-3333"}"#, "k-bob").done();
    let ran = lab.run(&["run", "trip.yaml", "--run", "t-1", "--input", r#"{"customer":"cus-ada-42","room":"suite-9"}"#]);
    assert_eq!(ran.code, EXIT_DONE, "{ran:?}");
    lab.call("charge", args, "k-ada").replayed();
    lab.call("plain", r#"{"text":"marker-in-clear"}"#, "k-plain").done();
    assert!(!found(&lab, "marker-in-clear").is_empty(), "what is looked for would be found");
    for personal in ["cus-ada-42", "4111-2222", "suite-9", "cus-bob-43", "5111-3333"] {
        assert_eq!(found(&lab, personal), [""; 0], "{personal}");
    }
    holds(&lab);
    let keys = keys(&lab);
    assert_eq!(keys.len(), 2);
    assert!(keys.iter().all(|key| !found(&lab, key).is_empty()));
    // What leaves the house has nothing to erase, and says the same afterwards.
    let bundle = exported(&lab, &["t-1"], "before.evidence");
    assert!(!bundle.contains("cus-ada-42") && !bundle.contains("suite-9"), "{bundle}");
    let receipt = lab.json(&["receipts", "list", "--run", "t-1"]).at("/0/id");
    let (whose, others) = (r#"{"whose":"cus-ada-42","room":"suite-9"}"#, r#"{"whose":"cus-bob-43","room":"suite-9"}"#);
    let of = |args| {
        lab.json(&["receipts", "verify", "--receipt", receipt.as_str().unwrap(), "--run", "t-1", "--tool", "plain", "--args", args])
            .at("/covers")
    };
    assert_eq!((of(whose), of(others)), (json!(true), json!(false)), "{receipt}");
    let (charged, plain) = (lab.world.acted("/charge"), lab.world.acted("/plain"));

    lab.json(&["erase", "--subject", "cus-nobody", "--yes"]).error(EXIT_REFUSED, "subject_not_found");
    lab.json(&["erase", "--subject", "cus-ada-42"]).error(EXIT_USAGE, "not_confirmed");
    lab.call("charge", args, "k-ada").replayed();
    let erased = lab.json(&["erase", "--subject", "cus-ada-42", "--yes", "--by", "ada", "--why", "asked for"]);
    assert_eq!((erased.code, erased.at("/before")), (EXIT_DONE, json!(false)), "{erased:?}");
    let left: Vec<&String> = keys.iter().filter(|key| !found(&lab, key).is_empty()).collect();
    assert_eq!(left.len(), 1, "one key is destroyed, in every file of the ledger");
    for personal in ["cus-ada-42", "4111-2222", "suite-9"] {
        assert_eq!(found(&lab, personal), [""; 0], "{personal}");
    }
    holds(&lab);
    assert_eq!(exported(&lab, &["t-1"], "after.evidence"), bundle);
    let verified = verified_elsewhere(&lab.path("after.evidence"), &public_key(&lab));
    assert_eq!((verified.code, verified.at("/evidence/bundle/receipts")), (EXIT_DONE, json!(2)), "{verified:?}");
    assert_eq!(of(whose), json!(false), "nobody can tell any more");

    lab.call("charge", args, "k-ada").error(EXIT_REFUSED, "key_expired");
    lab.call("charge", args, "k-new").error(EXIT_REFUSED, "subject_erased");
    lab.json(&["runs", "show", "t-1"]).error(EXIT_REFUSED, "run_not_found");
    let again = ["run", "trip.yaml", "--run", "t-2", "--input", r#"{"customer":"cus-ada-42","room":"suite-9"}"#];
    lab.json(&again).error(EXIT_REFUSED, "subject_erased");
    assert_eq!((lab.world.acted("/charge"), lab.world.acted("/plain")), (charged, plain), "nothing was done again");
    lab.call("charge", r#"{"customer":"cus-bob-43","card":"5111-3333"}"#, "k-bob").replayed();
    // Asked for again it is the same erasure.
    let again = lab.json(&["erase", "--subject", "cus-ada-42", "--yes", "--by", "bob"]);
    assert_eq!((again.code, again.at("/before"), again.at("/at")), (EXIT_DONE, json!(true), erased.at("/at")), "{again:?}");
    // The world's own answer is not the ledger's to forget.
    assert!(first.text("/data/card").contains("4111"));
}

#[test]
fn what_is_open_keeps_its_key() {
    let lab = lab();
    let lost = lab.call("lose", r#"{"customer":"cus-ada-42"}"#, "k-1").in_doubt();
    let refused = lab.json(&["erase", "--subject", "cus-ada-42", "--yes"]).error(EXIT_REFUSED, "subject_in_use");
    let open = refused.at("/error/detail/open");
    assert_eq!((open[0]["what"].as_str(), open[0]["id"].as_str()), (Some("effect"), Some(lost.effect().as_str())), "{refused:?}");
    assert_eq!(lab.run(&["effects", "resolve", &lost.effect(), "--give-up", "--why", "over"]).code, EXIT_DONE);
    assert_eq!(lab.json(&["erase", "--subject", "cus-ada-42", "--yes"]).code, EXIT_DONE);
}

/// A veiled run goes into an archive as it is, and out of it; only the ledger that has the key reads it.
#[test]
fn a_veiled_run_is_archived_as_it_is() {
    let lab = lab();
    let run = ["run", "trip.yaml", "--run", "t-1", "--input", r#"{"customer":"cus-ada-42","room":"suite-9"}"#];
    assert_eq!(lab.run(&run).code, EXIT_DONE);
    let made = lab.json(&["archive", "--before", "2100-01-01", "-o", "old.gz"]);
    assert_eq!((made.code, made.at("/moved")), (EXIT_DONE, json!(1)), "{made:?}");
    assert_eq!(lab.run(&["archive", "verify", "old.gz"]).code, EXIT_DONE);
    let restored = lab.json(&["archive", "restore", "old.gz", "--into", "sqlite:old.db"]);
    assert_eq!((restored.code, restored.at("/runs")), (EXIT_DONE, json!(1)), "{restored:?}");
    assert_eq!(lab.run(&["--store", "sqlite:old.db", "store", "check"]).code, EXIT_DONE);
    assert_eq!(lab.run(&["--store", "sqlite:old.db", "receipts", "verify", "--run", "t-1"]).code, EXIT_DONE);
    let shown = lab.json(&["--store", "sqlite:old.db", "runs", "show", "t-1"]);
    assert_ne!(shown.code, EXIT_DONE, "{shown:?}");
}
