//! A machine that fails while Redis writes its file leaves a file that ends anywhere: a batch is then there whole or not at all, and stays so. Redis cuts such
//! a file behind the last whole command, also in the middle of a transaction, and would read what it appends then as the rest of it at its next start.

use std::path::PathBuf;

use counterfoil_store::redis::{Redis, RedisOptions};
use counterfoil_store::{AppendError, OpenError, Position, Store, StoreError, Write, Written};

use crate::opening::refused;
use crate::server::{PATIENCE, Server, open, options};
use crate::{append, eventually, load, write};

const BATCH: u64 = 20;

fn batch(version: u64) -> Vec<Write> {
    (0..BATCH).map(|number| write(number, version)).collect()
}

/// To the same streams, and not the same.
fn another(version: u64) -> Vec<Write> {
    let another = |number| Write { body: format!("{{\"another\":{number}}}"), ..write(number, version) };
    (0..BATCH).map(another).collect()
}

/// Redis's files with one batch in them and with a second one.
struct Files {
    after: Vec<(PathBuf, Vec<u8>)>,
    growing: PathBuf,
    /// Bytes of the growing file without the second batch, and of that batch.
    first: usize,
    second: usize,
}

impl Files {
    /// Redis is dead after it.
    async fn make(server: &mut Server) -> Self {
        let store = server.open().await;
        append(&store, batch(0)).await.expect("an append");
        Self::make_second(server, &store).await
    }

    async fn make_second(server: &mut Server, store: &Redis) -> Self {
        let before = server.keep_files();
        append(store, batch(1)).await.expect("an append");
        let after = server.keep_files();
        server.kill();
        // A rewrite leaves an older one behind, for a moment.
        let grows = |(path, bytes): &(PathBuf, Vec<u8>)| before.iter().any(|(known, part)| known == path && part.len() < bytes.len());
        let (growing, whole) = after.iter().find(|file| grows(file)).expect("the file that grows").clone();
        let (_, part) = before.iter().find(|(path, _)| *path == growing).expect("the same file");
        assert!(whole.starts_with(part) && whole.len() > part.len() + 1000, "{} {}", whole.len(), part.len());
        Self { after, growing, first: part.len(), second: whole.len() - part.len() }
    }

    /// So much of the second batch is left.
    fn cut(&self, server: &Server, left: usize) {
        let mut files = self.after.clone();
        let (_, bytes) = files.iter_mut().find(|(path, _)| *path == self.growing).expect("the file that grows");
        bytes.truncate(self.first + left);
        server.restore_files(&files);
    }
}

async fn holds(store: &Redis, newest: &[Write], place: &str) {
    let version = newest[0].expected.next();
    let tail = store.tail(Position(0), usize::MAX).await.expect("the ledger serves");
    assert_eq!(tail.len() as u64, BATCH * version.0, "{place}");
    for (number, write) in (0..).zip(newest) {
        let history = load(store, number).await;
        let last = history.records.last().expect("a record");
        assert_eq!((history.version, &last.body), (version, &write.body), "stream {number}, {place}");
    }
}

#[tokio::test]
async fn a_file_that_ends_in_the_middle_of_a_batch() {
    let mut server = Server::durable();
    let files = Files::make(&mut server).await;
    let whole = files.second;
    let mut absent = 0;
    // The commands behind the records are short: a cut at each of them.
    let cuts = (0..whole).step_by(whole / 12).chain((1..30).map(|left| whole - 12 * left)).chain([whole - 1, whole]);
    for left in cuts {
        let place = format!("{left} of {whole} bytes");
        files.cut(&server, left);
        server.start();
        let store = server.open().await;
        let version = load(&store, 0).await.version.0;
        assert_eq!(version, if left == whole { 2 } else { 1 }, "{place}");
        absent += u32::from(version == 1);
        holds(&store, &batch(version - 1), &place).await;
        append(&store, another(version)).await.expect("it goes on from there");
        drop(store);
        server.kill();
        server.start();
        holds(&server.open().await, &another(version), &format!("{place}, and another start")).await;
        server.kill();
    }
    assert!(absent > 10, "{absent}");
}

/// The same for one who has the ledger open all the while.
#[tokio::test]
async fn who_lives_through_it_waits_for_the_rewrite() {
    let mut server = Server::durable();
    let living = server.open().await;
    append(&living, batch(0)).await.expect("an append");
    let writing = server.open().await;
    let files = Files::make_second(&mut server, &writing).await;
    files.cut(&server, files.second - 5);
    server.start();
    eventually("it goes on", async || append(&living, another(1)).await.ok()).await;
    server.kill();
    server.start();
    holds(&server.open().await, &another(1), "another start").await;
}

/// The first start after it may be refused by Redis, which has mended its file by then: the next is not.
#[tokio::test]
async fn killed_once_more_in_the_middle_of_the_rewrite() {
    let mut server = Server::durable();
    let files = Files::make(&mut server).await;
    files.cut(&server, files.second - 5);
    server.start();
    server.cli(&["bgrewriteaof"]);
    server.kill();
    server.start();
    let store = server.open().await;
    holds(&store, &batch(0), "killed again").await;
    append(&store, another(1)).await.expect("it goes on from there");
    server.kill();
    server.start();
    holds(&server.open().await, &another(1), "another start").await;
}

/// Whoever comes to look while Redis cannot rewrite a file that was cut writes nothing to it, not even to try their rights.
#[tokio::test]
async fn who_only_looks_leaves_a_file_that_was_cut_as_it_is() {
    let mut server = Server::durable();
    let files = Files::make(&mut server).await;
    files.cut(&server, files.second - 5);
    let restored = server.start_hidden();
    let store = server.open().await;
    holds(&store, &batch(0), "read meanwhile").await;
    append(&store, another(1)).await.expect_err("nothing may be appended");
    drop(store);
    server.kill();
    restored();
    server.start();
    holds(&server.open().await, &batch(0), "another start").await;
}

fn rewrites(server: &Server) -> String {
    server.cli(&["info", "persistence"]).lines().find(|line| line.starts_with("aof_rewrites:")).expect("Redis says so").trim().to_owned()
}

#[tokio::test]
async fn once_for_each_start() {
    let mut server = Server::durable();
    assert_eq!(rewrites(&server), "aof_rewrites:0");
    drop((server.open().await, server.open().await));
    assert_eq!(rewrites(&server), "aof_rewrites:1");
    server.kill();
    server.start();
    drop((server.open().await, server.open().await));
    assert_eq!(rewrites(&server), "aof_rewrites:1");
    // What the setting is now says nothing of what it was at the start.
    server.kill();
    server.start();
    server.cli(&["config", "set", "aof-load-truncated", "no"]);
    drop(server.open().await);
    assert_eq!(rewrites(&server), "aof_rewrites:1");
}

/// Nothing is written to a Redis that is refused, and it is not made to work either.
#[tokio::test]
async fn not_for_who_is_refused() {
    let server = Server::with(&[("appendonly", "yes"), ("appendfsync", "everysec")]);
    refused(&server.url(), options()).await;
    assert_eq!(rewrites(&server), "aof_rewrites:0");
    let server = Server::durable();
    server.cli(&["set", "{counterfoil}:mine", "x"]);
    refused(&server.url(), options()).await;
    assert_eq!(rewrites(&server), "aof_rewrites:0");
}

#[tokio::test]
async fn a_file_that_cannot_be_rewritten() {
    let server = Server::durable();
    let restored = server.hide_files();
    let error = refused(&server.url(), RedisOptions { allow_volatile: true, ..options() }).await;
    assert!(error.to_string().contains("could not rewrite its file"), "{error}");
    assert!(matches!(error, OpenError::Store(StoreError::Unavailable { .. })), "{error:?}");
    restored();
    let store = server.open().await;
    append(&store, batch(0)).await.expect("an append");
    // One that fails later does no harm to the file that is there: whoever has it open goes on, however often they look.
    let restored = server.hide_files();
    server.cli(&["bgrewriteaof"]);
    let asked = || {
        server
            .cli(&["info", "commandstats"])
            .lines()
            .find_map(|line| line.strip_prefix("cmdstat_time:calls=")?.split(',').next()?.parse::<u32>().ok())
    };
    let before = asked().expect("each look asks for the time");
    let mut version = 1;
    let until = std::time::Instant::now() + PATIENCE;
    while asked().is_none_or(|now| now < before + 2) {
        assert!(std::time::Instant::now() < until, "nobody looks");
        append(&store, batch(version)).await.expect("an append");
        version += 1;
    }
    restored();
    append(&store, batch(version)).await.expect("an append");
}

/// While Redis is at it, or cannot, nothing is appended and everything is read; and as soon as it can, all goes on.
#[tokio::test]
async fn who_lives_through_a_rewrite_that_fails() {
    let mut server = Server::durable();
    let store = server.open().await;
    append(&store, batch(0)).await.expect("an append");
    server.kill();
    let restored = server.start_hidden();
    let message = eventually("it is noticed", async || match append(&store, another(1)).await {
        Err(AppendError::Store(StoreError::Unavailable { message, written: Written::No })) => {
            message.contains("could not rewrite its file").then_some(message)
        }
        Err(AppendError::Store(StoreError::Unavailable { .. })) => None,
        other => panic!("nothing may be appended: {other:?}"),
    })
    .await;
    assert!(!message.contains("cannot be reached"), "{message}");
    holds(&store, &batch(0), "read meanwhile").await;
    // Also by who comes now.
    let late = server.open().await;
    holds(&late, &batch(0), "read meanwhile").await;
    append(&late, another(1)).await.expect_err("nothing may be appended");
    restored();
    eventually("it goes on", async || append(&store, another(1)).await.ok()).await;
    server.kill();
    server.start();
    holds(&server.open().await, &another(1), "another start").await;
}

#[tokio::test]
async fn a_user_who_may_not_ask_for_it() {
    let server = Server::durable();
    let check = async |user: &str, right: &str| {
        server.cli(&["acl", "setuser", user, "on", ">pw", "~*", "&*", "+@all", right]);
        let url = format!("redis://{user}:pw@127.0.0.1:{}?ledger={user}", server.port());
        let told = |text: &str| text.contains(" is refused (NOPERM") && text.contains("INFO and BGREWRITEAOF");
        let error = refused(&url, options()).await;
        assert!(matches!(&error, OpenError::Unfit { message, .. } if told(message) && message.contains("allow_volatile")), "{error}");
        assert!(!error.to_string().contains("appendfsync"), "that is as it should be: {error}");
        let store = open(&url, RedisOptions { allow_volatile: true, ..options() }).await;
        assert!(store.risks().iter().any(|risk| told(risk)), "{:?}", store.risks());
        append(&store, batch(0)).await.expect("the loss was accepted");
        assert_eq!(rewrites(&server), "aof_rewrites:0");
    };
    check("some", "-bgrewriteaof").await;
    check("less", "-info").await;
}
