//! What people see with `redis-cli`.

use counterfoil_core::summary::StreamKind;
use counterfoil_core::{Summary, Timestamp, ToolName};
use counterfoil_store::{AppendError, Store, StoreError, Write};

use crate::server::Server;
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
    let bodies = server.cli(&["lrange", &format!("{{counterfoil}}:stream:{}", stream(1)), "0", "-1"]);
    assert!(bodies.contains("{\"stream\":1,\"after\":2}"), "a person can read it: {bodies}");
    store.prune(Timestamp(6), 10).await.expect("prune");
    assert_eq!(server.cli(&["keys", "*idemp*"]), "");
    assert_eq!(server.cli(&["keys", "{counterfoil}:stream:*"]), format!("{{counterfoil}}:stream:{}", stream(2)));
}

/// Someone who writes to the ledger's keys is noticed before anything of a batch is written, or when it is read.
#[tokio::test]
async fn foreign_hands() {
    let server = Server::durable();
    let store = server.open().await;
    append(&store, vec![write(1, 0)]).await.expect("an append");
    let key = |number: u64| format!("{{counterfoil}}:stream:{}", stream(number));
    let damaged = async |writes: Vec<Write>| match append(&store, writes).await {
        Err(AppendError::Store(StoreError::Corrupt { message, .. })) => assert!(message.contains("someone else"), "{message}"),
        other => panic!("{other:?}"),
    };
    server.cli(&["set", &key(3), "x"]);
    damaged(vec![write(2, 0), write(1, 1), write(3, 0), write(4, 0)]).await;
    assert_eq!((load(&store, 1).await.version.0, load(&store, 2).await.version.0), (1, 0), "what was written is taken back");
    assert_eq!(server.cli(&["exists", &key(2), &key(4)]), "0");
    server.cli(&["del", &key(3)]);
    append(&store, vec![write(2, 0), write(1, 1), write(3, 0), write(4, 0)]).await.expect("the refused batch left no mark");
    let tail = store.tail(counterfoil_store::Position(0), 10).await.expect("the ledger serves");
    assert_eq!(tail.iter().map(|recorded| recorded.stream).collect::<Vec<_>>(), [1, 2, 1, 3, 4].map(stream));

    for zset in ["log", "due", "expires", "by:1:ready:acme"] {
        let zset = format!("{{counterfoil}}:{zset}");
        server.cli(&["rename", &zset, "kept"]);
        server.cli(&["set", &zset, "x"]);
        damaged(vec![Write { summary: summary("ready"), ..write(5, 0) }]).await;
        server.cli(&["del", &zset]);
        server.cli(&["rename", "kept", &zset]);
    }
    assert_eq!(load(&store, 5).await.version.0, 0);

    server.cli(&["lset", &key(1), "1", "{\"stream\":1,\"after\":9}"]);
    let error = store.load(stream(1), counterfoil_store::Reach::Whole).await.expect_err("a changed body");
    assert!(matches!(&error, StoreError::Corrupt { message, .. } if message.contains("checksum")), "{error}");
    server.cli(&["del", &key(2)]);
    let error = store.load(stream(2), counterfoil_store::Reach::Whole).await.expect_err("missing records");
    assert!(matches!(&error, StoreError::Corrupt { message, .. } if message.contains("missing")), "{error}");
}
