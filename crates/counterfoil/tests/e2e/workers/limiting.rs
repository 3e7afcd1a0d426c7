//! `limits.rate` and `limits.concurrency` hold for all workers together, and survive them.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use super::shared::{Kind, Shared};
use super::until;
use crate::http::server::Server;
use crate::lab::{EXIT_REFUSED, charge};

const CALLS: u64 = 45;
const CLIENTS: u64 = 9;
const PLACES: u64 = 2;
const TOKENS: u64 = 4;

/// Many clients of three workers: the world never has more under way than one worker might.
fn places_are_shared(kind: Kind) {
    let shared = Shared::new(kind, &charge(&format!("limits: {{ concurrency: {PLACES} }}\nlease: 5s\nbreaker: off")));
    let lab = &shared.lab;
    let workers = [Server::start(lab), Server::start(lab), Server::start(lab)];
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (workers, next) = (&workers, &next);
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    if number >= CALLS {
                        return;
                    }
                    let worker = &workers[(client + number) as usize % workers.len()];
                    worker.call("charge", &format!("k{number}"), "{}").envelope(200, "success");
                }
            });
        }
    });
    let seen = lab.world.seen("/charge");
    assert_eq!((seen.acted, seen.arrived), (CALLS, CALLS));
    assert!(seen.most_at_once <= PLACES, "{} at once", seen.most_at_once);
}

/// A worker dies in all of its places. They are free when its leases are over, whatever the world still does with what it began.
fn places_of_the_dead_become_free(kind: Kind) {
    let shared = Shared::new(kind, &charge(&format!("limits: {{ concurrency: {PLACES} }}\nlease: 1s\ntimeout: 60s\nbreaker: off")));
    let lab = &shared.lab;
    let (doomed, heir) = (Server::start(lab), Server::start(lab));
    lab.world.then("/charge", json!({ "before": true }));
    let begun: Vec<_> = (0..PLACES)
        .map(|n| {
            let (key, body) = (format!("\"d{n}\""), r#"{"args":{}}"#);
            doomed.begin("POST", "/v1/tools/charge/call", &[("Idempotency-Key", &key)], body)
        })
        .collect();
    lab.world.wait_holding("/charge", PLACES);
    let waiting = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| heir.call("charge", "after", "{}"));
        // While the other lives it waits: longer than a lease, which has been extended.
        let running = lab.listed("running");
        let version = |effect: &Value| {
            lab.json(&["effects", "show", effect["effect"].as_str().expect("a key")]).at("/history").as_array().expect("its entries").len()
        };
        let claimed = version(&running[0]);
        until("the lease is extended", || (version(&running[0]) >= claimed + 3).then_some(()));
        assert_eq!(lab.world.seen("/charge").arrived, PLACES);
        doomed.kill();
        lab.world.wait_holding("/charge", PLACES + 1);
        lab.world.release("/charge");
        waiting.join().expect("no panic")
    });
    waiting.envelope(200, "success");
    drop(begun);
}

/// Tokens are taken from one bucket, by servers, by the command, and by a server that was started again.
fn tokens_are_shared(kind: Kind) {
    let shared = Shared::new(kind, &charge(&format!("limits: {{ rate: {TOKENS}/h }}\nbreaker: off")));
    let lab = &shared.lab;
    let workers = [Server::start(lab), Server::start(lab)];
    let mut granted = 0;
    for number in 0..2 * TOKENS - 2 {
        let told = workers[number as usize % 2].call("charge", &format!("k{number}"), "{}");
        match told.status {
            200 => granted += 1,
            _ => assert_eq!(told.at("/error/code"), "rate_limited", "{told:?}"),
        }
    }
    assert_eq!((granted, lab.world.seen("/charge").arrived), (TOKENS, TOKENS));
    lab.call("charge", "{}", "by hand").error(EXIT_REFUSED, "rate_limited");
    let [first, second] = workers;
    first.kill();
    second.kill();
    let again = Server::start(lab).call("charge", "again", "{}");
    assert_eq!(again.at("/error/code"), "rate_limited", "{again:?}");
    // A replay takes nothing.
    Server::start(lab).call("charge", "k0", "{}").envelope(200, "success");
    assert_eq!(lab.world.seen("/charge").arrived, TOKENS);
}

#[test]
fn places_are_shared_on_postgres() {
    places_are_shared(Kind::Postgres);
}

#[test]
fn places_are_shared_on_redis() {
    places_are_shared(Kind::Redis);
}

#[test]
fn places_are_shared_on_sqlite() {
    places_are_shared(Kind::Sqlite);
}

#[test]
fn places_of_the_dead_become_free_on_postgres() {
    places_of_the_dead_become_free(Kind::Postgres);
}

#[test]
fn places_of_the_dead_become_free_on_sqlite() {
    places_of_the_dead_become_free(Kind::Sqlite);
}

#[test]
fn tokens_are_shared_on_postgres() {
    tokens_are_shared(Kind::Postgres);
}

#[test]
fn tokens_are_shared_on_redis() {
    tokens_are_shared(Kind::Redis);
}

#[test]
fn tokens_are_shared_on_sqlite() {
    tokens_are_shared(Kind::Sqlite);
}
