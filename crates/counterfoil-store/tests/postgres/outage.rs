//! The server goes down and comes back under load, again and again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use counterfoil_store::postgres::{Postgres, PostgresOptions};
use counterfoil_store::{AppendError, StoreError, Written};

use crate::cutting::recovers;
use crate::server::{Server, Stop};
use crate::{append, bodies, load, write, write_by};

const ROUNDS: u64 = 6;
const WORKERS: u64 = 4;

/// What one worker knows of its stream: which records must be there, which must not.
#[derive(Default)]
struct Known {
    acknowledged: Vec<u64>,
    refused: u64,
    perhaps: u64,
}

/// Adds record after record to its own stream. Every try has a number of its own, so a record shows which try wrote it.
async fn work(store: Arc<Postgres>, number: u64, stop: Arc<AtomicBool>) -> Known {
    let mut known = Known::default();
    let (mut version, mut tries) = (0, 0);
    // Tries that may still be on their way: a look does not wait for a commit that nobody has seen yet. One more append tells.
    let mut open: Vec<u64> = Vec::new();
    while !open.is_empty() || !stop.load(Ordering::SeqCst) {
        tries += 1;
        match append(&*store, vec![write_by(tries, number, version)]).await {
            Ok(_) => {
                known.acknowledged.push(tries);
                version += 1;
                open.clear();
                continue;
            }
            Err(AppendError::Store(StoreError::Unavailable { written: Written::No, .. })) => known.refused += 1,
            Err(AppendError::Store(StoreError::Unavailable { written: Written::Perhaps, .. })) => {
                known.perhaps += 1;
                open.push(tries);
            }
            Err(AppendError::Conflict { .. }) if !open.is_empty() => {}
            Err(error) => panic!("nobody else writes to stream {number}: {error}"),
        }
        // As a caller would: look, and decide again.
        let history = loop {
            match load(&*store, number).await {
                Ok(history) => break history,
                Err(StoreError::Unavailable { .. }) => tokio::time::sleep(Duration::from_millis(5)).await,
                Err(error) => panic!("{error}"),
            }
        };
        if history.version.0 > version {
            let newest = history.records.last().map(|record| record.body.clone()).unwrap_or_default();
            let written = open.iter().find(|tries| newest.ends_with(&format!(" by {tries}")));
            known.acknowledged.push(*written.unwrap_or_else(|| panic!("stream {number}: {newest} was written after all")));
            open.clear();
        }
        version = history.version.0;
    }
    known
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_doubled_when_the_server_goes_down_and_up() {
    let server = Server::start().await;
    let options = PostgresOptions { patience: Duration::from_millis(500), ..server.fresh() };
    let stop = Arc::new(AtomicBool::new(false));
    let mut stores = Vec::new();
    let mut workers = Vec::new();
    for number in 0..WORKERS {
        let store = Arc::new(server.open(&options).await);
        workers.push(tokio::spawn(work(store.clone(), number, stop.clone())));
        stores.push(store);
    }
    for round in 0..ROUNDS {
        server.down(if round % 2 == 0 { Stop::Immediate } else { Stop::Fast });
        // Down until every worker has met it: the ledger is asked through each.
        for store in &stores {
            assert!(matches!(load(&**store, 99).await, Err(StoreError::Unavailable { .. })), "round {round}");
        }
        server.up().await;
        for (number, store) in stores.iter().enumerate() {
            recovers(&**store, 1_000 + number as u64).await;
        }
    }
    stop.store(true, Ordering::SeqCst);
    let fresh = server.open(&options).await;
    let (mut acknowledged, mut failed) = (0, 0);
    for (number, worker) in workers.into_iter().enumerate() {
        let known = worker.await.expect("no panic");
        let number = number as u64;
        let found = bodies(&fresh, number).await;
        let expected: Vec<String> =
            known.acknowledged.iter().enumerate().map(|(index, tries)| format!("{number}/{} by {tries}", index + 1)).collect();
        assert_eq!(found, expected, "stream {number}: every acknowledged record once, and nothing else");
        acknowledged += known.acknowledged.len();
        failed += known.refused + known.perhaps;
    }
    println!("{acknowledged} acknowledged, {failed} failed");
    assert!(acknowledged > 100 && failed >= WORKERS, "{acknowledged} acknowledged and {failed} failed show little");
}

#[tokio::test]
async fn while_there_is_no_server_every_call_says_so() {
    let server = Server::start().await;
    let options = PostgresOptions { patience: Duration::from_millis(200), ..server.fresh() };
    let store = server.open(&options).await;
    append(&store, vec![write(1, 0)]).await.expect("the server serves");
    server.down(Stop::Fast);
    let calls = async {
        use counterfoil_core::{Tenant, Timestamp};
        use counterfoil_store::{Position, Query, Store};
        let told = |error: StoreError| match error {
            StoreError::Unavailable { message, written: Written::No } => assert!(!message.contains("s3cret"), "{message}"),
            other => panic!("{other}"),
        };
        // The first may have been sent before the end was noticed.
        let _ = append(&store, vec![write(1, 1)]).await;
        told(load(&store, 1).await.expect_err("no server"));
        told(store.due(Timestamp::MAX, 1).await.expect_err("no server"));
        told(store.tail(Position(0), 1).await.expect_err("no server"));
        told(store.search(Query::effects(Tenant::new("acme").expect("a name"))).await.expect_err("no server"));
        told(store.prune(Timestamp::MAX, 1).await.expect_err("no server"));
        told(store.facts().await.expect_err("no server"));
        match append(&store, vec![write(1, 1)]).await {
            Err(AppendError::Store(error)) => told(error),
            other => panic!("no server: {other:?}"),
        }
    };
    tokio::time::timeout(Duration::from_secs(60), calls).await.expect("no call hangs");
    server.up().await;
    recovers(&store, 2).await;
    assert_eq!(bodies(&store, 1).await.len(), 1, "what was refused was not written");
}
