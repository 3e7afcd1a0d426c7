//! What was changed behind the ledger's back is refused, not decided upon.

use counterfoil_store::{Position, Store, StoreError};

use crate::server::Server;
use crate::{append, load, write};

/// Applies `change` to a ledger with a stream of three records, and says what a load of it answers.
async fn damaged(server: &Server, change: &str) -> StoreError {
    let options = server.fresh();
    let store = server.open(&options).await;
    for expected in 0..3 {
        append(&store, vec![write(1, expected)]).await.expect("the next version");
    }
    // The index must know of them: what it does not know yet it cannot miss.
    assert_eq!(store.due(counterfoil_core::Timestamp::MAX, 1).await.expect("the store serves"), []);
    let client = server.client().await;
    let changed = client.execute(&change.replace("{s}", &options.schema), &[]).await.expect("a change");
    assert_eq!(changed, 1, "{change}");
    load(&store, 1).await.err().unwrap_or_else(|| panic!("not noticed: {change}"))
}

#[tokio::test]
async fn a_changed_record_is_refused() {
    let server = Server::start().await;
    for change in [
        "UPDATE {s}.record SET body = body || ' ' WHERE version = 2",
        "UPDATE {s}.record SET at = at + 1 WHERE version = 1",
        "UPDATE {s}.record SET version = 7 WHERE version = 2",
        "UPDATE {s}.record SET sum = sum # 1 WHERE version = 3",
        "DELETE FROM {s}.record WHERE version = 1",
        "DELETE FROM {s}.record WHERE version = 2",
        "DELETE FROM {s}.record WHERE version = 3",
        "UPDATE {s}.stream SET version = 2",
        "UPDATE {s}.stream SET version = 4",
        "DELETE FROM {s}.stream",
        "UPDATE {s}.record SET grave = 3 WHERE version = 1",
        "UPDATE {s}.record SET grave = 3 WHERE version = 3",
    ] {
        let error = damaged(&server, change).await;
        assert!(matches!(error, StoreError::Corrupt { .. }), "{change}: {error}");
    }
}

#[tokio::test]
async fn a_changed_record_is_refused_in_the_tail() {
    let server = Server::start().await;
    let options = server.fresh();
    let store = server.open(&options).await;
    let last = append(&store, vec![write(1, 0), write(2, 0)]).await.expect("new streams").0;
    let client = server.client().await;
    let changed = client.execute(&format!("UPDATE {}.record SET body = 'x' WHERE pos = {last}", options.schema), &[]).await;
    assert_eq!(changed.expect("a change"), 1);
    match store.tail(Position(0), 10).await {
        Err(StoreError::Corrupt { place, .. }) => assert_eq!(place, format!("position {last}")),
        other => panic!("{other:?}"),
    }
    assert_eq!(store.tail(Position(0), 1).await.expect("the first is whole").len(), 1);
}
