//! Files of evidence. The first byte says what comes: `r` a file as it is; `m` changes of a true bundle, four bytes each; `s` a line that takes the place of one of
//! its lines, after which it is linked and sealed anew by the true key.
//!
//! Holds: every file is verified or refused, with at least one fault, each in a line that is there. A file without the key's signature is never accepted. A true bundle that was changed
//! is never accepted.
#![no_main]

#[path = "../../crates/counterfoil-evidence/tests/common/mod.rs"]
mod common;

use std::sync::LazyLock;

use common::{Story, secret};
use counterfoil_core::ids::Digest32;
use counterfoil_evidence::bundle::seal_message;
use counterfoil_evidence::file::{Evidence, verify};
use counterfoil_evidence::{Fault, PublicKey};
use libfuzzer_sys::fuzz_target;
use serde_json::json;

/// With an effect that ended in each way there is.
static GOOD: LazyLock<String> = LazyLock::new(|| Story::new("trip", 11).bundle(40, &secret()));

fuzz_target!(|data: &[u8]| {
    let Some((kind, rest)) = data.split_first() else { return };
    match kind {
        b'm' => {
            let changed = changed(GOOD.as_bytes(), rest);
            let verified = checked(&changed);
            assert_eq!(verified.is_some(), changed == GOOD.as_bytes(), "a changed bundle was accepted");
        }
        b's' => drop(checked(resealed(rest).as_bytes())),
        _ => match checked(rest) {
            None => {}
            Some(Evidence::Bundle(_)) => assert!(is_ours(rest), "nobody signed this"),
            Some(Evidence::Receipt { head, .. }) => assert!(head.check().is_ok() && head.key == key()),
            Some(Evidence::Consistency { old, new }) => assert!(old.check().is_ok() && new.check().is_ok() && old.size <= new.size),
        },
    }
});

fn key() -> PublicKey {
    secret().public()
}

fn checked(bytes: &[u8]) -> Option<Evidence> {
    let verified = verify(bytes, &[key()]);
    if let Err(faults) = &verified {
        assert!(!faults.is_empty());
        let lines = 1 + bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        let placed = |fault: &Fault| fault.line.is_none_or(|line| (1..=lines).contains(&line)) && !fault.to_string().is_empty();
        assert!(faults.iter().all(placed), "{faults:?} in {lines} lines");
    }
    verified.ok()
}

/// The signature is over the hash of the last line but one, which nobody here can choose.
fn is_ours(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.lines().collect();
    let [.., last, seal] = lines[..] else { return false };
    let root = Digest32::of(last.as_bytes());
    let seal: serde_json::Value = serde_json::from_str(seal).unwrap_or_default();
    let signature = serde_json::from_value(seal["seal"]["signature"].clone());
    signature.is_ok_and(|signature| key().verifies(&seal_message(&root), &signature))
}

/// Each four bytes: where, what is done there, and with which byte.
fn changed(good: &[u8], edits: &[u8]) -> Vec<u8> {
    let mut bytes = good.to_vec();
    for edit in edits.chunks_exact(4).take(16) {
        let at = usize::from(u16::from_be_bytes([edit[0], edit[1]])) % bytes.len();
        match edit[2] % 5 {
            0 => bytes[at] ^= 1 << (edit[3] % 8),
            1 => bytes[at] = edit[3],
            2 => bytes.insert(at, edit[3]),
            3 => drop(bytes.remove(at)),
            _ => {
                // A whole line once more, in another place.
                let from = bytes[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
                let to = bytes[at..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |newline| at + newline + 1);
                let line = bytes[from..to].to_vec();
                let place = usize::from(edit[3]) * bytes.len() / 256;
                bytes.splice(place..place, line);
            }
        }
        if bytes.is_empty() {
            break;
        }
    }
    bytes
}

/// The first byte says which line; the rest is what it says instead of what it said.
fn resealed(data: &[u8]) -> String {
    let (which, part) = data.split_first().map_or((0, &b""[..]), |(which, part)| (usize::from(*which), part));
    let part = String::from_utf8_lossy(part).replace('\n', " ");
    let lines: Vec<&str> = GOOD.lines().collect();
    let (last, body) = lines.split_last().expect("it has lines");
    assert!(last.contains("\"seal\""));
    let (mut text, mut hash) = (String::new(), Digest32([0; 32]));
    for (n, line) in body.iter().enumerate() {
        const PREV: &str = ",\"prev\":\"";
        let own = &line[line.find(PREV).expect("each line names the one before") + PREV.len() + 64 + 1..];
        let own = if n == which % body.len() { part.as_str() } else { own };
        let line = format!("{{\"line\":{},\"prev\":\"{hash}\"{own}", n + 1);
        hash = Digest32::of(line.as_bytes());
        text.push_str(&line);
        text.push('\n');
    }
    let seal = json!({ "key": key(), "signature": secret().sign(&seal_message(&hash)) });
    text.push_str(&format!("{{\"line\":{},\"prev\":\"{hash}\",\"seal\":{seal}}}\n", body.len() + 1));
    text
}
