//! What all workers take of a tool's limits: exact while they race, however long it goes on, and whoever comes late.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use counterfoil_core::ids::CallKey;
use counterfoil_core::policy::{Limits, Rate};
use counterfoil_core::summary::StreamKind;
use counterfoil_core::{Call, Caller, CanonicalJson, Policy, Tenant, Timestamp, ToolName};
use counterfoil_runtime::{Answer, Builder, Clock, FnTool, Registered, Runtime, Status};
use counterfoil_store::memory::Memory;
use counterfoil_store::{Position, Store};
use tokio::sync::Semaphore;

const DAY: i64 = 24 * 3600 * 1_000_000;
const SOME_DAY: i64 = 20_000;

/// Stands still until it is moved.
struct HandClock(AtomicI64);

impl HandClock {
    fn at(micros: i64) -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(micros)))
    }
    fn set(&self, micros: i64) {
        self.0.store(micros, Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

/// What the tool did, in all workers: begun, and most at one time. Nothing ends before a permit is added.
struct World {
    begun: AtomicU32,
    at_once: AtomicU32,
    most_at_once: AtomicU32,
    ends: Semaphore,
}

impl World {
    fn new(ends: usize) -> Arc<Self> {
        Arc::new(Self { begun: AtomicU32::new(0), at_once: AtomicU32::new(0), most_at_once: AtomicU32::new(0), ends: Semaphore::new(ends) })
    }
    fn begun(&self) -> u32 {
        self.begun.load(Ordering::SeqCst)
    }
    async fn act(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let now = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_at_once.fetch_max(now, Ordering::SeqCst);
        self.ends.acquire().await.expect("never closed").forget();
        self.at_once.fetch_sub(1, Ordering::SeqCst);
    }
}

fn worker(store: &Arc<Memory>, clock: Arc<HandClock>, world: &Arc<World>, limits: Limits) -> Runtime {
    let store: Arc<dyn Store> = store.clone();
    let runtime = Builder::new(store).clock(clock).build().unwrap();
    let world = world.clone();
    let tool = FnTool::new(move |_| {
        let world = world.clone();
        async move {
            world.act().await;
            Ok(serde_json::json!("acted"))
        }
    });
    runtime.register(Registered::new(ToolName::new("charge").unwrap(), tool, Policy { limits, ..Policy::default() }));
    runtime
}

fn charge(key: &str) -> Call {
    Call {
        tenant: Tenant::new("acme").unwrap(),
        caller: Caller::new("test").unwrap(),
        tool: ToolName::new("charge").unwrap(),
        args: CanonicalJson::empty_object(),
        key: Some(CallKey::new(key).unwrap()),
        run: None,
        step: None,
        ordinal: 0,
    }
}

fn code(answer: &Answer) -> &str {
    answer.error.as_ref().map_or("", |error| error.code.as_str())
}

fn three_an_hour() -> Limits {
    Limits { rate: Some(Rate { count: 3, per: Duration::from_secs(3600) }), ..Limits::default() }
}

/// Every claim writes one record; a stream of them never grows long, and what it knows goes on in the next.
#[tokio::test]
async fn a_quota_goes_on_from_stream_to_stream() {
    const CLAIMS: u32 = 700;
    let (store, world, clock) = (Arc::new(Memory::default()), World::new(10_000), HandClock::at(SOME_DAY * DAY));
    // Nobody waits for the next token: it comes after every deadline.
    let rate = Rate { count: CLAIMS, per: Duration::from_secs(200 * u64::from(CLAIMS)) };
    let limits = Limits { rate: Some(rate), concurrency: Some(2), ..Limits::default() };
    let workers: Vec<Runtime> = (0..2).map(|_| worker(&store, clock.clone(), &world, limits)).collect();
    for number in 0..CLAIMS {
        // In turns, and now and then several of one worker in a row.
        let which = usize::from(number % 7 > 3);
        assert_eq!(workers[which].call(charge(&number.to_string())).await.status, Status::Success, "{number}");
    }
    assert_eq!(code(&workers[0].call(charge("one more")).await), "rate_limited");
    // One that was not there before finds where it stands.
    let late = worker(&store, clock.clone(), &world, limits);
    assert_eq!(code(&late.call(charge("another")).await), "rate_limited");
    assert_eq!(world.begun(), CLAIMS);
    let records = store.tail(Position(0), usize::MAX).await.unwrap();
    let longest = records.iter().filter(|one| one.summary.kind == StreamKind::Quota).map(|one| one.record.version.0).max();
    assert_eq!(longest, Some(257), "and one to close it");
}

#[tokio::test]
async fn what_is_over_is_pruned_and_the_next_begins_anew() {
    let (store, world, clock) = (Arc::new(Memory::default()), World::new(10_000), HandClock::at(SOME_DAY * DAY));
    let first = worker(&store, clock.clone(), &world, three_an_hour());
    for key in ["1", "2", "3"] {
        assert_eq!(first.call(charge(key)).await.status, Status::Success);
    }
    assert_eq!(code(&first.call(charge("4")).await), "rate_limited");
    clock.set((SOME_DAY + 3) * DAY);
    assert!(first.prune(1000).await.unwrap().streams >= 4, "three effects, and what was taken for them");
    let second = worker(&store, clock.clone(), &world, three_an_hour());
    for worker in [&first, &second] {
        assert_eq!(worker.call(charge(&format!("{:p}", worker))).await.status, Status::Success, "a full bucket");
    }
    assert_eq!(second.call(charge("last")).await.status, Status::Success);
    assert_eq!(code(&first.call(charge("no more")).await), "rate_limited");
    assert_eq!(world.begun(), 6);
}

/// Whoever does not wait is told at once, and is not refused because of places that only look taken.
#[tokio::test]
async fn without_a_queue_a_place_that_is_over_is_found_at_once() {
    let (store, world, clock) = (Arc::new(Memory::default()), World::new(1), HandClock::at(SOME_DAY * DAY));
    let limits = Limits { concurrency: Some(1), queue: Some(0), ..Limits::default() };
    let (first, second) = (worker(&store, clock.clone(), &world, limits), worker(&store, clock.clone(), &world, limits));
    assert_eq!(first.call(charge("1")).await.status, Status::Success);
    let running = tokio::spawn({
        let second = second.clone();
        async move { second.call(charge("2")).await }
    });
    while world.begun() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(code(&first.call(charge("3")).await), "limit_timeout");
    world.ends.add_permits(1);
    assert_eq!(running.await.unwrap().status, Status::Success);
    world.ends.add_permits(1);
    assert_eq!(first.call(charge("4")).await.status, Status::Success);
}

/// A caller that does not look at its own call for a while holds up nobody else's.
#[tokio::test]
async fn a_call_that_is_not_polled_keeps_nobody_waiting() {
    let (store, world, clock) = (Arc::new(Memory::default()), World::new(100), HandClock::at(SOME_DAY * DAY));
    let limits = Limits { rate: Some(Rate { count: 50, per: Duration::from_secs(1) }), ..Limits::default() };
    let worker = worker(&store, clock, &world, limits);
    let mut begun = Vec::new();
    for number in 0..8 {
        let mut call = Box::pin(worker.call(charge(&number.to_string())));
        // Looked at once, and then no more.
        if tokio::time::timeout(Duration::ZERO, call.as_mut()).await.is_err() {
            begun.push(call);
        }
    }
    assert_eq!(worker.call(charge("another")).await.status, Status::Success);
    for call in begun {
        assert_eq!(call.await.status, Status::Success);
    }
    assert_eq!(world.begun(), 9);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_that_race_never_have_more_places_than_there_are() {
    let (store, world, clock) = (Arc::new(Memory::default()), World::new(0), HandClock::at(SOME_DAY * DAY));
    let limits = Limits { concurrency: Some(3), ..Limits::default() };
    let workers: Vec<Runtime> = (0..4).map(|_| worker(&store, clock.clone(), &world, limits)).collect();
    let calls: Vec<_> = (0..40)
        .map(|number: usize| {
            let worker = workers[number % 4].clone();
            tokio::spawn(async move { worker.call(charge(&number.to_string())).await })
        })
        .collect();
    while world.begun() < 3 {
        tokio::task::yield_now().await;
    }
    world.ends.add_permits(40);
    for call in calls {
        assert_eq!(call.await.unwrap().status, Status::Success);
    }
    assert_eq!((world.begun(), world.most_at_once.load(Ordering::SeqCst)), (40, 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_for_tokens_gives_each_once() {
    let (store, world, clock) = (Arc::new(Memory::default()), World::new(100), HandClock::at(SOME_DAY * DAY));
    let workers: Vec<Runtime> = (0..4).map(|_| worker(&store, clock.clone(), &world, three_an_hour())).collect();
    let calls: Vec<_> = (0..40)
        .map(|number: usize| {
            let worker = workers[number % 4].clone();
            tokio::spawn(async move { worker.call(charge(&number.to_string())).await })
        })
        .collect();
    let mut refused = 0;
    for call in calls {
        refused += u32::from(code(&call.await.unwrap()) == "rate_limited");
    }
    assert_eq!((world.begun(), refused), (3, 37));
}
