//! Batches that are too large for one statement are still all or nothing.

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
