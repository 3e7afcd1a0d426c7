//! Due, search and tail: only the current summary counts, and pages fit together.

use std::sync::Arc;

use counterfoil_core::summary::StreamKind;
use counterfoil_core::{StreamId, Summary, Timestamp};

use super::Case;
use super::fixture::{append, open, run, search, sorted, stream, streams, summary, tenant, tool, write};
use crate::{Position, Query, Recorded, Store, Version, Write};

pub const CASES: &[Case] = &[
    Case { name: "due streams come earliest first", run: |store| Box::pin(due_in_order(store)) },
    Case { name: "a new summary replaces what was due", run: |store| Box::pin(due_is_replaced(store)) },
    Case { name: "search by every filter", run: |store| Box::pin(search_filters(store)) },
    Case { name: "search sees only the current summary", run: |store| Box::pin(search_current(store)) },
    Case { name: "search in pages, newest first", run: |store| Box::pin(search_pages(store)) },
    Case { name: "search gives the whole summary back", run: |store| Box::pin(search_whole_summary(store)) },
    Case { name: "tail in pages, in commit order", run: |store| Box::pin(tail_pages(store)) },
];

fn due(at: i64) -> Summary {
    Summary { due: Some(Timestamp(at)), ..open("running") }
}

async fn due_at(store: &dyn Store, now: i64, limit: usize) -> Vec<StreamId> {
    store.due(Timestamp(now), limit).await.expect("the store serves")
}

async fn due_in_order(store: Arc<dyn Store>) {
    let times = [(1, 300), (2, 100), (3, 200), (4, 400), (5, -5)];
    append(&*store, times.map(|(number, at)| write(number, 0, due(at))).to_vec()).await;
    append(&*store, vec![write(6, 0, open("running"))]).await;
    assert_eq!(due_at(&*store, 300, 10).await, [5, 2, 3, 1].map(stream));
    assert_eq!(due_at(&*store, 299, 10).await, [5, 2, 3].map(stream));
    assert_eq!(due_at(&*store, 300, 2).await, [5, 2].map(stream));
    assert_eq!(due_at(&*store, -6, 10).await, []);
    assert_eq!(due_at(&*store, 300, 0).await, []);
}

async fn due_is_replaced(store: Arc<dyn Store>) {
    append(&*store, vec![write(1, 0, due(10)), write(2, 0, due(20)), write(3, 0, due(30))]).await;
    append(&*store, vec![write(1, 1, summary("done")), write(2, 1, due(40))]).await;
    assert_eq!(due_at(&*store, 100, 10).await, [3, 2].map(stream));
    // A stream at rest may be due as well: the store does not ask what that means.
    append(&*store, vec![write(1, 2, Summary { due: Some(Timestamp(5)), ..summary("done") })]).await;
    assert_eq!(due_at(&*store, 100, 10).await, [1, 3, 2].map(stream));
}

async fn search_filters(store: Arc<dyn Store>) {
    let base = Summary { tool: Some(tool("bank.pay")), run: Some(run("r1")), ..summary("done") };
    let summaries = [
        base.clone(),
        Summary { tenant: tenant("other"), ..base.clone() },
        Summary { kind: StreamKind::Breaker, state: "open", ..base.clone() },
        Summary { state: "in_doubt", open: true, ..base.clone() },
        Summary { tool: Some(tool("bank.refund")), ..base.clone() },
        Summary { run: Some(run("r2")), ..base.clone() },
        Summary { tool: None, run: None, ..base.clone() },
    ];
    for (number, summary) in summaries.into_iter().enumerate() {
        let number = number as u64;
        append(&*store, vec![Write { at: Timestamp(number as i64), ..write(number, 0, summary) }]).await;
    }
    let all = Query::effects(tenant("acme"));
    let check = async |query: Query, expected: &[u64]| {
        let mut found = streams(&search(&*store, query.clone()).await);
        found.sort();
        assert_eq!(found, sorted(expected), "{query:?}");
    };
    check(all.clone(), &[0, 3, 4, 5, 6]).await;
    check(Query::effects(tenant("other")), &[1]).await;
    check(Query::effects(tenant("nobody")), &[]).await;
    check(Query { kind: StreamKind::Breaker, ..all.clone() }, &[2]).await;
    check(Query { states: vec!["in_doubt"], ..all.clone() }, &[3]).await;
    check(Query { states: vec!["in_doubt", "done"], ..all.clone() }, &[0, 3, 4, 5, 6]).await;
    check(Query { states: vec!["failed"], ..all.clone() }, &[]).await;
    check(Query { tool: Some(tool("bank.refund")), ..all.clone() }, &[4]).await;
    check(Query { run: Some(run("r2")), ..all.clone() }, &[5]).await;
    check(Query { tool: Some(tool("bank.pay")), run: Some(run("r1")), ..all.clone() }, &[0, 3]).await;
    check(Query { before: Some(Timestamp(4)), ..all.clone() }, &[0, 3]).await;
    check(Query { before: Some(Timestamp(4)), states: vec!["in_doubt"], ..all.clone() }, &[3]).await;
    check(Query { tool: Some(tool("bank.refund")), states: vec!["in_doubt"], ..all }, &[]).await;
}

async fn search_current(store: Arc<dyn Store>) {
    append(&*store, vec![write(1, 0, open("running")), write(2, 0, open("running"))]).await;
    append(&*store, vec![write(1, 1, summary("done"))]).await;
    let query = Query::effects(tenant("acme"));
    let running = search(&*store, Query { states: vec!["running"], ..query.clone() }).await;
    assert_eq!(streams(&running), [2].map(stream), "a superseded state is not found");
    let done = search(&*store, Query { states: vec!["done"], ..query.clone() }).await;
    assert_eq!(streams(&done), [1].map(stream));
    assert_eq!(done[0].version, Version(2));
    // The same word at rest and not at rest: both are found.
    append(&*store, vec![write(3, 0, summary("running"))]).await;
    let running = search(&*store, Query { states: vec!["running"], ..query.clone() }).await;
    assert_eq!(streams(&running), [3, 2].map(stream));
    append(&*store, vec![write(1, 2, open("undoing"))]).await;
    assert_eq!(search(&*store, Query { states: vec!["done"], ..query.clone() }).await, []);
    assert_eq!(streams(&search(&*store, query).await), [1, 3, 2].map(stream), "newest first, by the newest record");
}

async fn search_pages(store: Arc<dyn Store>) {
    for number in 0..25 {
        append(&*store, vec![write(number, 0, open("running")), write(100 + number, 0, open("ready"))]).await;
    }
    for number in (0..25).step_by(2) {
        append(&*store, vec![write(number, 1, summary("done"))]).await;
    }
    for states in [vec![], vec!["running"], vec!["done"], vec!["ready"], vec!["running", "done"]] {
        let query = Query { states: states.clone(), limit: 1_000, ..Query::effects(tenant("acme")) };
        let whole = search(&*store, query.clone()).await;
        assert!(whole.is_sorted_by(|a, b| a.position > b.position), "newest first");
        let count = match states.as_slice() {
            [] => 50,
            ["running"] => 12,
            ["done"] => 13,
            _ => 25,
        };
        assert_eq!(whole.len(), count, "{states:?}");
        for limit in [1, 2, 7, 12, 13, 25, 50] {
            assert_eq!(search(&*store, Query { limit, ..query.clone() }).await, whole, "{states:?} in pages of {limit}");
        }
    }
}

async fn search_whole_summary(store: Arc<dyn Store>) {
    let summary = Summary {
        kind: StreamKind::Budget,
        tenant: tenant("a b~!"),
        state: "waiting_approval",
        tool: Some(tool("a/b-c_d.e")),
        run: Some(run("run 1")),
        open: true,
        due: Some(Timestamp(-1)),
        expires: Some(Timestamp(i64::MAX)),
    };
    let position = append(&*store, vec![write(1, 0, summary.clone())]).await;
    let found = search(&*store, Query { kind: StreamKind::Budget, ..Query::effects(tenant("a b~!")) }).await;
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].position, found[0].version, found[0].at), (position, Version(1), Timestamp(1_000)));
    assert_eq!(found[0].summary, summary);
}

async fn tail_pages(store: Arc<dyn Store>) {
    let mut expected = Vec::new();
    for round in 0..10 {
        for number in 0..7 {
            expected.push((stream(number), Version(round + 1)));
        }
        append(&*store, (0..7).map(|number| write(number, round, summary("done"))).collect()).await;
    }
    for limit in [1, 3, 7, 70, 1_000] {
        let mut all: Vec<Recorded> = Vec::new();
        loop {
            let after = all.last().map_or(Position(0), |last| last.record.position);
            let page = store.tail(after, limit).await.expect("the store serves");
            assert!(page.len() <= limit);
            if page.is_empty() {
                break;
            }
            all.extend(page);
        }
        let order: Vec<_> = all.iter().map(|recorded| (recorded.stream, recorded.record.version)).collect();
        assert_eq!(order, expected, "pages of {limit}");
        assert!(all.is_sorted_by(|a, b| a.record.position < b.record.position));
        assert!(all.iter().all(|recorded| recorded.summary.kind == StreamKind::Effect));
    }
    assert_eq!(store.tail(Position(0), 0).await.expect("the store serves"), []);
    assert_eq!(store.tail(Position(i64::MAX as u64), 10).await.expect("the store serves"), []);
}
