//! Prune: records go, identities stay.

use std::sync::Arc;

use counterfoil_core::{Summary, Timestamp};

use super::Case;
use super::fixture::{append, conflict, load, open, search, sorted, stream, streams, summary, tenant, write};
use crate::{History, Position, Query, Reach, Store, Version};

pub const CASES: &[Case] = &[
    Case { name: "pruned streams are tombstones", run: |store| Box::pin(tombstones(store)) },
    Case { name: "nothing is appended to a tombstone", run: |store| Box::pin(tombstones_refuse(store)) },
    Case { name: "streams without an expiry stay", run: |store| Box::pin(no_expiry_stays(store)) },
    Case { name: "only the current expiry counts", run: |store| Box::pin(current_expiry(store)) },
    Case { name: "prune keeps to its limit and says when there is more", run: |store| Box::pin(limited(store)) },
    Case { name: "positions grow also after the newest record was pruned", run: |store| Box::pin(positions_grow(store)) },
];

fn expiring(state: &'static str, at: i64) -> Summary {
    Summary { expires: Some(Timestamp(at)), ..summary(state) }
}

async fn prune(store: &dyn Store, before: i64) -> u64 {
    let mut streams = 0;
    loop {
        let pruned = store.prune(Timestamp(before), 1_000).await.expect("the store serves");
        streams += pruned.streams;
        if !pruned.more {
            return streams;
        }
    }
}

fn tombstone(version: u64) -> History {
    History { version: Version(version), expired: true, records: Vec::new() }
}

async fn tombstones(store: Arc<dyn Store>) {
    append(&*store, vec![write(1, 0, open("running")), write(2, 0, open("running"))]).await;
    append(&*store, vec![write(1, 1, expiring("done", 100)), write(2, 1, expiring("done", 200))]).await;
    append(&*store, vec![write(1, 2, Summary { due: Some(Timestamp(1)), ..expiring("done", 100) })]).await;
    assert_eq!(prune(&*store, 100).await, 0, "expired before, not at");
    assert_eq!(prune(&*store, 101).await, 1);
    assert_eq!(load(&*store, 1).await, tombstone(3));
    assert_eq!(store.load(stream(1), Reach::Newest(1)).await.expect("the store serves"), tombstone(3));
    assert_eq!(load(&*store, 2).await.version, Version(2));
    assert_eq!(load(&*store, 2).await.records.len(), 2);
    assert_eq!(streams(&search(&*store, Query::effects(tenant("acme"))).await), [2].map(stream));
    assert_eq!(store.due(Timestamp::MAX, 10).await.expect("the store serves"), []);
    let tail = store.tail(Position(0), 100).await.expect("the store serves");
    assert!(tail.iter().all(|recorded| recorded.stream == stream(2)));
    assert_eq!(tail.len(), 2);
    assert_eq!(prune(&*store, 101).await, 0, "a tombstone is not pruned again");
}

async fn tombstones_refuse(store: Arc<dyn Store>) {
    append(&*store, vec![write(1, 0, expiring("done", 10))]).await;
    append(&*store, vec![write(1, 1, expiring("done", 10))]).await;
    assert_eq!(prune(&*store, 11).await, 1);
    for expected in 0..4 {
        let batch = vec![write(1, expected, summary("done")), write(2, 0, summary("done"))];
        assert_eq!(conflict(&*store, batch).await, sorted(&[1]), "version {expected}");
    }
    assert_eq!(load(&*store, 1).await, tombstone(2));
    assert_eq!(load(&*store, 2).await, History::default());
}

async fn no_expiry_stays(store: Arc<dyn Store>) {
    append(&*store, vec![write(1, 0, summary("done")), write(2, 0, open("in_doubt"))]).await;
    assert_eq!(prune(&*store, i64::MAX).await, 0);
    assert_eq!(load(&*store, 1).await.records.len(), 1);
    assert_eq!(load(&*store, 2).await.records.len(), 1);
}

async fn current_expiry(store: Arc<dyn Store>) {
    append(&*store, vec![write(1, 0, expiring("done", 10)), write(2, 0, expiring("done", 10)), write(3, 0, summary("done"))]).await;
    append(&*store, vec![write(1, 1, open("undoing")), write(2, 1, expiring("done", 500)), write(3, 1, expiring("done", 10))]).await;
    assert_eq!(prune(&*store, 100).await, 1);
    assert!(load(&*store, 3).await.expired);
    assert_eq!(load(&*store, 1).await.records.len(), 2);
    assert_eq!(load(&*store, 2).await.records.len(), 2);
    assert_eq!(prune(&*store, 501).await, 1, "what stayed is pruned when its time comes");
    assert!(load(&*store, 2).await.expired);
}

async fn limited(store: Arc<dyn Store>) {
    const STREAMS: u64 = 1_300;
    for expected in 0..2 {
        append(&*store, (0..STREAMS).map(|number| write(number, expected, expiring("done", 10))).collect()).await;
    }
    append(&*store, vec![write(STREAMS, 0, summary("done"))]).await;
    let mut left = STREAMS;
    for limit in [0, 1, 7, 700, 592, 5] {
        let pruned = store.prune(Timestamp(11), limit as usize).await.expect("the store serves");
        assert_eq!(pruned.streams, left.min(limit), "limit {limit}");
        left -= pruned.streams;
        assert_eq!(pruned.more, left > 0, "{left} left");
    }
    for number in 0..STREAMS {
        assert_eq!(load(&*store, number).await, tombstone(2));
    }
    assert_eq!(load(&*store, STREAMS).await.version, Version(1));
}

async fn positions_grow(store: Arc<dyn Store>) {
    append(&*store, vec![write(1, 0, summary("done"))]).await;
    let last = append(&*store, vec![write(2, 0, expiring("done", 10)), write(3, 0, expiring("done", 10))]).await;
    assert_eq!(prune(&*store, 11).await, 2);
    let next = append(&*store, vec![write(4, 0, summary("done"))]).await;
    assert!(next > last, "{next:?} > {last:?}: a reader of the tail must not miss a record");
    let tail = store.tail(last, 10).await.expect("the store serves");
    assert_eq!(tail.iter().map(|recorded| recorded.stream).collect::<Vec<_>>(), [4].map(stream));
}
