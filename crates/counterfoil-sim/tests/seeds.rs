//! What must be true of the simulator itself. (The many seeds and the deliberate bugs are run by the program: see `scripts/sim`.)

use counterfoil_sim::{Bug, simulate};

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for seed in 1..=60 {
        let lived = || simulate(seed, None, true).expect("it can be simulated").trace.join("\n");
        let (first, second) = (lived(), lived());
        let differs = first.lines().zip(second.lines()).find(|(one, other)| one != other);
        assert!(first == second, "seed {seed}: {differs:?}");
        assert!(first.len() > 1000, "seed {seed}: something happens");
    }
}

#[test]
fn a_bug_is_found_and_found_again_in_the_same_seed() {
    let found = (1..2000).find(|seed| !broken(*seed).is_empty()).expect("it is found");
    assert_eq!(broken(found), broken(found));
}

fn broken(seed: u64) -> Vec<String> {
    simulate(seed, Some(Bug::RetryOfUnknown), false).expect("it can be simulated").violations
}
