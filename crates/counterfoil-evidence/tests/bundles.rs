//! Bundles that hold, and how each kind of change is named.

mod common;

use common::{Story, secret};
use counterfoil_evidence::bundle::{root_of, verify};
use counterfoil_evidence::{Fault, SecretKey};

fn faults(text: &str) -> Vec<Fault> {
    verify(text, &[secret().public()]).expect_err("it was changed")
}

#[test]
fn an_untouched_bundle_holds_and_is_written_twice_alike() {
    for (effects, others) in [(0, 0), (1, 0), (1, 300), (3, 5), (30, 1000)] {
        let story = Story::new("trip-7", effects);
        let text = story.bundle(others, &secret());
        let verified = verify(&text, &[SecretKey::from_seed(&[1; 32]).public(), secret().public()]).unwrap_or_else(|f| panic!("{f:?}"));
        assert_eq!((verified.receipts, verified.records), (story.receipts.len() as u64, story.records.len() as u64));
        assert_eq!(Some(verified.root), root_of(&text));
        assert_eq!(text, story.bundle(others, &secret()));
    }
}

#[test]
fn every_change_is_named_by_its_place() {
    let text = Story::new("trip-7", 12).bundle(40, &secret());
    let lines: Vec<&str> = text.lines().collect();
    let joined = |lines: &[&str]| format!("{}\n", lines.join("\n"));
    let place = |what: &str| lines.iter().position(|line| line.contains(what)).unwrap();

    let edited = text.replacen("für \\\\\\\"4\\\\\\\"", "für \\\\\\\"5\\\\\\\"", 1);
    assert_ne!(edited, text);
    let line = place("für \\\\\\\"4\\\\\\\"") as u64 + 1;
    assert!(faults(&edited).iter().any(|f| f.line == Some(line) && f.part.starts_with("record 1 of effect")), "{:?}", faults(&edited));

    let mut removed = lines.clone();
    let gone = place("\"receipt\":") + 2;
    removed.remove(gone);
    let named = faults(&joined(&removed));
    assert!(named.iter().any(|f| f.problem == format!("line {} is missing before it", gone + 1)), "{named:?}");
    assert!(named.iter().any(|f| f.problem.contains("receipt 3 is expected here")), "{named:?}");

    let mut swapped = lines.clone();
    swapped.swap(gone, gone + 1);
    assert_eq!(faults(&joined(&swapped))[0].line, Some(gone as u64 + 1));

    let mut doubled = lines.clone();
    doubled.insert(gone, lines[gone]);
    assert!(faults(&joined(&doubled)).iter().any(|f| f.line == Some(gone as u64 + 2) && f.problem.contains("once more")));

    let cut = &text[..text.len() - 30];
    assert!(faults(cut).iter().any(|f| f.part == "end of the file"));
    let unsealed = joined(&lines[..lines.len() - 1]);
    assert_eq!(faults(&unsealed).last().map(|f| f.part.as_str()), Some("seal"));
    let mut headless = lines.clone();
    headless.remove(place("\"head\":"));
    assert!(faults(&joined(&headless)).iter().any(|f| f.part == "head" && f.problem == "it is missing"));
}

#[test]
fn another_key_and_another_ones_signature_are_named() {
    let (ours, theirs) = (secret(), SecretKey::from_seed(&[8; 32]));
    let (a, b) = (Story::new("a", 4).bundle(3, &ours), Story::new("b", 4).bundle(3, &ours));
    let untrusted = verify(&a, &[theirs.public()]).unwrap_err();
    assert_eq!(untrusted.len(), 1);
    assert!(untrusted[0].problem.contains("not one you trust"), "{untrusted:?}");
    let seal = |text: &str| text[text.rfind("\"seal\"").unwrap()..].to_owned();
    let swapped = a.replace(&seal(&a), &seal(&b));
    let named = faults(&swapped);
    assert_eq!((named.len(), named[0].part.as_str()), (1, "seal"), "{named:?}");
}

/// Who has the key can say in the file what he likes; that a receipt says otherwise than its entry shows all the same.
#[test]
fn a_receipt_that_contradicts_its_entry_is_named_whoever_sealed_it() {
    let mut story = Story::new("trip-7", 5);
    let last = story.receipts.len() - 1;
    story.receipts[last] = story.receipts[last].replace("\"attempt\":1", "\"attempt\":2");
    let named = faults(&story.bundle(10, &secret()));
    assert_eq!(named.len(), 1, "{named:?}");
    assert!(named[0].part.starts_with(&format!("receipt {}", last + 1)) && named[0].problem.contains("`attempt`"), "{named:?}");
}

/// Whoever verifies has the file from a stranger: no number in it may end the verifier instead of the file.
#[test]
fn a_line_may_have_any_number_and_is_named() {
    let good = Story::new("trip-7", 3).bundle(4, &secret());
    for (at, number) in [(1, u64::MAX), (1, u64::MAX - 1), (2, u64::MAX), (2, 0)] {
        let changed = good.replacen(&format!("{{\"line\":{at},"), &format!("{{\"line\":{number},"), 1);
        let named = faults(&changed);
        assert!(named.iter().any(|fault| fault.line == Some(at) || fault.line == Some(at + 1)), "{named:?}");
        // One that cannot be read is counted as well.
        assert!(!faults(&format!("{}\n!\n!\n", changed.lines().take(at as usize).collect::<Vec<_>>().join("\n"))).is_empty());
    }
}
