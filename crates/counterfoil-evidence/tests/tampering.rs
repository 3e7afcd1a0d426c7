//! The campaign: bundles changed at random, each change found and its spot named. `COUNTERFOIL_TAMPER_ROUNDS` and `COUNTERFOIL_TAMPER_SEED` make it longer, or
//! another one.

mod common;
#[path = "common/tamper.rs"]
mod tamper;

use common::{Story, secret};
use counterfoil_evidence::bundle::root_of;
use counterfoil_evidence::file::verify;
use tamper::{Rng, tampered};

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

#[test]
fn every_change_of_a_bundle_is_found_and_its_spot_is_named() {
    let (rounds, seed) = (variable("COUNTERFOIL_TAMPER_ROUNDS", 2_000), variable("COUNTERFOIL_TAMPER_SEED", 20_261_116));
    let mut rng = Rng(seed);
    let stories: Vec<String> = (0..12).map(|n| Story::new(&format!("trip-{n}"), 1 + n * 2).bundle(n * 31, &secret())).collect();
    for round in 0..rounds {
        let (good, other) = (&stories[rng.below(stories.len())], &stories[rng.below(stories.len())]);
        let told = verify(good.as_bytes(), &[secret().public()]);
        assert!(told.is_ok(), "an untouched bundle holds: {told:?}");
        let changed = tampered(good, other, &mut rng);
        let place = || format!("round {round} of seed {seed}: {}", changed.what);
        let faults = verify(&changed.bytes, &[secret().public()]).expect_err(&place());
        assert!(changed.is_named(&faults), "{}: nothing is said of lines {:?}: {faults:?}", place(), changed.lines);
    }
}

/// Whoever changes something and works out all hashes anew lacks the key.
#[test]
fn a_change_with_hashes_that_fit_fails_at_the_seal() {
    let mut rng = Rng(7);
    let good = Story::new("trip", 20).bundle(50, &secret());
    for round in 0..200 {
        let mut lines: Vec<String> = good.lines().map(str::to_owned).collect();
        let at = rng.below(lines.len() - 1);
        match rng.below(3) {
            0 => drop(lines.remove(at)),
            1 => lines.insert(at, lines[at].clone()),
            _ => {
                lines[at] = lines[at].replacen("charge", "change", 1).replacen("\"ended\":true", "\"ended\":false", 1).replacen(
                    "\"attempt\\\":1",
                    "\"attempt\\\":9",
                    1,
                )
            }
        }
        let mut linked = String::new();
        let mut last = "0".repeat(64);
        for (n, line) in lines.iter().enumerate() {
            let mut value: serde_json::Value = serde_json::from_str(line).unwrap();
            let part = line.find(",\"prev\":\"").unwrap() + ",\"prev\":\"".len() + 64;
            value["line"] = (n + 1).into();
            let line = format!("{{\"line\":{},\"prev\":\"{last}{}", n + 1, &line[part..]);
            last = counterfoil_core::ids::Digest32::of(line.as_bytes()).to_string();
            linked.push_str(&line);
            linked.push('\n');
        }
        if linked == good {
            continue;
        }
        assert_ne!(root_of(&linked), root_of(&good));
        let faults = verify(linked.as_bytes(), &[secret().public()]).expect_err("it was changed");
        assert!(faults.iter().any(|fault| fault.part == "seal"), "round {round}: {faults:?}");
    }
}
