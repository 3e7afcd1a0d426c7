//! A key that is taken for new and is not: what is on record is the answer, whatever stands in the way of a new claim, and the world hears nothing.

#[macro_use]
mod passed_on;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use counterfoil_core::ids::CallKey;
use counterfoil_core::policy::BreakerPolicy;
use counterfoil_core::{Call, Caller, CanonicalJson, Policy, StreamId, Tenant, ToolName};
use counterfoil_runtime::{Answer, Builder, FnTool, Registered, Runtime, Status};
use counterfoil_store::memory::Memory;
use counterfoil_store::{AppendError, Batch, Eventually, History, Position, Reach, Store, StoreError, Written};

/// Counts the looks at streams, and takes no writes when told to.
#[derive(Default)]
struct Watched {
    inner: Memory,
    loads: AtomicU32,
    full: AtomicBool,
    /// Takes writes, and says that it does not know.
    mute: AtomicBool,
    appends: AtomicU32,
    /// Whoever holds it keeps appends waiting.
    door: tokio::sync::Mutex<()>,
}

impl Watched {
    fn loads(&self) -> u32 {
        self.loads.load(Ordering::SeqCst)
    }
}

impl Store for Watched {
    fn load(&self, stream: StreamId, reach: Reach) -> Eventually<'_, Result<History, StoreError>> {
        self.loads.fetch_add(1, Ordering::SeqCst);
        self.inner.load(stream, reach)
    }
    fn append<'a>(&'a self, batch: &'a Batch) -> Eventually<'a, Result<Position, AppendError>> {
        self.appends.fetch_add(1, Ordering::SeqCst);
        let failed = |message: &str, written| Err(StoreError::Unavailable { message: message.into(), written }.into());
        Box::pin(async move {
            drop(self.door.lock().await);
            if self.full.load(Ordering::SeqCst) {
                return failed("no space left on device", Written::No);
            }
            let appended = self.inner.append(batch).await;
            match self.mute.load(Ordering::SeqCst) {
                true => failed("hung up", Written::Perhaps),
                false => appended,
            }
        })
    }
    passed_on!(inner: due, tail, search, prune);
}

struct House {
    store: Arc<Watched>,
    world: Arc<AtomicU32>,
    /// Whoever holds it keeps answers of the world waiting.
    answers: Arc<tokio::sync::Mutex<()>>,
}

impl House {
    fn new() -> Self {
        Self { store: Arc::default(), world: Arc::default(), answers: Arc::default() }
    }

    fn acted(&self) -> u32 {
        self.world.load(Ordering::SeqCst)
    }

    /// A worker of this ledger.
    fn worker(&self, set: impl Fn(Builder) -> Builder) -> Runtime {
        let runtime = set(Builder::new(self.store.clone())).build().expect("a runtime");
        let (world, answers) = (self.world.clone(), self.answers.clone());
        let tool = FnTool::new(move |_| {
            let (acted, answers) = (world.fetch_add(1, Ordering::SeqCst) + 1, answers.clone());
            async move {
                drop(answers.lock().await);
                Ok(serde_json::json!(acted))
            }
        });
        let policy = Policy { breaker: BreakerPolicy { enabled: true, ..BreakerPolicy::default() }, ..Policy::default() };
        runtime.register(Registered::new(charge(), tool, policy));
        runtime
    }

    /// One that takes every key for new.
    fn guesser(&self) -> Runtime {
        self.worker(|builder| builder.guess_after(0))
    }
}

fn charge() -> ToolName {
    ToolName::new("charge").expect("a name")
}

async fn call(worker: &Runtime, key: &str, args: &str) -> Answer {
    let call = Call {
        tenant: Tenant::new("acme").expect("a name"),
        caller: Caller::new("test").expect("a name"),
        tool: charge(),
        args: CanonicalJson::parse(args).expect("arguments"),
        key: Some(CallKey::new(key).expect("a key")),
        run: None,
        step: None,
        ordinal: 0,
    };
    worker.call(call).await
}

fn result(answer: &Answer) -> (Status, String, bool) {
    let told = serde_json::to_value(answer).expect("an answer is plain data");
    (answer.status, told["data"].to_string(), answer.replayed)
}

#[tokio::test]
async fn after_many_new_keys_the_next_is_claimed_without_a_look() {
    let house = House::new();
    let worker = house.worker(|builder| builder);
    let mut last = u32::MAX;
    let mut looks = Vec::new();
    for number in 0..40 {
        let before = house.store.loads();
        assert_eq!(call(&worker, &format!("k{number}"), "{}").await.status, Status::Success);
        last = house.store.loads() - before;
        looks.push(last);
    }
    assert_eq!(last, 0, "{looks:?}");
    assert!(looks[..20].iter().all(|looks| *looks > 0), "{looks:?}");
    // A repeat is found out, and the next keys are looked up again.
    assert_eq!(result(&call(&worker, "k7", "{}").await), (Status::Success, "8".into(), true));
    let before = house.store.loads();
    assert_eq!(result(&call(&worker, "k8", "{}").await), (Status::Success, "9".into(), true));
    assert_eq!(call(&worker, "new", "{}").await.status, Status::Success);
    assert_eq!(house.store.loads() - before, 2);
    assert_eq!(house.acted(), 41);
}

#[tokio::test]
async fn what_another_worker_did_is_replayed_and_not_done_again() {
    let house = House::new();
    assert_eq!(result(&call(&house.worker(|builder| builder), "k", "{}").await), (Status::Success, "1".into(), false));
    assert_eq!(result(&call(&house.guesser(), "k", "{}").await), (Status::Success, "1".into(), true));
    assert_eq!(house.acted(), 1);
}

#[tokio::test]
async fn the_same_key_with_other_arguments_is_refused() {
    let house = House::new();
    let worker = house.guesser();
    call(&worker, "k", r#"{"amount":1}"#).await;
    let refused = call(&worker, "k", r#"{"amount":2}"#).await;
    assert_eq!((refused.error.expect("an error").code.as_str(), house.acted()), ("key_reuse_mismatch", 1));
}

#[tokio::test]
async fn what_is_on_record_is_answered_while_the_breaker_is_open() {
    let house = House::new();
    let worker = house.guesser();
    call(&worker, "k", "{}").await;
    let tenant = Tenant::new("acme").expect("a name");
    let tool = worker.registry().get(&tenant, &charge()).expect("registered");
    worker.set_breaker(&tenant, &tool, |b, now| b.force_open(now, "down".into())).await.expect("written");
    assert_eq!(result(&call(&worker, "k", "{}").await), (Status::Success, "1".into(), true));
    let refused = call(&worker, "another", "{}").await.error.expect("an error");
    assert_eq!((refused.code.as_str(), house.acted()), ("circuit_open", 1));
}

#[tokio::test]
async fn what_is_on_record_is_answered_while_nothing_can_be_written() {
    let house = House::new();
    let worker = house.guesser();
    call(&worker, "k", "{}").await;
    house.store.full.store(true, Ordering::SeqCst);
    for _ in 0..2 {
        assert_eq!(result(&call(&worker, "k", "{}").await), (Status::Success, "1".into(), true));
    }
    let refused = call(&worker, "another", "{}").await.error.expect("an error");
    assert!(refused.message.contains("no space left") && refused.message.contains("Nothing was run"), "{}", refused.message);
    house.store.full.store(false, Ordering::SeqCst);
    assert_eq!(call(&worker, "another", "{}").await.status, Status::Success);
    assert_eq!(house.acted(), 2);
}

#[tokio::test]
async fn what_is_on_record_is_answered_also_when_the_store_does_not_say_what_became_of_the_claim() {
    let house = House::new();
    let worker = house.guesser();
    call(&worker, "k", "{}").await;
    house.store.mute.store(true, Ordering::SeqCst);
    assert_eq!(result(&call(&worker, "k", "{}").await), (Status::Success, "1".into(), true));
    house.store.mute.store(false, Ordering::SeqCst);
    call(&worker, "mended", "{}").await;
    house.store.mute.store(true, Ordering::SeqCst);
    let unsure = call(&worker, "another", "{}").await.error.expect("an error");
    assert_eq!((unsure.code.as_str(), house.acted()), ("store_unavailable", 2));
    house.store.mute.store(false, Ordering::SeqCst);
    assert_eq!(call(&worker, "another", "{}").await.status, Status::Success);
    assert_eq!(house.acted(), 3);
}

/// It is under way by another call of the same worker: nobody is told that nothing was run.
#[tokio::test]
async fn who_meets_a_running_attempt_waits_for_it_also_when_the_store_does_not_say_so() {
    let house = House::new();
    let worker = house.guesser();
    let asking = || {
        let worker = worker.clone();
        tokio::spawn(async move { result(&call(&worker, "k", "{}").await) })
    };
    let answers = house.answers.lock().await;
    let first = asking();
    while house.acted() == 0 {
        tokio::task::yield_now().await;
    }
    house.store.mute.store(true, Ordering::SeqCst);
    let looks = house.store.loads();
    let second = asking();
    while house.store.loads() == looks {
        tokio::task::yield_now().await;
    }
    house.store.mute.store(false, Ordering::SeqCst);
    drop(answers);
    assert_eq!(first.await.expect("no panic"), (Status::Success, "1".into(), false));
    assert_eq!(second.await.expect("no panic"), (Status::Success, "1".into(), true));
    assert_eq!(house.acted(), 1);
}

/// One append for all of them, not one for each.
#[tokio::test]
async fn many_repeats_at_once_are_refused_together() {
    const REPEATS: usize = 64;
    let house = House::new();
    let worker = house.guesser();
    call(&worker, "k", "{}").await;
    // The writer is at something else until all of them wait.
    let closed = house.store.door.lock().await;
    let before = house.store.appends.load(Ordering::SeqCst);
    let asking = |key: &'static str| {
        let worker = worker.clone();
        tokio::spawn(async move { result(&call(&worker, key, "{}").await) })
    };
    let other = asking("other");
    while house.store.appends.load(Ordering::SeqCst) == before {
        tokio::task::yield_now().await;
    }
    let repeats: Vec<_> = (0..REPEATS).map(|_| asking("k")).collect();
    while worker.ledger().queue_depth() < REPEATS {
        tokio::task::yield_now().await;
    }
    drop(closed);
    for repeat in repeats {
        assert_eq!(repeat.await.expect("no panic"), (Status::Success, "1".into(), true));
    }
    assert_eq!(other.await.expect("no panic"), (Status::Success, "2".into(), false));
    // The other's claim and outcome, theirs, and what shared a batch with theirs once more.
    let appends = house.store.appends.load(Ordering::SeqCst) - before;
    assert!(appends <= 4, "{appends} appends for {REPEATS} repeats");
    assert_eq!(house.acted(), 2);
}
