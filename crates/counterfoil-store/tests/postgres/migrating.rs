//! A ledger of an older format is brought up to date by whoever opens it first, and nothing in it changes.

use counterfoil_core::{RunId, Tenant, Timestamp};
use counterfoil_store::postgres::PostgresOptions;
use counterfoil_store::{AppendError, Graves, History, Position, Query, Store, Tombstone, Version};
use futures_util::future::join_all;

use crate::server::Server;
use crate::{append, bodies, load, stream, write};

const FORMAT_1: &str = include_str!("fixtures/format-1.sql");

async fn of_format_1(server: &Server) -> PostgresOptions {
    let options = server.fresh();
    server.client().await.batch_execute(&FORMAT_1.replace("{s}", &options.schema)).await.expect("a ledger of format 1");
    options
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_of_format_1_is_brought_up_to_date() {
    let server = Server::start().await;
    let options = of_format_1(&server).await;
    // All of them at once.
    let stores = join_all((0..5).map(|_| server.open(&options))).await;
    let store = &stores[4];
    for number in [1, 3, 4, 6, 8, 10] {
        assert_eq!(bodies(store, number).await.len(), 2, "stream {number}");
    }
    for number in [5, 7, 9, 11] {
        assert_eq!(bodies(store, number).await.len(), 1, "stream {number}");
    }
    for number in [0, 2] {
        assert_eq!(load(store, number).await.expect("the store serves"), History { version: Version(2), expired: true, records: vec![] });
    }
    let mut graves = store.tombstones(None, 10).await.expect("the store serves").found;
    graves.sort_by_key(|grave| grave.stream != stream(0));
    assert_eq!(graves, [0, 2].map(|number| Tombstone { stream: stream(number), version: Version(2) }));
    assert_eq!(store.due(Timestamp(2_000), 100).await.expect("the store serves"), [1, 3, 5, 7, 9, 11].map(stream));
    let acme = Query { limit: 100, ..Query::effects(Tenant::new("acme").expect("a name")) };
    let found = async |query: Query| {
        let mut found: Vec<_> = store.search(query).await.expect("the store serves").found.iter().map(|found| found.stream).collect();
        found.sort();
        found
    };
    let sorted = |numbers: &[u64]| {
        let mut streams: Vec<_> = numbers.iter().map(|number| stream(*number)).collect();
        streams.sort();
        streams
    };
    assert_eq!(found(acme.clone()).await, sorted(&[1, 3, 4, 5, 6, 7, 8, 9, 10, 11]));
    assert_eq!(found(Query { states: vec!["done"], ..acme.clone() }).await, sorted(&[4, 6, 8, 10]));
    let run = Some(RunId::new("run-1").expect("a name"));
    assert_eq!(found(Query { run, ..acme }).await, sorted(&[4, 7, 10]));
    let tail = store.tail(Position(0), 100).await.expect("the store serves");
    assert_eq!(tail.len(), 16);
    assert!(tail.is_sorted_by(|a, b| a.record.position < b.record.position));
    // It goes on, above everything that was ever shown.
    assert_eq!(append(store, Vec::new()).await.expect("the store serves"), Position(5020));
    let next = append(store, vec![write(5, 1), write(100, 0)]).await.expect("the next version, and a new stream");
    assert!(next > Position(5020), "{next:?}");
    for expected in [0, 2] {
        match append(store, vec![write(2, expected)]).await {
            Err(AppendError::Conflict { streams }) => assert_eq!(streams, [stream(2)]),
            other => panic!("a tombstone: {other:?}"),
        }
    }
    assert_eq!(store.prune(Timestamp(5_007), 100).await.expect("the store serves").streams, 2, "4 and 6");
    assert_eq!(store.tail(Position(5020), 100).await.expect("the store serves").len(), 2);
}

/// What a program of format 1 sends first finds no row, and it stops.
#[tokio::test]
async fn a_program_of_format_1_is_stopped() {
    let server = Server::start().await;
    let options = of_format_1(&server).await;
    let (old, busy) = (server.client().await, server.client().await);
    let advance = format!("UPDATE {}.ledger SET pos = pos + 2, at = now() WHERE id = 1 AND format = 1 RETURNING pos", options.schema);
    assert_eq!(old.query(&advance, &[]).await.expect("a position").len(), 1, "before");
    // One that is in the middle is waited for.
    busy.batch_execute(&format!("BEGIN; {advance}")).await.expect("the lock that every append of format 1 takes");
    let opening = tokio::spawn({
        let (url, options) = (server.url(""), options.clone());
        async move { counterfoil_store::postgres::Postgres::open(&url, options).await }
    });
    crate::stalling::until_waiting(&server, 1).await;
    busy.batch_execute("COMMIT").await.expect("it ends");
    let store = opening.await.expect("no panic").expect("brought up to date");
    assert_eq!(old.query(&advance, &[]).await.expect("an answer").len(), 0, "after");
    assert_eq!(append(&store, Vec::new()).await.expect("the store serves"), Position(5024), "with what it wrote");
}
