//! Many concurrent clients that create, read, call and delete, that go away in the middle, and a server that is killed under them: is
//! what they saw what one atomic ledger could have told them?
//!
//! A history is small and dense, so that it overlaps much and is checked in no time; there are hundreds, on a few ledgers. To see one again: its
//! seed is in the report; `COUNTERFOIL_LIN_SEED=… COUNTERFOIL_LIN_HISTORIES=1`. The clients do the same then, the clock need not.

mod client;
mod history;
mod proxy;

use std::sync::atomic::{AtomicUsize, Ordering};

use counterfoil_lin::workload::{Act, Odds, Plan, Step, Workload};
use counterfoil_lin::{Rng, Text, Verdict, resource};
use serde_json::json;

use crate::kill_loop::variable;
use client::{Site, TOOL};
use history::{Histories, carry_out};
use proxy::{Lie, Proxy};

const HISTORIES: u64 = 200;
/// Each is a ledger and a world of its own, and they run side by side.
const SITES: u64 = 2;
/// The world answers most effects, and breaks off after or before acting on some: so there are doubts also without a kill.
const BROKEN_PERCENT: u8 = 15;
const EFFECTS_MAX: usize = 40;

/// The world hangs up often enough for five times in a row: a breaker would then rightly answer 503, which no model knows.
fn config() -> String {
    crate::lab::tool(TOOL, "breaker: off")
}

fn plan(seed: u64) -> Plan {
    let odds = Odds { disconnect: 12, ..Odds::default() };
    // Every second history has a kill somewhere.
    Plan { seed, clients: 24, steps_per_client: 4, resources: 3, effects: 4, kills: usize::from(seed.is_multiple_of(2)), odds }
}

#[derive(Default)]
struct Tally {
    operations: AtomicUsize,
    unknown: AtomicUsize,
    kills: AtomicUsize,
    doubts: AtomicUsize,
    resolved: AtomicUsize,
}

impl Tally {
    fn add(&self, workload: &Workload, histories: &Histories) {
        let answered = |word: &str| histories.effects.iter().filter(|o| o.answer.as_ref().is_some_and(|a| a.1.to_string() == word)).count();
        let unknown =
            histories.tools.iter().filter(|o| o.answer.is_none()).count() + histories.effects.iter().filter(|o| o.answer.is_none()).count();
        self.operations.fetch_add(histories.tools.len() + histories.effects.len(), Ordering::Relaxed);
        self.unknown.fetch_add(unknown, Ordering::Relaxed);
        self.kills.fetch_add(workload.kills.len(), Ordering::Relaxed);
        self.doubts.fetch_add(answered("in doubt"), Ordering::Relaxed);
        self.resolved.fetch_add(answered("resolved"), Ordering::Relaxed);
    }
}

#[test]
fn a_94_what_concurrent_clients_see_is_linearizable_under_kills_and_disconnects() {
    let histories = variable("COUNTERFOIL_LIN_HISTORIES", HISTORIES);
    let seed = variable("COUNTERFOIL_LIN_SEED", u64::from(std::process::id()) << 20);
    println!("COUNTERFOIL_LIN_SEED={seed} COUNTERFOIL_LIN_HISTORIES={histories}");
    let tally = Tally::default();
    std::thread::scope(|scope| {
        for site in 0..SITES.min(histories) {
            let tally = &tally;
            scope.spawn(move || {
                let place = Site::new(&config());
                for seed in (seed + site..seed + histories).step_by(SITES as usize) {
                    let workload = Workload::new(&plan(seed));
                    place.lab.world.rules(&format!("/{TOOL}"), json!({ "next": broken(seed) }));
                    let seen = carry_out(&place, &format!("h{seed}-"), &workload);
                    tally.add(&workload, &seen);
                    seen.verdict().expect_linearizable(format!("COUNTERFOIL_LIN_SEED={seed} COUNTERFOIL_LIN_HISTORIES=1"));
                }
                let log = crate::http::server::log_of(&place.lab);
                assert!(!log.contains("panicked"), "{log}");
            });
        }
    });
    let of = |count: &AtomicUsize| count.load(Ordering::Relaxed);
    let (operations, unknown, kills) = (of(&tally.operations), of(&tally.unknown), of(&tally.kills));
    println!(
        "{operations} operations, {unknown} of unknown outcome, {kills} kills, {} doubts seen, {} settled",
        of(&tally.doubts),
        of(&tally.resolved)
    );
    if histories >= HISTORIES {
        assert!(operations > 100 * HISTORIES as usize && unknown > HISTORIES as usize && kills >= HISTORIES as usize / 2, "too tame");
        assert!(of(&tally.resolved) > 0, "nobody had to settle anything");
    }
}

fn broken(seed: u64) -> Vec<serde_json::Value> {
    let mut rng = Rng::new(seed ^ 0xb20c);
    let rule = |rng: &mut Rng| match rng.percent(BROKEN_PERCENT) {
        true => json!({ "end": "hang_up", "act": rng.percent(50) }),
        false => json!({}),
    };
    (0..EFFECTS_MAX).map(|_| rule(&mut rng)).collect()
}

/// One client after the other is enough: what is wrong here is wrong in every order.
fn through(lie: Lie) -> Verdict {
    let mut site = Site::new(&config());
    site.via = Some(Proxy::start(site.address(), lie).address);
    let step = |on: &str, act| Step { on: on.into(), act, disconnect: None, retries: 0 };
    let put = |version: &str| {
        step("tool", Act::Resource(resource::Op::Put { version: version.into(), key: Some(Text::from(format!("k-{version}"))) }))
    };
    let get = || step("tool", Act::Resource(resource::Op::Get));
    let call = || step("effect", Act::Call { args: "usual".into() });
    let script = vec![put("v1"), get(), call(), put("v2"), get(), call()];
    let workload =
        Workload { seed: 0, clients: vec![script], kills: Vec::new(), resources: vec!["tool".into()], effects: vec!["effect".into()] };
    carry_out(&site, "p-", &workload).verdict()
}

#[test]
fn a_94_a_server_that_lies_is_caught() {
    through(Lie::None).expect_linearizable("the proxy alone changes nothing");
    for (lie, culprit) in [(Lie::LostPut("v2"), "found v1"), (Lie::StaleGet, "found v1"), (Lie::ReplayAsFresh, "done #1")] {
        match through(lie) {
            Verdict::Violation(report) => assert!(report.culprit.contains(culprit), "{lie:?}: points elsewhere:\n{report}"),
            other => panic!("{lie:?} was not caught: {other}"),
        }
    }
}
