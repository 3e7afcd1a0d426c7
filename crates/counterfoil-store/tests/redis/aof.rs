//! A machine that fails while Redis writes its file leaves a file that ends anywhere: a batch is then there whole or not at all, and stays so. Redis cuts such
//! a file behind the last whole command, also in the middle of a transaction, and would read what it appends then as the rest of it at its next start.

use std::path::PathBuf;

use counterfoil_store::redis::{Redis, RedisOptions};
use counterfoil_store::{OpenError, Position, Store, Write};

use crate::opening::refused;
use crate::server::{Server, open, options};
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

fn rewrites(server: &Server) -> String {
    server.cli(&["info", "persistence"]).lines().find(|line| line.starts_with("aof_rewrites:")).expect("Redis says so").trim().to_owned()
}

#[tokio::test]
async fn once_for_each_start_unless_redis_never_cuts_its_file() {
    let mut server = Server::durable();
    assert_eq!(rewrites(&server), "aof_rewrites:0");
    drop((server.open().await, server.open().await));
    assert_eq!(rewrites(&server), "aof_rewrites:1");
    server.kill();
    server.start();
    drop((server.open().await, server.open().await));
    assert_eq!(rewrites(&server), "aof_rewrites:1");
    server.kill();
    server.set("aof-load-truncated", "no");
    server.start();
    append(&server.open().await, batch(0)).await.expect("an append");
    assert_eq!(rewrites(&server), "aof_rewrites:0");
}

#[tokio::test]
async fn a_file_that_cannot_be_rewritten() {
    let server = Server::durable();
    let restored = server.hide_files();
    let error = refused(&server.url(), RedisOptions { allow_volatile: true, ..options() }).await;
    assert!(matches!(&error, OpenError::Unreachable { message, .. } if message.contains("cannot rewrite its file")), "{error}");
    restored();
    let store = server.open().await;
    append(&store, batch(0)).await.expect("an append");
    // One that fails later does no harm to the file that is there.
    let restored = server.hide_files();
    server.cli(&["bgrewriteaof"]);
    let looked = tokio::time::Instant::now() + 3 * options().look_every;
    while tokio::time::Instant::now() < looked {
        append(&store, Vec::new()).await.expect("a look");
    }
    restored();
    append(&store, batch(1)).await.expect("an append");
}

#[tokio::test]
async fn a_user_who_may_not_ask_for_it() {
    let mut server = Server::durable();
    let url = format!("redis://app:pw@127.0.0.1:{}", server.port());
    let limit = |server: &Server| server.cli(&["acl", "setuser", "app", "on", ">pw", "~*", "&*", "+@all", "-bgrewriteaof"]);
    limit(&server);
    let error = refused(&url, options()).await;
    let told = |text: &str| text.contains("BGREWRITEAOF is refused (NOPERM") && text.contains("aof-load-truncated no");
    assert!(matches!(&error, OpenError::Unfit { message, .. } if told(message)), "{error}");
    let store = open(&url, RedisOptions { allow_volatile: true, ..options() }).await;
    assert!(store.risks().iter().any(|risk| told(risk)), "{:?}", store.risks());
    append(&store, batch(0)).await.expect("the loss was accepted");
    drop(store);
    server.kill();
    server.set("aof-load-truncated", "no");
    server.start();
    limit(&server);
    append(&open(&url, options()).await, batch(1)).await.expect("nothing is at risk");
}
