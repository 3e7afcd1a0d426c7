//! The database crashes and comes back, again and again, under load.

use serde_json::json;

use super::load::{CONFIG, Load, addresses_of, settled};
use super::shared::{Kind, Shared};
use super::until;
use crate::http::server::Server;
use crate::kill_loop::{Dice, variable};
use crate::report::{Fault, Row};

const ROUNDS: u64 = 20;
/// Every so many outages it is down until somebody was refused.
const LONG_EVERY: u64 = 5;

fn the_database_goes_down_and_comes_back(kind: Kind) {
    let seed = variable("COUNTERFOIL_KILL_SEED", u64::from(std::process::id()) << 20 | 1);
    println!("COUNTERFOIL_KILL_SEED={seed}");
    let mut dice = Dice(seed | 1);
    let shared = Shared::new(kind, CONFIG);
    shared.lab.world.then("/keyed", json!({ "dedupe": true }));
    let workers: Vec<Server> = (0..2).map(|_| Server::start(&shared.lab)).collect();
    let told = Load::during(seed, addresses_of(&workers), |load| {
        for round in 0..ROUNDS {
            load.wait_acks(1 + dice.roll(8) as usize);
            shared.down();
            if round % LONG_EVERY == 0 {
                load.wait_refusals(1);
                assert_eq!(workers[0].get("/readyz").status, 503);
                assert_eq!(workers[0].get("/healthz").status, 200);
            }
            shared.up();
        }
        // The same workers serve again: none had to be started anew.
        load.wait_acks(20);
    });
    assert_eq!(told.lost, 0, "no worker went down with it");
    for worker in &workers {
        // The calls may all have been answered by the other one, while this one was still waiting to try again.
        until("it is ready again", || (worker.get("/readyz").status == 200).then_some(()));
    }
    settled(&shared, &told, Row { rounds: ROUNDS, ..Row::new(Fault::StoreKilled, kind) });
    assert!(told.refused >= ROUNDS / LONG_EVERY, "{} refused", told.refused);
}

#[test]
fn postgres_goes_down_and_comes_back() {
    the_database_goes_down_and_comes_back(Kind::Postgres);
}

#[test]
fn redis_goes_down_and_comes_back() {
    the_database_goes_down_and_comes_back(Kind::Redis);
}
