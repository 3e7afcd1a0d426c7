//! Numbers are drawn in one order and seen in another: nothing is passed over, and nothing appears below what was shown.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use counterfoil_core::{StreamId, Timestamp};
use counterfoil_store::postgres::{Postgres, PostgresOptions};
use counterfoil_store::{AppendError, Position, Query, Store, StoreError, Version, Written};
use futures_util::future::join_all;

use crate::server::Server;
use crate::stalling::{Stall, until_waiting};
use crate::{append, load, stream, write};

async fn tail(store: &dyn Store, after: Position) -> Vec<StreamId> {
    store.tail(after, 1000).await.expect("the store serves").iter().map(|recorded| recorded.stream).collect()
}

async fn voids(server: &Server, schema: &str) -> i64 {
    server.client().await.query_one(&format!("SELECT count(*) FROM {schema}.record WHERE stream = ''"), &[]).await.expect("a count").get(0)
}

fn hasty(options: &PostgresOptions) -> PostgresOptions {
    PostgresOptions { patience: Duration::from_millis(500), ..options.clone() }
}

/// Its first record is inserted, its second waits: the number is taken, and nobody knows yet for what.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_behind_a_writer_that_stands_still_is_not_shown() {
    let server = Server::start().await;
    let options = PostgresOptions { patience: Duration::from_secs(60), ..server.fresh() };
    let (slow, quick) = (Arc::new(server.open(&options).await), server.open(&options).await);
    let reader = server.open(&hasty(&options)).await;
    let first = append(&quick, vec![write(1, 0)]).await.expect("a new stream");
    let stall = Stall::over(&server, &options.schema, 3).await;
    let slow = tokio::spawn(async move { append(&*slow, vec![write(2, 0), write(3, 0)]).await });
    until_waiting(&server, 1).await;
    let last = append(&quick, vec![write(4, 0)]).await.expect("nobody holds up an append");
    assert_eq!(tail(&reader, Position(0)).await, [stream(1)], "what is below it is shown");
    match reader.tail(first, 10).await {
        Err(StoreError::Unavailable { written: Written::No, .. }) => {}
        other => panic!("neither the end nor what is behind it: {other:?}"),
    }
    assert!(matches!(append(&reader, Vec::new()).await, Err(AppendError::Store(StoreError::Unavailable { .. }))), "nor is it the end");
    assert_eq!(load(&reader, 4).await.expect("the store serves").version, Version(1), "loads go by no position");
    assert_eq!(reader.due(Timestamp::MAX, 10).await.expect("a sweep goes on"), []);
    let found = reader.search(Query::effects(counterfoil_core::Tenant::new("acme").expect("a name"))).await.expect("people are served");
    assert_eq!(found.found.iter().map(|found| found.stream).collect::<Vec<_>>(), [stream(1)], "as of the moment before");
    stall.give_way().await;
    let late = slow.await.expect("no panic").expect("the key was given back");
    assert!(first < late && late < last);
    assert_eq!(tail(&reader, first).await, [2, 3, 4].map(stream), "nothing was passed over");
    assert_eq!(voids(&server, &options.schema).await, 0, "its number was taken, and so waited for");
}

/// The number is drawn and its position not taken: a reader goes on, and the writer draws another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_whose_number_was_given_up_draws_another() {
    let server = Server::start().await;
    let options = PostgresOptions { patience: Duration::from_secs(60), ..server.fresh() };
    let (slow, quick) = (Arc::new(server.open(&options).await), server.open(&options).await);
    let stall = Stall::over(&server, &options.schema, 1).await;
    // Waits for the key before it takes the position.
    let slow = tokio::spawn(async move { append(&*slow, vec![write(1, 0), write(2, 0)]).await });
    until_waiting(&server, 1).await;
    let shown = append(&quick, vec![write(3, 0)]).await.expect("nobody holds up an append");
    assert_eq!(tail(&quick, Position(0)).await, [stream(3)]);
    assert_eq!(voids(&server, &options.schema).await, 1);
    stall.give_way().await;
    let late = slow.await.expect("no panic").expect("with another number");
    assert!(late > shown, "{late:?} appeared below {shown:?}");
    assert_eq!(tail(&quick, shown).await, [1, 2].map(stream));
    assert_eq!(tail(&quick, Position(0)).await, [3, 1, 2].map(stream), "voids are nobody's records");
}

/// A session that ends in the middle leaves a number that nobody has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_number_of_a_writer_that_was_killed_is_given_up() {
    let server = Server::start().await;
    let options = PostgresOptions { patience: Duration::from_secs(60), ..server.fresh() };
    let (killed, quick) = (Arc::new(server.open(&options).await), server.open(&options).await);
    let stall = Stall::over(&server, &options.schema, 2).await;
    let appending = tokio::spawn({
        let killed = killed.clone();
        async move { append(&*killed, vec![write(1, 0), write(2, 0)]).await }
    });
    until_waiting(&server, 1).await;
    append(&quick, vec![write(3, 0)]).await.expect("nobody holds up an append");
    let client = server.client().await;
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'counterfoil' AND wait_event_type = 'Lock'";
    client.query(kill, &[]).await.expect("it is killed");
    match appending.await.expect("no panic") {
        Err(AppendError::Store(StoreError::Unavailable { written: Written::Perhaps, .. })) => {}
        other => panic!("its session ended: {other:?}"),
    }
    stall.give_way().await;
    assert_eq!(tail(&quick, Position(0)).await, [stream(3)]);
    assert_eq!(load(&quick, 1).await.expect("the store serves").version, Version(0));
    append(&*killed, vec![write(1, 0), write(2, 0)]).await.expect("another session");
    assert_eq!(tail(&quick, Position(0)).await, [3, 1, 2].map(stream));
    assert_eq!(quick.search(Query::effects(counterfoil_core::Tenant::new("acme").expect("a name"))).await.expect("a page").found.len(), 3);
}

/// Many records, and more unused numbers than are told at once, between two looks at the index.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_that_was_left_alone_for_long_is_brought_up_in_slices() {
    let server = Server::start().await;
    let options = server.fresh();
    let store = server.open(&options).await;
    let client = server.client().await;
    let burn = format!("SELECT nextval('{}.number') FROM generate_series(1, 100)", options.schema);
    for batch in 0..8 {
        append(&store, (0..3000).map(|n| write(batch * 3000 + n, 0)).collect()).await.expect("new streams");
        client.query(&burn, &[]).await.expect("numbers that nobody uses");
    }
    // More writes than one number has positions for.
    let writes: Vec<_> = (0..9000).map(|n| write(n, 1)).collect();
    let last = append(&store, writes).await.expect("the next versions");
    assert_eq!(store.due(Timestamp::MAX, 10).await.expect("the store serves"), []);
    consistent(&server, &options.schema, 24_000).await;
    assert_eq!(append(&store, Vec::new()).await.expect("the store serves"), last, "an append answers with its last position");
    let mut after = Position(0);
    let mut seen = 0;
    loop {
        let page = store.tail(after, 5000).await.expect("the store serves");
        let Some(end) = page.last() else { break };
        assert!(page.is_sorted_by(|a, b| a.record.position < b.record.position));
        (after, seen) = (end.record.position, seen + page.len());
    }
    assert_eq!((seen, after), (33_000, last));
}

/// The index is each stream's newest record, and the watermark is at the end.
async fn consistent(server: &Server, schema: &str, streams: i64) {
    let sql = format!(
        "SELECT (SELECT count(*) FROM {schema}.stream),
           (SELECT count(*) FROM {schema}.record r LEFT JOIN {schema}.stream s ON s.stream = r.stream
            WHERE r.kind > 0 AND NOT EXISTS (SELECT 1 FROM {schema}.record n WHERE n.stream = r.stream AND n.version > r.version)
              AND (s.version, s.pos, s.state) IS DISTINCT FROM (r.version, r.pos, r.state)),
           (SELECT pos FROM {schema}.ledger) = (SELECT max(pos) FROM {schema}.record)"
    );
    let row = server.client().await.query_one(&sql, &[]).await.expect("a count");
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1), row.get::<_, bool>(2)), (streams, 0, true));
}

/// Several write, several read the tail, several bring the index up, and some numbers are never used. For seconds, from one seed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_reader_meets_every_record_once_and_in_order() {
    const WRITERS: u64 = 4;
    const READERS: usize = 3;
    const SEED: u64 = 0x5eed;
    let server = Server::start().await;
    let options = server.fresh();
    let open = async || Arc::new(server.open(&options).await);
    let done = Arc::new(AtomicBool::new(false));
    let mut writing = Vec::new();
    for _ in 0..WRITERS {
        writing.push(open().await);
    }
    let mut readers = Vec::new();
    for _ in 0..READERS {
        readers.push(tokio::spawn(follow(open().await, done.clone())));
    }
    let mut sweeps = Vec::new();
    for _ in 0..2 {
        let (store, done) = (open().await, done.clone());
        sweeps.push(tokio::spawn(async move {
            while !done.load(Ordering::SeqCst) {
                store.due(Timestamp::MAX, 10).await.expect("the store serves");
            }
        }));
    }
    let burner = server.client().await;
    let until = Instant::now() + Duration::from_secs(4);
    let burn = format!("SELECT nextval('{}.number')", options.schema);
    let burning = tokio::spawn(async move {
        while Instant::now() < until {
            burner.query(&burn, &[]).await.expect("a number");
            tokio::time::sleep(Duration::from_millis(15)).await;
        }
    });
    // What is settled stays settled, whoever folds.
    let (watcher, mark) = (server.client().await, format!("SELECT pos FROM {}.ledger", options.schema));
    let watching = tokio::spawn(async move {
        let mut last = 0;
        while Instant::now() < until {
            let now: i64 = watcher.query_one(&mark, &[]).await.expect("a watermark").get(0);
            assert!(now >= last, "the watermark went back from {last} to {now}");
            last = now;
        }
    });
    let writers = (0..WRITERS).zip(writing).map(|(who, store)| tokio::spawn(write_at_random(store, who, SEED, until)));
    let mut written: BTreeMap<StreamId, u64> = BTreeMap::new();
    for mine in join_all(writers).await {
        for (stream, version) in mine.expect("no panic") {
            let known = written.entry(stream).or_default();
            *known = version.max(*known);
        }
    }
    burning.await.expect("no panic");
    watching.await.expect("no panic");
    done.store(true, Ordering::SeqCst);
    let records: u64 = written.values().sum();
    for reader in join_all(readers).await {
        let seen = reader.expect("no panic");
        assert!(seen.is_sorted_by(|a, b| a.0 < b.0), "seed {SEED:#x}: positions grow");
        assert_eq!(seen.len() as u64, records, "seed {SEED:#x}: every record once");
        let mut versions: BTreeMap<StreamId, u64> = BTreeMap::new();
        for (_, stream, version) in seen {
            let next = versions.entry(stream).or_default();
            *next += 1;
            assert_eq!(version, Version(*next), "seed {SEED:#x}: a stream's records in their order");
        }
        assert_eq!(versions, written, "seed {SEED:#x}");
    }
    join_all(sweeps).await.into_iter().for_each(|sweep| sweep.expect("no panic"));
    let store = open().await;
    store.due(Timestamp::MAX, 1).await.expect("the store serves");
    consistent(&server, &options.schema, written.len() as i64).await;
    assert!(records > 1_000, "{records} records show little");
    println!("{records} records in {} streams; {} numbers were given up", written.len(), voids(&server, &options.schema).await);
}

async fn follow(store: Arc<Postgres>, done: Arc<AtomicBool>) -> Vec<(Position, StreamId, Version)> {
    let mut seen: Vec<(Position, StreamId, Version)> = Vec::new();
    loop {
        // Asked before the look: what is committed by then is in it.
        let last = done.load(Ordering::SeqCst);
        let after = seen.last().map_or(Position(0), |last| last.0);
        // All there is: a reader that lags behind meets no commit that is on its way.
        let page = store.tail(after, 100_000).await.expect("the store serves");
        if page.is_empty() && last {
            return seen;
        }
        seen.extend(page.iter().map(|recorded| (recorded.record.position, recorded.stream, recorded.record.version)));
    }
}

/// Batches of a few writes, or of hundreds, which take long enough to be passed by others: to streams of its own and to a few that all
/// writers share. Answers what it knows to be there.
async fn write_at_random(store: Arc<Postgres>, who: u64, seed: u64, until: Instant) -> BTreeMap<StreamId, u64> {
    let mut random = seed ^ (who + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut below = |limit: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % limit
    };
    let mut known: BTreeMap<u64, u64> = BTreeMap::new();
    let mut written = BTreeMap::new();
    while Instant::now() < until {
        let mut numbers = BTreeMap::new();
        let (size, own) = if who == 0 { (600, 5_000) } else { (8, 500) };
        for _ in 0..=below(size) {
            let number = if below(200) == 0 { below(3) } else { 10_000 * (who + 1) + below(own) };
            numbers.insert(number, known.get(&number).copied().unwrap_or(0));
        }
        match append(&*store, numbers.iter().map(|(number, expected)| write(*number, *expected)).collect()).await {
            Ok(_) => {
                for (number, expected) in numbers {
                    known.insert(number, expected + 1);
                    written.insert(stream(number), expected + 1);
                }
            }
            Err(AppendError::Conflict { streams }) => {
                for number in numbers.keys().filter(|number| streams.contains(&stream(**number))) {
                    known.insert(*number, load(&*store, *number).await.expect("the store serves").version.0);
                }
            }
            Err(error) => panic!("{error}"),
        }
    }
    written
}
