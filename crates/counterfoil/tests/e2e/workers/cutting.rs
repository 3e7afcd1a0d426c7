//! Connections to the database are cut in the middle of whatever is said, under load.

use serde_json::json;

use super::load::{CONFIG, Load, addresses_of, settled};
use super::proxy::Proxy;
use super::shared::{Kind, Shared};
use crate::http::server::Server;
use crate::kill_loop::{Dice, variable};
use crate::report::{Fault, Row};

const CUTS: u64 = 40;
/// A few calls' worth: somewhere in there each of their messages is cut.
const BYTES_MAX: u64 = 20_000;

fn connections_are_cut(kind: Kind) {
    let seed = variable("COUNTERFOIL_KILL_SEED", u64::from(std::process::id()) << 20 | 1);
    println!("COUNTERFOIL_KILL_SEED={seed}");
    let mut dice = Dice(seed | 1);
    let shared = Shared::new(kind, CONFIG);
    shared.lab.world.then("/keyed", json!({ "dedupe": true }));
    let proxy = Proxy::start(shared.port());
    let store = shared.url_at(proxy.port);
    let workers: Vec<Server> = (0..2).map(|_| Server::start_with(&shared.lab, &["--store", &store])).collect();
    let told = Load::during(seed, addresses_of(&workers), |load| {
        for _ in 0..CUTS {
            proxy.cut_after(dice.roll(BYTES_MAX) as usize);
            load.wait_acks(1 + dice.roll(4) as usize);
        }
    });
    assert_eq!(told.lost, 0, "no worker went down");
    settled(&shared, &told, Row { rounds: CUTS, ..Row::new(Fault::Cut, kind) });
    drop(workers);
}

#[test]
fn connections_to_postgres_are_cut() {
    connections_are_cut(Kind::Postgres);
}

#[test]
fn connections_to_redis_are_cut() {
    connections_are_cut(Kind::Redis);
}
