//! Random operations against an adapter and the reference side by side; every answer must be the same.
//!
//! A run lasts until each operation has succeeded and each kind of conflict was seen, so a generator that stops
//! reaching something fails instead of passing quietly. Only positions may differ between the two: they must pair up
//! one to one, in the same order. With several handles the same ledger is used through several `Store` values at
//! once, as several processes would.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use counterfoil_core::summary::{STATES, StreamKind};
use counterfoil_core::{StreamId, Summary, Timestamp};

use super::fixture::{run, search, stream, tenant, tool};
use super::rng::Rng;
use crate::memory::Memory;
use crate::{AppendError, Batch, Found, Position, Query, Reach, Record, Recorded, Store, Version, Write};

#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub operations_min: u32,
    /// How many `Store` values use the ledger at once.
    pub handles: usize,
    /// Whether the ledger outlives its `Store` values: they are then dropped and opened again at times.
    pub durable: bool,
}

/// What a run must have seen before it may end.
const SIGHTS: [&str; 13] = [
    "append",
    "load",
    "load of a tombstone",
    "due",
    "tail",
    "search",
    "prune",
    "conflict: stale version",
    "conflict: version too high",
    "conflict: new stream taken",
    "conflict: tombstone",
    "conflict: one bad write in a batch",
    "conflict: named twice",
];

/// Gives up here: a generator that has not reached everything by then never will.
const OPERATIONS_MAX: u32 = 200_000;

/// `open` gives a `Store` value on one and the same ledger each time; on an empty one at first.
pub async fn differential(plan: Plan, open: impl AsyncFn() -> Arc<dyn Store>) {
    let _seed = SaysSeed(plan.seed);
    let mut handles = Vec::new();
    for _ in 0..plan.handles {
        handles.push(open().await);
    }
    let mut pair = Pair::new(plan.seed, handles);
    for operation in 0.. {
        let missing: Vec<_> = SIGHTS.iter().filter(|sight| !pair.seen.contains(*sight)).collect();
        if operation >= plan.operations_min && missing.is_empty() {
            break;
        }
        assert!(operation < OPERATIONS_MAX, "never seen: {missing:?}");
        if plan.durable && pair.rng.below(200) == 0 {
            let which = pair.rng.below(pair.handles.len());
            drop(pair.handles.remove(which));
            pair.handles.push(open().await);
        }
        pair.step().await;
    }
    pair.compare_everything().await;
}

/// Prints the seed when a comparison fails.
struct SaysSeed(u64);

impl Drop for SaysSeed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("differential run failed with seed {:#x}", self.0);
        }
    }
}

struct Pair {
    rng: Rng,
    reference: Memory,
    handles: Vec<Arc<dyn Store>>,
    /// Streams drawn from: `0..streams`. Grows, since tombstones use streams up.
    streams: u64,
    /// Makes due times unique, so that their order is determined.
    writes: i64,
    /// The reference's position → the adapter's.
    positions: BTreeMap<Position, Position>,
    seen: BTreeSet<&'static str>,
}

impl Pair {
    fn new(seed: u64, handles: Vec<Arc<dyn Store>>) -> Self {
        let (rng, reference) = (Rng::new(seed), Memory::new());
        Self { rng, reference, handles, streams: 12, writes: 0, positions: BTreeMap::new(), seen: BTreeSet::new() }
    }

    fn adapter(&mut self) -> Arc<dyn Store> {
        self.rng.pick(&self.handles)
    }

    async fn step(&mut self) {
        match self.rng.below(100) {
            0..50 => self.append().await,
            50..80 => self.load().await,
            80..86 => self.due().await,
            86..92 => self.tail().await,
            92..98 => self.search().await,
            _ => self.prune().await,
        }
    }

    async fn append(&mut self) {
        let mut batch = Batch::default();
        let mut sights = Vec::new();
        for _ in 0..self.rng.pick(&[0, 1, 1, 1, 1, 2, 3, 8, 40]) {
            let (write, sight) = self.write().await;
            if batch.writes.iter().any(|earlier| earlier.stream == write.stream) {
                // Mostly avoided, since a batch that names a stream twice tells nothing else.
                if !self.rng.percent(3) {
                    continue;
                }
                sights.push("conflict: named twice");
            }
            batch.writes.push(write);
            sights.extend(sight);
        }
        let adapter = self.adapter();
        let expected = self.reference.append(&batch).await;
        let got = adapter.append(&batch).await;
        match (expected, got) {
            (Ok(expected), Ok(got)) => {
                self.see("append");
                if !batch.writes.is_empty() {
                    self.same_position(expected, got);
                }
            }
            (Err(AppendError::Conflict { streams: expected }), Err(AppendError::Conflict { streams: got })) => {
                if expected.len() == 1 && batch.writes.len() > 1 && sights.len() == 1 {
                    self.see("conflict: one bad write in a batch");
                }
                self.seen.extend(sights);
                let sorted = |mut streams: Vec<StreamId>| {
                    streams.sort();
                    streams
                };
                assert_eq!(sorted(got), sorted(expected), "conflicts of {batch:?}");
            }
            (expected, got) => panic!("append: expected {expected:?}, got {got:?} for {batch:?}"),
        }
    }

    /// A write that fits, or now and then one that does not, with what its conflict shows.
    async fn write(&mut self) -> (Write, Option<&'static str>) {
        if self.rng.percent(2) {
            self.streams += 1;
        }
        let stream = stream(self.rng.next() % self.streams);
        let now = self.reference.load(stream, Reach::Newest(0)).await.expect("memory serves");
        let version = now.version.0;
        let (expected, sight) = match self.rng.below(40) {
            _ if now.expired => (self.rng.pick(&[0, version, version + 1]), Some("conflict: tombstone")),
            0 if version > 1 => (version - 1, Some("conflict: stale version")),
            1 => (version + 1 + self.rng.next() % 3, Some("conflict: version too high")),
            2 if version > 0 => (0, Some("conflict: new stream taken")),
            _ => (version, None),
        };
        self.writes += 1;
        let at = Timestamp(self.rng.next() as i64 % 1_000);
        let write = Write { stream, expected: Version(expected), at, body: self.body(), summary: self.summary(stream) };
        (write, sight)
    }

    fn body(&mut self) -> String {
        let unit = self.rng.pick(&["{}", "x", "ü🦀", "\"a\":1,"]);
        unit.repeat(self.rng.pick(&[0, 1, 1, 5, 50, 50, 3_000]))
    }

    fn summary(&mut self, stream: StreamId) -> Summary {
        let rng = &mut self.rng;
        let due = Timestamp((rng.next() % 1_000) as i64 * 1_000_000 + self.writes);
        Summary {
            kind: StreamKind::ALL[usize::from(stream.0[0] % 3)],
            tenant: tenant(if stream.0[1].is_multiple_of(4) { "other" } else { "acme" }),
            state: rng.pick(&STATES[..6]),
            tool: rng.pick(&[None, Some(tool("a")), Some(tool("b"))]),
            run: rng.pick(&[None, Some(run("r1")), Some(run("r2"))]),
            open: rng.percent(50),
            due: rng.percent(30).then_some(due),
            expires: rng.percent(15).then_some(Timestamp((rng.next() % 100) as i64)),
        }
    }

    async fn load(&mut self) {
        let stream = stream(self.rng.next() % (self.streams + 2));
        let reach = self.rng.pick(&[Reach::Whole, Reach::Whole, Reach::Newest(0), Reach::Newest(1), Reach::Newest(3)]);
        self.compare_load(stream, reach).await;
    }

    async fn compare_load(&mut self, stream: StreamId, reach: Reach) {
        let expected = self.reference.load(stream, reach).await.expect("memory serves");
        let got = self.adapter().load(stream, reach).await.expect("the adapter serves");
        assert_eq!((got.version, got.expired), (expected.version, expected.expired), "load of {stream}");
        assert_eq!(got.records.len(), expected.records.len(), "load of {stream}, {reach:?}");
        for (expected, got) in expected.records.iter().zip(&got.records) {
            self.same_record(expected, got);
        }
        self.see(if expected.expired { "load of a tombstone" } else { "load" });
    }

    async fn due(&mut self) {
        let now = Timestamp((self.rng.next() % 1_100) as i64 * 1_000_000);
        let limit = self.rng.pick(&[1, 3, 1_000]);
        let expected = self.reference.due(now, limit).await.expect("memory serves");
        let got = self.adapter().due(now, limit).await.expect("the adapter serves");
        assert_eq!(got, expected, "due by {now:?}, limit {limit}");
        if !got.is_empty() {
            self.see("due");
        }
    }

    async fn tail(&mut self) {
        let start = self.rng.below(self.positions.len() + 1);
        let (mut expected_after, mut got_after) = match start.checked_sub(1) {
            None => (Position(0), Position(0)),
            Some(nth) => self.positions.iter().nth(nth).map(|(a, b)| (*a, *b)).expect("below the length"),
        };
        let limit = self.rng.pick(&[1, 10, 100]);
        for _ in 0..5 {
            let expected = self.reference.tail(expected_after, limit).await.expect("memory serves");
            let got = self.adapter().tail(got_after, limit).await.expect("the adapter serves");
            self.same_tail(&expected, &got);
            let (Some(expected), Some(got)) = (expected.last(), got.last()) else { break };
            (expected_after, got_after) = (expected.record.position, got.record.position);
            self.see("tail");
        }
    }

    async fn search(&mut self) {
        let rng = &mut self.rng;
        let states = (0..rng.pick(&[0, 0, 1, 1, 2])).map(|_| rng.pick(&STATES[..6])).collect();
        let query = Query {
            tenant: tenant(rng.pick(&["acme", "other"])),
            kind: StreamKind::ALL[rng.below(3)],
            states,
            tool: rng.pick(&[None, None, Some(tool("a"))]),
            run: rng.pick(&[None, None, Some(run("r1"))]),
            before: rng.pick(&[None, None, Some(Timestamp(0)), Some(Timestamp(500))]),
            below: None,
            limit: rng.pick(&[1, 4, 1_000]),
        };
        let adapter = self.adapter();
        let expected = search(&self.reference, query.clone()).await;
        let got = search(&*adapter, query.clone()).await;
        assert_eq!(got.len(), expected.len(), "{query:?}\nexpected {expected:?}\ngot {got:?}");
        for (expected, got) in expected.into_iter().zip(got) {
            self.same_position(expected.position, got.position);
            assert_eq!(Found { position: expected.position, ..got }, expected, "{query:?}");
            self.see("search");
        }
    }

    async fn prune(&mut self) {
        let before = Timestamp((self.rng.next() % 60) as i64);
        // No limit: which streams go first is the adapter's affair.
        let expected = self.reference.prune(before, usize::MAX).await.expect("memory serves");
        let got = self.adapter().prune(before, usize::MAX).await.expect("the adapter serves");
        assert_eq!(got, expected, "prune before {before:?}");
        if got.streams > 0 {
            self.see("prune");
        }
    }

    async fn compare_everything(&mut self) {
        for number in 0..self.streams {
            self.compare_load(stream(number), Reach::Whole).await;
        }
        let expected = self.reference.tail(Position(0), usize::MAX).await.expect("memory serves");
        let got = self.adapter().tail(Position(0), usize::MAX).await.expect("the adapter serves");
        self.same_tail(&expected, &got);
    }

    fn same_tail(&mut self, expected: &[Recorded], got: &[Recorded]) {
        assert_eq!(got.len(), expected.len(), "tail");
        for (expected, got) in expected.iter().zip(got) {
            assert_eq!((got.stream, &got.summary), (expected.stream, &expected.summary), "tail");
            self.same_record(&expected.record, &got.record);
        }
    }

    fn same_record(&mut self, expected: &Record, got: &Record) {
        assert_eq!((got.version, got.at), (expected.version, expected.at));
        assert!(got.body == expected.body, "body of {expected:?}, got {got:?}");
        self.same_position(expected.position, got.position);
    }

    /// Positions pair up one to one and in the same order, for ever.
    fn same_position(&mut self, expected: Position, got: Position) {
        let known = *self.positions.entry(expected).or_insert(got);
        assert_eq!(known, got, "the adapter's position of the reference's {expected:?}");
        let below = self.positions.range(..expected).next_back();
        let above = self.positions.range(Position(expected.0 + 1)..).next();
        assert!(below.is_none_or(|(_, position)| *position < got), "positions in the same order");
        assert!(above.is_none_or(|(_, position)| *position > got), "positions in the same order");
    }

    fn see(&mut self, sight: &'static str) {
        self.seen.insert(sight);
    }
}
