//! What people see with `redis-cli`.

use counterfoil_core::summary::StreamKind;
use counterfoil_core::{Summary, Tenant, Timestamp, ToolName};
use counterfoil_store::redis::RedisOptions;
use counterfoil_store::{AppendError, Position, Query, Reach, Store, StoreError, Write};

use crate::server::{Server, open};
use crate::{append, load, stream, summary, write};

#[tokio::test]
async fn an_effect_is_found_by_tool_and_key() {
    let server = Server::durable();
    let store = server.open().await;
    let name = |tool: &str| format!("{{counterfoil}}:idemp:{tool}:{}", stream(1));
    append(&store, vec![write(1, 0), Write { summary: Summary { kind: StreamKind::Breaker, ..summary("open") }, ..write(2, 0) }])
        .await
        .expect("an append");
    assert_eq!(server.cli(&["get", &name("bank.pay")]), "running");
    assert_eq!(server.cli(&["keys", "*idemp*"]), name("bank.pay"), "only effects have names");
    append(&store, vec![Write { summary: summary("done"), ..write(1, 1) }]).await.expect("an append");
    assert_eq!(server.cli(&["get", &name("bank.pay")]), "done");
    let moved = Summary { tool: Some(ToolName::new("bank.move").expect("a name")), expires: Some(Timestamp(5)), ..summary("failed") };
    append(&store, vec![Write { summary: moved, ..write(1, 2) }]).await.expect("an append");
    assert_eq!(server.cli(&["get", &name("bank.move")]), "failed");
    assert_eq!(server.cli(&["exists", &name("bank.pay")]), "0");
    let find = |number: u64, version: u8| {
        let script = "return redis.call('GET', '{counterfoil}:r:' .. ARGV[1]:gsub('..', function(h) return string.char(tonumber(h, 16)) end) \
                      .. '\\0\\0\\0\\0\\0\\0\\0' .. string.char(ARGV[2]))";
        server.cli(&["eval", script, "0", &stream(number).to_string(), &version.to_string()])
    };
    assert!(find(1, 3).contains("{\"stream\":1,\"after\":2}"), "a person can read it: {}", find(1, 3));
    store.prune(Timestamp(6), 10).await.expect("prune");
    assert_eq!(server.cli(&["keys", "*idemp*"]), "");
    assert_eq!(
        (find(1, 1).starts_with('T'), find(1, 2).as_str(), find(1, 3).as_str()),
        (true, "", ""),
        "a tombstone and nothing behind it"
    );
    assert!(find(2, 1).contains("{\"stream\":2,\"after\":0}"), "the other of its batch is kept");
    assert_eq!(server.cli(&["zcard", "{counterfoil}:expires"]), "0");
    assert_eq!(server.cli(&["keys", "*:b:*"]).lines().count(), 1, "batches of which nothing is left are gone");
}

/// Where many are written at once, what people look for follows behind, and is there when it is asked for.
#[tokio::test]
async fn the_index_follows_behind() {
    const STREAMS: u64 = 700;
    let server = Server::durable();
    let store = server.open().await;
    let due = |number: u64| Write { summary: Summary { due: Some(Timestamp(number as i64)), ..summary("running") }, ..write(number, 0) };
    append(&store, (1..=STREAMS).map(due).collect()).await.expect("an append");
    append(&store, (1..=STREAMS / 2).map(|number| Write { summary: summary("done"), ..write(number, 1) }).collect())
        .await
        .expect("an append");
    assert_eq!((server.cli(&["keys", "*idemp*"]).as_str(), server.cli(&["exists", "{counterfoil}:due"]).as_str()), ("", "0"));
    let found = store.due(Timestamp::MAX, usize::MAX).await.expect("the ledger serves");
    assert_eq!(found, (STREAMS / 2 + 1..=STREAMS).map(stream).collect::<Vec<_>>(), "earliest first, and none that is done");
    assert_eq!(server.cli(&["keys", "*idemp*"]).lines().count() as u64, STREAMS);
    append(&store, (STREAMS / 2 + 1..=STREAMS).map(|number| Write { summary: summary("done"), ..write(number, 1) }).collect())
        .await
        .expect("an append");
    assert_eq!(store.due(Timestamp::MAX, usize::MAX).await.expect("the ledger serves"), []);
    for (state, count) in [("running", 0), ("done", STREAMS)] {
        let query = Query { limit: STREAMS as usize, ..Query::effects(Tenant::new("acme").expect("a name")) };
        let page = store.search(Query { states: vec![state], ..query }).await.expect("the ledger serves");
        assert_eq!(page.found.len() as u64, count, "{state}");
        // With the one that nobody looks for.
        assert_eq!(server.cli(&["zcard", &format!("{{counterfoil}}:by:1:{state}:acme")]), (count + 1).to_string());
    }
}

/// A caller among many does not pay for all of them: a small batch brings the index up where little is missing, and leaves the rest to who asks.
#[tokio::test]
async fn a_small_batch_brings_up_only_what_is_little() {
    let server = Server::durable();
    let store = server.open().await;
    let named = || server.cli(&["keys", "*idemp*"]).lines().count();
    append(&store, (1..=40).map(|number| write(number, 0)).collect()).await.expect("an append");
    assert_eq!(named(), 0);
    append(&store, vec![write(41, 0)]).await.expect("an append");
    assert_eq!(named(), 41);
    append(&store, (101..=200).map(|number| write(number, 0)).collect()).await.expect("an append");
    append(&store, vec![write(201, 0)]).await.expect("an append");
    assert_eq!(named(), 41, "a hundred are not little");
    store.due(Timestamp::MAX, 1).await.expect("the ledger serves");
    assert_eq!(named(), 142);
    append(&store, vec![write(202, 0)]).await.expect("an append");
    assert_eq!(named(), 143, "at once again");
}

/// Someone who writes to the ledger's keys is noticed before anything of a batch is written, or when it is read.
#[tokio::test]
async fn foreign_hands() {
    let server = Server::durable();
    // A look at the wrong moment would end the connection.
    let store = open(&server.url(), RedisOptions::default()).await;
    append(&store, vec![write(1, 0)]).await.expect("an append");
    append(
        &store,
        vec![Write { summary: Summary { due: Some(Timestamp(9)), expires: Some(Timestamp(9)), ..summary("ready") }, ..write(2, 0) }],
    )
    .await
    .expect("an append");
    append(&store, vec![write(2, 1)]).await.expect("an append");
    for key in ["log", "expires", "position"] {
        let key = format!("{{counterfoil}}:{key}");
        let there = server.cli(&["rename", &key, "kept"]) == "OK";
        server.cli(&["hset", &key, "x", "x"]);
        match append(&store, vec![Write { summary: summary("ready"), ..write(5, 0) }, write(2, 2)]).await {
            Err(AppendError::Store(StoreError::Corrupt { message, .. })) => assert!(message.contains("someone else"), "{message}"),
            other => panic!("{key}: {other:?}"),
        }
        server.cli(&["del", &key]);
        if there {
            server.cli(&["rename", "kept", &key]);
        }
    }
    assert_eq!((load(&store, 5).await.version.0, load(&store, 2).await.version.0), (0, 2));
    let tail = store.tail(Position(0), 10).await.expect("the ledger serves");
    assert_eq!(tail.iter().map(|recorded| recorded.stream).collect::<Vec<_>>(), [1, 2, 2].map(stream));
    // What is made from the log is not looked at by an append, and is noticed by who asks for it.
    for (key, first) in [("due", 100), ("by:1:running:acme", 200), ("folded", 300)] {
        let key = format!("{{counterfoil}}:{key}");
        server.cli(&["rename", &key, "kept"]);
        server.cli(&["hset", &key, "x", "x"]);
        append(&store, (0..10).map(|number| write(first + number, 0)).collect()).await.expect("an append");
        let error = store.due(Timestamp::MAX, 1).await.expect_err("someone else's key");
        assert!(matches!(&error, StoreError::Corrupt { message, .. } if message.contains("someone else")), "{key}: {error}");
        server.cli(&["del", &key]);
        server.cli(&["rename", "kept", &key]);
        store.due(Timestamp::MAX, 1).await.expect("as it was");
    }

    let run = |command: &str| {
        let record = "KEYS[1] .. ARGV[1]:gsub('..', function(h) return string.char(tonumber(h, 16)) end) .. '\\0\\0\\0\\0\\0\\0\\0\\1'";
        let script = format!("local r = {record} return redis.call({command})");
        server.cli(&["eval", &script, "1", "{counterfoil}:r:", &stream(1).to_string()]);
    };
    for (from, to, what) in [("after", "later", "body"), ("acme", "acne", "record")] {
        run(&format!("'SET', r, (redis.call('GET', r):gsub('{from}', '{to}'))"));
        let error = store.load(stream(1), Reach::Whole).await.expect_err("changed");
        assert!(matches!(&error, StoreError::Corrupt { message, .. } if message.contains(what) && message.contains("checksum")), "{error}");
        store.tail(Position(0), 10).await.expect_err("changed");
        run(&format!("'SET', r, (redis.call('GET', r):gsub('{to}', '{from}'))"));
    }
    append(&store, vec![write(1, 1)]).await.expect("as it was");
    run("'DEL', r");
    let error = store.load(stream(1), Reach::Whole).await.expect_err("a missing record");
    assert!(matches!(&error, StoreError::Corrupt { message, .. } if message.contains("missing")), "{error}");
    store.tail(Position(0), 10).await.expect_err("a missing record");
}
