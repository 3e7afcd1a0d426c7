//! Redis is killed, stopped and started under load: nothing acknowledged is lost, nothing is there twice, everyone goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use counterfoil_store::redis::RedisOptions;
use counterfoil_store::{Position, Store, Written};
use rustix::process::Signal;

use crate::server::{Server, open, options};
use crate::worker::{Account, work};
use crate::{append, eventually, load, stream, unavailable, write};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_under_load() {
    const ROUNDS: u32 = 12;
    const WORKERS: u64 = 4;
    let mut server = Server::durable();
    let mut stores = Vec::new();
    for _ in 0..2 {
        stores.push(Arc::new(server.open().await));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let store = stores[worker as usize % 2].clone();
            tokio::spawn(work(worker, store.clone(), store, stop.clone()))
        })
        .collect();
    let watching = server.open().await;
    let position = async || append(&watching, Vec::new()).await.ok();
    for round in 0..ROUNDS {
        let before = eventually("it serves", position).await;
        // Killed only when it was busy: each round must have something to lose.
        eventually("appends go on", async || position().await.filter(|now| now.0 > before.0 + 50 + u64::from(round) * 7)).await;
        server.kill();
        server.start();
    }
    stop.store(true, Ordering::Relaxed);
    let mut account = Account::default();
    for worker in workers {
        account = account + worker.await.expect("a worker");
    }
    println!("{account:?}");
    assert!(account.acknowledged > 100, "{account:?}");
    assert!(account.perhaps_there + account.perhaps_not_there > 0, "no kill hit an append: {account:?}");
    // The workers' connections are back; this one may still be on its way.
    let tail = eventually("it serves", async || watching.tail(Position(0), usize::MAX).await.ok()).await;
    assert_eq!(tail.len() as u64, 5 * (account.acknowledged + account.perhaps_there), "no record is outside its stream");
}

/// Stopped, not dead: connections stay, and nobody answers.
#[tokio::test]
async fn a_server_that_does_not_answer() {
    let server = Server::durable();
    // Redis rewrites its file for whoever comes first, which takes longer than this one waits.
    drop(server.open().await);
    let store = open(
        &server.url(),
        RedisOptions { answer_within: Duration::from_millis(300), connect_within: Duration::from_millis(300), ..options() },
    )
    .await;
    append(&store, vec![write(1, 0)]).await.expect("an append");
    server.signal(Signal::STOP);
    let (_, written) = unavailable(append(&store, vec![write(1, 1)]).await);
    assert_eq!(written, Written::Perhaps);
    let (_, written) = unavailable(append(&store, vec![write(2, 0)]).await);
    assert_eq!(written, Written::No, "there is no connection to send it on");
    store.load(stream(1), counterfoil_store::Reach::Whole).await.expect_err("nobody answers");
    store.due(counterfoil_core::Timestamp::MAX, 10).await.expect_err("nobody answers");
    store.tail(Position(0), 10).await.expect_err("nobody answers");
    store.prune(counterfoil_core::Timestamp::MAX, 10).await.expect_err("nobody answers");
    server.signal(Signal::CONT);
    let version = eventually("it serves again", async || store.load(stream(1), counterfoil_store::Reach::Whole).await.ok()).await.version.0;
    assert!(version == 1 || version == 2, "{version}");
    eventually("it takes writes again", async || append(&store, vec![write(1, version)]).await.ok()).await;
    assert_eq!(load(&store, 2).await.version.0, 0);
}
