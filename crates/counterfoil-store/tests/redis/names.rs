//! What people see with `redis-cli`.

use counterfoil_core::summary::StreamKind;
use counterfoil_core::{Summary, Timestamp, ToolName};
use counterfoil_store::redis::RedisOptions;
use counterfoil_store::{AppendError, Position, Reach, Store, StoreError, Write};

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
    let records = server.cli(&["hvals", "{counterfoil}:records"]);
    assert!(records.contains("{\"stream\":1,\"after\":2}"), "a person can read it: {records}");
    store.prune(Timestamp(6), 10).await.expect("prune");
    assert_eq!(server.cli(&["keys", "*idemp*"]), "");
    assert_eq!(server.cli(&["hlen", "{counterfoil}:records"]), "2", "one tombstone, one record");
    assert_eq!(server.cli(&["zcard", "{counterfoil}:expires"]), "0");
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
    for key in ["records", "log", "due", "expires", "by:1:ready:acme", "by:1:running:acme", "position"] {
        let key = format!("{{counterfoil}}:{key}");
        let there = server.cli(&["rename", &key, "kept"]) == "OK";
        server.cli(&["hset", &key, "x", "x"]);
        if key.ends_with("records") {
            server.cli(&["del", &key]);
            server.cli(&["set", &key, "x"]);
        }
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

    let change = |command: &str| {
        let field = "ARGV[1]:gsub('..', function(h) return string.char(tonumber(h, 16)) end)";
        let script = format!("local f = {field} return redis.call({command})");
        server.cli(&["eval", &script, "1", "{counterfoil}:records", &stream(1).to_string()]);
    };
    change("'HSET', KEYS[1], f, (redis.call('HGET', KEYS[1], f):gsub('after', 'later'))");
    let error = store.load(stream(1), Reach::Whole).await.expect_err("a changed body");
    assert!(matches!(&error, StoreError::Corrupt { message, .. } if message.contains("checksum")), "{error}");
    change("'HSET', KEYS[1], f, (redis.call('HGET', KEYS[1], f):gsub('later', 'after'))");
    append(&store, vec![write(1, 1)]).await.expect("as it was");
    change("'HDEL', KEYS[1], f .. '\\0\\0\\0\\0\\0\\0\\0\\1'");
    let error = store.load(stream(1), Reach::Whole).await.expect_err("a missing record");
    assert!(matches!(&error, StoreError::Corrupt { message, .. } if message.contains("missing")), "{error}");
}
