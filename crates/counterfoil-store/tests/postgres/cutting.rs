//! Connections that are cut in the middle of anything: what was acknowledged is there, what was certainly not written is not.

use std::sync::Arc;
use std::time::{Duration, Instant};

use counterfoil_store::postgres::{Postgres, PostgresOptions};
use counterfoil_store::{AppendError, Store, StoreError, Written};

use crate::proxy::Proxy;
use crate::server::Server;
use crate::{append, bodies, load, write, write_by};

const ROUNDS: u64 = 250;

#[derive(Default)]
struct Tally {
    acknowledged: u64,
    refused: u64,
    perhaps_written: u64,
    perhaps_not: u64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_is_true_when_connections_are_cut() {
    let server = Server::start().await;
    let proxy = Proxy::start(server.port).await;
    let options = PostgresOptions { patience: Duration::from_secs(30), ..server.fresh() };
    let cut = Postgres::open(&server.url_at(proxy.port, ""), options.clone()).await.expect("through the proxy");
    let mut tally = Tally::default();
    let (mut answers, mut random) = (Vec::new(), 1_u64);
    for round in 0..ROUNDS {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // An append of this size and its answer are about 700 bytes: most cuts fall into one.
        proxy.cut_after(((random >> 33) % 900) as i64);
        answers.push(append(&cut, vec![write(2 * round, 0), write(2 * round + 1, 0)]).await);
    }
    // What became of each is settled once its session has ended, and whatever that had still to read.
    drop(cut);
    server.quiet().await;
    let direct = server.open(&options).await;
    for (round, answer) in (0..ROUNDS).zip(answers) {
        let there = bodies(&direct, 2 * round).await.len();
        assert_eq!(there, bodies(&direct, 2 * round + 1).await.len(), "round {round}: all or nothing");
        match answer {
            Ok(_) => {
                assert_eq!(there, 1, "round {round}: acknowledged and lost");
                tally.acknowledged += 1;
            }
            Err(AppendError::Store(StoreError::Unavailable { written: Written::No, message })) => {
                assert_eq!(there, 0, "round {round}: written, though {message}");
                tally.refused += 1;
            }
            Err(AppendError::Store(StoreError::Unavailable { written: Written::Perhaps, .. })) => match there {
                0 => tally.perhaps_not += 1,
                _ => tally.perhaps_written += 1,
            },
            Err(other) => panic!("round {round}: {other}"),
        }
    }
    let Tally { acknowledged, refused, perhaps_written, perhaps_not } = tally;
    println!("{acknowledged} acknowledged, {refused} refused, {perhaps_written} perhaps and written, {perhaps_not} perhaps and not");
    assert!(proxy.cuts() >= ROUNDS / 2, "{} cuts show little", proxy.cuts());
    assert!(acknowledged > 0 && perhaps_written > 0 && perhaps_not > 0, "each kind must be seen");
}

/// A network that swallows everything: no call hangs, and all is well when it is mended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_network_holds_nobody_up_for_ever() {
    let server = Server::start().await;
    let proxy = Proxy::start(server.port).await;
    let options = PostgresOptions { patience: Duration::from_millis(300), ..server.fresh() };
    let store = Postgres::open(&server.url_at(proxy.port, ""), options).await.expect("through the proxy");
    append(&store, vec![write(1, 0)]).await.expect("the proxy passes everything on");
    proxy.hold(true);
    let unavailable = |error: StoreError| matches!(error, StoreError::Unavailable { .. });
    let all = async {
        assert!(unavailable(load(&store, 1).await.expect_err("nothing answers")));
        match append(&store, vec![write(1, 1)]).await {
            Err(AppendError::Store(error)) => assert!(unavailable(error)),
            other => panic!("nothing answers: {other:?}"),
        }
        // Patience for a connection, then for an answer.
        assert!(unavailable(load(&store, 1).await.expect_err("nothing answers")));
    };
    tokio::time::timeout(Duration::from_secs(60), all).await.expect("no call hangs");
    proxy.hold(false);
    recovers(&store, 1).await;
}

/// Becomes able to append to a stream again.
pub async fn recovers(store: &dyn Store, number: u64) {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let appended = match load(store, number).await {
            Ok(history) => append(store, vec![write(number, history.version.0)]).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match appended {
            Ok(_) => return,
            Err(error) => assert!(Instant::now() < until, "does not recover: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Appends that nobody waits for any more do not spoil the connection for the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_who_goes_away_leaves_the_writer_usable() {
    let server = Server::start().await;
    let store = Arc::new(server.open(&server.fresh()).await);
    for round in 0..100_u64 {
        let going = tokio::spawn({
            let store = store.clone();
            async move { append(&*store, (0..20).map(|n| write_by(1, round * 100 + n, 0)).collect()).await }
        });
        for _ in 0..round % 7 {
            tokio::task::yield_now().await;
        }
        going.abort();
        let _ = going.await;
        append(&*store, vec![write(1_000_000 + round, 0)]).await.expect("the writer serves");
        let there: Vec<usize> =
            futures_util::future::join_all((0..20).map(|n| bodies(&*store, round * 100 + n))).await.iter().map(Vec::len).collect();
        assert!(there.iter().all(|count| *count == there[0]), "all or nothing: {there:?}");
    }
}
