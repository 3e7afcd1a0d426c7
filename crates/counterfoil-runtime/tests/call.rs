//! The call loop over the reference store, with tools whose world is counted outside the ledger.
//! Every assertion is on that count plus the answer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use counterfoil_core::call::Identity;
use counterfoil_core::decide::Attempt;
use counterfoil_core::entry::{Entry, Probed};
use counterfoil_core::ids::CallKey;
use counterfoil_core::policy::{ArgPath, BreakerPolicy, Jitter, OnInFlight, Repeat, RetryPolicy};
use counterfoil_core::{
    Call, Caller, CanonicalJson, EffectClass, Failure, Fence, Outcome, Policy, RunId, Success, Tenant, Timestamp, ToolName, WorkerId,
};
use counterfoil_runtime::tool::{ToolFuture, UndoPlan};
use counterfoil_runtime::{Answer, Builder, Clock, Invocation, Operator, ProbeAnswer, Registered, Resolution, Runtime, Status, Tool};
use counterfoil_store::memory::Memory;
use counterfoil_store::{Position, Store};
use tokio::sync::Notify;

/// A clock that tests can move, on top of real time.
#[derive(Default)]
struct MovedClock(AtomicI64);
impl MovedClock {
    fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_micros() as i64, Ordering::SeqCst);
    }
}
impl Clock for MovedClock {
    fn now(&self) -> Timestamp {
        Timestamp(counterfoil_runtime::SystemClock.now().0 + self.0.load(Ordering::SeqCst))
    }
}

type Script = dyn Fn(u32, &Invocation) -> Step + Send + Sync;

/// What the world does with one request.
enum Step {
    /// Acts and answers.
    Act(&'static str),
    /// Acts, and the answer is lost.
    ActAndLose,
    /// Acts and then never answers.
    ActAndHang,
    /// Does not act.
    Refuse(Failure),
    Panic,
    /// Acts when told to.
    ActWhen(Arc<Notify>),
    /// Does not act, and says so when told to.
    RefuseWhen(Arc<Notify>),
    /// Runs until it is asked to stop; has acted by then.
    ActUntilStopped,
}

struct World {
    requests: AtomicU32,
    effects: AtomicU32,
    at_once: AtomicU32,
    at_once_max: AtomicU32,
    script: Box<Script>,
    probe: Option<Box<dyn Fn() -> ProbeAnswer + Send + Sync>>,
    undo: Option<ToolName>,
}

impl World {
    fn new(script: impl Fn(u32, &Invocation) -> Step + Send + Sync + 'static) -> World {
        World {
            requests: AtomicU32::new(0),
            effects: AtomicU32::new(0),
            at_once: AtomicU32::new(0),
            at_once_max: AtomicU32::new(0),
            script: Box::new(script),
            probe: None,
            undo: None,
        }
    }
    fn effects(&self) -> u32 {
        self.effects.load(Ordering::SeqCst)
    }
    fn requests(&self) -> u32 {
        self.requests.load(Ordering::SeqCst)
    }
    fn act(&self) {
        self.effects.fetch_add(1, Ordering::SeqCst);
    }
}

struct WorldTool(Arc<World>);
impl Tool for WorldTool {
    fn invoke(&self, invocation: Invocation) -> ToolFuture<'_, Outcome> {
        let world = self.0.clone();
        Box::pin(async move {
            let n = world.requests.fetch_add(1, Ordering::SeqCst) + 1;
            let now = world.at_once.fetch_add(1, Ordering::SeqCst) + 1;
            world.at_once_max.fetch_max(now, Ordering::SeqCst);
            let step = (world.script)(n, &invocation);
            let done = |text: &str| Outcome::Done(Success::new(counterfoil_core::Json::parse(text).unwrap()));
            let outcome = match step {
                Step::Act(result) => {
                    tokio::task::yield_now().await;
                    world.act();
                    done(result)
                }
                Step::ActAndLose => {
                    world.act();
                    Outcome::Unknown(Failure::of_dependency("connection_lost", "hung up"))
                }
                Step::ActAndHang => {
                    world.act();
                    std::future::pending().await
                }
                Step::Refuse(failure) => Outcome::NotDone(failure),
                Step::Panic => panic!("boom"),
                Step::RefuseWhen(signal) => {
                    signal.notified().await;
                    Outcome::NotDone(Failure::of_dependency("http_503", "busy"))
                }
                Step::ActUntilStopped => {
                    world.act();
                    invocation.stop.asked().await;
                    done("\"stopped\"")
                }
                Step::ActWhen(signal) => {
                    signal.notified().await;
                    world.act();
                    done("\"late\"")
                }
            };
            world.at_once.fetch_sub(1, Ordering::SeqCst);
            outcome
        })
    }
    fn can_probe(&self) -> bool {
        self.0.probe.is_some()
    }
    fn probe(&self, _: Invocation) -> ToolFuture<'_, ProbeAnswer> {
        Box::pin(async { self.0.probe.as_ref().expect("asked only when it can")() })
    }
    fn undo_plan(&self, _: &Invocation, result: &counterfoil_core::Json) -> Result<Option<UndoPlan>, String> {
        let args = CanonicalJson::parse(&format!("{{\"of\":{result}}}")).map_err(|e| e.to_string())?;
        Ok(self.0.undo.clone().map(|tool| UndoPlan { tool, args }))
    }
}

struct House {
    runtime: Runtime,
    clock: Arc<MovedClock>,
    store: Arc<dyn Store>,
}

fn house() -> House {
    house_on(Arc::new(Memory::default()), "worker-a")
}

fn house_on(store: Arc<dyn Store>, worker: &str) -> House {
    let clock = Arc::new(MovedClock::default());
    let runtime = Builder::new(store.clone()).clock(clock.clone()).worker(WorkerId::new(worker).unwrap()).build().unwrap();
    House { runtime, clock, store }
}

fn quick() -> Policy {
    Policy {
        retry: RetryPolicy {
            first: Duration::from_millis(1),
            max: Duration::from_millis(4),
            jitter: Jitter::Off,
            ..RetryPolicy::default()
        },
        timeout: Duration::from_millis(200),
        settle_after: Some(Duration::ZERO),
        ..Policy::default()
    }
}

impl House {
    fn tool(&self, name: &str, policy: Policy, world: World) -> Arc<World> {
        let world = Arc::new(world);
        self.runtime.register(Registered::new(ToolName::new(name).unwrap(), Arc::new(WorldTool(world.clone())), policy));
        world
    }
    async fn call(&self, call: Call) -> Answer {
        self.runtime.call(call).await
    }
}

fn call(key: &str, args: &str) -> Call {
    Call {
        tenant: Tenant::new("acme").unwrap(),
        caller: Caller::new("test").unwrap(),
        tool: ToolName::new("charge").unwrap(),
        args: CanonicalJson::parse(args).unwrap(),
        key: CallKey::new(key).ok(),
        run: None,
        step: None,
        ordinal: 0,
    }
}

fn operator() -> Operator {
    Operator::new("ann", "looked at the bank")
}

fn code(answer: &Answer) -> &str {
    answer.error.as_ref().map_or("", |e| e.code.as_str())
}

#[tokio::test]
async fn twice_is_once_and_every_result_is_replayed_byte_for_byte() {
    for result in ["null", "false", "0", "\"\"", "{}", "[ ]", "{\"b\":1, \"a\":9007199254740993}"] {
        let house = house();
        let world = house.tool("charge", quick(), World::new(move |_, _| Step::Act(result)));
        let first = house.call(call("k", "{}")).await;
        let second = house.call(call("k", " { } ")).await;
        assert_eq!(world.effects(), 1, "{result}");
        assert!(!first.replayed && second.replayed);
        for answer in [&first, &second] {
            assert_eq!(answer.status, Status::Success);
            assert_eq!(answer.data.as_ref().unwrap().as_str(), result);
        }
        assert_eq!(first.receipt, second.receipt);
        assert_eq!(first.effect.unwrap().to_string().len(), 64);
    }
}

#[tokio::test]
async fn the_same_key_with_other_arguments_is_refused() {
    let house = house();
    let world = house.tool("charge", quick(), World::new(|_, _| Step::Act("1")));
    house.call(call("k", r#"{"cents":1}"#)).await;
    let other = house.call(call("k", r#"{"cents":2}"#)).await;
    assert_eq!((code(&other), world.effects()), ("key_reuse_mismatch", 1));
    assert_eq!(house.call(call("k", r#"{"cents":1}"#)).await.data.unwrap().as_str(), "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_at_once_are_one() {
    let house = Arc::new(house());
    let go = Arc::new(Notify::new());
    let signal = go.clone();
    let world = house.tool("charge", quick(), World::new(move |_, _| Step::ActWhen(signal.clone())));
    let calls: Vec<_> = (0..50)
        .map(|_| {
            let house = house.clone();
            tokio::spawn(async move { house.call(call("k", "{}")).await })
        })
        .collect();
    while world.requests() == 0 {
        tokio::task::yield_now().await;
    }
    go.notify_one();
    let mut fresh = 0;
    for answer in calls {
        let answer = answer.await.unwrap();
        assert_eq!((answer.status, answer.data.unwrap().as_str()), (Status::Success, "\"late\""));
        fresh += u32::from(!answer.replayed);
    }
    assert_eq!((world.effects(), fresh), (1, 1));
}

#[tokio::test]
async fn in_flight_duplicates_can_be_told_to_come_back() {
    let house = Arc::new(house());
    let go = Arc::new(Notify::new());
    let signal = go.clone();
    let policy = Policy { on_in_flight: OnInFlight::Conflict, ..quick() };
    let world = house.tool("charge", policy, World::new(move |_, _| Step::ActWhen(signal.clone())));
    let first = tokio::spawn({
        let house = house.clone();
        async move { house.call(call("k", "{}")).await }
    });
    while world.requests() == 0 {
        tokio::task::yield_now().await;
    }
    let second = house.call(call("k", "{}")).await;
    assert_eq!(code(&second), "in_flight");
    assert!(second.error.unwrap().retry_after_ms.is_some());
    go.notify_one();
    assert_eq!(first.await.unwrap().status, Status::Success);
    assert_eq!(world.effects(), 1);
}

#[tokio::test]
async fn waiting_is_bounded_and_then_answered_as_pending() {
    let house = Arc::new(house());
    let go = Arc::new(Notify::new());
    let signal = go.clone();
    let policy = Policy { wait_max: Duration::from_millis(20), timeout: Duration::from_secs(60), ..quick() };
    let world = house.tool("charge", policy, World::new(move |_, _| Step::ActWhen(signal.clone())));
    let first = tokio::spawn({
        let house = house.clone();
        async move { house.call(call("k", "{}")).await }
    });
    while world.requests() == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(house.call(call("k", "{}")).await.status, Status::Pending);
    go.notify_one();
    first.await.unwrap();
    assert_eq!(house.call(call("k", "{}")).await.status, Status::Success);
    assert_eq!(world.effects(), 1);
}

#[tokio::test]
async fn a_lost_answer_is_a_doubt_and_is_never_run_again() {
    for step in ["lose", "hang", "panic"] {
        let house = house();
        let script = move |_: u32, _: &Invocation| match step {
            "lose" => Step::ActAndLose,
            "hang" => Step::ActAndHang,
            _ => Step::Panic,
        };
        let world = house.tool("charge", quick(), World::new(script));
        let first = house.call(call("k", "{}")).await;
        let second = house.call(call("k", "{}")).await;
        assert_eq!((first.status, second.status), (Status::InDoubt, Status::InDoubt), "{step}");
        assert_eq!(world.requests(), 1, "{step}");
        let effect = house
            .runtime
            .resolve(
                first.effect.unwrap(),
                Resolution::Happened { result: counterfoil_core::Json::parse("{\"id\":7}").unwrap() },
                &operator(),
            )
            .await;
        assert_eq!(effect.unwrap().state.word(), "done");
        let third = house.call(call("k", "{}")).await;
        assert!(third.replayed);
        assert_eq!(third.data.unwrap().as_str(), "{\"id\":7}");
        assert_eq!(world.requests(), 1, "{step}");
    }
}

#[tokio::test]
async fn a_person_can_say_that_it_did_not_happen() {
    let house = house();
    let world = house.tool("charge", quick(), World::new(|n, _| if n == 1 { Step::Panic } else { Step::Act("2") }));
    let first = house.call(call("k", "{}")).await;
    house.runtime.resolve(first.effect.unwrap(), Resolution::DidNotHappen, &operator()).await.unwrap();
    let second = house.call(call("k", "{}")).await;
    assert_eq!((second.status, second.attempt, world.requests()), (Status::Success, 2, 2));
}

/// Found by the simulator: while a person looked at the one attempt, the next was made, and lost its answer as well.
#[tokio::test]
async fn a_persons_word_is_about_the_attempt_that_was_looked_at() {
    let house = house();
    let world = house.tool("charge", quick(), World::new(|n, _| if n == 1 { Step::Panic } else { Step::ActAndLose }));
    let key = house.call(call("k", "{}")).await.effect.unwrap();
    house.runtime.resolve(key, Resolution::DidNotHappen, &operator().about(Some(1))).await.unwrap();
    assert_eq!(house.call(call("k", "{}")).await.status, Status::InDoubt);
    let late = house.runtime.resolve(key, Resolution::DidNotHappen, &operator().about(Some(1))).await;
    assert!(late.unwrap_err().to_string().contains("the attempt that was named"));
    assert_eq!((house.call(call("k", "{}")).await.status, world.requests()), (Status::InDoubt, 2));
    house.runtime.resolve(key, Resolution::GiveUp, &operator().about(Some(2))).await.unwrap();
}

#[tokio::test]
async fn keyed_and_safe_tools_are_repeated_with_the_same_key() {
    for repeat in [Repeat::Keyed, Repeat::Safe] {
        let house = house();
        let keys = Arc::new(std::sync::Mutex::new(Vec::new()));
        let seen = keys.clone();
        let script = move |n: u32, invocation: &Invocation| {
            seen.lock().unwrap().push(invocation.key);
            if n < 3 { Step::ActAndLose } else { Step::Act("3") }
        };
        let world = house.tool("charge", Policy { repeat, ..quick() }, World::new(script));
        let answer = house.call(call("k", "{}")).await;
        assert_eq!((answer.status, answer.attempt, world.requests()), (Status::Success, 3, 3));
        let keys = keys.lock().unwrap();
        assert!(keys.iter().all(|k| *k == keys[0]));
    }
}

#[tokio::test]
async fn a_probe_settles_the_doubt() {
    let happened = || ProbeAnswer::Happened(Success::new(counterfoil_core::Json::parse("\"found\"").unwrap()));
    let house1 = house();
    let world = house1.tool("charge", quick(), World { probe: Some(Box::new(happened)), ..World::new(|_, _| Step::ActAndLose) });
    let answer = house1.call(call("k", "{}")).await;
    assert_eq!((answer.status, answer.data.unwrap().as_str(), world.requests()), (Status::Success, "\"found\"", 1));

    let house2 = house();
    let script = |n: u32, _: &Invocation| if n == 1 { Step::Panic } else { Step::Act("2") };
    let world = house2.tool("charge", quick(), World { probe: Some(Box::new(|| ProbeAnswer::DidNotHappen)), ..World::new(script) });
    let answer = house2.call(call("k", "{}")).await;
    assert_eq!((answer.status, world.effects(), world.requests()), (Status::Success, 1, 2));

    let house3 = house();
    let blind = || ProbeAnswer::CannotTell("the bank is closed".into());
    let world = house3.tool("charge", quick(), World { probe: Some(Box::new(blind)), ..World::new(|_, _| Step::ActAndLose) });
    assert_eq!(house3.call(call("k", "{}")).await.status, Status::InDoubt);
    assert_eq!(house3.call(call("k", "{}")).await.status, Status::InDoubt);
    assert_eq!(world.requests(), 1);
}

#[tokio::test]
async fn retriable_failures_are_tried_again_and_then_replayed_until_their_time() {
    let house = house();
    let script = |_: u32, _: &Invocation| Step::Refuse(Failure::of_dependency("http_503", "busy"));
    let policy = Policy { breaker: BreakerPolicy { enabled: false, ..BreakerPolicy::default() }, ..quick() };
    let retry = RetryPolicy { max: Duration::from_secs(5), ..policy.retry };
    let world = house.tool("charge", Policy { retry, ..policy }, World::new(script));
    let first = house.call(call("k", "{}")).await;
    assert_eq!((code(&first), world.requests(), first.attempt), ("retry_exhausted", 4, 4));
    assert_eq!(first.error.as_ref().unwrap().cause.as_deref(), Some("http_503"));
    let second = house.call(call("k", "{}")).await;
    assert!(second.replayed && second.error.unwrap().retry_after_ms.is_some());
    assert_eq!(world.requests(), 4, "not before its time");
    house.clock.advance(Duration::from_secs(6));
    let third = house.call(call("k", "{}")).await;
    assert_eq!((world.requests(), third.attempt), (8, 8));
}

/// The next attempt was due in time, and the machine slept longer: the series is over, and says so.
#[tokio::test]
async fn a_series_that_oversleeps_its_deadline_is_exhausted() {
    let house = Arc::new(house());
    let retry = RetryPolicy { first: Duration::from_millis(200), max: Duration::from_millis(200), ..quick().retry };
    let busy = |_: u32, _: &Invocation| Step::Refuse(Failure::of_dependency("http_503", "busy"));
    let world = house.tool("charge", Policy { retry, ..quick() }, World::new(busy));
    let Ok(Identity::Fixed(key)) = call("k", "{}").identity(&CanonicalJson::empty_object(), &quick()) else {
        panic!("an explicit key is fixed")
    };
    let calling = tokio::spawn({
        let house = house.clone();
        async move { house.call(call("k", "{}")).await }
    });
    while house.runtime.effect(key).await.map_or("", |effect| effect.state.word()) != "retrying" {
        tokio::task::yield_now().await;
    }
    house.clock.advance(Duration::from_secs(3600));
    let answer = calling.await.unwrap();
    assert_eq!((code(&answer), answer.attempt, world.requests()), ("retry_exhausted", 1, 1));
    assert_eq!(answer.error.unwrap().cause.as_deref(), Some("http_503"));
    house.call(call("k", "{}")).await;
    assert_eq!(world.requests(), 5, "a new call begins a new series");
}

#[tokio::test]
async fn a_final_failure_is_sticky_until_a_person_reopens_it() {
    let house = house();
    let script = |n: u32, _: &Invocation| if n == 1 { Step::Refuse(Failure::new("http_400", "no such customer")) } else { Step::Act("1") };
    let world = house.tool("charge", quick(), World::new(script));
    for replayed in [false, true] {
        let answer = house.call(call("k", "{}")).await;
        assert_eq!((code(&answer), answer.replayed, world.requests()), ("http_400", replayed, 1));
        assert!(!answer.error.unwrap().retriable);
    }
    let key = house.call(call("k", "{}")).await.effect.unwrap();
    assert_eq!(house.runtime.retry(key, &operator()).await.unwrap().status, Status::Success);
    assert_eq!(world.effects(), 1);
}

#[tokio::test]
async fn the_breaker_opens_refuses_and_closes_again() {
    let house = house();
    let script = |n: u32, _: &Invocation| if n <= 5 { Step::Refuse(Failure::of_dependency("http_503", "busy")) } else { Step::Act("1") };
    let policy = Policy { retry: RetryPolicy { attempts: 1, ..quick().retry }, ..quick() };
    let world = house.tool("charge", policy, World::new(script));
    for n in 0..5 {
        assert_eq!(code(&house.call(call(&n.to_string(), "{}")).await), "retry_exhausted");
    }
    let barred = house.call(call("k", "{}")).await;
    assert_eq!((barred.status, world.requests()), (Status::CircuitOpen, 5));
    let restarted = house_on(house.store.clone(), "worker-b");
    let again = restarted.tool(
        "charge",
        Policy { retry: RetryPolicy { attempts: 1, ..quick().retry }, ..quick() },
        World::new(|_, _| Step::Act("1")),
    );
    assert_eq!(restarted.call(call("k", "{}")).await.status, Status::CircuitOpen, "it survives a restart");
    assert_eq!(again.requests(), 0);
    house.clock.advance(Duration::from_secs(31));
    assert_eq!(house.call(call("k", "{}")).await.status, Status::Success, "the refusal was not recorded as the key's result");
    assert_eq!(house.call(call("k2", "{}")).await.status, Status::Success);
}

/// Nobody asks a breaker that has seen nothing but successes for a while. It must hear of the first failure all the same, and be asked from then on.
#[tokio::test]
async fn a_breaker_that_was_calm_opens_like_any_other() {
    let house = house();
    let script = |n: u32, _: &Invocation| match n {
        151..=154 | 156..=160 => Step::Refuse(Failure::of_dependency("http_503", "busy")),
        _ => Step::Act("1"),
    };
    let policy = Policy { retry: RetryPolicy { attempts: 1, ..quick().retry }, ..quick() };
    let world = house.tool("charge", policy.clone(), World::new(script));
    for n in 0..160 {
        let answer = house.call(call(&n.to_string(), "{}")).await;
        assert_ne!(answer.status, Status::CircuitOpen, "four failures, a success, then five: at {n}");
    }
    assert_eq!(house.call(call("k", "{}")).await.status, Status::CircuitOpen);
    assert_eq!(world.requests(), 160);
    // Closed by its probe, and calm again.
    house.clock.advance(Duration::from_secs(31));
    for n in 200..320 {
        assert_eq!(house.call(call(&n.to_string(), "{}")).await.status, Status::Success);
    }
    // A person's word holds at once here, and after a second elsewhere.
    let other = house_on(house.store.clone(), "worker-b");
    let elsewhere = other.tool("charge", policy, World::new(|_, _| Step::Act("1")));
    for n in 400..520 {
        assert_eq!(other.call(call(&n.to_string(), "{}")).await.status, Status::Success);
    }
    let (tenant, tool) = (Tenant::new("acme").unwrap(), house.runtime.tools().pop().unwrap());
    house.runtime.set_breaker(&tenant, &tool, |breaker, now| breaker.force_open(now, "maintenance".into())).await.unwrap();
    assert_eq!(house.call(call("k", "{}")).await.status, Status::CircuitOpen);
    other.clock.advance(Duration::from_secs(2));
    assert_eq!(other.call(call("k", "{}")).await.status, Status::CircuitOpen);
    assert_eq!((world.effects(), elsewhere.effects()), (150 + 1 + 120, 120));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_most_ten_at_once_under_a_hundred_callers() {
    let house = Arc::new(house());
    let limits = counterfoil_core::policy::Limits { concurrency: Some(10), ..Default::default() };
    let world = house.tool("charge", Policy { limits, timeout: Duration::from_secs(30), ..quick() }, World::new(|_, _| Step::Act("1")));
    let calls: Vec<_> = (0..100)
        .map(|n| {
            let house = house.clone();
            tokio::spawn(async move { house.call(call(&n.to_string(), "{}")).await })
        })
        .collect();
    for answer in calls {
        assert_eq!(answer.await.unwrap().status, Status::Success);
    }
    assert_eq!(world.effects(), 100);
    assert!(world.at_once_max.load(Ordering::SeqCst) <= 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runs_budget_is_exact_under_concurrency() {
    let house = Arc::new(house());
    let limits = counterfoil_core::policy::Limits { per_run: Some(3), ..Default::default() };
    let world = house.tool("charge", Policy { limits, ..quick() }, World::new(|_, _| Step::Act("1")));
    let calls: Vec<_> = (0..20)
        .map(|n| {
            let house = house.clone();
            let run = Some(RunId::new("run-1").unwrap());
            tokio::spawn(async move { house.call(Call { run, key: None, ..call("", &format!("[{n}]")) }).await })
        })
        .collect();
    let mut refused = 0;
    for answer in calls {
        refused += u32::from(code(&answer.await.unwrap()) == "budget_exceeded");
    }
    assert_eq!((world.effects(), refused), (3, 17));
}

#[tokio::test]
async fn pure_tools_leave_no_trace_and_bad_input_neither() {
    let house = house();
    let world = house.tool("charge", Policy { effect: EffectClass::Pure, ..quick() }, World::new(|_, _| Step::Act("1")));
    house.call(call("k", "{}")).await;
    let answer = house.call(call("k", "{}")).await;
    assert_eq!((world.requests(), answer.replayed, answer.outcome, answer.effect), (2, false, "pure", None));
    let unknown = house.call(Call { tool: ToolName::new("chrage").unwrap(), ..call("k", "{}") }).await;
    assert_eq!(code(&unknown), "unknown_tool");
    assert!(unknown.error.unwrap().message.contains("did you mean charge"));
}

#[tokio::test]
async fn an_undo_is_an_effect_of_its_own() {
    let house = house();
    let undo = Some(ToolName::new("refund").unwrap());
    let charge = house.tool("charge", quick(), World { undo, ..World::new(|_, _| Step::Act("{\"id\":7}")) });
    let script = |n: u32, i: &Invocation| {
        assert_eq!(i.args.as_str(), r#"{"of":{"id":7}}"#);
        if n == 1 { Step::Refuse(Failure::new("http_400", "not yet")) } else { Step::Act("true") }
    };
    let refund = house.tool("refund", quick(), World::new(script));
    let key = house.call(call("k", "{}")).await.effect.unwrap();
    assert_eq!(house.runtime.undo(key, &operator()).await.unwrap().status, Status::Error);
    assert_eq!(house.runtime.effect(key).await.unwrap().state.word(), "undo_failed");
    let undone = house.runtime.undo(key, &operator()).await.unwrap();
    assert_eq!((undone.status, undone.execution_id.len()), (Status::Success, 36));
    assert_eq!(house.runtime.effect(key).await.unwrap().state.word(), "undone");
    assert!(house.runtime.undo(key, &operator()).await.is_err(), "undone once");
    assert_eq!((charge.effects(), refund.effects()), (1, 1));
    let replay = house.call(call("k", "{}")).await;
    assert_eq!((replay.replayed, replay.outcome, charge.effects()), (true, "compensated", 1));
}

#[tokio::test]
async fn approval_comes_first_is_single_use_and_expires() {
    let house = house();
    let world = Arc::new(World::new(|_, _| Step::Act("1")));
    let mut tool = Registered::new(ToolName::new("charge").unwrap(), Arc::new(WorldTool(world.clone())), quick());
    tool.approval = Some(Arc::new(|args| Ok(args.to_value()["cents"].as_i64() > Some(100))));
    house.runtime.register(tool);
    assert_eq!(house.call(call("small", r#"{"cents":5}"#)).await.status, Status::Success);
    let held = house.call(call("big", r#"{"cents":500}"#)).await;
    assert_eq!((held.status, world.effects()), (Status::WaitingApproval, 1));
    assert_eq!(house.runtime.approve(held.effect.unwrap(), &operator()).await.unwrap().status, Status::Success);
    assert!(house.runtime.approve(held.effect.unwrap(), &operator()).await.is_err());
    assert!(house.call(call("big", r#"{"cents":500}"#)).await.replayed);
    assert_eq!(world.effects(), 2);
    let denied = house.call(call("denied", r#"{"cents":500}"#)).await.effect.unwrap();
    house.runtime.deny(denied, &operator()).await.unwrap();
    assert_eq!(code(&house.call(call("denied", r#"{"cents":500}"#)).await), "approval_denied");
    house.call(call("old", r#"{"cents":500}"#)).await;
    house.clock.advance(Duration::from_secs(25 * 3600));
    assert_eq!(code(&house.call(call("old", r#"{"cents":500}"#)).await), "approval_denied");
    assert_eq!(world.effects(), 2);
}

#[tokio::test]
async fn cancelling_keeps_what_still_happened() {
    let house = Arc::new(house());
    let go = Arc::new(Notify::new());
    let signal = go.clone();
    let undo = Some(ToolName::new("refund").unwrap());
    let world = house.tool("charge", quick(), World { undo, ..World::new(move |_, _| Step::ActWhen(signal.clone())) });
    let refund = house.tool("refund", quick(), World::new(|_, _| Step::Act("1")));
    let running = tokio::spawn({
        let house = house.clone();
        async move { house.call(call("k", "{}")).await }
    });
    while world.requests() == 0 {
        tokio::task::yield_now().await;
    }
    let found = house.runtime.ledger().search(counterfoil_store::Query::effects(Tenant::new("acme").unwrap())).await.unwrap();
    let key = counterfoil_core::ids::Digest32(found.found[0].stream.0);
    house.runtime.cancel(key, &operator()).await.unwrap();
    house.runtime.cancel(key, &operator()).await.expect("cancelling twice is the same answer");
    go.notify_one();
    assert_eq!(running.await.unwrap().status, Status::Cancelled, "the late result is not delivered");
    let effect = house.runtime.effect(key).await.unwrap();
    assert_eq!((effect.state.word(), effect.late.len(), effect.world().word()), ("cancelled", 1, "compensatable_failure"));
    house.runtime.undo(key, &operator()).await.unwrap();
    assert_eq!((world.effects(), refund.effects()), (1, 1));
    let again = house.call(call("k", "{}")).await;
    assert_eq!((again.status, again.outcome), (Status::Cancelled, "compensated"), "who was told that it was cancelled is told so for ever");
}

#[tokio::test]
async fn a_worker_that_lost_its_lease_can_only_report_late() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let (a, b) = (Arc::new(house_on(store.clone(), "worker-a")), house_on(store, "worker-b"));
    let go = Arc::new(Notify::new());
    let signal = go.clone();
    let policy = Policy { lease: Duration::from_secs(30), timeout: Duration::from_secs(60), ..quick() };
    let world = a.tool("charge", policy.clone(), World::new(move |_, _| Step::ActWhen(signal.clone())));
    let other = b.tool("charge", policy, World::new(|_, _| Step::Act("\"b\"")));
    let running = tokio::spawn({
        let a = a.clone();
        async move { a.call(call("k", "{}")).await }
    });
    while world.requests() == 0 {
        tokio::task::yield_now().await;
    }
    b.clock.advance(Duration::from_secs(31));
    let doubted = b.call(call("k", "{}")).await;
    assert_eq!((doubted.status, other.requests()), (Status::InDoubt, 0));
    go.notify_one();
    let late = running.await.unwrap();
    assert_eq!(late.status, Status::Success, "the late report closed the doubt");
    let settled = b.call(call("k", "{}")).await;
    assert_eq!((settled.replayed, settled.data.unwrap().as_str()), (true, "\"late\""));
    assert_eq!((world.effects(), other.effects()), (1, 0));
}

/// A lease is watched where its attempt began, and one task extends them all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_are_kept_on_whichever_thread_their_attempts_began() {
    const CALLS: u32 = 20;
    let house = Arc::new(house_on(Arc::new(Memory::default()), "worker-a"));
    let go = Arc::new(Notify::new());
    let signal = go.clone();
    // Extended after two seconds: a busy machine may be late by as many again.
    let policy = Policy { lease: Duration::from_secs(6), timeout: Duration::from_secs(600), deadline: Duration::from_secs(600), ..quick() };
    let world = house.tool("charge", policy, World::new(move |_, _| Step::ActWhen(signal.clone())));
    let on_threads: Vec<_> = (0..CALLS)
        .map(|n| {
            let (house, handle) = (house.clone(), tokio::runtime::Handle::current());
            std::thread::spawn(move || handle.block_on(house.call(call(&n.to_string(), "{}"))))
        })
        .collect();
    let all_extended = async {
        loop {
            let records = house.store.tail(Position(0), usize::MAX).await.unwrap();
            let extended: BTreeSet<_> = records.iter().filter(|r| r.record.body.contains("\"extended\"")).map(|r| r.stream).collect();
            if extended.len() as u32 == CALLS {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), all_extended).await.expect("each lease is extended");
    go.notify_waiters();
    for thread in on_threads {
        let answer = tokio::task::spawn_blocking(|| thread.join().unwrap()).await.unwrap();
        assert_eq!((answer.status, answer.attempt), (Status::Success, 1));
    }
    assert_eq!((world.requests(), world.effects()), (CALLS, CALLS));
}

/// A claim of a retry that was never dispatched is given back. That an older attempt said meanwhile that it had done nothing does not make the retry forgotten: what
/// was not to be tried again is not begun anew.
#[tokio::test]
async fn a_late_not_done_does_not_make_a_waiting_retry_forgotten() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let (a, b) = (Arc::new(house_on(store.clone(), "worker-a")), house_on(store, "worker-b"));
    let go = Arc::new(Notify::new());
    let signal = go.clone();
    let lease = Duration::from_secs(30);
    let policy = Policy { lease, timeout: Duration::from_secs(60), retry: RetryPolicy { attempts: 1, ..quick().retry }, ..quick() };
    let script = move |n: u32, _: &Invocation| if n == 1 { Step::RefuseWhen(signal.clone()) } else { Step::Act("1") };
    let world = a.tool("charge", policy, World::new(script));
    let running = tokio::spawn({
        let a = a.clone();
        async move { a.call(call("k", "{}")).await }
    });
    while world.requests() == 0 {
        tokio::task::yield_now().await;
    }
    let ledger = b.runtime.ledger();
    let found = ledger.search(counterfoil_store::Query::effects(Tenant::new("acme").unwrap())).await.unwrap().found;
    let key = counterfoil_core::ids::Digest32(found[0].stream.0);
    // Another worker takes it for lost, is told by the world that it did not happen, and claims it for a retry.
    let effect = ledger.load(key).await.unwrap();
    let lost = Entry::Lost { fence: effect.fence, at: b.clock.now(), why: "it fell silent".into() };
    let effect = ledger.record(&effect, vec![lost], None).await.unwrap();
    let probed = Entry::Probed { at: b.clock.now(), answer: Probed::DidNotHappen };
    let waiting = ledger.record(&effect, vec![probed], None).await.unwrap();
    let claim = ledger.claim(Attempt { number: 2, fence: Fence(waiting.version + 1) }, lease);
    ledger.begin(&waiting, &claim, lease, None, Vec::new()).await.unwrap();
    go.notify_one();
    while ledger.load(key).await.unwrap().late.is_empty() {
        tokio::task::yield_now().await;
    }
    ledger.release(key, &claim, "nothing was dispatched").await.unwrap();
    let told = running.await.unwrap();
    assert_eq!(ledger.load(key).await.unwrap().state, waiting.state, "it waits as before");
    assert_eq!((told.status, world.requests(), world.effects()), (Status::Error, 1, 0), "{told:?}");
}

#[tokio::test]
async fn recovery_is_the_same_loop() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let dead = house_on(store.clone(), "worker-a");
    dead.tool("charge", Policy { repeat: Repeat::Keyed, ..quick() }, World::new(|_, _| Step::Act("1")));
    // What a killed worker leaves behind: a claim without an outcome.
    let clock = MovedClock::default();
    let hung = tokio::spawn({
        let house = house_on(store.clone(), "worker-killed");
        let world = World::new(|_, _| Step::ActWhen(Arc::new(Notify::new())));
        house.tool("charge", Policy { repeat: Repeat::Keyed, timeout: Duration::from_secs(600), ..quick() }, world);
        async move { house.call(call("k", "{}")).await }
    });
    let found = loop {
        let page = dead.runtime.ledger().search(counterfoil_store::Query::effects(Tenant::new("acme").unwrap())).await.unwrap();
        if !page.found.is_empty() {
            break page.found;
        }
    };
    hung.abort();
    assert_eq!(found[0].summary.state, "running");
    assert!(dead.runtime.recover().await.unwrap().is_empty(), "its lease still runs");
    clock.advance(Duration::ZERO);
    dead.clock.advance(Duration::from_secs(31));
    let recovered = dead.runtime.recover().await.unwrap();
    assert_eq!((recovered.len(), recovered[0].was, recovered[0].answer.status), (1, "running", Status::Success));
    assert!(dead.runtime.recover().await.unwrap().is_empty());
}

#[tokio::test]
async fn the_claim_of_a_killed_worker_is_recovered_at_once() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let killed = house_on(store.clone(), "worker-killed");
    let (arrived, never) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let reached = arrived.clone();
    let script = move |_: u32, _: &Invocation| {
        reached.notify_one();
        Step::ActWhen(never.clone())
    };
    killed.tool("charge", Policy { timeout: Duration::from_secs(600), ..quick() }, World::new(script));
    let hung = tokio::spawn(async move { killed.call(call("k", "{}")).await });
    arrived.notified().await;
    let dir = tempfile::tempdir().unwrap();
    let build = |worker| Builder::new(store.clone()).worker(WorkerId::new(worker).unwrap()).workers_dir(dir.path()).build().unwrap();
    let runtime = build("worker-next");
    let world = World {
        probe: Some(Box::new(|| ProbeAnswer::Happened(Success::new(counterfoil_core::Json::parse("7").unwrap())))),
        ..World::new(|_, _| Step::Act("8"))
    };
    let world = Arc::new(world);
    runtime.register(Registered::new(ToolName::new("charge").unwrap(), Arc::new(WorldTool(world.clone())), quick()));
    assert!(runtime.recover().await.unwrap().is_empty(), "nobody knows that its worker is dead");
    // What a kill leaves behind: the worker's file, without its lock.
    std::fs::write(dir.path().join("worker-killed"), "").unwrap();
    let recovered = runtime.recover().await.unwrap();
    assert_eq!((recovered.len(), recovered[0].was, recovered[0].answer.status), (1, "running", Status::Success));
    assert_eq!((world.requests(), recovered[0].answer.data.clone()), (0, Some(counterfoil_core::Json::parse("7").unwrap())));
    assert!(runtime.recover().await.unwrap().is_empty());
    hung.abort();
}

#[tokio::test]
async fn secrets_never_reach_the_ledger() {
    let house = house();
    let seen = Arc::new(std::sync::Mutex::new(String::new()));
    let heard = seen.clone();
    let script = move |_: u32, i: &Invocation| {
        *heard.lock().unwrap() = i.args.as_str().to_owned();
        Step::Act(r#"{"card":{"number":"4242 4242"},"id":7}"#)
    };
    let policy = Policy { redact: vec![ArgPath::parse("card.number").unwrap()], ..quick() };
    let world = house.tool("charge", policy, World::new(script));
    // With a space: four digits stand in digests by chance.
    let args = r#"{"card":{"number":"4242 4242"}}"#;
    let first = house.call(call("k", args)).await;
    assert!(seen.lock().unwrap().contains("4242 4242"), "the tool gets them in clear");
    assert!(house.call(call("k", args)).await.replayed);
    assert_eq!(code(&house.call(call("k", r#"{"card":{"number":"4242 4243"}}"#)).await), "key_reuse_mismatch");
    assert_eq!(world.effects(), 1);
    let tail = house.runtime.ledger().tail(Default::default(), 100).await.unwrap();
    assert!(!tail.is_empty() && tail.iter().all(|r| !r.record.body.contains("4242 4242")));
    assert!(!first.data.unwrap().as_str().contains("4242 4242"));
}

#[tokio::test]
async fn a_sliding_window_joins_equal_calls_without_a_key() {
    let house = house();
    let policy = Policy { dedupe_window: Some(Duration::from_secs(3600)), ..quick() };
    let world = house.tool("charge", policy, World::new(|_, _| Step::Act("1")));
    let lone = |args: &str| Call { key: None, ..call("", args) };
    let first = house.call(lone("[1]")).await;
    house.clock.advance(Duration::from_secs(3000));
    let second = house.call(lone("[1]")).await;
    assert_eq!((second.replayed, second.effect), (true, first.effect));
    house.call(lone("[2]")).await;
    assert_eq!(world.effects(), 2);
    house.clock.advance(Duration::from_secs(700));
    let third = house.call(lone("[1]")).await;
    assert_eq!((third.replayed, world.effects()), (false, 3));
    assert_ne!(third.effect, first.effect, "another effect goes downstream under another key");
    assert!(house.call(lone("[1]")).await.replayed);
}

#[tokio::test]
async fn without_window_run_and_key_each_call_is_new_and_runs_keep_apart() {
    let house = house();
    let world = house.tool("charge", quick(), World::new(|_, _| Step::Act("1")));
    let lone = Call { key: None, ..call("", "{}") };
    house.call(lone.clone()).await;
    house.call(lone.clone()).await;
    assert_eq!(world.effects(), 2);
    for run in ["r1", "r1", "r2"] {
        house.call(Call { run: Some(RunId::new(run).unwrap()), ..lone.clone() }).await;
    }
    assert_eq!(world.effects(), 4);
}

#[tokio::test]
async fn what_is_over_its_time_answers_key_expired() {
    let house = house();
    let world = house.tool("charge", quick(), World::new(|_, _| Step::Act("1")));
    house.call(call("k", "{}")).await;
    house.clock.advance(Duration::from_secs(25 * 3600));
    assert_eq!(code(&house.call(call("k", "{}")).await), "key_expired");
    house.runtime.ledger().prune(100).await.unwrap();
    assert_eq!(code(&house.call(call("k", "{}")).await), "key_expired");
    assert_eq!(world.effects(), 1);
}

#[tokio::test]
async fn every_end_has_one_receipt_and_the_chain_verifies() {
    let house = house();
    let script = |n: u32, _: &Invocation| if n.is_multiple_of(2) { Step::Refuse(Failure::new("no", "no")) } else { Step::Act("1") };
    house.tool("charge", quick(), World::new(script));
    let mut ids = Vec::new();
    for n in 0..10 {
        ids.push(house.call(call(&n.to_string(), "{}")).await.receipt.unwrap());
    }
    let receipts = house.runtime.ledger().receipts(&Tenant::new("acme").unwrap(), None).await.unwrap();
    assert_eq!(receipts.iter().map(|r| r.id).collect::<Vec<_>>(), ids);
    assert!(receipts.iter().all(|r| r.covers(&ToolName::new("charge").unwrap(), &CanonicalJson::empty_object())));
}

#[tokio::test]
async fn a_cancelled_attempt_is_told_to_stop_and_its_report_is_kept() {
    let house = Arc::new(house());
    let policy = Policy { timeout: Duration::from_secs(600), ..quick() };
    let world = house.tool("charge", policy, World::new(|_, _| Step::ActUntilStopped));
    let running = tokio::spawn({
        let house = house.clone();
        async move { house.call(call("k", "{}")).await }
    });
    while world.effects() == 0 {
        tokio::task::yield_now().await;
    }
    let found = house.runtime.ledger().search(counterfoil_store::Query::effects(Tenant::new("acme").unwrap())).await.unwrap();
    let key = counterfoil_core::ids::Digest32(found.found[0].stream.0);
    house.runtime.cancel(key, &operator()).await.unwrap();
    assert_eq!(running.await.unwrap().status, Status::Cancelled);
    assert_eq!(house.runtime.effect(key).await.unwrap().late.len(), 1);
}

#[tokio::test]
async fn a_caller_that_goes_away_stops_nothing() {
    let house = Arc::new(house());
    let go = Arc::new(Notify::new());
    let signal = go.clone();
    let world = house.tool(
        "charge",
        Policy { timeout: Duration::from_secs(600), ..quick() },
        World::new(move |_, _| Step::ActWhen(signal.clone())),
    );
    let running = tokio::spawn({
        let house = house.clone();
        async move { house.call(call("k", "{}")).await }
    });
    while world.requests() == 0 {
        tokio::task::yield_now().await;
    }
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    go.notify_one();
    let again = house.call(call("k", "{}")).await;
    assert_eq!((again.status, world.requests(), world.effects()), (Status::Success, 1, 1));
}

#[tokio::test]
async fn shadow_mode_stops_nothing_and_enforce_would_have() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let runtime = Builder::new(store).mode(counterfoil_runtime::Mode::Shadow).build().unwrap();
    let world = Arc::new(World::new(|_, _| Step::Act("1")));
    runtime.register(Registered::new(ToolName::new("charge").unwrap(), Arc::new(WorldTool(world.clone())), quick()));
    for args in ["{}", "{}", "[1]"] {
        let answer = runtime.call(call("k", args)).await;
        assert_eq!((answer.status, answer.replayed), (Status::Success, false), "{args}");
    }
    assert_eq!(world.effects(), 3);
}

#[tokio::test]
async fn secrets_are_scrubbed_from_probes_resolutions_and_failures() {
    let secret = "4242424242424242";
    let policy = Policy { redact: vec![ArgPath::parse("card").unwrap()], ..quick() };
    let args = format!(r#"{{"card":"{secret}"}}"#);
    let echo = format!(r#"{{"card":"{secret}","echo":"card {secret} it was"}}"#);
    let happened = {
        let echo = echo.clone();
        move || ProbeAnswer::Happened(Success::new(counterfoil_core::Json::parse(&echo).unwrap()))
    };
    let house = house();
    house.tool("charge", policy.clone(), World { probe: Some(Box::new(happened)), ..World::new(|_, _| Step::ActAndLose) });
    let refusing = move |_: u32, _: &Invocation| {
        let failure =
            Failure::new("http_400", format!("no card {secret}")).with_detail(counterfoil_core::Json::string(&format!("got {secret}")));
        Step::Refuse(failure)
    };
    house.tool("refuse", policy.clone(), World::new(refusing));
    house.tool("lose", policy, World::new(|_, _| Step::ActAndLose));
    let named = |tool: &str| Call { tool: ToolName::new(tool).unwrap(), ..call("k", &args) };
    assert_eq!(house.call(named("charge")).await.status, Status::Success);
    assert_eq!(code(&house.call(named("refuse")).await), "http_400");
    let lost = house.call(named("lose")).await.effect.unwrap();
    // A person's word is redacted where the policy says: the secret itself is no longer known to look for.
    let result = counterfoil_core::Json::parse(&args).unwrap();
    house.runtime.resolve(lost, Resolution::Happened { result }, &operator()).await.unwrap();
    let tail = house.runtime.ledger().tail(Default::default(), 1000).await.unwrap();
    let leaks: Vec<&str> = tail.iter().map(|r| r.record.body.as_str()).filter(|b| b.contains(secret)).collect();
    assert!(leaks.is_empty(), "{leaks:?}");
}

#[tokio::test]
async fn shadow_mode_never_makes_recovery_dispatch() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let enforcing = house_on(store.clone(), "worker-a");
    let blind = || ProbeAnswer::CannotTell("closed".into());
    enforcing.tool("charge", quick(), World { probe: Some(Box::new(blind)), ..World::new(|_, _| Step::ActAndLose) });
    assert_eq!(enforcing.call(call("k", "{}")).await.status, Status::InDoubt);
    let runtime = Builder::new(store).mode(counterfoil_runtime::Mode::Shadow).build().unwrap();
    let world = Arc::new(World { probe: Some(Box::new(blind)), ..World::new(|_, _| Step::Act("1")) });
    runtime.register(Registered::new(ToolName::new("charge").unwrap(), Arc::new(WorldTool(world.clone())), quick()));
    runtime.recover().await.unwrap();
    runtime.recover().await.unwrap();
    assert_eq!(world.requests(), 0);
}

/// An older worker's late report moves the version of an effect that a newer attempt holds: that attempt's result must not be dropped.
#[tokio::test]
async fn a_late_report_does_not_cost_the_newer_attempt_its_permit() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let (a, b) = (Arc::new(house_on(store.clone(), "worker-a")), Arc::new(house_on(store, "worker-b")));
    let policy = Policy { timeout: Duration::from_secs(60), ..quick() };
    let (go_a, go_b) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let signal = go_a.clone();
    let first = Arc::new(World::new(move |_, _| Step::RefuseWhen(signal.clone())));
    a.runtime.register(Registered::new(ToolName::new("charge").unwrap(), Arc::new(WorldTool(first.clone())), policy.clone()));
    let signal = go_b.clone();
    let second = b.tool("charge", policy, World::new(move |_, _| Step::ActWhen(signal.clone())));
    let slow = tokio::spawn({
        let a = a.clone();
        async move { a.call(call("k", "{}")).await }
    });
    while first.requests() == 0 {
        tokio::task::yield_now().await;
    }
    b.clock.advance(Duration::from_secs(31));
    let doubt = b.call(call("k", "{}")).await.effect.unwrap();
    b.runtime.resolve(doubt, Resolution::DidNotHappen, &operator()).await.unwrap();
    let newer = tokio::spawn({
        let b = b.clone();
        async move { b.call(call("k", "{}")).await }
    });
    while second.requests() == 0 {
        tokio::task::yield_now().await;
    }
    go_a.notify_one();
    while b.runtime.effect(doubt).await.unwrap().late.is_empty() {
        tokio::task::yield_now().await;
    }
    go_b.notify_one();
    let answer = newer.await.unwrap();
    assert_eq!((answer.status, answer.data.as_ref().map(|d| d.as_str())), (Status::Success, Some("\"late\"")), "{answer:?}");
    assert_eq!(slow.await.unwrap().data, answer.data, "and the older caller is told the same");
    assert_eq!((first.effects(), second.effects()), (0, 1));
}

#[tokio::test]
async fn a_refused_repeat_says_nothing_about_the_attempt_whose_answer_was_lost() {
    let house = house();
    let script = |n: u32, _: &Invocation| if n == 1 { Step::ActAndLose } else { Step::Refuse(Failure::new("http_409", "key in use")) };
    let world = house.tool("charge", Policy { repeat: Repeat::Keyed, ..quick() }, World::new(script));
    let answer = house.call(call("k", "{}")).await;
    assert_eq!((answer.status, world.effects()), (Status::InDoubt, 1), "it happened: nobody may call it failed");
}

#[tokio::test]
async fn a_tool_that_panics_over_its_undo_keeps_its_result() {
    struct Panicky;
    impl Tool for Panicky {
        fn invoke(&self, _: Invocation) -> ToolFuture<'_, Outcome> {
            Box::pin(async { Outcome::Done(Success::new(counterfoil_core::Json::null())) })
        }
        fn undo_plan(&self, _: &Invocation, _: &counterfoil_core::Json) -> Result<Option<UndoPlan>, String> {
            panic!("no plan")
        }
    }
    let house = house();
    house.runtime.register(Registered::new(ToolName::new("charge").unwrap(), Arc::new(Panicky), quick()));
    assert_eq!(house.call(call("k", "{}")).await.status, Status::Success);
}

#[tokio::test]
async fn without_a_delay_of_its_own_a_probe_waits_until_the_lost_attempt_must_be_over() {
    let house = house();
    let asked = Arc::new(AtomicU32::new(0));
    let counted = asked.clone();
    let probe = move || {
        counted.fetch_add(1, Ordering::SeqCst);
        ProbeAnswer::DidNotHappen
    };
    let policy = Policy {
        settle_after: None,
        timeout: Duration::from_secs(60),
        wait_max: Duration::ZERO,
        deadline: Duration::from_millis(50),
        ..quick()
    };
    let script = |n: u32, _: &Invocation| if n == 1 { Step::ActAndLose } else { Step::Act("2") };
    let world = house.tool("charge", policy, World { probe: Some(Box::new(probe)), ..World::new(script) });
    house.call(call("k", "{}")).await;
    house.call(call("k", "{}")).await;
    assert_eq!((asked.load(Ordering::SeqCst), world.requests()), (0, 1), "the bank may still be at it");
    house.clock.advance(Duration::from_secs(61));
    house.call(call("k", "{}")).await;
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}
