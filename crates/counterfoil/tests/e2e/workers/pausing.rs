//! A-45. A worker is paused past its lease and comes back: its commit is refused and kept as evidence, and it dispatches nothing.

use std::process::Stdio;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::load::{self, Load};
use super::proxy::Proxy;
use super::shared::{Kind, Shared};
use super::until;
use crate::http::server::Server;
use crate::kill_loop::{Dice, variable};
use crate::lab::{EXIT_DONE, Run};
use crate::parts::Process;
use crate::report::{Fault, Row};

const PAUSES: u64 = 15;
const WORKERS: usize = 3;

/// Three ways to take over: not at all, by asking, by doing it again under the same key.
const CONFIG: &str = r#"
tools:
  never:
    http: { method: POST, url: "WORLD/never", json: "${args}" }
    lease: 1s
    wait_max: 60s
  probed:
    http: { method: POST, url: "WORLD/probed", json: "${args}" }
    lease: 1s
    wait_max: 60s
    settle_after: 0ms
    probe:
      http: { url: "WORLD/find?key=${key}" }
      happened: "size(response.json.data) > 0"
      result: "response.json.data[0]"
  keyed:
    http: { method: POST, url: "WORLD/keyed", json: "${args}" }
    lease: 1s
    wait_max: 60s
    repeat: keyed
"#;

fn a_paused_worker_reports_late(kind: Kind) {
    let shared = Shared::new(kind, CONFIG);
    let lab = &shared.lab;
    let other = Server::start(lab);
    for tool in ["never", "probed", "keyed"] {
        let path = format!("/{tool}");
        let dedupe = tool == "keyed";
        lab.world.rules(&path, json!({ "next": [{ "after": true, "dedupe": dedupe }], "then": { "dedupe": dedupe } }));
        let paused = lab.call_begins(tool, "{}", "k");
        lab.world.wait_holding(&path, 1);
        paused.signal(Signal::STOP);
        // Waits out the lease and takes over, as far as the tool allows.
        let taken = other.call(tool, "k", "{}");
        let done = lab.world.found(&taken.text("/effect")).remove(0);
        match tool {
            "never" => {
                assert_eq!(taken.clone().envelope(200, "in_doubt").at("/error/cause"), "worker_lost");
            }
            _ => assert_eq!(taken.clone().envelope(200, "success").at("/data"), done),
        }
        lab.world.release(&path);
        paused.signal(Signal::CONT);
        let late = Run::ended(paused);
        assert_eq!((late.code, late.at("/data")), (EXIT_DONE, done.clone()), "{tool}: {late:?}");
        let shown = lab.json(&["effects", "show", &taken.text("/effect")]);
        assert_eq!(shown.at("/state"), "done", "{tool}: {shown:?}");
        assert_eq!(shown.at("/late/0/outcome/done/result"), done, "{tool}: what it said is kept, and is not the outcome: {shown:?}");
        assert_eq!(other.call(tool, "k", "{}").envelope(200, "success").at("/data"), done);
        let seen = lab.world.seen(&path);
        assert_eq!((seen.acted, seen.arrived), (1, if dedupe { 2 } else { 1 }), "{tool}");
    }
}

/// Paused when the claim is durable and its worker does not know it yet. It comes back with a permit that is worth nothing.
fn a_worker_paused_before_it_dispatches_does_not_dispatch(kind: Kind) {
    let shared = Shared::new(kind, CONFIG);
    let lab = &shared.lab;
    let other = Server::start(lab);
    for tool in ["never", "probed", "keyed"] {
        let path = format!("/{tool}");
        lab.world.then(&path, json!({ "dedupe": tool == "keyed" }));
        let proxy = Proxy::start(shared.port());
        proxy.hold_after(b"\"claimed\"");
        let store = shared.url_at(proxy.port);
        let mut command = lab.command(&["call", tool, "--args", "{}", "--key", "k", "--json", "--store", &store]);
        let paused = Process::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        proxy.wait_holding();
        until("the claim is durable", || (!lab.listed("running").is_empty()).then_some(()));
        paused.signal(Signal::STOP);
        proxy.mend();
        assert_eq!(lab.world.seen(&path).arrived, 0, "{tool}: claimed and not dispatched");
        let taken = other.call(tool, "k", "{}");
        match tool {
            // Nobody knows that it was not dispatched: that is a doubt.
            "never" => drop(taken.clone().envelope(200, "in_doubt")),
            _ => drop(taken.clone().envelope(200, "success")),
        }
        let before = lab.world.seen(&path).arrived;
        assert_eq!(before, u64::from(tool != "never"));
        paused.signal(Signal::CONT);
        let back = Run::ended(paused).expect(EXIT_DONE, "success");
        let shown = lab.json(&["effects", "show", &taken.text("/effect")]);
        let said = shown.at("/late/0/outcome/not_done/code");
        assert_eq!(said, "permit_lost", "{tool}: it came back and did not dispatch under its claim: {shown:?}");
        assert_eq!(shown.at("/state"), "done", "{tool}: {shown:?}");
        // Knowing that, a doubt is no doubt any more, and the call was made anew.
        let seen = lab.world.seen(&path);
        assert_eq!((seen.acted, seen.arrived), (1, 1), "{tool}");
        let data: Value = other.call(tool, "k", "{}").envelope(200, "success").at("/data");
        assert_eq!(back.at("/data"), data, "{tool}");
    }
}

/// Workers are paused past their leases at any moment, one after the other.
///
/// Without `probed`: a worker that is paused after its last look at its permit, and before its request has left, sends it when it comes back. Then
/// it may be too late for whoever asked the world meanwhile. Nothing can stop that request (see docs/guarantees.md).
fn paused_workers_double_nothing_and_lose_nothing(kind: Kind) {
    let seed = variable("COUNTERFOIL_KILL_SEED", u64::from(std::process::id()) << 20 | 1);
    println!("COUNTERFOIL_KILL_SEED={seed}");
    let mut dice = Dice(seed | 1);
    let shared = Shared::new(kind, load::CONFIG);
    shared.lab.world.then("/keyed", json!({ "dedupe": true }));
    let workers: Vec<Server> = (0..WORKERS).map(|_| Server::start(&shared.lab)).collect();
    let told = Load::with(&["never", "keyed"], seed, load::addresses_of(&workers), |load| {
        for _ in 0..PAUSES {
            load.wait_acks(dice.roll(6) as usize);
            let place = dice.roll(WORKERS as u64) as usize;
            workers[place].signal(Signal::STOP);
            load.take_over(workers[(place + 1) % WORKERS].address);
            workers[place].signal(Signal::CONT);
        }
        load.wait_acks(20);
    });
    assert_eq!(told.lost, 0, "each call was answered");
    let seen = shared.lab.world.seen("/keyed");
    let again = seen.arrived - seen.acted;
    println!("taken over: {again} sent again, {} in doubt", told.doubts);
    assert!(again + told.doubts > 0, "no pause hit anything");
    load::settled(&shared, &told, Row { rounds: PAUSES, ..Row::new(Fault::WorkersPaused, kind) });
}

#[test]
fn a_45_paused_workers_double_nothing_and_lose_nothing_on_postgres() {
    paused_workers_double_nothing_and_lose_nothing(Kind::Postgres);
}

#[test]
fn a_45_paused_workers_double_nothing_and_lose_nothing_on_redis() {
    paused_workers_double_nothing_and_lose_nothing(Kind::Redis);
}

#[test]
fn a_45_paused_workers_double_nothing_and_lose_nothing_on_sqlite() {
    paused_workers_double_nothing_and_lose_nothing(Kind::Sqlite);
}

#[test]
fn a_45_a_paused_worker_reports_late_on_postgres() {
    a_paused_worker_reports_late(Kind::Postgres);
}

#[test]
fn a_45_a_paused_worker_reports_late_on_redis() {
    a_paused_worker_reports_late(Kind::Redis);
}

#[test]
fn a_45_paused_before_it_dispatches_it_does_not_dispatch_on_postgres() {
    a_worker_paused_before_it_dispatches_does_not_dispatch(Kind::Postgres);
}

#[test]
fn a_45_paused_before_it_dispatches_it_does_not_dispatch_on_redis() {
    a_worker_paused_before_it_dispatches_does_not_dispatch(Kind::Redis);
}
