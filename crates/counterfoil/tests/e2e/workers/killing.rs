//! A-35 with many workers: servers are killed one after the other, under load.

use serde_json::json;

use super::load::{CONFIG, Load, addresses_of, settled};
use super::shared::{Kind, Shared};
use crate::http::server::Server;
use crate::kill_loop::{Dice, variable};
use crate::report::{Fault, Row};

const KILLS: u64 = 200;
const WORKERS: usize = 3;

fn killed_workers_double_nothing_and_lose_nothing(kind: Kind) {
    let kills = variable("COUNTERFOIL_WORKER_KILLS", KILLS);
    let seed = variable("COUNTERFOIL_KILL_SEED", u64::from(std::process::id()) << 20 | 1);
    println!("COUNTERFOIL_KILL_SEED={seed} COUNTERFOIL_WORKER_KILLS={kills}");
    let mut dice = Dice(seed | 1);
    let shared = Shared::new(kind, CONFIG);
    shared.lab.world.then("/keyed", json!({ "dedupe": true }));
    let mut workers: Vec<Server> = (0..WORKERS).map(|_| Server::start(&shared.lab)).collect();
    let told = Load::during(seed, addresses_of(&workers), |load| {
        for _ in 0..kills {
            load.wait_answers(dice.roll(4));
            let place = dice.roll(WORKERS as u64) as usize;
            workers.remove(place).kill();
            workers.insert(place, Server::start(&shared.lab));
            load.moved(place, workers[place].address);
        }
    });
    // Whatever they are at now is lost too.
    workers.into_iter().for_each(Server::kill);
    settled(&shared, &told, Row { rounds: kills, ..Row::new(Fault::WorkersKilled, kind) });
    assert!(told.lost > 0, "no kill hit anything");
}

#[test]
fn a_35_killed_workers_double_nothing_and_lose_nothing_on_postgres() {
    killed_workers_double_nothing_and_lose_nothing(Kind::Postgres);
}

#[test]
fn a_35_killed_workers_double_nothing_and_lose_nothing_on_redis() {
    killed_workers_double_nothing_and_lose_nothing(Kind::Redis);
}
