//! The server as a process: ready, reachable, bounded, and gone when told.

use std::io::Write;
use std::net::TcpStream;

use rustix::process::Signal;
use serde_json::json;

use super::server::{Server, log_of};
use crate::lab::{EXIT_BROKEN, EXIT_USAGE, Lab};

#[test]
fn a_term_finishes_what_is_under_way_and_ends_well() {
    let lab = Lab::charging("");
    let server = Server::start(&lab);
    lab.world.then("/charge", json!({ "before": true }));
    let asking = server.begin("POST", "/v1/tools/charge/call", &[("idempotency-key", "k")], "{}");
    let feed = server.begin("GET", "/v1/events?after=0", &[], "").lines();
    lab.world.wait_holding("/charge", 1);
    server.signal(Signal::TERM);
    // The feed ends by itself: that is how it shows that the signal has arrived.
    assert!(feed.last().is_some());
    assert!(TcpStream::connect(server.address).is_err(), "nothing new is accepted");
    lab.world.release("/charge");
    asking.reply().unwrap().envelope(200, "success");
    assert_eq!(server.ended(), 0);
    lab.call("charge", "{}", "k").replayed();
    assert_eq!(lab.world.acted("/charge"), 1);
}

#[test]
fn a_second_signal_quits_at_once() {
    let lab = Lab::charging("");
    let server = Server::start(&lab);
    lab.world.then("/charge", json!({ "after": true }));
    let asking = server.begin("POST", "/v1/tools/charge/call", &[("idempotency-key", "k")], "{}");
    let feed = server.begin("GET", "/v1/events?after=0", &[], "").lines();
    lab.world.wait_holding("/charge", 1);
    server.signal(Signal::INT);
    assert!(feed.last().is_some());
    server.signal(Signal::INT);
    assert_eq!(server.ended(), 130);
    assert!(asking.reply().is_err());
    lab.world.drop_held("/charge");
    lab.call("charge", "{}", "k").in_doubt();
    assert_eq!(lab.world.acted("/charge"), 1);
}

#[test]
fn it_is_not_ready_while_its_ledger_is_gone() {
    let lab = Lab::charging("");
    let server = Server::start(&lab);
    assert_eq!(server.get("/healthz").ok().at("/status"), json!("ok"));
    assert_eq!(server.get("/readyz").ok().at("/status"), json!("ready"));
    let (ledger, aside) = (lab.ledger(), lab.path("aside.db"));
    std::fs::rename(&ledger, &aside).unwrap();
    let not = server.get("/readyz");
    assert_eq!((not.status, not.at("/status")), (503, json!("not_ready")));
    assert_eq!(server.get("/healthz").status, 200);
    std::fs::rename(&aside, &ledger).unwrap();
    assert_eq!(server.get("/readyz").status, 200);
}

#[test]
fn without_a_token_only_loopback_is_served() {
    let lab = Lab::charging("");
    for address in ["0.0.0.0:0", "[::]:0"] {
        let refused = lab.json(&["serve", "--listen", address]);
        assert_eq!((refused.code, refused.at("/error/code")), (EXIT_USAGE, json!("listen_refused")), "{refused:?}");
    }
    let server = Server::start(&lab);
    let taken = lab.json(&["serve", "--listen", &server.address.to_string()]);
    assert_eq!((taken.code, taken.at("/error/code")), (EXIT_BROKEN, json!("listen_refused")), "{taken:?}");
}

/// A page that made its own name point here gets nothing.
#[test]
fn a_rebound_name_and_a_strange_origin_are_refused() {
    let lab = Lab::charging("");
    let server = Server::start(&lab);
    let ask = |host: &str, origin: &str| {
        let head = format!(
            "POST /v1/tools/charge/call HTTP/1.1\r\nhost: {host}\r\n{origin}idempotency-key: k\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        );
        server.raw(head.as_bytes()).unwrap().reply().unwrap()
    };
    ask("evil.example", "").problem(421, "wrong_host");
    ask("localhost", "origin: http://evil.example\r\n").problem(403, "cross_origin");
    ask("localhost", "origin: null\r\n").problem(403, "cross_origin");
    assert_eq!(lab.world.seen("/charge").arrived, 0);
    ask("localhost", "origin: http://localhost\r\n").envelope(200, "success");
    assert_eq!(lab.world.acted("/charge"), 1);
}

#[test]
fn a_head_that_never_ends_and_a_body_that_never_comes_hold_up_nobody() {
    let lab = Lab::charging("");
    let server = Server::start(&lab);
    let mut slow: Vec<TcpStream> = (0..50).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    for stream in &mut slow {
        write!(stream, "POST /v1/tools/charge/call HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n").unwrap();
    }
    server.call("charge", "k", "{}").envelope(200, "success");
    drop(slow);
    server.get("/healthz").ok();
    assert_eq!(lab.world.acted("/charge"), 1);
    assert_eq!(log_of(&lab), "", "nothing worth a warning happened");
}
