//! A-79 and A-82: a bundle is verified where nothing else is known, by two programs that share no code; each change is named; no secret is in it.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::tamper::{Rng, tampered};
use super::{exported, public_key, verified_elsewhere};
use crate::lab::{EXIT_BROKEN, EXIT_DONE, EXIT_REFUSED, EXIT_USAGE, Lab};
use crate::parts::Process;

const FLOW: &str = r#"
workflow: pay
steps:
  - { id: first, tool: charge, args: { n: 1 } }
  - { id: second, tool: charge, args: { n: 2 } }
  - { id: third, tool: charge, args: { n: 3 } }
"#;

fn lab() -> Lab {
    let lab = Lab::charging("");
    lab.write("pay.yaml", FLOW);
    for run in ["trip-1", "trip-2"] {
        assert_eq!(lab.json(&["run", "pay.yaml", "--run", run]).code, EXIT_DONE);
    }
    lab
}

/// What the verifier in Python says of these files: whether they hold.
pub fn python_agrees(lab: &Lab, files: &[(&str, bool)]) {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/verify_bundle.py");
    let key = public_key(lab);
    for (file, holds) in files {
        let said = Command::new("python3").arg(&script).arg(lab.path(file)).arg(&key).output().expect("python3 runs");
        assert_eq!(said.status.code(), Some(if *holds { 0 } else { 1 }), "{file}: {}", String::from_utf8_lossy(&said.stdout));
    }
}

#[test]
fn a_79_a_run_is_exported_alike_and_verified_where_nothing_else_is_known() {
    let lab = lab();
    let first = exported(&lab, &["trip-1"], "a.evidence");
    lab.call("charge", "{}", "k").done();
    assert_eq!(lab.json(&["receipts", "seal"]).at("/added"), 1);
    assert_eq!(exported(&lab, &["trip-1"], "b.evidence"), first, "however the log has grown");
    let key = public_key(&lab);
    let verified = verified_elsewhere(&lab.path("a.evidence"), &key);
    let said = |pointer: &str| verified.at(&format!("/evidence/bundle/{pointer}"));
    assert_eq!(
        (verified.code, said("run"), said("receipts"), said("ended")),
        (EXIT_DONE, json!("trip-1"), json!(3), json!(true)),
        "{verified:?}"
    );
    assert!(first.lines().nth(1).unwrap().contains("workflow: pay"), "the definition is in it");
    python_agrees(&lab, &[("a.evidence", true)]);
    // Standard output is the same file.
    assert_eq!(lab.run(&["receipts", "export", "trip-1"]).stdout, first);
    let file = lab.path("a.evidence");
    let file = file.to_str().unwrap();
    lab.json(&["receipts", "verify", file]).error(EXIT_USAGE, "key_needed");
    lab.json(&["receipts", "verify", "nowhere", "--key", &key]).error(EXIT_USAGE, "file_unreadable");
    lab.json(&["receipts", "verify", file, "--key", "abc"]).error(EXIT_USAGE, "invalid_key");
    let others = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c";
    let untrusted = verified_elsewhere(&lab.path("a.evidence"), others).error(EXIT_BROKEN, "evidence_invalid");
    assert!(untrusted.text("/error/message").contains("not one you trust"), "{untrusted:?}");
    // One effect alone, of a call outside runs.
    let effect = lab.call("charge", "{}", "k").replayed().effect();
    exported(&lab, &["--effect", &effect], "one.evidence");
    let verified = verified_elsewhere(&lab.path("one.evidence"), &key);
    assert_eq!((verified.code, verified.at("/evidence/bundle/effect")), (EXIT_DONE, json!(effect)), "{verified:?}");
    python_agrees(&lab, &[("one.evidence", true)]);
    lab.json(&["receipts", "export", "--effect", &"0".repeat(64)]).error(EXIT_REFUSED, "not_found");
}

#[test]
fn a_79_an_edit_a_gap_a_swap_and_a_cut_are_named() {
    let lab = lab();
    let good = exported(&lab, &["trip-1"], "good.evidence");
    let key = public_key(&lab);
    let lines: Vec<&str> = good.lines().collect();
    let joined = |lines: &[&str]| format!("{}\n", lines.join("\n"));
    let receipt = lines.iter().position(|line| line.contains("\"receipt\":{")).expect("a receipt");
    let edited = good.replacen("\\\"n\\\":2", "\\\"n\\\":5", 1);
    let line = good[..good.find("\\\"n\\\":2").expect("an argument")].lines().count();
    let (mut gap, mut swap) = (lines.clone(), lines.clone());
    gap.remove(receipt + 1);
    swap.swap(receipt, receipt + 1);
    let named = |name: &str, text: &str, line: Option<usize>, words: &str| {
        lab.write(name, text);
        let faulty = verified_elsewhere(&lab.path(name), &key).error(EXIT_BROKEN, "evidence_invalid");
        let faults = faulty.at("/faults");
        let told = |fault: &&Value| fault["line"].as_u64() == line.map(|line| line as u64) && fault.to_string().contains(words);
        assert!(faults.as_array().unwrap().iter().any(|fault| told(&fault)), "{name}: {faults:#}");
        python_agrees(&lab, &[(name, false)]);
    };
    named("edited", &edited, Some(line), "it was changed");
    named("gap", &joined(&gap), Some(receipt + 2), "receipt 2 is expected here");
    named("swap", &joined(&swap), Some(receipt + 1), "receipt 1 is expected here");
    named("cut", &joined(&lines[..lines.len() - 1]), None, "seal");
    named("half", &good[..good.len() / 2], None, "the file was cut");
    let foreign = exported(&lab, &["trip-2"], "foreign.evidence");
    let seal = |text: &str| text[text.rfind("\"seal\"").unwrap()..].to_owned();
    named("signature", &good.replace(&seal(&good), &seal(&foreign)), Some(lines.len()), "another bundle's");
}

/// Both verifiers on the same files, hundreds of them.
#[test]
fn what_one_verifier_refuses_the_other_refuses_too() {
    let lab = lab();
    let (good, other) = (exported(&lab, &["trip-1"], "good.evidence"), exported(&lab, &["trip-2"], "other.evidence"));
    let (key, mut rng) = (public_key(&lab), Rng(79));
    let trusted = [key.parse().expect("a key")];
    let folder = lab.path("tampered");
    std::fs::create_dir(&folder).expect("a folder");
    let mut done = Vec::new();
    for round in 0..400 {
        let changed = tampered(&good, &other, &mut rng);
        let faults = counterfoil::evidence::file::verify(&changed.bytes, &trusted).expect_err(&changed.what);
        assert!(changed.is_named(&faults), "round {round}: {}: {faults:?}", changed.what);
        std::fs::write(folder.join(format!("{round:03}")), changed.bytes).expect("a file");
        done.push(changed.what);
    }
    std::fs::copy(lab.path("good.evidence"), folder.join("good")).expect("a file");
    let driver = r#"
import os, sys
sys.path.insert(0, sys.argv[1])
import verify_bundle
for name in sorted(os.listdir(sys.argv[2])):
    try:
        faults = verify_bundle.verify(open(os.path.join(sys.argv[2], name), "rb").read(), sys.argv[3:])
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, StopIteration) as error:
        faults = [repr(error)]
    print(name, "bad" if faults else "holds")
"#;
    let docs = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let said = Command::new("python3").args(["-B", "-c", driver]).arg(docs).arg(&folder).arg(&key).output().expect("python3 runs");
    let told = String::from_utf8(said.stdout).expect("text");
    let holding: Vec<&str> = told.lines().filter(|line| line.ends_with(" holds")).collect();
    assert_eq!(holding, ["good holds"], "{}", String::from_utf8_lossy(&said.stderr));
    assert_eq!(told.lines().count(), done.len() + 1);
}

#[test]
fn an_open_run_is_exported_as_it_stands() {
    let lab = Lab::charging("");
    lab.write(
        "wait.yaml",
        "workflow: wait\nsteps:\n  - { id: pay, tool: charge, args: {} }\n  - { id: boss, wait: { approval: \"go on?\" } }\n",
    );
    let mut command = lab.command(&["run", "wait.yaml", "--run", "t"]);
    let mut running = Process::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()));
    let end = Instant::now() + Duration::from_secs(60);
    while lab.json(&["runs", "show", "t"]).at("/state") != json!("waiting") {
        assert!(Instant::now() < end, "it waits for the boss");
    }
    running.kill();
    let open = exported(&lab, &["t"], "open.evidence");
    let verified = verified_elsewhere(&lab.path("open.evidence"), &public_key(&lab));
    assert_eq!((verified.code, verified.at("/evidence/bundle/ended")), (EXIT_DONE, json!(false)), "{verified:?}");
    assert_eq!(lab.json(&["runs", "approve", "t", "boss", "--by", "ada"]).code, EXIT_DONE);
    let over = exported(&lab, &["t"], "over.evidence");
    assert_ne!(open, over);
    let verified = verified_elsewhere(&lab.path("over.evidence"), &public_key(&lab));
    assert_eq!((verified.code, verified.at("/evidence/bundle/ended")), (EXIT_DONE, json!(true)), "{verified:?}");
}

#[test]
fn a_82_no_secret_is_in_a_bundle_and_what_is_instead_of_it_is_proven() {
    let lab = Lab::charging("redact: [card.number, owner.pin.code]");
    let secrets = ["4242424242424242", "pin-of-ada"];
    let args = json!({ "card": { "number": secrets[0] }, "owner": { "pin": { "code": secrets[1], "set": true } } }).to_string();
    lab.json(&["call", "charge", "--args", &args, "--run", "t", "--step", "s"]).done();
    let bundle = exported(&lab, &["t"], "t.evidence");
    assert!(bundle.contains("$redacted"));
    for secret in secrets {
        assert!(!bundle.contains(secret), "{secret} is in it");
    }
    assert_eq!(verified_elsewhere(&lab.path("t.evidence"), &public_key(&lab)).code, EXIT_DONE);
}

/// One receipt for a third party, and two heads for someone who kept the first.
#[test]
fn a_receipt_is_proven_alone_and_a_log_to_begin_with_another() {
    let lab = Lab::charging("");
    let receipts: Vec<String> =
        (0..5).map(|n| lab.call("charge", &format!("[{n}]"), &format!("secret-{n}")).done().text("/receipt")).collect();
    assert_eq!(lab.json(&["receipts", "seal", "-o", "head.json"]).at("/number"), 1);
    (5..9).for_each(|n| drop(lab.call("charge", &format!("[{n}]"), &format!("secret-{n}")).done()));
    let proven = lab.json(&["receipts", "prove", &receipts[2], "-o", "receipt.proof"]);
    assert_eq!((proven.code, proven.at("/leaf"), proven.at("/head/size")), (EXIT_DONE, json!(2), json!(9)), "{proven:?}");
    let key = public_key(&lab);
    let proof = std::fs::read_to_string(lab.path("receipt.proof")).expect("the proof");
    assert!(receipts.iter().enumerate().all(|(n, id)| proof.contains(id) == (n == 2)), "nothing else of the ledger is in it");
    let verified = verified_elsewhere(&lab.path("receipt.proof"), &key);
    assert_eq!((verified.code, verified.at("/evidence/receipt/receipt/id")), (EXIT_DONE, json!(receipts[2])), "{verified:?}");
    lab.write("forged.proof", &proof.replace("\\\"outcome\\\":\\\"done\\\"", "\\\"outcome\\\":\\\"fine\\\""));
    verified_elsewhere(&lab.path("forged.proof"), &key).error(EXIT_BROKEN, "evidence_invalid");
    assert_eq!(lab.json(&["receipts", "consistency", "1", "-o", "growth.proof"]).code, EXIT_DONE);
    let verified = verified_elsewhere(&lab.path("growth.proof"), &key);
    let sizes = (verified.at("/evidence/consistency/old/size"), verified.at("/evidence/consistency/new/size"));
    assert_eq!((verified.code, sizes), (EXIT_DONE, (json!(5), json!(9))), "{verified:?}");
    let growth = std::fs::read_to_string(lab.path("growth.proof")).expect("the proof");
    lab.write("forged.growth", &growth.replacen("\"size\":5", "\"size\":4", 1));
    verified_elsewhere(&lab.path("forged.growth"), &key).error(EXIT_BROKEN, "evidence_invalid");
    lab.json(&["receipts", "consistency", "7"]).error(EXIT_REFUSED, "not_found");
    assert_eq!(lab.json(&["receipts", "heads"]).value().as_array().map(Vec::len), Some(2));
    assert_eq!(lab.json(&["receipts", "verify", "--head", "head.json", "--key", &key]).code, EXIT_DONE);
}
