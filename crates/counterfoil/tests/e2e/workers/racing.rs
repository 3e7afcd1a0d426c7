//! A-43. Ten processes ask for one key at once.

use serde_json::json;

use super::shared::{Kind, Shared};
use crate::http::server::{Asking, Server};
use crate::lab::{EXIT_DONE, EXIT_PENDING, Run};
use crate::parts::Process;

const CONFIG: &str = r#"
tools:
  charge:
    http: { method: POST, url: "WORLD/charge", json: "${args}" }
  hasty:
    http: { method: POST, url: "WORLD/hasty", json: "${args}" }
    wait_max: 0s
"#;

fn ten_processes_make_one_effect(kind: Kind) {
    let shared = Shared::new(kind, CONFIG);
    let lab = &shared.lab;
    let servers: Vec<Server> = (0..5).map(|_| Server::start(lab)).collect();
    let asked = |tool: &str, servers: &[Server]| -> Vec<Asking> {
        let path = format!("/v1/tools/{tool}/call");
        servers.iter().map(|server| server.begin("POST", &path, &[("idempotency-key", "k")], "{}")).collect()
    };
    let called = |tool: &str| -> Vec<Process> { (0..5).map(|_| lab.call_begins(tool, "{}", "k")).collect() };
    // Whoever is not the one that runs it waits for its answer.
    lab.world.then("/charge", json!({ "after": true }));
    let (asking, calls) = (asked("charge", &servers), called("charge"));
    lab.world.wait_holding("/charge", 1);
    lab.world.release("/charge");
    let replies = asking.into_iter().map(|asking| asking.reply().expect("an answer").envelope(200, "success").value());
    let runs = calls.into_iter().map(|call| Run::ended(call).expect(EXIT_DONE, "success").value());
    let told: Vec<_> = replies.chain(runs).collect();
    assert!(told.iter().all(|told| told["data"] == json!({ "id": "e-1" })), "one answer for all: {told:?}");
    assert_eq!(told.iter().filter(|told| told["replayed"] == false).count(), 1, "one of them ran it: {told:?}");
    assert_eq!(lab.world.seen("/charge").arrived, 1);
    // Or is told that it runs: all of them before the world has answered.
    lab.world.then("/hasty", json!({ "after": true }));
    let first = asked("hasty", &servers[..1]).remove(0);
    lab.world.wait_holding("/hasty", 1);
    let (asking, calls) = (asked("hasty", &servers[1..]), called("hasty"));
    for asking in asking {
        asking.reply().expect("an answer").envelope(202, "pending");
    }
    for call in calls {
        Run::ended(call).expect(EXIT_PENDING, "pending");
    }
    lab.world.release("/hasty");
    first.reply().expect("an answer").envelope(200, "success");
    assert_eq!(lab.world.seen("/hasty").arrived, 1);
}

#[test]
fn a_43_ten_processes_race_for_one_key_on_postgres() {
    ten_processes_make_one_effect(Kind::Postgres);
}

#[test]
fn a_43_ten_processes_race_for_one_key_on_redis() {
    ten_processes_make_one_effect(Kind::Redis);
}

#[test]
fn a_43_ten_processes_race_for_one_key_on_sqlite() {
    ten_processes_make_one_effect(Kind::Sqlite);
}
