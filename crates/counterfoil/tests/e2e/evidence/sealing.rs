//! The sealer of `serve`: receipts come under a head without anybody asking, and none is left when it stops.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::http::server::Server;
use crate::lab::{EXIT_DONE, Lab};

#[test]
fn a_server_seals_by_itself_and_once_more_when_it_stops() {
    let lab = Lab::charging("");
    let server = Server::start(&lab);
    assert_eq!(server.call("charge", "k1", "{}").status, 200);
    let end = Instant::now() + Duration::from_secs(60);
    while lab.json(&["receipts", "heads"]).at("/0/head/size") != json!(1) {
        assert!(Instant::now() < end, "it seals every ten seconds: {}", crate::http::server::log_of(&lab));
        std::thread::sleep(Duration::from_millis(200));
    }
    for n in 0..3 {
        assert_eq!(server.call("charge", &format!("m{n}"), "{}").status, 200);
    }
    server.signal(Signal::TERM);
    assert_eq!(server.ended(), EXIT_DONE);
    let heads = lab.json(&["receipts", "heads"]);
    assert_eq!(heads.at("/0/head/size"), json!(4), "{heads:?}");
    assert_eq!(lab.json(&["receipts", "verify"]).at("/log/sealed"), json!(4));
    assert!(crate::http::server::log_of(&lab).contains("a key was made to sign with"));
}

/// Two servers on one ledger and with one key: one log.
#[test]
fn two_servers_seal_one_log() {
    let lab = Lab::charging("");
    assert_eq!(lab.json(&["keys", "generate"]).code, EXIT_DONE);
    let servers = [Server::start(&lab), Server::start(&lab)];
    for n in 0..20 {
        assert_eq!(servers[n % 2].call("charge", &format!("k{n}"), "{}").status, 200);
    }
    servers.iter().for_each(|server| server.signal(Signal::TERM));
    servers.into_iter().for_each(|server| assert_eq!(server.ended(), EXIT_DONE));
    let verified = lab.json(&["receipts", "verify"]);
    assert_eq!((verified.code, verified.at("/log/sealed")), (EXIT_DONE, json!(20)), "{verified:?}");
}
