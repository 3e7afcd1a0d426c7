//! Loads that are asked for at once are asked together, and each gets its own answer.

use std::sync::Arc;

use counterfoil_store::{Reach, Store, Version};
use futures_util::future::join_all;

use crate::server::Server;
use crate::{append, bodies, stream, write};

const STREAMS: u64 = 2_500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_many_gets_its_own_answer() {
    let server = Server::start().await;
    let store = Arc::new(server.open(&server.fresh()).await);
    for expected in 0..3 {
        let writes = (0..STREAMS).filter(|number| number % 3 >= expected).map(|number| write(number, expected));
        append(&*store, writes.collect()).await.expect("the next versions");
    }
    // More than one query carries; some of nobody's streams; one stream twice.
    let loads = (0..STREAMS + 10).map(|number| {
        let store = store.clone();
        tokio::spawn(async move {
            let expected = if number < STREAMS { number % 3 + 1 } else { 0 };
            assert_eq!(bodies(&*store, number).await.len() as u64, expected, "stream {number}");
            let newest = store.load(stream(number), Reach::Newest(1)).await.expect("the store serves");
            assert_eq!((newest.version, newest.records.len() as u64), (Version(expected), expected.min(1)), "stream {number}");
        })
    });
    for load in join_all(loads).await {
        load.expect("no panic");
    }
}

/// Who no longer waits takes nobody's answer with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_goes_away_is_not_missed() {
    let server = Server::start().await;
    let store = Arc::new(server.open(&server.fresh()).await);
    append(&*store, (0..20).map(|number| write(number, 0)).collect()).await.expect("new streams");
    for round in 0..50 {
        let loads: Vec<_> = (0..20)
            .map(|number| {
                let store = store.clone();
                tokio::spawn(async move { bodies(&*store, number).await.len() })
            })
            .collect();
        for _ in 0..round % 5 {
            tokio::task::yield_now().await;
        }
        for (number, load) in loads.into_iter().enumerate() {
            match number % 2 {
                0 => load.abort(),
                _ => assert_eq!(load.await.expect("no panic"), 1),
            }
        }
    }
}
