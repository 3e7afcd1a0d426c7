//! Freed keys, with a world that counts and remembers which key it was told.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use counterfoil_core::ids::CallKey;
use counterfoil_core::{
    Call, Caller, CanonicalJson, EffectKey, Failure, Json, Outcome, Policy, RunId, State, Success, Tenant, Timestamp, ToolName,
};
use counterfoil_runtime::tool::{ToolFuture, UndoPlan};
use counterfoil_runtime::{
    Answer, Builder, Clock, Flushed, Invocation, OperateError, Operator, ProbeAnswer, Registered, Resolution, Runtime, Status, SystemClock,
    Tool,
};
use counterfoil_store::Store;
use counterfoil_store::memory::Memory;
use tokio::sync::Notify;

#[derive(Default)]
struct MovedClock(AtomicI64);
impl MovedClock {
    fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_micros() as i64, Ordering::SeqCst);
    }
}
impl Clock for MovedClock {
    fn now(&self) -> Timestamp {
        Timestamp(SystemClock.now().0 + self.0.load(Ordering::SeqCst))
    }
}

enum Says {
    /// Acts, and the answer is lost.
    Lost,
    /// Acts when told to.
    When(Arc<Notify>),
}

/// Acts, and answers with how often it has, unless it was told otherwise.
#[derive(Default)]
struct World {
    next: Mutex<VecDeque<Says>>,
    sent: Mutex<Vec<EffectKey>>,
    probed: Mutex<Vec<EffectKey>>,
    undo: bool,
}

impl World {
    fn acted(&self) -> usize {
        self.sent.lock().unwrap().len()
    }
    fn then(&self, says: Says) {
        self.next.lock().unwrap().push_back(says);
    }
}

struct WorldTool(Arc<World>);
impl Tool for WorldTool {
    fn invoke(&self, invocation: Invocation) -> ToolFuture<'_, Outcome> {
        Box::pin(async move {
            let n = {
                let mut sent = self.0.sent.lock().unwrap();
                sent.push(invocation.key);
                sent.len()
            };
            let says = self.0.next.lock().unwrap().pop_front();
            match says {
                None => {}
                Some(Says::When(signal)) => signal.notified().await,
                Some(Says::Lost) => return Outcome::Unknown(Failure::of_dependency("connection_lost", "hung up")),
            }
            Outcome::Done(Success::new(Json::parse(&n.to_string()).unwrap()))
        })
    }
    fn can_probe(&self) -> bool {
        true
    }
    fn probe(&self, invocation: Invocation) -> ToolFuture<'_, ProbeAnswer> {
        self.0.probed.lock().unwrap().push(invocation.key);
        Box::pin(async { ProbeAnswer::CannotTell("closed".into()) })
    }
    fn undo_plan(&self, _: &Invocation, result: &Json) -> Result<Option<UndoPlan>, String> {
        let args = CanonicalJson::parse(&format!("[{result}]")).map_err(|e| e.to_string())?;
        Ok(self.0.undo.then(|| UndoPlan { tool: name("refund"), args }))
    }
}

struct House {
    runtime: Runtime,
    clock: Arc<MovedClock>,
}

fn house_on(store: Arc<dyn Store>) -> House {
    let clock = Arc::new(MovedClock::default());
    let runtime = Builder::new(store).clock(clock.clone()).build().unwrap();
    House { runtime, clock }
}

fn house() -> House {
    house_on(Arc::new(Memory::default()))
}

impl House {
    fn tool(&self, tool: &str, policy: Policy, world: World) -> Arc<World> {
        let world = Arc::new(world);
        self.runtime.register(Registered::new(name(tool), Arc::new(WorldTool(world.clone())), policy));
        world
    }
    async fn call(&self, key: &str, args: &str) -> Answer {
        self.runtime.call(call(key, args)).await
    }
    async fn flush(&self, answer: &Answer) -> Result<counterfoil_core::Effect, OperateError> {
        self.runtime.flush(answer.effect.unwrap(), &ann()).await
    }
}

fn name(tool: &str) -> ToolName {
    ToolName::new(tool).unwrap()
}

fn quick() -> Policy {
    Policy { timeout: Duration::from_secs(5), settle_after: Some(Duration::ZERO), ..Policy::default() }
}

fn ann() -> Operator {
    Operator::new("ann", "the customer wants it twice")
}

fn acme() -> Tenant {
    Tenant::new("acme").unwrap()
}

fn call(key: &str, args: &str) -> Call {
    Call {
        tenant: acme(),
        caller: Caller::new("test").unwrap(),
        tool: name("charge"),
        args: CanonicalJson::parse(args).unwrap(),
        key: CallKey::new(key).ok(),
        run: None,
        step: None,
        ordinal: 0,
    }
}

fn told(answer: &Answer) -> (Status, &str, bool) {
    let error = answer.error.as_ref().map(|e| e.code.as_str());
    (answer.status, answer.data.as_ref().map(|d| d.as_str()).or(error).unwrap_or(""), answer.replayed)
}

#[tokio::test]
async fn a_flushed_key_is_a_new_call_and_no_other_key_is_touched() {
    let house = house();
    let world = house.tool("charge", quick(), World::default());
    let first = house.call("k", "{}").await;
    assert_eq!(told(&house.call("other", "{}").await), (Status::Success, "2", false));
    let flushed = house.flush(&first).await.unwrap();
    assert!(matches!(flushed.state, State::Flushed { .. }));
    let again = house.call("k", "[1]").await;
    assert_eq!((told(&again), again.effect), ((Status::Success, "3", false), first.effect), "one stream, other arguments");
    assert_eq!(told(&house.call("k", "[1]").await), (Status::Success, "3", true));
    assert_eq!(told(&house.call("k", "{}").await).1, "key_reuse_mismatch");
    assert_eq!(told(&house.call("other", "{}").await), (Status::Success, "2", true));
    assert_eq!(world.acted(), 3);
    let sent = world.sent.lock().unwrap().clone();
    assert_eq!(Some(sent[0]), first.effect);
    assert_ne!(sent[2], sent[0], "a provider that honours keys must not take it for the first");
    let history = house.runtime.history(first.effect.unwrap()).await.unwrap();
    let entry = history.iter().find_map(|line| line["entry"].get("flushed")).expect("an entry of its own");
    assert_eq!((entry["by"].as_str(), entry["why"].as_str()), (Some("ann"), Some("the customer wants it twice")));
    let receipts = house.runtime.ledger().receipts(&acme(), None).await.unwrap();
    let said: Vec<_> = receipts.iter().map(|r| (r.outcome.as_str(), r.by.as_deref())).collect();
    assert_eq!(said, [("done", None), ("done", None), ("flushed", Some("ann")), ("done", None)]);
    assert!(receipts[2].covers(&name("charge"), &CanonicalJson::empty_object()), "it speaks of what was flushed");
}

#[tokio::test]
async fn what_is_not_over_for_certain_is_not_flushed() {
    let house = house();
    let world = house.tool("charge", quick(), World::default());
    world.then(Says::Lost);
    let doubt = house.call("k", "{}").await;
    assert_eq!(doubt.status, Status::InDoubt);
    let refused = house.flush(&doubt).await.unwrap_err();
    assert!(matches!(&refused, OperateError::WrongState { state: "in_doubt", .. }), "{refused}");
    assert_eq!(house.call("k", "{}").await.status, Status::InDoubt);
    assert_eq!(world.acted(), 1, "nothing was run on the way");
    let result = Json::parse("7").unwrap();
    house.runtime.resolve(doubt.effect.unwrap(), Resolution::Happened { result }, &ann()).await.unwrap();
    house.flush(&doubt).await.unwrap();
    assert!(matches!(house.flush(&doubt).await, Err(OperateError::WrongState { state: "flushed", .. })), "once is enough");
    assert_eq!(told(&house.call("k", "{}").await), (Status::Success, "2", false));
    let unknown = EffectKey::of(b"nobody's");
    assert!(matches!(house.runtime.flush(unknown, &ann()).await, Err(OperateError::NotFound(_))));
}

#[tokio::test]
async fn a_running_effect_is_not_flushed() {
    let house = house();
    let world = house.tool("charge", quick(), World::default());
    let go = Arc::new(Notify::new());
    world.then(Says::When(go.clone()));
    let running = tokio::spawn({
        let runtime = house.runtime.clone();
        async move { runtime.call(call("k", "{}")).await }
    });
    while world.acted() == 0 {
        tokio::task::yield_now().await;
    }
    let key = world.sent.lock().unwrap()[0];
    assert!(matches!(house.runtime.flush(key, &ann()).await, Err(OperateError::WrongState { state: "running", .. })));
    go.notify_one();
    assert_eq!(told(&running.await.unwrap()), (Status::Success, "1", false));
}

#[tokio::test]
async fn a_doubt_after_a_flush_is_asked_about_by_its_own_key() {
    let house = house();
    let world = house.tool("charge", quick(), World::default());
    let first = house.call("k", "{}").await;
    house.flush(&first).await.unwrap();
    world.then(Says::Lost);
    assert_eq!(house.call("k", "{}").await.status, Status::InDoubt);
    let (sent, probed) = (world.sent.lock().unwrap().clone(), world.probed.lock().unwrap().clone());
    assert_eq!(probed, [sent[1]], "a probe for the first key would find the first charge");
}

#[tokio::test]
async fn what_a_flushed_key_did_next_has_an_undo_of_its_own() {
    let house = house();
    let world = house.tool("charge", quick(), World { undo: true, ..World::default() });
    let refunds = house.tool("refund", quick(), World::default());
    for n in 1..=2 {
        let done = house.call("k", "{}").await;
        assert_eq!(told(&done), (Status::Success, n.to_string().as_str(), false));
        let key = done.effect.unwrap();
        assert_eq!(house.runtime.undo(key, &ann()).await.unwrap().status, Status::Success);
        assert!(matches!(house.runtime.effect(key).await.unwrap().state, State::Undone { .. }));
        assert_eq!(refunds.acted(), n, "each charge is refunded");
        house.flush(&done).await.unwrap();
    }
    assert_eq!(world.acted(), 2);
}

#[tokio::test]
async fn all_finished_effects_of_a_tool_in_slices() {
    let house = house();
    let world = house.tool("charge", quick(), World { undo: true, ..World::default() });
    let refunds = house.tool("refund", quick(), World::default());
    for n in 0..5 {
        house.call(&format!("k{n}"), "{}").await;
    }
    world.then(Says::Lost);
    house.call("doubt", "{}").await;
    let undone = house.call("k4", "{}").await.effect.unwrap();
    house.runtime.undo(undone, &ann()).await.unwrap();
    let stranger = Call { tenant: Tenant::new("other").unwrap(), ..call("k0", "{}") };
    house.runtime.call(stranger.clone()).await;
    let all = Flushed { flushed: 5, skipped: 0, more: false };
    assert_eq!(house.runtime.flushable(&acme(), &name("charge")).await.unwrap(), all);
    let (tenant, tool, operator) = (acme(), name("charge"), ann());
    let flush = |limit| house.runtime.flush_tool(&tenant, &tool, &operator, limit);
    assert_eq!(flush(3).await.unwrap(), Flushed { flushed: 3, skipped: 0, more: true });
    assert_eq!(flush(100).await.unwrap(), Flushed { flushed: 2, skipped: 0, more: false });
    assert_eq!(flush(100).await.unwrap(), Flushed::default());
    let none = house.runtime.flush_tool(&acme(), &name("refund"), &ann(), 100).await.unwrap();
    assert_eq!(none, Flushed { flushed: 0, skipped: 1, more: false }, "an undo is never flushed");
    let before = world.acted();
    for n in 0..5 {
        assert!(!house.call(&format!("k{n}"), "{}").await.replayed);
    }
    assert_eq!(house.call("doubt", "{}").await.status, Status::InDoubt);
    assert!(house.runtime.call(stranger).await.replayed, "another tenant's are its own");
    assert_eq!((world.acted(), refunds.acted()), (before + 5, 1));
}

#[tokio::test]
async fn a_freed_key_that_nobody_used_expires_like_any_other() {
    let house = house();
    let world = house.tool("charge", Policy { retain: Duration::from_secs(60), ..quick() }, World::default());
    let first = house.call("k", "{}").await;
    house.clock.advance(Duration::from_secs(59));
    house.flush(&first).await.unwrap();
    house.clock.advance(Duration::from_secs(59));
    assert_eq!(house.runtime.ledger().prune(100).await.unwrap().streams, 0, "the flush began a new time");
    house.clock.advance(Duration::from_secs(1));
    assert_eq!(told(&house.call("k", "{}").await).1, "key_expired");
    assert_eq!(house.runtime.ledger().prune(100).await.unwrap().streams, 1);
    assert_eq!(told(&house.call("k", "{}").await).1, "key_expired");
    assert_eq!(world.acted(), 1);
}

/// Its worker was lost, a person said that it had not happened, another worker did it, and that was flushed. Then the lost one wakes up.
#[tokio::test]
async fn who_acted_before_the_flush_does_not_act_again_and_is_heard() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let (a, b) = (house_on(store.clone()), house_on(store));
    let policy = Policy { timeout: Duration::from_secs(60), ..quick() };
    let slow = a.tool("charge", policy.clone(), World::default());
    let go = Arc::new(Notify::new());
    slow.then(Says::When(go.clone()));
    let hanging = tokio::spawn({
        let runtime = a.runtime.clone();
        async move { runtime.call(call("k", "{}")).await }
    });
    while slow.acted() == 0 {
        tokio::task::yield_now().await;
    }
    let healthy = b.tool("charge", policy, World::default());
    b.clock.advance(Duration::from_secs(31));
    let doubt = b.call("k", "{}").await;
    b.runtime.resolve(doubt.effect.unwrap(), Resolution::DidNotHappen, &ann()).await.unwrap();
    assert_eq!(told(&b.call("k", "{}").await), (Status::Success, "1", false));
    b.flush(&doubt).await.unwrap();
    go.notify_one();
    let late = hanging.await.unwrap();
    assert_eq!((told(&late).1, late.outcome), ("flushed", "in_doubt"), "{late:?}");
    assert_eq!((slow.acted(), healthy.acted()), (1, 1), "the key is free, and not for whoever had its turn");
    let effect = b.runtime.effect(doubt.effect.unwrap()).await.unwrap();
    assert_eq!((effect.state.word(), effect.late.len()), ("flushed", 1), "what it reported is kept");
}

#[tokio::test]
async fn a_flushed_call_of_a_run_pays_again() {
    let house = house();
    let mut policy = quick();
    policy.limits.per_run = Some(2);
    let world = house.tool("charge", policy, World::default());
    let call = Call { run: RunId::new("r1").ok(), ..call("k", "{}") };
    for n in 1..=3 {
        let answer = house.runtime.call(call.clone()).await;
        match n {
            3 => assert_eq!(told(&answer).1, "budget_exceeded"),
            _ => drop(house.flush(&answer).await.unwrap()),
        }
    }
    assert_eq!(world.acted(), 2);
}
