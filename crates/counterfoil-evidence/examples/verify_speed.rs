//! How long a bundle of many receipts takes to verify, on one core: `cargo run --release -p counterfoil-evidence --example verify_speed -- 100000`.

use std::time::Instant;

use counterfoil_evidence::bundle;

#[path = "../tests/common/mod.rs"]
mod common;

fn main() {
    let effects = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(100_000);
    let story = common::Story::new("trip", effects);
    // Among others, so that there is something to prove.
    let text = story.bundle(effects * 3, &common::secret());
    println!("{} receipts, {} records, {} MB", story.receipts.len(), story.records.len(), text.len() >> 20);
    for _ in 0..5 {
        let (started, busy) = (Instant::now(), busy());
        let verified = bundle::verify(&text, &[common::secret().public()]).expect("it is untouched");
        let (took, worked) = (started.elapsed().as_secs_f64(), self::busy() - busy);
        println!("verified {} receipts in {took:.2} s, {worked:.2} s of them on the processor", verified.receipts);
    }
}

/// Seconds that this process was on a processor, as Linux counts them: on a machine that does other things too, the figure that matters.
fn busy() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    ticks.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}
