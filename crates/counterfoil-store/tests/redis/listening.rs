//! What others commit is heard.

use counterfoil_store::redis::Redis;
use counterfoil_store::remote::{Heard, StreamPrefix};
use tokio::sync::broadcast::Receiver;
use tokio::time::timeout;

use crate::server::{PATIENCE, Server};
use crate::{append, eventually, stream, write};

async fn next(heard: &mut Receiver<Heard>) -> Heard {
    timeout(PATIENCE, heard.recv()).await.expect("something is heard").expect("the listener keeps up")
}

async fn until_anything(heard: &mut Receiver<Heard>) {
    while next(heard).await != Heard::Anything {}
}

async fn listening(server: &Server) -> (Redis, Receiver<Heard>) {
    let store = server.open().await;
    let mut heard = store.heard();
    until_anything(&mut heard).await;
    (store, heard)
}

#[tokio::test]
async fn a_commit_wakes_another_value_and_a_refusal_does_not() {
    let mut server = Server::durable();
    let (_listening, mut heard) = listening(&server).await;
    let store = server.open().await;
    append(&store, vec![write(1, 0), write(2, 0)]).await.expect("an append");
    append(&store, vec![write(3, 7)]).await.expect_err("a conflict");
    append(&store, vec![write(3, 0)]).await.expect("an append");
    assert_eq!(next(&mut heard).await, Heard::Streams([1, 2].map(|number| StreamPrefix::from(&stream(number))).to_vec()));
    assert_eq!(next(&mut heard).await, Heard::Streams(vec![StreamPrefix::from(&stream(3))]));

    server.kill();
    server.start();
    until_anything(&mut heard).await;
    eventually("it serves again", async || append(&store, vec![write(4, 0)]).await.ok()).await;
    assert_eq!(next(&mut heard).await, Heard::Streams(vec![StreamPrefix::from(&stream(4))]));
}

/// Redis is not asked to tell what its only listener knows; and the listener hears it all the same.
#[tokio::test]
async fn who_is_alone_tells_itself() {
    let server = Server::durable();
    let (store, mut heard) = listening(&server).await;
    let published = || {
        let stats = server.cli(&["info", "commandstats"]);
        stats.lines().find_map(|line| line.strip_prefix("cmdstat_publish:calls=")?.split(',').next()?.parse::<u32>().ok()).unwrap_or(0)
    };
    let before = published();
    append(&store, vec![write(1, 0)]).await.expect("an append");
    assert_eq!(next(&mut heard).await, Heard::Streams(vec![StreamPrefix::from(&stream(1))]));
    assert_eq!(published(), before);
    let (_other, mut others) = listening(&server).await;
    // Whoever opens a ledger tries what it may do.
    let before = published();
    append(&store, vec![write(1, 1)]).await.expect("an append");
    assert_eq!(next(&mut others).await, Heard::Streams(vec![StreamPrefix::from(&stream(1))]));
    assert_eq!(published(), before + 1);
}

#[tokio::test]
async fn the_clock_is_the_servers() {
    let server = Server::durable();
    let store = server.open().await;
    let told = || server.cli(&["--raw", "time"]).split_whitespace().map(|part| part.parse::<i64>().expect("a number")).collect::<Vec<_>>();
    for _ in 0..20 {
        let before = told();
        let now = store.clock().now().0;
        let after = told();
        let error = i64::try_from(store.clock().error().as_micros()).expect("a short time");
        assert!(before[0] * 1_000_000 + before[1] - error <= now, "{before:?} {now} ± {error}");
        assert!(now <= after[0] * 1_000_000 + after[1] + error, "{now} ± {error} {after:?}");
    }
}
