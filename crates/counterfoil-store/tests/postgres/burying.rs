//! Burials and appends that meet: never a record on a tombstone, never an acknowledged append that is gone. Each append here sleeps in the
//! middle, with what it saw when it began, while the world goes on.

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::{Summary, Timestamp};
use counterfoil_store::postgres::{Postgres, PostgresOptions};
use counterfoil_store::{AppendError, Graves, History, Position, Store, Tombstone, Version, Write};

use crate::server::Server;
use crate::stalling::{Stall, until_waiting};
use crate::{append, load, stream, write};

fn expiring(number: u64, expected: u64) -> Write {
    let plain = write(number, expected);
    Write { summary: Summary { expires: Some(Timestamp(10)), ..plain.summary.clone() }, ..plain }
}

async fn prune(store: &dyn Store) -> u64 {
    store.prune(Timestamp(11), 1_000).await.expect("the store serves").streams
}

fn tombstone(version: u64) -> History {
    History { version: Version(version), expired: true, records: Vec::new() }
}

struct Scene {
    server: Server,
    schema: String,
    slow: Arc<Postgres>,
    quick: Postgres,
}

async fn scene() -> Scene {
    let server = Server::start().await;
    let options = PostgresOptions { patience: Duration::from_secs(60), ..server.fresh() };
    let (slow, quick) = (Arc::new(server.open(&options).await), server.open(&options).await);
    Scene { server, schema: options.schema, slow, quick }
}

/// An append of `writes` that sleeps because of its first write's record, while `meanwhile` happens.
async fn asleep(scene: &Scene, writes: Vec<Write>, meanwhile: impl AsyncFnOnce()) -> Result<Position, AppendError> {
    let holder = scene.server.client().await;
    let held = format!("BEGIN; SELECT 1 FROM {}.record WHERE stream = '\\x{}' FOR UPDATE", scene.schema, writes[0].stream);
    holder.batch_execute(&held).await.expect("a lock");
    let slow = scene.slow.clone();
    let appending = tokio::spawn(async move { append(&*slow, writes).await });
    until_waiting(&scene.server, 1).await;
    meanwhile().await;
    holder.batch_execute("ROLLBACK").await.expect("the lock is given back");
    appending.await.expect("no panic")
}

fn conflict(answer: Result<Position, AppendError>, number: u64) {
    match answer {
        Err(AppendError::Conflict { streams }) => assert_eq!(streams, [stream(number)]),
        other => panic!("a conflict was expected, not {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_finds_what_was_buried_while_it_slept() {
    let scene = scene().await;
    append(&scene.quick, vec![write(1, 0), expiring(2, 0)]).await.expect("new streams");
    let answer = asleep(&scene, vec![write(1, 1), write(2, 1)], async || assert_eq!(prune(&scene.quick).await, 1)).await;
    conflict(answer, 2);
    assert_eq!(load(&scene.quick, 2).await.expect("the store serves"), tombstone(1));
    assert_eq!(load(&scene.quick, 1).await.expect("the store serves").version, Version(1), "all or nothing");
}

/// The key that it is about to take was taken and given back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_finds_what_went_on_and_was_buried_while_it_slept() {
    let scene = scene().await;
    append(&scene.quick, vec![write(1, 0), write(2, 0)]).await.expect("new streams");
    let answer = asleep(&scene, vec![write(1, 1), write(2, 1)], async || {
        append(&scene.quick, vec![expiring(2, 1)]).await.expect("the next version");
        assert_eq!(prune(&scene.quick).await, 1);
    });
    conflict(answer.await, 2);
    assert_eq!(load(&scene.quick, 2).await.expect("the store serves"), tombstone(2));
}

/// The same where the stream was new.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_record_finds_a_stream_that_came_and_went_while_it_slept() {
    let scene = scene().await;
    append(&scene.quick, vec![write(1, 0)]).await.expect("a new stream");
    let answer = asleep(&scene, vec![write(1, 1), write(2, 0)], async || {
        append(&scene.quick, vec![write(2, 0)]).await.expect("a new stream");
        append(&scene.quick, vec![expiring(2, 1)]).await.expect("the next version");
        assert_eq!(prune(&scene.quick).await, 1);
    });
    conflict(answer.await, 2);
    assert_eq!(load(&scene.quick, 2).await.expect("the store serves"), tombstone(2));
}

/// A tombstone of a stream that is not known here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_record_finds_a_tombstone_that_was_brought_in_while_it_slept() {
    let scene = scene().await;
    append(&scene.quick, vec![write(1, 0)]).await.expect("a new stream");
    let grave = Tombstone { stream: stream(2), version: Version(5) };
    let answer = asleep(&scene, vec![write(1, 1), write(2, 0)], async || scene.quick.entomb(&[grave]).await.expect("a tombstone"));
    conflict(answer.await, 2);
    assert_eq!(load(&scene.quick, 2).await.expect("the store serves"), tombstone(5));
    // And one that is just being brought in.
    let stall = Stall::over(&scene.server, &scene.schema, 3).await;
    let slow = scene.slow.clone();
    let appending = tokio::spawn(async move { append(&*slow, vec![write(3, 0)]).await });
    until_waiting(&scene.server, 1).await;
    stall.bury().await;
    conflict(appending.await.expect("no panic"), 3);
}

/// A stream that is being appended to is not at rest: it is not buried, and pruning does not wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pruning_leaves_what_is_being_appended_to() {
    let scene = scene().await;
    append(&scene.quick, vec![expiring(1, 0), expiring(2, 0), write(9, 0)]).await.expect("new streams");
    // Holds the record of 2 and waits for 3.
    let stall = Stall::over(&scene.server, &scene.schema, 3).await;
    let slow = scene.slow.clone();
    let appending = tokio::spawn(async move { append(&*slow, vec![write(9, 1), write(2, 1), write(3, 0)]).await });
    until_waiting(&scene.server, 1).await;
    assert_eq!(prune(&scene.quick).await, 1);
    stall.give_way().await;
    appending.await.expect("no panic").expect("nobody buried it");
    assert_eq!(load(&scene.quick, 1).await.expect("the store serves"), tombstone(1));
    assert_eq!(load(&scene.quick, 2).await.expect("the store serves").records.len(), 2);
    assert_eq!(prune(&scene.quick).await, 0, "its newest record says nothing of an end");
}

/// What is gone from below the watermark is no gap.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_pruned_is_not_taken_for_a_gap() {
    let scene = scene().await;
    for number in 0..10 {
        append(&scene.quick, vec![expiring(number, 0)]).await.expect("a new stream");
    }
    append(&scene.quick, vec![write(50, 0)]).await.expect("a new stream");
    assert_eq!(prune(&scene.quick).await, 10);
    append(&scene.quick, vec![write(51, 0)]).await.expect("a new stream");
    let tail = scene.quick.tail(Position(0), 100).await.expect("the store serves");
    assert_eq!(tail.iter().map(|recorded| recorded.stream).collect::<Vec<_>>(), [50, 51].map(stream));
    let voids = format!("SELECT count(*) FROM {}.record WHERE stream = ''", scene.schema);
    assert_eq!(scene.server.client().await.query_one(&voids, &[]).await.expect("a count").get::<_, i64>(0), 0);
}
