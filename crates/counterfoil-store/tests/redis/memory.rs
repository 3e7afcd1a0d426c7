//! A Redis that is full refuses a batch before it has written anything of it, and lets prune make room.

use counterfoil_core::{Summary, Timestamp};
use counterfoil_store::{Batch, Position, Store, Write, Written};

use crate::server::{DURABLE, Server};
use crate::{append, load, summary, unavailable, write};

#[tokio::test]
async fn a_full_server() {
    const STREAMS: u64 = 10;
    let server = Server::with(&[DURABLE[0], DURABLE[1], ("maxmemory", "6mb"), ("maxmemory-policy", "noeviction")]);
    let store = server.open().await;
    let large = |number: u64, expected: u64| Write {
        body: "x".repeat(20_000),
        summary: Summary { expires: Some(Timestamp(10)), ..summary("done") },
        ..write(number, expected)
    };
    let mut version = 0;
    let (message, written) = loop {
        match store.append(&Batch { writes: (0..STREAMS).map(|number| large(number, version)).collect() }).await {
            Ok(_) => version += 1,
            refused => break unavailable(refused),
        }
    };
    assert!(version > 5, "it was full from the start: {version}");
    assert!(message.contains("maxmemory"), "{message}");
    assert_eq!(written, Written::No);
    for number in 0..STREAMS {
        assert_eq!(load(&store, number).await.version.0, version, "stream {number}");
    }
    let tail = store.tail(Position(0), usize::MAX).await.expect("the ledger serves");
    assert_eq!(tail.len() as u64, STREAMS * version);
    // Whoever comes now may look, and make room.
    let late = server.open().await;
    assert_eq!(load(&late, 0).await.version.0, version);
    unavailable(append(&late, vec![write(100, 0)]).await);
    let pruned = late.prune(Timestamp(11), 5).await.expect("prune is let through");
    assert_eq!((pruned.streams, pruned.more), (5, true));
    append(&store, vec![write(100, 0)]).await.expect("there is room again");
}

/// Prints what an effect costs; fails when that grows past what is promised.
#[tokio::test]
async fn an_effect_is_small() {
    const EFFECTS: u64 = 5_000;
    let server = Server::durable();
    let store = server.open().await;
    let used = || -> i64 {
        let info = server.cli(&["info", "memory"]);
        info.lines().find_map(|line| line.strip_prefix("used_memory:")).and_then(|bytes| bytes.trim().parse().ok()).expect("used_memory")
    };
    let before = used();
    for first in (0..EFFECTS).step_by(500) {
        let claims = (first..first + 500).map(|number| Write { body: "c".repeat(300), ..write(number, 0) });
        append(&store, claims.collect()).await.expect("an append");
        let done = Summary { expires: Some(Timestamp(1_763_000_000_000_000)), ..summary("done") };
        let ends = (first..first + 500).map(|number| Write { body: "o".repeat(300), summary: done.clone(), ..write(number, 1) });
        append(&store, ends.collect()).await.expect("an append");
    }
    let live = (used() - before) / EFFECTS as i64;
    store.prune(Timestamp::MAX, usize::MAX).await.expect("prune");
    let tombstone = (used() - before) / EFFECTS as i64;
    println!("{live} bytes for an effect with bodies of 600, {tombstone} for its tombstone");
    assert!(live < 2_500, "{live} bytes for an effect");
    assert!(tombstone < 300, "{tombstone} bytes for a tombstone");
}
