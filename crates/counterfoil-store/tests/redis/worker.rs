//! Appends without end, and keeps account: what was acknowledged is there, what was refused is not, nothing is there twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use counterfoil_store::redis::Redis;
use counterfoil_store::{AppendError, History, Reach, Store, StoreError, Written};

use crate::server::PATIENCE;
use crate::{append, stream, write};

/// Streams of one worker, written together.
const STREAMS: u64 = 5;

#[derive(Debug, Default, Clone, Copy)]
pub struct Account {
    pub acknowledged: u64,
    pub refused: u64,
    pub perhaps_there: u64,
    pub perhaps_not_there: u64,
}

impl Account {
    /// What was not there at the look after it, and came then.
    fn arrived_late(&mut self) {
        self.perhaps_not_there -= 1;
        self.perhaps_there += 1;
    }
}

impl std::ops::Add for Account {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            acknowledged: self.acknowledged + other.acknowledged,
            refused: self.refused + other.refused,
            perhaps_there: self.perhaps_there + other.perhaps_there,
            perhaps_not_there: self.perhaps_not_there + other.perhaps_not_there,
        }
    }
}

/// `witness` sees the ledger by another way, or is the same.
pub async fn work(number: u64, store: Arc<Redis>, witness: Arc<Redis>, stop: Arc<AtomicBool>) -> Account {
    let mut account = Account::default();
    let mut version = 0;
    // What was sent may still be on its way to Redis when its sender has long given up, and arrive after another look.
    let mut on_its_way = false;
    let streams = move || (0..STREAMS).map(move |place| number * STREAMS + place);
    // Whoever stops with something on its way would not know what to find: one more append tells.
    while on_its_way || !stop.load(Ordering::Relaxed) {
        match append(&store, streams().map(|stream| write(stream, version)).collect()).await {
            Ok(_) => {
                account.acknowledged += 1;
                version += 1;
                on_its_way = false;
            }
            Err(AppendError::Store(StoreError::Unavailable { written, .. })) => {
                let there = loaded(&witness, number * STREAMS).await;
                match (written, there.version.0.checked_sub(version)) {
                    (Written::No, Some(0)) => account.refused += 1,
                    (Written::Perhaps, Some(0)) => {
                        account.perhaps_not_there += 1;
                        on_its_way = true;
                    }
                    (Written::Perhaps, Some(1)) => {
                        account.perhaps_there += 1;
                        version += 1;
                        on_its_way = false;
                    }
                    (Written::No, Some(1)) if on_its_way => {
                        account.arrived_late();
                        version += 1;
                        on_its_way = false;
                    }
                    (written, _) => panic!("worker {number}: {written:?} written after {version}, and there are {}", there.version.0),
                }
            }
            Err(AppendError::Conflict { streams }) if on_its_way && streams.len() as u64 == STREAMS => {
                assert_eq!(loaded(&witness, number * STREAMS).await.version.0, version + 1, "worker {number}");
                account.arrived_late();
                version += 1;
                on_its_way = false;
            }
            Err(error) => panic!("worker {number}: {error}"),
        }
    }
    for stream_number in streams() {
        let history = loaded(&witness, stream_number).await;
        assert_eq!(history.version.0, version, "stream {stream_number}");
        for (place, record) in history.records.iter().enumerate() {
            assert_eq!(record.body, write(stream_number, place as u64).body);
        }
    }
    account
}

/// As soon as the ledger serves.
async fn loaded(store: &Redis, number: u64) -> History {
    let until = Instant::now() + PATIENCE;
    loop {
        match store.load(stream(number), Reach::Whole).await {
            Ok(history) => return history,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
