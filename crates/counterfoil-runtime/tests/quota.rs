//! What all workers take of a tool's limits: exact while they race, over the change of a day, and with clocks that disagree.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use counterfoil_core::ids::CallKey;
use counterfoil_core::policy::{Limits, Rate};
use counterfoil_core::{Call, Caller, CanonicalJson, Policy, Tenant, Timestamp, ToolName};
use counterfoil_runtime::{Answer, Builder, Clock, FnTool, Registered, Runtime, Status};
use counterfoil_store::Store;
use counterfoil_store::memory::Memory;
use tokio::sync::Semaphore;

const DAY: i64 = 24 * 3600 * 1_000_000;
/// A day that ends some time.
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

#[tokio::test]
async fn a_bucket_goes_on_at_midnight() {
    let (store, world) = (Arc::new(Memory::default()), World::new(100));
    let (clock, behind) = (HandClock::at((SOME_DAY + 1) * DAY - 2_000_000), HandClock::at((SOME_DAY + 1) * DAY - 2_000_000));
    let (first, second) = (worker(&store, clock.clone(), &world, three_an_hour()), worker(&store, behind.clone(), &world, three_an_hour()));
    assert_eq!(first.call(charge("1")).await.status, Status::Success);
    assert_eq!(second.call(charge("2")).await.status, Status::Success);
    // For one of them it is the next day already.
    clock.set((SOME_DAY + 1) * DAY + 1);
    assert_eq!(first.call(charge("3")).await.status, Status::Success);
    assert_eq!(code(&first.call(charge("4")).await), "rate_limited");
    assert_eq!(code(&second.call(charge("5")).await), "rate_limited", "yesterday is closed, and says so");
    assert_eq!(world.begun(), 3);
    // A worker that knows nothing of yesterday.
    let third = worker(&store, clock.clone(), &world, three_an_hour());
    assert_eq!(code(&third.call(charge("6")).await), "rate_limited");
    // Twenty minutes later there is one more token, for one of them.
    for clock in [&clock, &behind] {
        clock.set((SOME_DAY + 1) * DAY + 1_201_000_000);
    }
    let told = [second.call(charge("7")).await, first.call(charge("8")).await, third.call(charge("9")).await];
    assert_eq!(told.iter().map(code).collect::<Vec<_>>(), ["", "rate_limited", "rate_limited"]);
    assert_eq!(world.begun(), 4);
}

#[tokio::test]
async fn a_day_without_calls_begins_a_full_bucket() {
    let (store, world, clock) = (Arc::new(Memory::default()), World::new(100), HandClock::at(SOME_DAY * DAY));
    let worker = worker(&store, clock.clone(), &world, three_an_hour());
    for key in ["1", "2", "3"] {
        assert_eq!(worker.call(charge(key)).await.status, Status::Success);
    }
    assert_eq!(code(&worker.call(charge("4")).await), "rate_limited");
    clock.set((SOME_DAY + 3) * DAY);
    assert_eq!(worker.call(charge("5")).await.status, Status::Success);
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
