//! Whoever waits for what another process runs is told by the database when it is done.

use serde_json::json;

use super::shared::{Kind, Shared};
use super::until;
use crate::http::server::{Server, log_of};

const ROUNDS: usize = 10;
const PATH: &str = "/v1/tools/charge/call";

fn a_waiter_is_told(kind: Kind) {
    let shared = Shared::new(kind, &crate::lab::charge(""));
    let lab = &shared.lab;
    let runs = Server::start(lab);
    let waits = Server::start_with(lab, &["--log", "debug,json"]);
    let mut told = 0;
    for round in 0..ROUNDS {
        let key = format!("k{round}");
        let headers = [("idempotency-key", key.as_str())];
        lab.world.then("/charge", json!({ "after": true }));
        let first = runs.begin("POST", PATH, &headers, "{}");
        lab.world.wait_holding("/charge", 1);
        let begun = log_of(lab).len();
        let second = waits.begin("POST", PATH, &headers, "{}");
        until("it waits", || log_of(lab)[begun..].contains("\"waits\"").then_some(()));
        lab.world.release("/charge");
        let first = first.reply().expect("an answer").envelope(200, "success");
        let second = second.reply().expect("an answer").envelope(200, "success");
        assert_eq!((second.at("/data"), second.is_replay()), (first.at("/data"), true));
        let log = log_of(lab);
        let last = log[begun..].lines().rfind(|line| line.contains("\"looks again\"")).expect("it looked");
        told += usize::from(last.contains("\"told\":true"));
    }
    // It also looks by itself, once a second, and may find the answer in the moment before it is told.
    assert!(told > ROUNDS / 2, "told {told} times of {ROUNDS}:\n{}", log_of(lab));
    assert_eq!(lab.world.acted("/charge"), ROUNDS as u64);
}

#[test]
fn a_waiter_is_told_by_postgres() {
    a_waiter_is_told(Kind::Postgres);
}

#[test]
fn a_waiter_is_told_by_redis() {
    a_waiter_is_told(Kind::Redis);
}
