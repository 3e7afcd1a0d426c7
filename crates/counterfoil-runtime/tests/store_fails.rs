//! No ledger, no execution: a store that fails at every possible append, between a real runtime and a counted world.

#[macro_use]
mod passed_on;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use counterfoil_core::decide::Attempt;
use counterfoil_core::entry::{Entry, Opened};
use counterfoil_core::ids::{CallKey, Digest32};
use counterfoil_core::policy::{Jitter, RetryPolicy};
use counterfoil_core::{Call, Caller, CanonicalJson, Fence, Json, Policy, Tenant, Timestamp, ToolName};
use counterfoil_runtime::{Acquired, Answer, Beside, Builder, ClientTool, CommitHow, FnTool, PermitId, Registered, Runtime, Status};
use counterfoil_store::memory::Memory;
use counterfoil_store::{AppendError, Batch, Eventually, Position, Store, StoreError, Written};

/// Passes everything on but the appends it is told to fail.
struct Failing {
    inner: Memory,
    /// Appends until the first failure; negative: failing now.
    good: AtomicI64,
    written: Written,
}

impl Failing {
    fn after(good: i64, written: Written) -> Arc<Self> {
        Arc::new(Self { inner: Memory::default(), good: AtomicI64::new(good), written })
    }
    fn mend(&self) {
        self.good.store(i64::MAX, Ordering::SeqCst);
    }
}

impl Store for Failing {
    fn append<'a>(&'a self, batch: &'a Batch) -> Eventually<'a, Result<Position, AppendError>> {
        let fails = self.good.fetch_sub(1, Ordering::SeqCst) <= 0;
        Box::pin(async move {
            if !fails {
                return self.inner.append(batch).await;
            }
            if self.written == Written::Perhaps {
                // The worst of both: it is written, and the caller is told that it may not be.
                self.inner.append(batch).await?;
            }
            Err(StoreError::Unavailable { message: "no space left on device".into(), written: self.written }.into())
        })
    }
    passed_on!(inner: load, due, tail, search, prune);
}

fn runtime(store: Arc<Failing>) -> (Runtime, Arc<AtomicU32>) {
    let runtime = Builder::new(store).build().unwrap();
    let world = Arc::new(AtomicU32::new(0));
    let counted = world.clone();
    let tool = FnTool::new(move |_| {
        let counted = counted.clone();
        async move {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(serde_json::json!(7))
        }
    });
    let retry = RetryPolicy { first: Duration::from_millis(1), jitter: Jitter::Off, ..RetryPolicy::default() };
    runtime.register(Registered::new(ToolName::new("charge").unwrap(), tool, Policy { retry, ..Policy::default() }));
    (runtime, world)
}

async fn call(runtime: &Runtime) -> Answer {
    runtime.call(charge()).await
}

fn charge() -> Call {
    Call {
        tenant: Tenant::new("acme").unwrap(),
        caller: Caller::new("test").unwrap(),
        tool: ToolName::new("charge").unwrap(),
        args: CanonicalJson::empty_object(),
        key: Some(CallKey::new("k").unwrap()),
        run: None,
        step: None,
        ordinal: 0,
    }
}

#[tokio::test]
async fn a_claim_that_is_not_durable_dispatches_nothing() {
    let store = Failing::after(0, Written::No);
    let (runtime, world) = runtime(store.clone());
    let refused = call(&runtime).await;
    let error = refused.error.unwrap();
    assert_eq!((error.code.as_str(), error.retriable, world.load(Ordering::SeqCst)), ("store_unavailable", true, 0));
    assert!(error.message.contains("no space left") && error.message.contains("Nothing was run"), "{}", error.message);
    store.mend();
    assert_eq!(call(&runtime).await.status, Status::Success, "the same key works when the disk has room again");
    assert_eq!(world.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_claim_that_may_be_written_dispatches_nothing_either() {
    let store = Failing::after(0, Written::Perhaps);
    let (runtime, world) = runtime(store.clone());
    assert_eq!(call(&runtime).await.error.unwrap().code, "store_unavailable");
    assert_eq!(world.load(Ordering::SeqCst), 0);
    store.mend();
    // The worker gives the claim back by itself: it knows that it dispatched nothing.
    assert_eq!(call(&runtime).await.status, Status::Success);
    assert_eq!(world.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_doubt_stays_a_doubt_when_the_ledger_fails_after_it() {
    // Claim and outcome go through; then the lost answer's repeat cannot be claimed.
    let store = Failing::after(2, Written::No);
    let runtime = Builder::new(store.clone()).build().unwrap();
    let lose = FnTool::new(|_| async {
        Err(counterfoil_runtime::ToolError::Unknown(counterfoil_core::Failure::new("connection_lost", "hung up")))
    });
    let retry = RetryPolicy { first: Duration::from_millis(1), jitter: Jitter::Off, ..RetryPolicy::default() };
    let policy = Policy { retry, repeat: counterfoil_core::Repeat::Keyed, ..Policy::default() };
    runtime.register(Registered::new(ToolName::new("charge").unwrap(), lose, policy));
    let answer = call(&runtime).await;
    assert_eq!((answer.status, answer.outcome), (Status::InDoubt, "in_doubt"), "{answer:?}");
    assert!(!answer.error.unwrap().message.contains("Nothing was run"));
}

#[tokio::test]
async fn an_outcome_that_cannot_be_recorded_is_not_answered_and_comes_in_when_the_store_is_back() {
    for written in [Written::No, Written::Perhaps] {
        let store = Failing::after(1, written);
        let (runtime, world) = runtime(store.clone());
        let doubtful = call(&runtime).await;
        assert_eq!((doubtful.status, doubtful.data, world.load(Ordering::SeqCst)), (Status::InDoubt, None, 1));
        assert_eq!(doubtful.error.unwrap().code, "store_unavailable");
        store.mend();
        // Waits for the running claim; its report comes in behind the scenes.
        let settled = call(&runtime).await;
        assert_eq!((settled.status, settled.replayed), (Status::Success, true), "{written:?}");
        assert_eq!((settled.data.unwrap().as_str(), world.load(Ordering::SeqCst)), ("7", 1));
        let receipts = runtime.ledger().receipts(&Tenant::new("acme").unwrap(), None).await.unwrap();
        assert_eq!(receipts.iter().filter(|r| r.outcome == "done").count(), 1, "{written:?}");
    }
}

/// No permit without a durable claim. One that may be written stays: what was written with it may be all that the client will ever read.
#[tokio::test]
async fn a_permit_is_lent_only_when_its_claim_is_durable() {
    for (written, then) in [(Written::No, None), (Written::Perhaps, Some("in_flight"))] {
        let store = Failing::after(0, written);
        let runtime = client_runtime(store.clone());
        assert_eq!(refused(runtime.acquire(charge(), None, Beside::default()).await.unwrap()).as_deref(), Some("store_unavailable"));
        store.mend();
        let again = runtime.acquire(charge(), None, Beside::default()).await.unwrap();
        assert_eq!(refused(again).as_deref(), then, "{written:?}");
    }
}

#[tokio::test]
async fn a_commit_that_could_not_be_recorded_can_be_made_again() {
    for (written, how) in [(Written::No, CommitHow::Recorded), (Written::Perhaps, CommitHow::Repeated)] {
        let store = Failing::after(1, written);
        let runtime = client_runtime(store.clone());
        let Acquired::Lent(lent) = runtime.acquire(charge(), None, Beside::default()).await.unwrap() else { panic!("not lent") };
        let permit = PermitId { tenant: charge().tenant, key: lent.key, fence: lent.fence };
        let commit = async || runtime.commit(&permit, Json::parse("7").unwrap(), Beside::default()).await;
        assert_eq!(commit().await.unwrap_err().code(), "store_unavailable");
        store.mend();
        assert_eq!(commit().await.unwrap().1, how, "{written:?}");
        assert_eq!(runtime.effect(lent.key).await.unwrap().version, 2, "recorded once");
    }
}

fn client_runtime(store: Arc<Failing>) -> Runtime {
    let runtime = Builder::new(store).build().unwrap();
    runtime.register(Registered::new(ToolName::new("charge").unwrap(), Arc::new(ClientTool), Policy::default()));
    runtime
}

/// The code of what stood in the way; `None` when the permit was lent.
fn refused(acquired: Acquired) -> Option<String> {
    match acquired {
        Acquired::Lent(_) => None,
        Acquired::Answer(answer) => answer.error.map(|error| error.code),
    }
}

/// The claim that a lost connection left open was not written; the same call was made again, under the same fence, and is under way. Giving back
/// the first must not free the second: it would run twice.
#[tokio::test]
async fn a_claim_is_given_back_only_if_it_is_the_very_one() {
    let (runtime, _) = runtime(Failing::after(i64::MAX, Written::No));
    let ledger = runtime.ledger();
    let (call, lease) = (charge(), Duration::from_secs(30));
    let key = Digest32::of(b"an effect");
    let opened = Opened {
        at: Timestamp(1),
        tenant: call.tenant,
        caller: call.caller,
        tool: call.tool,
        fingerprint: call.args.fingerprint(),
        args: call.args,
        run: None,
        step: None,
        redacted: false,
        settles: false,
        lent: false,
        retain_ms: 1000,
    };
    let attempt = Attempt { number: 1, fence: Fence(1) };
    let (unwritten, written) = (ledger.claim(attempt, lease), ledger.claim(attempt, lease));
    let absent = ledger.load(key).await.unwrap();
    ledger.begin(&absent, &written, lease, Some(Entry::Opened(opened)), Vec::new()).await.unwrap();
    let state = async || ledger.load(key).await.unwrap().state.word();
    ledger.release(key, &unwritten, "it could not be confirmed").await.unwrap();
    assert_eq!(state().await, "running");
    ledger.release(key, &written, "it could not be confirmed").await.unwrap();
    assert_eq!(state().await, "ready");
}
