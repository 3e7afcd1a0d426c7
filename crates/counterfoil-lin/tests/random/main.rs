//! Random workloads: what a right server does is accepted, thousands of times; each way of being wrong is caught.

mod run;
mod server;

use std::time::{Duration, Instant};

use counterfoil_lin::workload::{Act, Plan, Workload};
use counterfoil_lin::{Verdict, resource};

use run::{interleaved, threaded};
use server::FAULTS;

#[test]
fn what_a_right_server_does_is_accepted() {
    for seed in 0..3_000 {
        interleaved(&Workload::new(&Plan::small(seed)), None).verdict().expect_linearizable(format!("seed {seed}"));
    }
}

#[test]
fn what_a_right_server_does_under_real_threads_is_accepted() {
    for seed in 0..300 {
        threaded(&Workload::new(&Plan::small(seed))).verdict().expect_linearizable(format!("seed {seed}"));
    }
}

/// Must not depend on luck: the seeds are always the same.
#[test]
fn every_fault_is_caught_within_some_seeds() {
    const SEEDS_MAX: u64 = 60;
    for fault in FAULTS {
        let caught = (0..SEEDS_MAX).find(|seed| match interleaved(&Workload::new(&Plan::small(*seed)), Some(fault)).verdict() {
            Verdict::Violation(report) => {
                println!("{fault:?}, seed {seed}\n{report}");
                true
            }
            Verdict::GaveUp { .. } => panic!("{fault:?}, seed {seed}: gave up on a small history"),
            Verdict::Linearizable => false,
        });
        assert!(caught.is_some(), "{fault:?} was not caught with {SEEDS_MAX} seeds");
    }
}

/// As many clients and operations as the HTTP API is tried with. The bound is far above what it takes (some 10 ms), and far below
/// what a search that has gone exponential would.
#[test]
fn large_histories_are_checked_in_no_time() {
    let mut slowest = Duration::ZERO;
    for seed in 0..40 {
        let mut plan = Plan::large(seed);
        plan.odds.disconnect = 20;
        let histories = interleaved(&Workload::new(&plan), None);
        let cut_off = histories.tools.iter().filter(|operation| operation.answer.is_none()).count();
        assert!(histories.tools.len() + histories.effects.len() >= 700 && cut_off >= 60, "seed {seed} tries too little");
        let began = Instant::now();
        histories.verdict().expect_linearizable(format!("seed {seed}"));
        slowest = slowest.max(began.elapsed());
    }
    println!("slowest: {slowest:?}");
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
}

/// Where there is no order to be found, all of them must be looked through.
#[test]
fn violations_in_large_histories_are_found_without_giving_up() {
    let (mut slowest, mut caught) = (Duration::ZERO, 0);
    for fault in FAULTS {
        for seed in 0..4 {
            let histories = interleaved(&Workload::new(&Plan::large(seed)), Some(fault));
            let began = Instant::now();
            match histories.verdict() {
                Verdict::Violation(_) => caught += 1,
                Verdict::Linearizable => println!("{fault:?}, seed {seed}: did not show"),
                gave_up => panic!("{fault:?}, seed {seed}: {gave_up}"),
            }
            slowest = slowest.max(began.elapsed());
        }
    }
    println!("slowest: {slowest:?}, {caught} caught");
    assert!(caught > 40, "{caught}");
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
}

#[test]
fn a_workload_is_the_same_for_the_same_seed_and_reaches_what_it_is_for() {
    let workload = Workload::new(&Plan::large(7));
    assert_eq!(workload, Workload::new(&Plan::large(7)));
    assert_ne!(workload.clients, Workload::new(&Plan::large(8)).clients);
    let writes: Vec<_> = workload
        .clients
        .iter()
        .flatten()
        .filter_map(|step| if let Act::Resource(op) = &step.act { op.key().map(|key| (key, op)) } else { None })
        .collect();
    let reused = |same: bool| {
        writes
            .iter()
            .any(|(key, op)| writes.iter().filter(|(other, again)| other == key && (again == op) == same).count() > usize::from(same))
    };
    assert!(reused(true) && reused(false), "no key is reused, or none with another payload");
    let steps: Vec<_> = workload.clients.iter().flatten().collect();
    assert!(steps.iter().any(|step| step.disconnect.is_some()) && steps.iter().any(|step| step.retries > 0));
    assert!(steps.iter().any(|step| step.act == Act::Resource(resource::Op::Get)));
    assert!(workload.clients[1..].iter().flatten().all(|step| step.act != Act::Settle), "there is one person");
    assert!(workload.clients[0].iter().any(|step| step.act == Act::Settle));
}
