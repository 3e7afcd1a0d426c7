//! A breaker that one process opens is open for all of them.

use std::time::Duration;

use serde_json::json;

use super::shared::{Kind, Shared};
use crate::http::server::Server;
use crate::lab::charge;

/// For so long a process believes what it last read of a breaker.
const FRESH_FOR: Duration = Duration::from_secs(1);

fn a_breaker_is_shared(kind: Kind) {
    let once = "retry: { attempts: 1, first: 0ms, max: 0ms }\nbreaker: { consecutive: 5, reset: 1h }";
    let shared = Shared::new(kind, &charge(once));
    let lab = &shared.lab;
    let (breaks, other) = (Server::start(lab), Server::start(lab));
    // Both know it as closed.
    breaks.call("charge", "before", "{}").envelope(200, "success");
    other.call("charge", "also before", "{}").envelope(200, "success");
    lab.world.then("/charge", json!({ "status": 503, "act": false }));
    for n in 0..5 {
        let failed = breaks.call("charge", &format!("k{n}"), "{}");
        assert_eq!(failed.at("/error/code"), "retry_exhausted", "{failed:?}");
    }
    breaks.call("charge", "k5", "{}").envelope(503, "circuit_open");
    lab.world.then("/charge", json!({}));
    // What it believes grows old: from then on nothing leaves it.
    std::thread::sleep(FRESH_FOR);
    for n in 6..10 {
        let refused = other.call("charge", &format!("k{n}"), "{}").envelope(503, "circuit_open");
        assert!(refused.text("/error/message").contains("nothing was sent"), "{refused:?}");
    }
    assert_eq!(lab.world.seen("/charge").arrived, 7);
    // Whoever closes it closes it for all.
    assert_eq!(lab.json(&["breakers", "reset", "charge"]).at("/state"), "closed");
    std::thread::sleep(FRESH_FOR);
    for (server, key) in [(&breaks, "k5"), (&other, "k6")] {
        server.call("charge", key, "{}").envelope(200, "success");
    }
    assert_eq!(lab.world.acted("/charge"), 4);
}

#[test]
fn a_breaker_is_shared_on_postgres() {
    a_breaker_is_shared(Kind::Postgres);
}

#[test]
fn a_breaker_is_shared_on_redis() {
    a_breaker_is_shared(Kind::Redis);
}

#[test]
fn a_breaker_is_shared_on_sqlite() {
    a_breaker_is_shared(Kind::Sqlite);
}
