//! Batches that are too large for one statement are still all or nothing; and a ledger that has grown large is written to as when it was empty.

use std::time::{Duration, Instant};

use counterfoil_store::{AppendError, Reach, Store, Write};

use crate::server::Server;
use crate::{append, load, stream, write};

fn heavy(number: u64, expected: u64) -> Write {
    Write { body: "x".repeat(15 << 20), ..write(number, expected) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_of_many_megabytes_is_one_commit() {
    let server = Server::start().await;
    let store = server.open(&server.fresh()).await;
    append(&store, vec![write(100, 0)]).await.expect("a new stream");
    let mut writes: Vec<Write> = (0..5).map(|number| heavy(number, 0)).collect();
    // In the first statement and in the last.
    writes.insert(0, write(100, 0));
    writes.push(write(101, 4));
    match append(&store, writes.clone()).await {
        Err(AppendError::Conflict { mut streams }) => {
            streams.sort();
            let mut expected = vec![stream(100), stream(101)];
            expected.sort();
            assert_eq!(streams, expected);
        }
        other => panic!("a conflict was expected, not {other:?}"),
    }
    for number in 0..5 {
        assert_eq!(load(&store, number).await.expect("the store serves").version.0, 0, "nothing was written");
    }
    writes.remove(0);
    writes.pop();
    let last = append(&store, writes.clone()).await.expect("every stream is new");
    let mut positions = Vec::new();
    for (number, write) in (0..5).zip(&writes) {
        let history = load(&store, number).await.expect("the store serves");
        assert!(history.records.len() == 1 && history.records[0].body == write.body);
        positions.push(history.records[0].position);
    }
    assert!(positions.is_sorted_by(|a, b| a < b), "in the order of the batch");
    assert_eq!(positions.last(), Some(&last));
    assert_eq!(store.load(stream(100), Reach::Whole).await.expect("the store serves").version.0, 1);
}

/// A statement is planned when the table is empty, and used when it is full.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_reads_few_entries_of_the_index_however_many_there_are() {
    const STREAMS: u64 = 2_000;
    let server = Server::start().await;
    let options = server.fresh();
    let store = server.open(&options).await;
    for expected in 0..2 {
        for first in (0..STREAMS).step_by(50) {
            append(&store, (first..first + 50).map(|number| write(number, expected)).collect()).await.expect("nobody else writes");
        }
    }
    // What a session has read is told when it has ended.
    drop(store);
    let client = server.client().await;
    let told = "SELECT idx_scan, idx_tup_read FROM pg_stat_user_indexes WHERE schemaname = $1 AND indexrelname = 'record_pkey'";
    let until = Instant::now() + Duration::from_secs(60);
    let (looks, read) = loop {
        let row = client.query_one(told, &[&options.schema]).await.expect("one index");
        let (looks, read): (i64, i64) = (row.get(0), row.get(1));
        if looks >= 2 * STREAMS as i64 || Instant::now() > until {
            break (looks, read);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(looks >= 2 * STREAMS as i64, "only {looks} looks were told of");
    assert!(read <= 4 * STREAMS as i64, "{read} entries were read for {} writes", 2 * STREAMS);
}
