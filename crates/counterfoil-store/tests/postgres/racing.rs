//! Several values on one ledger at once, as several processes would be.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use counterfoil_store::postgres::Postgres;
use counterfoil_store::{AppendError, Position, Store};
use futures_util::future::join_all;

use crate::server::Server;
use crate::stalling::Stall;
use crate::{append, bodies, load, stream, write, write_by};

const RIVALS: u64 = 10;

async fn rivals(server: &Server, count: u64) -> Vec<Arc<Postgres>> {
    let options = server.fresh();
    join_all((0..count).map(|_| async { Arc::new(server.open(&options).await) })).await
}

/// All of them also start at once on an empty database.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_ten_that_expect_one_version_one_wins() {
    let server = Server::start().await;
    let rivals = rivals(&server, RIVALS).await;
    for round in 0..60 {
        // Half of the rounds race for a new stream, half for one that exists.
        let (number, expected) = (round / 2, round % 2);
        let tries = rivals.iter().enumerate().map(|(who, store)| {
            let (store, who) = (store.clone(), who as u64);
            // Beside the contested stream one of its own, which must go the same way.
            let writes = vec![write_by(who, number, expected), write_by(who, 1_000 * (who + 1) + round, 0)];
            tokio::spawn(async move { (who, append(&*store, writes).await) })
        });
        let mut winner = None;
        for answer in join_all(tries).await {
            match answer.expect("no panic") {
                (who, Ok(_)) => assert_eq!(winner.replace(who), None, "round {round}: two won"),
                (_, Err(AppendError::Conflict { streams })) => assert_eq!(streams, [stream(number)], "round {round}"),
                (_, Err(error)) => panic!("round {round}: {error}"),
            }
        }
        let winner = winner.expect("one wins");
        let found = bodies(&*rivals[0], number).await;
        assert_eq!(found.last(), Some(&format!("{number}/{} by {winner}", expected + 1)), "round {round}");
        for who in 0..RIVALS {
            let beside = load(&*rivals[0], 1_000 * (who + 1) + round).await.expect("the store serves").version.0;
            assert_eq!(beside, u64::from(who == winner), "round {round}: what {who} wrote beside it");
        }
    }
}

/// A reader that goes on from the last position it saw meets every record, though others commit all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_follows_the_tail_misses_nothing() {
    const WRITERS: u64 = 4;
    const BATCHES: u64 = 150;
    let server = Server::start().await;
    let mut stores = rivals(&server, WRITERS + 1).await;
    let reader = stores.pop().expect("one more");
    let done = Arc::new(AtomicBool::new(false));
    let following = tokio::spawn({
        let done = done.clone();
        async move {
            let mut seen: Vec<Position> = Vec::new();
            loop {
                // Asked before the look: what is committed by then is in it.
                let last = done.load(Ordering::SeqCst);
                let page = reader.tail(seen.last().copied().unwrap_or_default(), 64).await.expect("the store serves");
                if page.is_empty() && last {
                    return seen;
                }
                seen.extend(page.iter().map(|recorded| recorded.record.position));
            }
        }
    });
    let writing = stores.into_iter().enumerate().map(|(who, store)| {
        tokio::spawn(async move {
            let mut written = Vec::new();
            for batch in 0..BATCHES {
                let first = (who as u64 + 1) * 1_000_000 + batch * 100;
                let numbers: Vec<u64> = (first..first + 1 + batch % 30).collect();
                append(&*store, numbers.iter().map(|number| write(*number, 0)).collect()).await.expect("streams of its own");
                written.extend(numbers);
            }
            let mut positions = BTreeSet::new();
            for number in written {
                positions.insert(load(&*store, number).await.expect("the store serves").records[0].position);
            }
            positions
        })
    });
    let mut written: BTreeSet<Position> = BTreeSet::new();
    for positions in join_all(writing).await {
        written.extend(positions.expect("no panic"));
    }
    done.store(true, Ordering::SeqCst);
    let seen = following.await.expect("no panic");
    assert!(seen.is_sorted_by(|a, b| a < b), "in commit order");
    assert_eq!(seen, written.into_iter().collect::<Vec<_>>(), "every record, once");
}

/// Appends and prunings at once: a stream is there as a whole, or a tombstone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_to_what_is_being_pruned_is_a_conflict() {
    use counterfoil_core::Timestamp;
    use counterfoil_store::{Batch, Version, Write};
    let server = Server::start().await;
    let stores = rivals(&server, 2).await;
    let expiring = |number: u64, expected: u64| {
        let plain = write(number, expected);
        Write { summary: counterfoil_core::Summary { expires: Some(Timestamp(10)), ..plain.summary.clone() }, ..plain }
    };
    let (mut pruned, mut appended) = (0, 0);
    for round in 0..60 {
        append(&*stores[0], (0..20).map(|n| expiring(round * 100 + n, 0)).collect()).await.expect("new streams");
        let (one, other) = (stores[0].clone(), stores[1].clone());
        let pruning = tokio::spawn(async move { one.prune(Timestamp(11), 1_000).await.expect("the store serves").streams });
        let appending = tokio::spawn(async move {
            let mut won = Vec::new();
            for number in (0..20).map(|n| round * 100 + n) {
                match other.append(&Batch { writes: vec![write(number, 1)] }).await {
                    Ok(_) => won.push(number),
                    Err(AppendError::Conflict { streams }) => assert_eq!(streams, [stream(number)]),
                    Err(error) => panic!("{error}"),
                }
            }
            won
        });
        pruned += pruning.await.expect("no panic");
        let won = appending.await.expect("no panic");
        appended += won.len() as u64;
        for number in (0..20).map(|n| round * 100 + n) {
            let history = load(&*stores[0], number).await.expect("the store serves");
            let expected = if won.contains(&number) { (Version(2), false, 2) } else { (Version(1), true, 0) };
            assert_eq!((history.version, history.expired, history.records.len()), expected, "stream {number}");
        }
    }
    assert_eq!(pruned + appended, 60 * 20, "each stream went one way");
    assert!(pruned > 0 && appended > 0, "{pruned} pruned and {appended} appended: no race");
}

/// Who cannot get what another holds in time is told so, and has written nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_held_too_long_is_not_written_for_certain() {
    use counterfoil_store::postgres::PostgresOptions;
    use counterfoil_store::{StoreError, Written};
    let server = Server::start().await;
    let options = PostgresOptions { patience: std::time::Duration::from_millis(300), ..server.fresh() };
    let store = server.open(&options).await;
    let holder = Stall::over(&server, &options.schema, 1).await;
    match append(&store, vec![write(1, 0)]).await {
        Err(AppendError::Store(StoreError::Unavailable { message, written: Written::No })) => {
            assert!(message.contains("lock"), "{message}")
        }
        other => panic!("the lock is held: {other:?}"),
    }
    assert_eq!(load(&store, 1).await.expect("reading takes no lock").version.0, 0);
    holder.give_way().await;
    append(&store, vec![write(1, 0)]).await.expect("nobody holds the lock");
    assert_eq!(bodies(&store, 1).await.len(), 1);
}

/// A transaction that the server rolls back because of others is made again, without troubling the caller.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadlock_with_a_stranger_is_survived() {
    use counterfoil_store::postgres::PostgresOptions;
    let server = Server::start_with(&["deadlock_timeout=3s"]).await;
    let options = PostgresOptions { patience: std::time::Duration::from_secs(60), ..server.fresh() };
    let store = Arc::new(server.open(&options).await);
    append(&*store, vec![write(1, 0), write(2, 0)]).await.expect("new streams");
    let schema = &options.schema;
    let stranger = server.client().await;
    // Only the adapter's session looks for deadlocks, so it is the one that is rolled back.
    let lock = |number: u64| format!("SELECT * FROM {schema}.record WHERE stream = '\\x{}' FOR UPDATE", stream(number));
    let begin = format!("SET deadlock_timeout = '1h'; BEGIN; {}", lock(2));
    stranger.batch_execute(&begin).await.expect("a lock on the second stream");
    let appending = tokio::spawn({
        let store = store.clone();
        async move { append(&*store, vec![write(1, 1), write(2, 1)]).await }
    });
    crate::stalling::until_waiting(&server, 1).await;
    // The append holds the first and waits for the second; this is the other way round, and goes on once the append gave way.
    stranger.batch_execute(&lock(1)).await.expect("the append gives way");
    stranger.batch_execute("COMMIT").await.expect("the stranger goes");
    appending.await.expect("no panic").expect("it was made again");
    assert_eq!(bodies(&*store, 1).await.len(), 2, "once");
    assert!(server.log().contains("deadlock detected"), "no deadlock was met");
}
