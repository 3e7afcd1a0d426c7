//! Wall clocks are set forward past every lease, back by an hour, and drift, while calls are made and workers are killed.
//!
//! On one machine all processes have one clock, so the workers of a file share theirs; those of a database have one each, and there the database's is set in a test
//! of its own. All clocks begin hours behind, and none passes the right time: what is recorded is past when everything is looked at in the end, by the right clock.
//! The world has no part in it.

use std::sync::Arc;

use counterfoil_servers::Home;
use serde_json::json;

use super::load::{Load, addresses_of, settled};
use super::shared::{Kind, Shared};
use super::until;
use crate::clock::{Clock, Drifting, swept};
use crate::http::server::Server;
use crate::injected::everywhere;
use crate::kill_loop::{Dice, variable};
use crate::report::{Fault, Row};

const WORKERS: usize = 3;
const HOUR: f64 = 3600.0;
/// Where clocks begin.
const BEHIND: f64 = -3.0 * HOUR;
/// More than any lease of these tools.
const PAST_LEASES: f64 = 90.0;
/// How far a clock has drifted before anything else is done to it, in seconds.
const DRIFT: f64 = 0.5;
/// How far from what was set it may be read, in seconds. Less than any step by which a clock is shown to have been set.
const NEAR: f64 = 60.0;

const CONFIG: &str = r#"
tools:
  never:
    http: { method: POST, url: "WORLD/never", json: "${args}" }
    lease: 1s
    wait_max: 500ms
    breaker: off
  probed:
    http: { method: POST, url: "WORLD/probed", json: "${args}" }
    lease: 1s
    wait_max: 500ms
    breaker: off
    settle_after: 1s
    probe:
      http: { url: "WORLD/find?key=${key}" }
      happened: "size(response.json.data) > 0"
      result: "response.json.data[0]"
  keyed:
    http: { method: POST, url: "WORLD/keyed", json: "${args}" }
    lease: 1s
    wait_max: 500ms
    breaker: off
    repeat: keyed
"#;

/// With no word on how long a request may be on its way: as long as `timeout`.
const STEPPED: &str = r#"
tools:
  never:
    http: { method: POST, url: "WORLD/never", json: "${args}" }
    lease: 2s
    wait_max: 2s
  probed:
    http: { method: POST, url: "WORLD/probed", json: "${args}" }
    lease: 2s
    wait_max: 2s
    probe:
      http: { url: "WORLD/find?key=${key}" }
      happened: "size(response.json.data) > 0"
      result: "response.json.data[0]"
  keyed:
    http: { method: POST, url: "WORLD/keyed", json: "${args}" }
    lease: 2s
    wait_max: 2s
    repeat: keyed
"#;

fn rounds() -> u64 {
    if everywhere() { 120 } else { 16 }
}

/// Sets the clock in one of the ways clocks are set.
fn change(clock: &Arc<Clock>, dice: &mut Dice) -> Option<Drifting> {
    match dice.roll(6) {
        0 => clock.set((clock.ahead() + PAST_LEASES).min(0.0)),
        1 | 2 => clock.set(if clock.ahead() + HOUR > 0.0 { BEHIND } else { clock.ahead() + HOUR }),
        3 => clock.set((clock.ahead() - HOUR).max(BEHIND)),
        fast => {
            // There is room for it.
            clock.set(clock.ahead().min(-HOUR));
            let (drifting, before) = (clock.drift(if fast == 4 { 2.0 } else { 0.5 }), clock.ahead());
            until("it drifts", || ((clock.ahead() - before).abs() > DRIFT).then_some(()));
            return Some(drifting);
        }
    }
    None
}

/// How far a server's time of day is ahead, as it tells everyone with each answer.
fn ahead(server: &Server) -> f64 {
    let reply = server.get("/healthz");
    let told = jiff::fmt::rfc2822::parse(reply.header("date").expect("a date")).expect("a date").timestamp();
    told.duration_since(jiff::Timestamp::now()).as_secs_f64()
}

#[track_caller]
fn lives_by(server: &Server, clock: &Clock) {
    let (told, set) = (ahead(server), clock.ahead());
    assert!((told - set).abs() < NEAR, "its clock is ahead by {told} s and was set to {set} s: libfaketime has no effect");
}

/// A worker that is new: nothing of an earlier time is in it.
fn start(shared: &Shared, clock: &Clock) -> Server {
    let server = Server::start_in(&shared.lab, &[], &clock.env());
    lives_by(&server, clock);
    server
}

fn workers_with_wrong_clocks(kind: Kind) {
    let (seed, mut dice) = dice();
    let shared = Shared::new(kind, CONFIG);
    shared.lab.world.then("/keyed", json!({ "dedupe": true }));
    let one = Clock::ahead_by(BEHIND);
    let clocks: Vec<Arc<Clock>> = (0..WORKERS).map(|_| if kind == Kind::Sqlite { one.clone() } else { Clock::ahead_by(BEHIND) }).collect();
    let mut workers: Vec<Server> = clocks.iter().map(|clock| start(&shared, clock)).collect();
    let rounds = rounds();
    let told = Load::during(seed, addresses_of(&workers), |load| {
        for round in 0..rounds {
            load.wait_answers(dice.roll(8));
            let place = dice.roll(WORKERS as u64) as usize;
            let drifting = change(&clocks[place], &mut dice);
            load.wait_answers(dice.roll(8));
            drop(drifting);
            if round % 3 == 0 {
                workers.remove(place).kill();
                workers.insert(place, start(&shared, &clocks[place]));
                load.moved(place, workers[place].address);
            }
        }
        // Set while it runs, it is seen by those who run.
        clocks.iter().for_each(|clock| clock.set(0.0));
        until("clocks that run are set", || workers.iter().all(|worker| ahead(worker).abs() < NEAR).then_some(()));
        load.wait_acks(10);
    });
    workers.into_iter().for_each(Server::kill);
    recorded_by(&shared, kind != Kind::Sqlite);
    settled(&shared, &told, Row { rounds, ..Row::new(Fault::WorkerClock, kind) });
}

/// Whether what is recorded bears the right time: that of the workers, or of a store that has its own.
fn recorded_by(shared: &Shared, right: bool) {
    let effects = shared.lab.json(&["effects", "list", "--limit", "10000"]);
    let wrong = jiff::Timestamp::now() - jiff::Span::new().minutes(10);
    let opened = effects.value()["effects"].as_array().expect("a list").clone();
    let times = opened.iter().map(|effect| effect["at"].as_str().expect("a time").parse::<jiff::Timestamp>().expect("a time"));
    let off = times.filter(|at| *at < wrong).count();
    assert_eq!(off == 0, right, "{off} of {} effects were begun by a wrong clock", opened.len());
}

fn a_database_with_a_wrong_clock(kind: Kind) {
    let (seed, mut dice) = dice();
    let clock = Clock::ahead_by(BEHIND);
    let shared = Shared::on(kind, Home { env: clock.env(), ..Home::default() }, CONFIG);
    let database = shared.pid();
    shared.lab.world.then("/keyed", json!({ "dedupe": true }));
    let mut workers: Vec<Server> = (0..WORKERS).map(|_| Server::start(&shared.lab)).collect();
    let rounds = rounds();
    let told = Load::during(seed, addresses_of(&workers), |load| {
        for round in 0..rounds {
            load.wait_answers(dice.roll(8));
            let drifting = change(&clock, &mut dice);
            load.wait_answers(dice.roll(8));
            drop(drifting);
            if round % 3 == 0 {
                let place = dice.roll(WORKERS as u64) as usize;
                workers.remove(place).kill();
                workers.insert(place, Server::start(&shared.lab));
                load.moved(place, workers[place].address);
            }
        }
        clock.set(0.0);
        load.wait_acks(10);
    });
    workers.into_iter().for_each(Server::kill);
    recorded_by(&shared, false);
    settled(&shared, &told, Row { rounds, ..Row::new(Fault::StoreClock, kind) });
    drop(shared);
    swept(database);
}

/// The clock is set forward past the lease while a request is on its way to the world. Whoever asks then must not take its worker for lost: it lives, and what it
/// sent will happen.
#[test]
fn a_clock_set_forward_does_not_make_a_living_worker_lost() {
    let shared = Shared::new(Kind::Sqlite, STEPPED);
    let lab = &shared.lab;
    let clock = Clock::ahead_by(BEHIND);
    let (runs, asks) = (start(&shared, &clock), start(&shared, &clock));
    for tool in ["never", "probed", "keyed"] {
        let path = format!("/{tool}");
        let dedupe = tool == "keyed";
        lab.world.rules(&path, json!({ "next": [{ "before": true, "dedupe": dedupe }], "then": { "dedupe": dedupe } }));
        let running = runs.begin("POST", &format!("/v1/tools/{tool}/call"), &[("idempotency-key", "k")], "{}");
        lab.world.wait_holding(&path, 1);
        clock.set(clock.ahead() + HOUR / 2.0);
        lives_by(&asks, &clock);
        asks.call(tool, "k", "{}").envelope(202, "pending");
        lab.world.release(&path);
        let done = running.reply().expect("an answer").envelope(200, "success");
        lab.world.wait_quiet();
        assert_eq!((asks.call(tool, "k", "{}").at("/data"), lab.world.seen(&path).arrived), (done.at("/data"), 1), "{tool}");
    }
}

fn dice() -> (u64, Dice) {
    let seed = variable("COUNTERFOIL_KILL_SEED", u64::from(std::process::id()) << 20 | 1);
    println!("COUNTERFOIL_KILL_SEED={seed}");
    (seed, Dice(seed | 1))
}

#[test]
fn workers_with_wrong_clocks_double_nothing_and_lose_nothing_on_sqlite() {
    workers_with_wrong_clocks(Kind::Sqlite);
}

#[test]
fn workers_with_wrong_clocks_double_nothing_and_lose_nothing_on_postgres() {
    workers_with_wrong_clocks(Kind::Postgres);
}

#[test]
fn workers_with_wrong_clocks_double_nothing_and_lose_nothing_on_redis() {
    workers_with_wrong_clocks(Kind::Redis);
}

#[test]
fn a_database_with_a_wrong_clock_doubles_nothing_and_loses_nothing_on_postgres() {
    a_database_with_a_wrong_clock(Kind::Postgres);
}

#[test]
fn a_database_with_a_wrong_clock_doubles_nothing_and_loses_nothing_on_redis() {
    a_database_with_a_wrong_clock(Kind::Redis);
}
