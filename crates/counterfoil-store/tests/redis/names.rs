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
    let bodies = server.cli(&["get", "{counterfoil}:bodies:3:1"]);
    assert!(bodies.contains("{\"stream\":1,\"after\":2}"), "a person can read it: {bodies}");
    assert_eq!(server.cli(&["keys", "*stage*"]), "");
    store.prune(Timestamp(6), 10).await.expect("prune");
    assert_eq!(server.cli(&["keys", "*idemp*"]), "");
    assert_eq!(server.cli(&["hlen", "{counterfoil}:records"]), "2", "one tombstone, one record");
    assert_eq!(server.cli(&["zcard", "{counterfoil}:expires"]), "0");
    let bodies = server.cli(&["keys", "*bodies*"]);
    assert_eq!(bodies, "{counterfoil}:bodies:0:1", "the other stream's is kept, with it its place");
    let kept = server.cli(&["get", &bodies]);
    assert!(kept.contains("{\"stream\":2,\"after\":0}") && !kept.contains("\"stream\":1"), "{kept}");
}

/// Bodies of one batch lie together; each goes with its record and leaves the others as they are.
#[tokio::test]
async fn bodies_go_one_by_one() {
    const STREAMS: u64 = 300;
    let server = Server::durable();
    let store = server.open().await;
    let expiring = |number: u64, expected: u64| {
        // In an order of their own, so that every piece loses some of its bodies many times.
        let expires = Some(Timestamp(i64::try_from(number * 7919 % STREAMS).expect("small") + 1));
        let body = if number.is_multiple_of(50) { String::new() } else { format!("{{\"stream\":{number},\"after\":{expected}}}") };
        Write { body, summary: Summary { expires, ..summary("done") }, ..write(number, expected) }
    };
    for expected in 0..2 {
        append(&store, (0..STREAMS).map(|number| expiring(number, expected)).collect()).await.expect("an append");
    }
    assert_eq!(server.cli(&["keys", "*bodies*"]).lines().count(), 6, "128, 128 and 44 bodies, twice");
    for before in (0..=STREAMS as i64 + 1).step_by(29) {
        store.prune(Timestamp(before), usize::MAX).await.expect("prune");
        for number in 0..STREAMS {
            let gone = (number * 7919 % STREAMS) as i64 + 1 < before;
            let history = load(&store, number).await;
            let bodies: Vec<String> = history.records.into_iter().map(|record| record.body).collect();
            let expected = if gone { Vec::new() } else { (0..2).map(|after| expiring(number, after).body).collect() };
            assert_eq!((history.expired, bodies), (gone, expected), "stream {number}, before {before}");
        }
        let tail = store.tail(Position(0), usize::MAX).await.expect("the ledger serves");
        assert_eq!(tail.len(), 2 * (0..STREAMS).filter(|number| (number * 7919 % STREAMS) as i64 + 1 >= before).count());
    }
    store.prune(Timestamp::MAX, usize::MAX).await.expect("prune");
    assert_eq!(server.cli(&["keys", "*bodies*"]), "", "nothing is left of a batch that is gone");
}

/// Bodies that cannot be read are named, and hold up nothing else.
#[tokio::test]
async fn damaged_bodies_are_named_when_they_are_pruned() {
    let server = Server::durable();
    let store = server.open().await;
    let expiring = |number: u64| Write { summary: Summary { expires: Some(Timestamp(5)), ..summary("done") }, ..write(number, 0) };
    for number in 0..3 {
        append(&store, vec![expiring(number), write(10 + number, 0)]).await.expect("an append");
    }
    server.cli(&["set", "{counterfoil}:bodies:0:1", "x"]);
    server.cli(&["del", "{counterfoil}:bodies:2:1"]);
    server.cli(&["lpush", "{counterfoil}:bodies:2:1", "x"]);
    let error = store.prune(Timestamp(6), 10).await.expect_err("damage");
    assert!(matches!(&error, StoreError::Corrupt { message, .. } if message.contains("bodies:")), "{error}");
    for number in 0..3 {
        assert!(load(&store, number).await.expired, "stream {number}");
    }
    assert_eq!(load(&store, 12).await.records.len(), 1, "it was with the third");
    let kept = server.cli(&["get", "{counterfoil}:bodies:4:1"]);
    assert!(!kept.contains("\"stream\":2,"), "{kept}");
    store.prune(Timestamp(6), 10).await.expect("nothing is left to prune");
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

    let run = |key: &str, command: &str| {
        let field = "ARGV[1]:gsub('..', function(h) return string.char(tonumber(h, 16)) end)";
        let script = format!("local f = {field} return redis.call({command})");
        server.cli(&["eval", &script, "1", &format!("{{counterfoil}}:{key}"), &stream(1).to_string()]);
    };
    let change = |command: &str| run("records", command);
    run("bodies:0:1", "'SET', KEYS[1], (redis.call('GET', KEYS[1]):gsub('after', 'later'))");
    let error = store.load(stream(1), Reach::Whole).await.expect_err("a changed body");
    assert!(matches!(&error, StoreError::Corrupt { message, .. } if message.contains("body") && message.contains("checksum")), "{error}");
    run("bodies:0:1", "'SET', KEYS[1], (redis.call('GET', KEYS[1]):gsub('later', 'after'))");
    run("bodies:0:1", "'RENAME', KEYS[1], 'kept'");
    let error = store.load(stream(1), Reach::Whole).await.expect_err("a missing body");
    assert!(matches!(&error, StoreError::Corrupt { message, .. } if message.contains("body") && message.contains("missing")), "{error}");
    store.tail(Position(0), 10).await.expect_err("a missing body");
    run("bodies:0:1", "'RENAME', 'kept', KEYS[1]");
    change("'HSET', KEYS[1], f, (redis.call('HGET', KEYS[1], f):gsub('acme', 'acne'))");
    let error = store.load(stream(1), Reach::Whole).await.expect_err("a changed head");
    assert!(matches!(&error, StoreError::Corrupt { message, .. } if message.contains("checksum")), "{error}");
    change("'HSET', KEYS[1], f, (redis.call('HGET', KEYS[1], f):gsub('acne', 'acme'))");
    // In the place of the next batch's bodies.
    server.cli(&["set", "{counterfoil}:bodies:3:1", "x"]);
    match append(&store, vec![write(1, 1)]).await {
        Err(AppendError::Store(StoreError::Corrupt { message, .. })) => assert!(message.contains("nothing was written"), "{message}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(server.cli(&["keys", "*stage*"]), "");
    server.cli(&["del", "{counterfoil}:bodies:3:1"]);
    append(&store, vec![write(1, 1)]).await.expect("as it was");
    change("'HDEL', KEYS[1], f .. '\\0\\0\\0\\0\\0\\0\\0\\1'");
    let error = store.load(stream(1), Reach::Whole).await.expect_err("a missing record");
    assert!(matches!(&error, StoreError::Corrupt { message, .. } if message.contains("missing")), "{error}");
}
