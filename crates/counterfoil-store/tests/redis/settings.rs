//! Settings that someone changes while the ledger is open, and servers that are not what they were.

use counterfoil_store::redis::RedisOptions;
use counterfoil_store::{AppendError, Reach, Store, StoreError, Written};

use crate::server::{DURABLE, Server, open, options};
use crate::{append, eventually, load, stream, unavailable, write};

#[tokio::test]
async fn a_change_at_run_time_is_noticed_and_forgiven() {
    let server = Server::durable();
    let store = server.open().await;
    append(&store, vec![write(1, 0)]).await.expect("an append");
    for (setting, bad, good) in
        [("appendfsync", "everysec", "always"), ("appendonly", "no", "yes"), ("no-appendfsync-on-rewrite", "yes", "no")]
    {
        server.cli(&["config", "set", setting, bad]);
        let mut version = load(&store, 1).await.version.0;
        let (message, written) = eventually("the change is noticed", async || match append(&store, vec![write(1, version)]).await {
            Ok(_) => {
                version += 1;
                None
            }
            refused => Some(unavailable(refused)),
        })
        .await;
        assert!(message.contains(&format!("{setting} is {bad}")), "{message}");
        assert_eq!(written, Written::No);
        assert_eq!(load(&store, 1).await.version.0, version, "reading goes on");
        assert!(store.risks().iter().any(|risk| risk.contains(setting)), "{:?}", store.risks());
        server.cli(&["config", "set", setting, good]);
        eventually("all is well again", async || append(&store, vec![write(1, version)]).await.ok()).await;
        assert_eq!(store.risks(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn eviction_at_run_time_stops_everything() {
    let server = Server::durable();
    let store = open(&server.url(), RedisOptions { allow_volatile: true, ..options() }).await;
    server.cli(&["config", "set", "maxmemory-policy", "allkeys-random"]);
    let error = eventually("the change is noticed", async || store.load(stream(1), Reach::Whole).await.err()).await;
    assert!(error.to_string().contains("allkeys-random"), "{error}");
    server.cli(&["config", "set", "maxmemory-policy", "noeviction"]);
    eventually("all is well again", async || append(&store, vec![write(1, 0)]).await.ok()).await;
}

#[tokio::test]
async fn a_master_that_becomes_a_replica() {
    let (server, other) = (Server::durable(), Server::durable());
    let store = server.open().await;
    append(&store, vec![write(1, 0)]).await.expect("an append");
    server.cli(&["replicaof", "127.0.0.1", &other.port().to_string()]);
    let (message, written) = unavailable(append(&store, vec![write(1, 1)]).await);
    assert!(message.contains("replica"), "{message}");
    assert_eq!(written, Written::No);
}

/// A ledger that was emptied is not begun anew: every effect in it would run again.
#[tokio::test]
async fn a_server_that_was_emptied() {
    let server = Server::durable();
    let store = server.open().await;
    append(&store, vec![write(1, 0)]).await.expect("an append");
    server.cli(&["flushall"]);
    let error = append(&store, vec![write(2, 0)]).await.expect_err("the ledger is gone");
    assert!(matches!(&error, AppendError::Store(StoreError::Corrupt { message, .. }) if message.contains("not there any more")), "{error}");
    assert_eq!(server.cli(&["dbsize"]), "0");
    eventually("reading is refused, too", async || store.load(stream(1), Reach::Whole).await.err()).await;
}

/// Redis comes back with less than it acknowledged, as after a failover or from an old backup.
#[tokio::test]
async fn a_server_that_went_back() {
    for allow_volatile in [false, true] {
        let mut server = Server::durable();
        let store = open(&server.url(), RedisOptions { allow_volatile, ..options() }).await;
        append(&store, vec![write(1, 0)]).await.expect("an append");
        let kept = server.keep_files();
        append(&store, vec![write(1, 1), write(2, 0)]).await.expect("an append");
        server.kill();
        server.restore_files(&kept);
        server.start();
        if allow_volatile {
            eventually("it goes on with what is left", async || append(&store, vec![write(1, 1)]).await.ok()).await;
            assert_eq!(load(&store, 2).await.version.0, 0);
        } else {
            let error = eventually("it is noticed", async || match append(&store, vec![write(3, 0)]).await {
                Err(AppendError::Store(StoreError::Corrupt { message, .. })) => Some(message),
                Err(_) => None,
                Ok(_) => panic!("records were lost"),
            })
            .await;
            assert!(error.contains("went back from position 3 to 1"), "{error}");
            store.load(stream(2), Reach::Whole).await.expect_err("nothing may be decided from it");
        }
    }
}

/// Tried at the start; who takes rights away later has a batch that is written in part, and is told so.
#[tokio::test]
async fn rights_that_are_taken_away() {
    let server = Server::durable();
    server.cli(&["acl", "setuser", "app", "on", ">pw", "~*", "&*", "+@all"]);
    let store = open(&format!("redis://app:pw@127.0.0.1:{}", server.port()), options()).await;
    server.cli(&["acl", "setuser", "app", "-set"]);
    let (message, written) = unavailable(append(&store, vec![write(1, 0)]).await);
    assert_eq!(written, Written::No, "refused at the first write: {message}");
    server.cli(&["acl", "setuser", "app", "+set", "-mset"]);
    let error = append(&store, vec![write(1, 0)]).await.expect_err("refused at the last write");
    assert!(matches!(&error, AppendError::Store(StoreError::Corrupt { message, .. }) if message.contains("written in part")), "{error}");
}

#[tokio::test]
async fn scripts_that_redis_forgot() {
    let server = Server::durable();
    let store = server.open().await;
    for version in 0..3 {
        server.cli(&["script", "flush"]);
        append(&store, vec![write(1, version)]).await.expect("the script is sent again");
    }
    server.cli(&["script", "flush"]);
    store.prune(counterfoil_core::Timestamp::MAX, 10).await.expect("the script is sent again");
}

#[tokio::test]
async fn a_server_that_is_loading() {
    const RECORDS: u64 = 700;
    let mut server = Server::with(&[DURABLE[0], DURABLE[1], ("key-load-delay", "0")]);
    let store = server.open().await;
    for version in 0..RECORDS {
        append(&store, vec![write(1, version)]).await.expect("an append");
    }
    server.kill();
    // At first the connection may not have noticed yet.
    eventually("there is no connection", async || {
        (unavailable(append(&store, vec![write(1, RECORDS)]).await).1 == Written::No).then_some(())
    })
    .await;
    // Microseconds for each command of the file. Redis answers every thousand of them.
    server.set("key-load-delay", "400");
    server.start_soon();
    let mut loading = 0;
    eventually("it serves again", async || match append(&store, vec![write(1, RECORDS)]).await {
        Ok(position) => Some(position),
        refused => {
            let (message, written) = unavailable(refused);
            assert_eq!(written, Written::No, "{message}");
            loading += u32::from(message.contains("is loading its data"));
            None
        }
    })
    .await;
    assert!(loading > 0, "never seen while it was loading");
    assert_eq!(load(&store, 1).await.version.0, RECORDS + 1);
}
