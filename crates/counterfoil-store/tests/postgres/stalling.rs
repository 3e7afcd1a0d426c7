//! Writers that stand still in the middle: a stranger holds a key that they are about to take.

use std::time::{Duration, Instant};

use tokio_postgres::Client;

use crate::server::Server;
use crate::stream;

const WAIT_MAX: Duration = Duration::from_secs(60);

/// Holds the first key of a stream: an append that wants it waits, with its number drawn and its earlier writes inserted.
pub struct Stall {
    client: Client,
}

impl Stall {
    pub async fn over(server: &Server, schema: &str, number: u64) -> Self {
        let client = server.client().await;
        let row = format!(
            "(version, at, sum, kind, open, stream, tenant, state, body, grave) VALUES (1, 0, 0, 0, false, '\\x{}', '', '', '', 7)",
            stream(number)
        );
        client.batch_execute(&format!("BEGIN; INSERT INTO {schema}.record{row}")).await.expect("a key that nobody has");
        Self { client }
    }

    /// As if it had never been.
    pub async fn give_way(self) {
        self.client.batch_execute("ROLLBACK").await.expect("the key is given back");
    }

    /// The stream is a tombstone from now on.
    pub async fn bury(self) {
        self.client.batch_execute("COMMIT").await.expect("a tombstone");
    }
}

/// Until so many sessions of the adapter wait for a lock.
pub async fn until_waiting(server: &Server, count: i64) {
    let watcher = server.client().await;
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'counterfoil' AND wait_event_type = 'Lock'";
    let until = Instant::now() + WAIT_MAX;
    while watcher.query_one(waiting, &[]).await.expect("a list").get::<_, i64>(0) < count {
        assert!(Instant::now() < until, "nobody waits");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
