//! Several values on one ledger, as several processes are.

use std::collections::BTreeMap;
use std::sync::Arc;

use counterfoil_core::{Summary, Timestamp};
use counterfoil_store::redis::Redis;
use counterfoil_store::{AppendError, Position, Store, Write};

use crate::server::{Server, open, options};
use crate::{append, load, stream, summary, write};

async fn several(server: &Server, count: usize) -> Vec<Arc<Redis>> {
    let mut stores = Vec::new();
    for _ in 0..count {
        stores.push(Arc::new(open(&server.url(), options()).await));
    }
    stores
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_ten_wins() {
    let server = Server::durable();
    let stores = several(&server, 10).await;
    for round in 0..50 {
        // Each also writes a stream of its own: a loser leaves no trace there.
        let own = |racer: usize| 1000 + 10 * round + racer as u64;
        let racing: Vec<_> = stores
            .iter()
            .enumerate()
            .map(|(racer, store)| {
                let (store, own) = (store.clone(), own(racer));
                tokio::spawn(async move { append(&store, vec![write(own, 0), write(1, round)]).await })
            })
            .collect();
        let mut won = 0;
        for (racer, result) in racing.into_iter().enumerate() {
            let left = match result.await.expect("a racer") {
                Ok(_) => 1,
                Err(AppendError::Conflict { streams }) => {
                    assert_eq!(streams, [stream(1)]);
                    0
                }
                Err(error) => panic!("{error}"),
            };
            won += left;
            assert_eq!(load(&stores[0], own(racer)).await.version.0, left, "round {round}, racer {racer}");
        }
        assert_eq!(won, 1, "round {round}");
        assert_eq!(load(&stores[3], 1).await.version.0, round + 1);
    }
}

/// What others append while one follows: each record once, in order, none left out.
#[tokio::test(flavor = "multi_thread")]
async fn a_follower_misses_nothing() {
    const WRITERS: u64 = 4;
    const ROUNDS: u64 = 150;
    let server = Server::durable();
    let stores = several(&server, WRITERS as usize + 1).await;
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let store = stores[writer as usize].clone();
            tokio::spawn(async move {
                for round in 0..ROUNDS {
                    let streams = (0..=round % 7).map(|place| write(writer * 10_000 + round * 10 + place, 0));
                    append(&store, streams.collect()).await.expect("no race");
                }
            })
        })
        .collect();
    let mut seen: BTreeMap<_, u32> = BTreeMap::new();
    let mut after = Position(0);
    let expected: u64 = (0..ROUNDS).map(|round| round % 7 + 1).sum::<u64>() * WRITERS;
    crate::eventually("everything is seen", async || {
        for recorded in stores[WRITERS as usize].tail(after, 37).await.expect("the ledger serves") {
            assert!(recorded.record.position > after);
            after = recorded.record.position;
            *seen.entry(recorded.stream).or_default() += 1;
        }
        (seen.values().map(|count| u64::from(*count)).sum::<u64>() >= expected).then_some(())
    })
    .await;
    for writer in writers {
        writer.await.expect("a writer");
    }
    assert!(seen.values().all(|count| *count == 1), "each once");
    assert_eq!(stores[0].tail(after, 10).await.expect("the ledger serves"), []);
}

/// An append that slept while its stream went on, ended and was buried: what it goes on from is gone, though the key it would take is free.
#[tokio::test]
async fn who_slept_through_a_burial_writes_nothing() {
    let server = Server::durable();
    let store = server.open().await;
    for expected in 0..4 {
        let expires = Some(Timestamp(5));
        append(&store, vec![Write { summary: Summary { expires, ..summary("done") }, ..write(1, expected) }]).await.expect("an append");
    }
    assert_eq!(store.prune(Timestamp(6), 10).await.expect("prune").streams, 1);
    let keys = || server.cli(&["keys", "*:r:*"]).lines().count() + server.cli(&["keys", "*:b:*"]).lines().count();
    let before = keys();
    for expected in 0..6 {
        match append(&store, vec![write(2, 0), write(1, expected)]).await {
            Err(AppendError::Conflict { streams }) => assert_eq!(streams, [stream(1)], "after {expected}"),
            other => panic!("after {expected}: {other:?}"),
        }
        assert_eq!((load(&store, 1).await.expired, load(&store, 2).await.version.0, keys()), (true, 0, before), "after {expected}");
    }
    assert_eq!(store.tail(Position(0), 10).await.expect("the ledger serves"), []);
}
