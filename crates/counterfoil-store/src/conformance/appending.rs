//! Load and append: versions, conflicts, atomicity, bodies.

use std::sync::Arc;

use counterfoil_core::Timestamp;

use super::Case;
use super::fixture::{append, conflict, load, open, sorted, stream, summary, write};
use crate::{Batch, History, Position, Reach, Record, Store, Version, Write};

pub const CASES: &[Case] = &[
    Case { name: "an unknown stream has version 0", run: |store| Box::pin(unknown_stream(store)) },
    Case { name: "what was appended is loaded", run: |store| Box::pin(appended_is_loaded(store)) },
    Case { name: "the newest few records", run: |store| Box::pin(newest_few(store)) },
    Case { name: "positions grow", run: |store| Box::pin(positions_grow(store)) },
    Case { name: "an empty batch is fine", run: |store| Box::pin(empty_batch(store)) },
    Case { name: "a wrong version is a conflict", run: |store| Box::pin(wrong_version(store)) },
    Case { name: "conflicts list every stream and write nothing", run: |store| Box::pin(all_conflicts(store)) },
    Case { name: "a stream named twice is refused", run: |store| Box::pin(named_twice(store)) },
    Case { name: "bodies come back byte by byte", run: |store| Box::pin(bodies(store)) },
    Case { name: "extreme times come back", run: |store| Box::pin(extreme_times(store)) },
    Case { name: "a large batch is one commit", run: |store| Box::pin(large_batch(store)) },
];

async fn unknown_stream(store: Arc<dyn Store>) {
    assert_eq!(load(&*store, 1).await, History::default());
    append(&*store, vec![write(1, 0, summary("done"))]).await;
    assert_eq!(load(&*store, 2).await, History::default());
}

async fn appended_is_loaded(store: Arc<dyn Store>) {
    let first = append(&*store, vec![write(1, 0, open("running"))]).await;
    let second = append(&*store, vec![write(1, 1, summary("done"))]).await;
    let record = |version, position, after: u64| Record {
        version: Version(version),
        position,
        at: Timestamp(1_000 + after as i64),
        body: format!("{{\"stream\":1,\"after\":{after}}}"),
    };
    let expected = History { version: Version(2), expired: false, records: vec![record(1, first, 0), record(2, second, 1)] };
    assert_eq!(load(&*store, 1).await, expected);
}

async fn newest_few(store: Arc<dyn Store>) {
    for expected in 0..5 {
        append(&*store, vec![write(1, expected, summary("done"))]).await;
    }
    let whole = load(&*store, 1).await;
    for (count, kept) in [(0, 0), (1, 1), (2, 2), (5, 5), (9, 5)] {
        let newest = store.load(stream(1), Reach::Newest(count)).await.expect("the store serves");
        assert_eq!(newest.version, Version(5), "the version is of the whole stream");
        assert_eq!(newest.records, whole.records[5 - kept..], "the newest {count}");
    }
}

async fn positions_grow(store: Arc<dyn Store>) {
    let mut last = Position(0);
    for expected in 0..10 {
        let writes = vec![write(1, expected, summary("done")), write(2, expected, summary("done"))];
        let position = append(&*store, writes).await;
        let (first, second) = (load(&*store, 1).await, load(&*store, 2).await);
        let (first, second) = (first.records[expected as usize].position, second.records[expected as usize].position);
        assert!(last < first && first < second, "{last:?} < {first:?} < {second:?}");
        assert_eq!(position, second, "an append answers with its last record's position");
        last = position;
    }
}

async fn empty_batch(store: Arc<dyn Store>) {
    let last = append(&*store, vec![write(1, 0, summary("done"))]).await;
    assert_eq!(append(&*store, Vec::new()).await, last);
    assert_eq!(load(&*store, 1).await.version, Version(1));
}

async fn wrong_version(store: Arc<dyn Store>) {
    append(&*store, vec![write(1, 0, summary("done"))]).await;
    append(&*store, vec![write(1, 1, summary("done"))]).await;
    for (expected, why) in [(0, "a race for a new stream"), (1, "stale"), (3, "too high"), (1 << 40, "far too high")] {
        assert_eq!(conflict(&*store, vec![write(1, expected, summary("failed"))]).await, sorted(&[1]), "{why}");
    }
    assert_eq!(conflict(&*store, vec![write(2, 1, summary("failed"))]).await, sorted(&[2]), "a new stream has no record 1");
    assert_eq!(load(&*store, 1).await.version, Version(2));
    assert_eq!(load(&*store, 2).await, History::default());
}

async fn all_conflicts(store: Arc<dyn Store>) {
    append(&*store, vec![write(1, 0, summary("done")), write(2, 0, summary("done")), write(3, 0, summary("done"))]).await;
    let before = store.tail(Position(0), 100).await.expect("the store serves");
    let batch = vec![
        write(1, 1, summary("failed")), // right
        write(2, 0, summary("failed")), // stale
        write(3, 9, summary("failed")), // too high
        write(4, 0, summary("failed")), // right
        write(5, 1, summary("failed")), // not there
    ];
    assert_eq!(conflict(&*store, batch).await, sorted(&[2, 3, 5]));
    assert_eq!(store.tail(Position(0), 100).await.expect("the store serves"), before, "nothing of the batch was written");
    assert_eq!(load(&*store, 4).await, History::default());
    append(&*store, vec![write(1, 1, summary("failed")), write(4, 0, summary("failed"))]).await;
    assert_eq!(load(&*store, 1).await.version, Version(2), "the refused batch left no mark");
}

async fn named_twice(store: Arc<dyn Store>) {
    let batch = vec![write(1, 0, summary("done")), write(2, 0, summary("done")), write(1, 1, summary("done"))];
    assert_eq!(conflict(&*store, batch).await, sorted(&[1]));
    let batch = vec![write(1, 0, summary("done")), write(1, 0, summary("done"))];
    assert_eq!(conflict(&*store, batch).await, sorted(&[1]));
    assert_eq!(load(&*store, 1).await, History::default());
    assert_eq!(load(&*store, 2).await, History::default());
}

async fn bodies(store: Arc<dyn Store>) {
    let large: String = (0..1 << 20).map(|i| char::from(b'a' + (i % 23) as u8)).collect();
    let bodies = ["", "{}", "naïve — 数 🦀 \u{1} \u{7f} \r\n\t", "'; DROP TABLE record; --", &large];
    for (number, body) in bodies.into_iter().enumerate() {
        let number = number as u64;
        for expected in 0..2 {
            append(&*store, vec![Write { body: body.into(), ..write(number, expected, summary("done")) }]).await;
        }
        let history = load(&*store, number).await;
        assert!(history.records.iter().all(|record| record.body == body), "body {number}");
        assert_eq!(history.records.len(), 2);
    }
    let tail = store.tail(Position(0), 100).await.expect("the store serves");
    assert!(tail.iter().zip(bodies.iter().flat_map(|body| [body, body])).all(|(recorded, body)| recorded.record.body == **body));
}

async fn extreme_times(store: Arc<dyn Store>) {
    for (number, at) in [i64::MIN, -1, 0, 1, i64::MAX].into_iter().enumerate() {
        append(&*store, vec![Write { at: Timestamp(at), ..write(number as u64, 0, summary("done")) }]).await;
        assert_eq!(load(&*store, number as u64).await.records[0].at, Timestamp(at));
    }
}

async fn large_batch(store: Arc<dyn Store>) {
    const STREAMS: u64 = 3_000;
    append(&*store, (0..STREAMS).map(|number| write(number, 0, open("running"))).collect()).await;
    let mut writes: Vec<Write> = (0..STREAMS).map(|number| write(number, 1, summary("done"))).collect();
    writes.push(write(7, 0, summary("done")));
    assert_eq!(conflict(&*store, writes.clone()).await, sorted(&[7]));
    writes.pop();
    let batch = Batch { writes };
    store.append(&batch).await.expect("every stream is at its expected version");
    for number in 0..STREAMS {
        assert_eq!(load(&*store, number).await.version, Version(2));
    }
}
