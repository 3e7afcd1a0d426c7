//! A-43 and A-45 for clients that run the tool themselves, each at a server of its own.

use serde_json::json;

use super::shared::{Kind, Shared};
use crate::http::lend::{CONFIG, acquire, report};
use crate::http::server::Server;

fn ten_clients_get_one_permit(kind: Kind) {
    let shared = Shared::new(kind, CONFIG);
    let servers: Vec<Server> = (0..5).map(|_| Server::start(&shared.lab)).collect();
    let replies: Vec<_> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..10)
            .map(|n: usize| {
                let server = &servers[n % 5];
                scope.spawn(move || acquire(server, &format!("r{n}"), "box-7", ""))
            })
            .collect();
        clients.into_iter().map(|client| client.join().expect("no panic")).collect()
    });
    let (lent, told): (Vec<_>, Vec<_>) = replies.into_iter().partition(|reply| reply.status == 201);
    assert_eq!(lent.len(), 1, "{lent:?}");
    for reply in told {
        reply.problem(409, "in_flight");
    }
    // Any server takes its heartbeat and its report, and knows the answer from then on.
    let heartbeat = format!("/v1/effects/{}/heartbeat", lent[0].text("/effect"));
    servers[1].send("POST", &heartbeat, &[], &format!(r#"{{"fence":{}}}"#, lent[0].at("/fence"))).ok();
    report(&servers[2], &lent[0], "commit", "c", r#""result":"packed""#).envelope(200, "success");
    for server in &servers {
        let replayed = acquire(server, "again", "box-7", "").envelope(200, "success");
        assert_eq!((replayed.at("/data"), replayed.is_replay()), (json!("packed"), true));
    }
}

fn whose_lease_ran_out_is_refused_everywhere(kind: Kind) {
    let shared = Shared::new(kind, CONFIG);
    let (one, other) = (Server::start(&shared.lab), Server::start(&shared.lab));
    let permit = acquire(&one, "r1", "box-7", r#","lease":"1s""#);
    let effect = permit.text("/effect");
    // Any of the workers notices by itself, and the others hear of it.
    for server in [&one, &other] {
        let feed = server.begin("GET", "/v1/events?after=0", &[], "");
        assert!(feed.lines().any(|line| line.contains(&effect) && line.contains("\"state\":\"in_doubt\"")));
    }
    acquire(&other, "r2", "box-7", "").envelope(200, "in_doubt");
    let beat = format!(r#"{{"fence":{}}}"#, permit.at("/fence"));
    one.send("POST", &format!("/v1/effects/{effect}/heartbeat"), &[], &beat).problem(409, "permit_lost");
    let late = report(&one, &permit, "commit", "c1", r#""result":"after all""#).problem(409, "permit_lost");
    assert_eq!(late.at("/effect_state/recorded_late"), json!(true));
    assert_eq!(acquire(&other, "r3", "box-7", "").envelope(200, "success").at("/data"), json!("after all"));
}

#[test]
fn a_43_ten_clients_get_one_permit_on_postgres() {
    ten_clients_get_one_permit(Kind::Postgres);
}

#[test]
fn a_43_ten_clients_get_one_permit_on_redis() {
    ten_clients_get_one_permit(Kind::Redis);
}

#[test]
fn a_45_a_client_whose_lease_ran_out_is_refused_everywhere_on_postgres() {
    whose_lease_ran_out_is_refused_everywhere(Kind::Postgres);
}

#[test]
fn a_45_a_client_whose_lease_ran_out_is_refused_everywhere_on_redis() {
    whose_lease_ran_out_is_refused_everywhere(Kind::Redis);
}
