//! Settings that someone changes while the ledger is open, and servers that are not what they were.

use counterfoil_store::redis::RedisOptions;
use counterfoil_store::{AppendError, OpenError, Reach, Store, StoreError, Write, Written};

use crate::opening::refused;
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
    assert_eq!((server.cli(&["keys", "*:r:*"]).as_str(), server.cli(&["keys", "*:b:*"]).as_str()), ("", ""), "and taken back");
    // At a later write; and so early that the script cannot tell what there is.
    for (number, right) in [(1, "zadd"), (2, "exists")] {
        server.cli(&["acl", "setuser", "app", "+@all", &format!("-{right}")]);
        let error = append(&store, vec![write(number, 0)]).await.expect_err(right);
        let told = matches!(&error, AppendError::Store(StoreError::Corrupt { message, .. }) if message.contains("written in part"));
        assert!(told, "without {right}: {error}");
    }
    // Whoever is refused altogether has written nothing.
    server.cli(&["acl", "setuser", "app", "+@all", "-msetnx"]);
    let (message, written) = unavailable(append(&store, vec![write(3, 0)]).await);
    assert_eq!(written, Written::No, "{message}");
}

/// Without its transaction a batch may be carried out all the same, command by command: then nobody is told that it was not.
#[tokio::test]
async fn transactions_that_are_forbidden() {
    let server = Server::durable();
    server.cli(&["acl", "setuser", "app", "on", ">pw", "~*", "&*", "+@all"]);
    let url = format!("redis://app:pw@127.0.0.1:{}", server.port());
    let store = open(&url, options()).await;
    let mut version = 0;
    // Redis itself gives up a transaction that may not be ended.
    for (right, expected) in [("multi", Written::Perhaps), ("exec", Written::No)] {
        append(&store, vec![write(1, version)]).await.expect("an append");
        version += 1;
        server.cli(&["acl", "setuser", "app", &format!("-{right}")]);
        let (message, written) = unavailable(append(&store, vec![write(1, version)]).await);
        assert_eq!(written, expected, "without {right}: {message}");
        let error = refused(&url, options()).await;
        assert!(matches!(&error, OpenError::Unfit { message, .. } if message.contains(right)), "{error}");
        server.cli(&["acl", "setuser", "app", "+@all"]);
        let found = eventually("it serves again", async || store.load(stream(1), Reach::Whole).await.ok()).await.version.0;
        assert!(found == version || written == Written::Perhaps, "without {right}: {found}");
        version = found;
    }
    eventually("it takes writes again", async || append(&store, vec![write(1, version)]).await.ok()).await;
}

/// And then no batch gets the bodies of another.
#[tokio::test(flavor = "multi_thread")]
async fn batches_without_transactions_keep_their_bodies() {
    const WRITERS: u64 = 4;
    let server = Server::durable();
    server.cli(&["acl", "setuser", "app", "on", ">pw", "~*", "&*", "+@all"]);
    let url = format!("redis://app:pw@127.0.0.1:{}", server.port());
    let mut stores = Vec::new();
    for _ in 0..WRITERS {
        stores.push(std::sync::Arc::new(open(&url, options()).await));
    }
    server.cli(&["acl", "setuser", "app", "-multi"]);
    let writing: Vec<_> = (0..)
        .zip(&stores)
        .map(|(writer, store)| {
            let store = store.clone();
            tokio::spawn(async move {
                for round in 0..30 {
                    // Long enough that Redis reads it in pieces, and others in between.
                    let number = writer * 1000 + round;
                    let long = Write { body: format!("{number} ").repeat(50_000), ..write(number, 0) };
                    // Told that it is perhaps written, or that there is no connection.
                    drop(append(&store, vec![long]).await.expect_err("no transaction"));
                }
            })
        })
        .collect();
    for writer in writing {
        writer.await.expect("a writer");
    }
    server.cli(&["acl", "setuser", "app", "+@all"]);
    let mut written = 0;
    for number in (0..WRITERS).flat_map(|writer| writer * 1000..writer * 1000 + 30) {
        let history = eventually("it serves again", async || match stores[0].load(stream(number), Reach::Whole).await {
            Err(StoreError::Unavailable { .. }) => None,
            loaded => Some(loaded.expect("nothing is mixed up")),
        })
        .await;
        written += history.records.len();
    }
    assert!(written > 0, "nothing was carried out: this test shows nothing");
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
