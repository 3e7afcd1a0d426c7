//! One process hears what another commits, and knows the database's time.

use std::time::Duration;

use counterfoil_store::postgres::{Postgres, PostgresOptions};
use counterfoil_store::remote::{Heard, StreamPrefix};
use tokio::sync::broadcast::Receiver;

use crate::cutting::recovers;
use crate::server::{Server, Stop};
use crate::{append, stream, write};

const HEARD_MAX: Duration = Duration::from_secs(60);

/// Waits until every one of `numbers` was heard of.
async fn hears(hints: &mut Receiver<Heard>, numbers: impl Iterator<Item = u64>) {
    let mut missing: Vec<StreamPrefix> = numbers.map(|number| StreamPrefix::from(&stream(number))).collect();
    let hearing = async {
        while !missing.is_empty() {
            match hints.recv().await.expect("the store is open") {
                Heard::Streams(streams) => missing.retain(|prefix| !streams.contains(prefix)),
                Heard::Anything => {}
            }
        }
    };
    tokio::time::timeout(HEARD_MAX, hearing).await.expect("heard in time");
}

async fn hears_another(options: PostgresOptions, server: &Server) -> Postgres {
    let (here, there) = (server.open(&options).await, server.open(&options).await);
    let mut hints = here.heard();
    append(&there, vec![write(1, 0), write(2, 0)]).await.expect("new streams");
    hears(&mut hints, 1..3).await;
    append(&there, vec![write(1, 1)]).await.expect("the next version");
    hears(&mut hints, 1..2).await;
    // More than one notification carries.
    append(&there, (1_000..1_900).map(|number| write(number, 0)).collect()).await.expect("new streams");
    hears(&mut hints, 1_000..1_900).await;
    here
}

#[tokio::test]
async fn commits_of_others_are_notified() {
    let server = Server::start().await;
    let here = hears_another(server.fresh(), &server).await;
    assert!(here.facts().await.expect("the server serves").listens);
}

#[tokio::test]
async fn commits_of_others_are_polled_for_where_there_is_no_listen() {
    let server = Server::start().await;
    let options = PostgresOptions { listen: false, poll_every: Duration::from_millis(20), ..server.fresh() };
    let here = hears_another(options, &server).await;
    assert!(!here.facts().await.expect("the server serves").listens);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_reconnect_whoever_waits_looks_again() {
    let server = Server::start().await;
    let options = PostgresOptions { patience: Duration::from_millis(500), ..server.fresh() };
    let store = server.open(&options).await;
    let mut hints = store.heard();
    server.down(Stop::Immediate);
    server.up().await;
    let anything = async { while hints.recv().await.expect("the store is open") != Heard::Anything {} };
    tokio::time::timeout(HEARD_MAX, anything).await.expect("told in time");
    // And it hears again.
    recovers(&store, 5).await;
    hears(&mut hints, 5..6).await;
}

#[tokio::test]
async fn the_clock_is_the_databases() {
    let server = Server::start().await;
    let store = server.open(&server.fresh()).await;
    let client = server.client().await;
    let asked = async || {
        client
            .query_one("SELECT (extract(epoch FROM clock_timestamp()) * 1e6)::int8", &[])
            .await
            .expect("the server serves")
            .get::<_, i64>(0)
    };
    let clock = store.clock();
    for _ in 0..20 {
        let (before, now, after) = (asked().await, clock.now().0, asked().await);
        let error = i64::try_from(clock.error().as_micros()).expect("small");
        assert!(before - error <= now && now <= after + error, "{before} - {error} <= {now} <= {after} + {error}");
    }
}

#[tokio::test]
async fn facts_are_the_servers_own() {
    let server = Server::start().await;
    let store = server.open(&server.fresh()).await;
    let facts = store.facts().await.expect("the server serves");
    assert!(facts.server.starts_with("PostgreSQL "), "{facts:?}");
    assert_eq!((facts.synchronous_commit.as_str(), facts.fsync, facts.listens), ("on", Some(true), true));
    assert!(facts.round_trip > Duration::ZERO);
    let label = store.describe();
    assert!(label.starts_with("postgres://keeper@127.0.0.1:") && label.ends_with("/postgres?schema=case_0"), "{label}");
}
