//! Keys: made once, kept from others, replaced without a loss.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::{exported, public_key, verified_elsewhere};
use crate::lab::{EXIT_BROKEN, EXIT_DONE, EXIT_REFUSED, EXIT_USAGE, Lab};

const SIGNING: &str = ".counterfoil/keys/signing.key";

fn lab() -> Lab {
    let lab = Lab::charging("");
    lab.json(&["call", "charge", "--run", "t", "--step", "s"]).done();
    lab
}

#[test]
fn the_first_key_is_made_when_it_is_needed_and_only_its_owner_may_read_it() {
    let lab = lab();
    assert_eq!(lab.json(&["keys", "show"]).at("/keys"), json!([]));
    assert!(!lab.path(SIGNING).exists(), "nothing needed it yet");
    let exported = lab.run(&["receipts", "export", "t", "-o", "t.evidence"]);
    assert!(exported.stderr.contains("a key was made to sign with"), "{exported:?}");
    let mode = lab.path(SIGNING).metadata().expect("the key").permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let secret = std::fs::read_to_string(lab.path(SIGNING)).expect("the key");
    let ledger = std::fs::read(lab.ledger()).expect("the ledger");
    let (secret, key) = (secret.trim().as_bytes(), public_key(&lab));
    assert!(!ledger.windows(secret.len()).any(|window| window == secret), "the ledger has the public key only");
    let again = lab.run(&["receipts", "export", "t", "-o", "again.evidence"]);
    assert!(!again.stderr.contains("a key was made"), "{again:?}");
    lab.json(&["keys", "generate"]).error(EXIT_REFUSED, "key_exists");
    assert_eq!(public_key(&lab), key);
    // As a file it is as good as typed.
    let public =
        std::fs::read_dir(lab.path(".counterfoil/keys")).expect("a folder").filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let public = public.into_iter().find(|name| name.ends_with(".pub")).expect("a public key");
    let verified = lab.json(&["receipts", "verify", "t.evidence", "--key", &format!(".counterfoil/keys/{public}")]);
    assert_eq!(verified.code, EXIT_DONE, "{verified:?}");
}

#[test]
fn a_key_that_others_may_read_or_that_is_none_signs_nothing() {
    let lab = lab();
    assert_eq!(lab.json(&["keys", "generate"]).code, EXIT_DONE);
    let path = lab.path(SIGNING);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("the mode");
    let exposed = lab.json(&["receipts", "seal"]).error(EXIT_USAGE, "key_unreadable");
    assert!(exposed.text("/error/message").contains("chmod 600"), "{exposed:?}");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("the mode");
    let secret = std::fs::read_to_string(&path).expect("the key");
    std::fs::write(&path, "not a key").expect("a file");
    lab.json(&["receipts", "seal"]).error(EXIT_USAGE, "key_unreadable");
    std::fs::remove_file(&path).expect("it goes");
    let missing = lab.json(&["receipts", "export", "t"]).error(EXIT_REFUSED, "key_missing");
    assert!(missing.text("/error/message").contains("keys rotate --lost"), "{missing:?}");
    assert!(!path.exists(), "no other key was made in its place");
    // Of another ledger.
    std::fs::write(&path, format!("{}\n", "11".repeat(32))).expect("a file");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("the mode");
    lab.json(&["receipts", "seal"]).error(EXIT_REFUSED, "key_not_current");
    std::fs::write(&path, secret).expect("a file");
    assert_eq!(lab.json(&["receipts", "seal"]).at("/added"), 1);
}

#[test]
fn what_was_signed_stays_valid_when_the_key_is_rotated() {
    let lab = lab();
    let before = exported(&lab, &["t"], "before.evidence");
    let old = public_key(&lab);
    assert_eq!(lab.json(&["receipts", "seal", "-o", "head.json"]).code, EXIT_DONE);
    let rotated = lab.json(&["keys", "rotate"]);
    assert_eq!(rotated.code, EXIT_DONE, "{rotated:?}");
    let new = public_key(&lab);
    assert_ne!(old, new);
    assert_eq!(rotated.text("/key"), new);
    assert_eq!(verified_elsewhere(&lab.path("before.evidence"), &old).code, EXIT_DONE);
    // The same root under another signature: its head is still the old key's, and the new one vouches for all of it.
    let after = exported(&lab, &["t"], "after.evidence");
    let (before, after): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    assert_eq!(before[..before.len() - 1], after[..after.len() - 1]);
    assert_eq!(verified_elsewhere(&lab.path("after.evidence"), &new).code, EXIT_DONE);
    verified_elsewhere(&lab.path("after.evidence"), &old).error(EXIT_BROKEN, "evidence_invalid");
    lab.json(&["call", "charge", "--run", "t", "--step", "more"]).done();
    assert_eq!(lab.json(&["receipts", "seal"]).at("/head/key"), json!(new));
    // The ledger: the old key vouches for the new one, so who trusts either is content.
    for key in [&old, &new] {
        let verified = lab.json(&["receipts", "verify", "--key", key, "--head", "head.json"]);
        assert_eq!((verified.code, verified.at("/notes")), (EXIT_DONE, json!([])), "{verified:?}");
    }
    let others = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c";
    lab.json(&["receipts", "verify", "--key", others]).error(EXIT_BROKEN, "log_unsound");
}

#[test]
fn a_key_that_is_lost_is_replaced_with_nobodys_word() {
    let lab = lab();
    let old = {
        assert_eq!(lab.json(&["receipts", "seal"]).code, EXIT_DONE);
        public_key(&lab)
    };
    std::fs::remove_file(lab.path(SIGNING)).expect("it goes");
    lab.json(&["keys", "rotate"]).error(EXIT_REFUSED, "key_missing");
    assert_eq!(lab.json(&["keys", "rotate", "--lost"]).code, EXIT_DONE);
    let new = public_key(&lab);
    lab.json(&["call", "charge", "--run", "t", "--step", "more"]).done();
    assert_eq!(lab.json(&["receipts", "seal"]).at("/added"), 1);
    let verified = lab.json(&["receipts", "verify", "--key", &new]);
    assert_eq!(verified.code, EXIT_DONE, "{verified:?}");
    assert!(verified.text("/notes/0").contains("without the word of the key before it"), "{verified:?}");
    // Who trusts the old one alone is told.
    lab.json(&["receipts", "verify", "--key", &old]).error(EXIT_BROKEN, "log_unsound");
}
