//! Tombstones that are listed and brought in, and whole ledgers that are carried over.

use std::ops::ControlFlow;
use std::sync::Arc;

use counterfoil_core::{Summary, Timestamp};

use super::fixture::{append, conflict, load, open, search, sorted, stream, streams, summary, tenant, write};
use crate::copy::{Copied, CopyError, Phase, Side, copy};
use crate::memory::Memory;
use crate::{AppendError, Graves, History, Position, Query, Store, Tombstone, Version};

/// Runs every check of this file, each on new stores.
pub async fn check_graves<S: Store + Graves>(fresh: impl AsyncFn() -> Arc<S>) {
    listed(&*fresh().await).await;
    refused(&*fresh().await).await;
    displaced(&*fresh().await).await;
    conflicts(&*fresh().await).await;
    carried(&*fresh().await, &*fresh().await).await;
    resumed(&*fresh().await).await;
    pruned_meanwhile(&*fresh().await).await;
    differing(&*fresh().await).await;
}

fn expiring(at: i64) -> Summary {
    Summary { expires: Some(Timestamp(at)), ..summary("done") }
}

fn grave(number: u64, version: u64) -> Tombstone {
    Tombstone { stream: stream(number), version: Version(version) }
}

fn side<S: Store + Graves>(store: &S) -> Side<'_> {
    Side { store, graves: store }
}

async fn entomb<S: Graves>(store: &S, tombstones: &[Tombstone]) {
    store.entomb(tombstones).await.expect("nothing stands in the way");
}

/// All of them, each once.
async fn graves<S: Graves>(store: &S) -> Vec<Tombstone> {
    let (mut all, mut cursor) = (Vec::new(), None);
    loop {
        let page = store.tombstones(cursor, 3).await.expect("the store serves");
        all.extend(page.found);
        cursor = page.next;
        if cursor.is_none() {
            all.sort_by_key(|grave| grave.stream);
            all.dedup();
            return all;
        }
    }
}

fn in_order(mut graves: Vec<Tombstone>) -> Vec<Tombstone> {
    graves.sort_by_key(|grave| grave.stream);
    graves
}

async fn listed<S: Store + Graves>(store: &S) {
    assert_eq!(graves(store).await, []);
    append(store, (0..30).map(|number| write(number, 0, expiring(number as i64))).collect()).await;
    append(store, (0..10).map(|number| write(number, 1, expiring(number as i64))).collect()).await;
    assert_eq!(graves(store).await, []);
    store.prune(Timestamp(20), 100).await.expect("the store serves");
    let expected = in_order((0..20).map(|number| grave(number, if number < 10 { 2 } else { 1 })).collect());
    assert_eq!(graves(store).await, expected);
}

/// Streams that were never here.
async fn refused<S: Store + Graves>(store: &S) {
    entomb(store, &[]).await;
    let last = append(store, vec![write(9, 0, summary("done"))]).await;
    assert_eq!(load(store, 1).await, History::default());
    let brought: Vec<Tombstone> = (0..7).map(|number| grave(number, number + 1)).collect();
    entomb(store, &brought).await;
    entomb(store, &brought[2..4]).await;
    assert_eq!(graves(store).await, in_order(brought.clone()));
    for number in 0..7 {
        assert_eq!(load(store, number).await, History { version: Version(number + 1), expired: true, records: Vec::new() });
        for expected in [0, number, number + 1] {
            assert_eq!(
                conflict(store, vec![write(number, expected, summary("done")), write(50, 0, summary("done"))]).await,
                sorted(&[number])
            );
        }
    }
    assert_eq!(load(store, 50).await, History::default());
    let all = search(store, Query { limit: 3, ..Query::effects(tenant("acme")) }).await;
    assert_eq!(streams(&all), [9].map(stream));
    assert!(append(store, vec![write(50, 0, summary("done"))]).await > last);
    assert_eq!(store.prune(Timestamp::MAX, 100).await.expect("the store serves").streams, 0);
    assert_eq!(graves(store).await, in_order(brought));
}

/// Streams that are here, in part or whole.
async fn displaced<S: Store + Graves>(store: &S) {
    let waiting = || Summary { due: Some(Timestamp(5)), ..open("running") };
    append(store, vec![write(1, 0, waiting()), write(2, 0, waiting()), write(3, 0, waiting())]).await;
    let last = append(store, vec![write(1, 1, waiting()), write(2, 1, waiting())]).await;
    entomb(store, &[grave(1, 2), grave(2, 7)]).await;
    assert_eq!(load(store, 1).await, History { version: Version(2), expired: true, records: Vec::new() });
    assert_eq!(load(store, 2).await, History { version: Version(7), expired: true, records: Vec::new() });
    assert_eq!(store.due(Timestamp::MAX, 10).await.expect("the store serves"), [3].map(stream));
    assert_eq!(streams(&search(store, Query::effects(tenant("acme"))).await), [3].map(stream));
    let tail = store.tail(Position(0), 100).await.expect("the store serves");
    assert_eq!(tail.iter().map(|recorded| recorded.stream).collect::<Vec<_>>(), [3].map(stream));
    entomb(store, &[grave(3, 1)]).await;
    assert_eq!(store.tail(Position(0), 100).await.expect("the store serves"), []);
    assert!(append(store, vec![write(4, 0, summary("done"))]).await > last, "positions are not given out again");
}

async fn conflicts<S: Store + Graves>(store: &S) {
    append(store, vec![write(1, 0, summary("done")), write(2, 0, summary("done"))]).await;
    append(store, vec![write(1, 1, summary("done"))]).await;
    entomb(store, &[grave(5, 3)]).await;
    let refused = [
        (vec![grave(1, 1), grave(2, 1), grave(8, 1)], [1]),
        (vec![grave(8, 1), grave(5, 2)], [5]),
        (vec![grave(5, 4), grave(2, 1)], [5]),
        (vec![grave(2, 1), grave(8, 1), grave(8, 2)], [8]),
        (vec![grave(2, 1), grave(8, 0)], [8]),
    ];
    for (tombstones, expected) in refused {
        match store.entomb(&tombstones).await {
            Err(AppendError::Conflict { streams }) => assert_eq!(streams, expected.map(stream), "{tombstones:?}"),
            other => panic!("a conflict was expected of {tombstones:?}, not {other:?}"),
        }
    }
    assert_eq!(graves(store).await, [grave(5, 3)], "nothing of a refused burial is left");
    assert_eq!((load(store, 1).await.records.len(), load(store, 2).await.records.len()), (2, 1));
    assert_eq!(load(store, 8).await, History::default());
}

/// Streams of one to three records, interleaved; some expire before 100.
async fn fill(store: &dyn Store, streams: std::ops::Range<u64>) {
    for expected in 0..3 {
        for number in streams.clone().filter(|number| number % 3 >= expected) {
            let summary = if number % 5 == 0 { expiring(50) } else { open("running") };
            append(store, vec![write(number, expected, summary), write(1_000_000 + number * 3 + expected, 0, expiring(500))]).await;
        }
    }
}

async fn whole(from: Side<'_>, to: Side<'_>) -> Copied {
    copy(from, to, |_| ControlFlow::Continue(())).await.expect("a copy")
}

/// Memory → the store → another one → memory.
async fn carried<S: Store + Graves>(first: &S, second: &S) {
    let (original, back) = (Memory::new(), Memory::new());
    fill(&original, 0..40).await;
    original.prune(Timestamp(100), 100).await.expect("memory serves");
    let carried = whole(side(&original), side(first)).await;
    assert_eq!((carried.found, carried.tombstones), (0, 8));
    assert_eq!(whole(side(first), side(second)).await, carried);
    assert_eq!(whole(side(second), side(&back)).await, carried);
    assert_eq!(graves(&back).await, graves(&original).await);
    let tail = async |store: &Memory| {
        let tail = store.tail(Position(0), usize::MAX).await.expect("memory serves");
        tail.into_iter().map(|r| (r.stream, r.summary, r.record.version, r.record.at, r.record.body)).collect::<Vec<_>>()
    };
    assert_eq!(tail(&back).await, tail(&original).await);
    // Both go on, and the copy follows.
    assert_eq!(conflict(second, vec![write(0, 0, summary("done"))]).await, sorted(&[0]));
    fill(&original, 40..44).await;
    let more = whole(side(&original), side(first)).await;
    assert_eq!((more.found, more.tombstones), (carried.records, 8));
    assert!(more.records > carried.records && more.digest != carried.digest);
    assert_eq!(whole(side(&original), side(first)).await, Copied { found: more.records, ..more });
}

/// Stopped after each of its steps, it goes on.
async fn resumed<S: Store + Graves>(store: &S) {
    let original = Memory::new();
    fill(&original, 0..700).await;
    original.prune(Timestamp(100), 300).await.expect("memory serves");
    let (mut stops, mut phases) = (0, Vec::new());
    let copied = loop {
        let mut steps = 0;
        let stopped = copy(side(&original), side(store), |progress| {
            phases.push(progress.phase);
            steps += 1;
            if steps > stops { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        match stopped.await {
            Ok(copied) => break copied,
            Err(error) => assert_eq!(error, CopyError::Stopped),
        }
        stops += 1;
    };
    for phase in [Phase::Comparing, Phase::Copying, Phase::Verifying, Phase::Burying] {
        assert!(phases.contains(&phase), "{phase:?} was never seen");
    }
    assert_eq!(copied, Copied { found: copied.records, ..whole(side(&original), side(&Memory::new())).await });
}

/// The source prunes streams of which the target has a part, all or nothing.
async fn pruned_meanwhile<S: Store + Graves>(store: &S) {
    let original = Memory::new();
    fill(&original, 0..700).await;
    let mut steps = 0;
    // Everything has a due time in the past: pruning happens at every step, a few streams each.
    let copied = copy(side(&original), side(store), |_| {
        steps += 1;
        let pruned = futures_util::FutureExt::now_or_never(original.prune(Timestamp(100), 20));
        pruned.expect("memory is always ready").expect("memory serves");
        ControlFlow::Continue(())
    });
    copied.await.expect("a copy");
    assert!(steps > 5, "{steps} steps");
    let copied = whole(side(&original), side(store)).await;
    assert_eq!(graves(store).await, graves(&original).await);
    assert_eq!(copied, Copied { found: copied.records, ..whole(side(&original), side(&Memory::new())).await });
}

async fn differing<S: Store + Graves>(store: &S) {
    append(store, vec![write(1, 0, summary("done")), write(2, 0, summary("done"))]).await;
    let before = store.tail(Position(0), 10).await.expect("the store serves");
    let check = async |original: &Memory, said: &str| {
        match copy(side(original), side(store), |_| ControlFlow::Continue(())).await {
            Err(CopyError::Differs { difference }) => assert!(difference.contains(said), "{difference}"),
            other => panic!("a difference was expected, not {other:?}"),
        }
        assert_eq!(store.tail(Position(0), 10).await.expect("the store serves"), before, "nothing was changed");
    };
    check(&Memory::new(), "the source ends before it").await;
    let original = Memory::new();
    append(&original, vec![write(1, 0, summary("done")), write(3, 0, summary("done"))]).await;
    check(&original, &format!("the source holds record 1 of stream {}", stream(3))).await;
    let original = Memory::new();
    append(&original, vec![write(1, 0, summary("done")), write(2, 0, summary("failed"))]).await;
    check(&original, "the summary is").await;
    let original = Memory::new();
    let mut other = write(2, 0, summary("done"));
    other.body.push(' ');
    append(&original, vec![write(1, 0, summary("done")), other]).await;
    check(&original, "the bodies").await;
    entomb(store, &[grave(7, 1)]).await;
    let original = Memory::new();
    append(&original, vec![write(1, 0, summary("done")), write(2, 0, summary("done"))]).await;
    check(&original, "is a tombstone of 1 records on one side, and in the source a stream of 0").await;
}
