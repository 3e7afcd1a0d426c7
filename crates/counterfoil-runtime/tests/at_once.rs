//! As many batches are on their way at once as the store was said to do with, and no more; whoever could go with the first does.

#[macro_use]
mod passed_on;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use counterfoil_core::ids::CallKey;
use counterfoil_core::receipt::Receipt;
use counterfoil_core::summary::StreamKind;
use counterfoil_core::{Call, Caller, CanonicalJson, Policy, RunId, Tenant, ToolName};
use counterfoil_runtime::{Builder, FnTool, GATHER_WITHIN, Registered, Runtime, Status};
use counterfoil_store::memory::Memory;
use counterfoil_store::{AppendError, Batch, Eventually, Position, Store};
use tokio::sync::{Semaphore, mpsc};

/// What should come and does not is to fail, not to hang.
async fn in_time<T>(coming: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), coming).await.expect("it comes in time")
}

fn tenant() -> Tenant {
    Tenant::new("acme").unwrap()
}

fn worker(store: Arc<dyn Store>, batches: usize, made: Arc<AtomicUsize>) -> Runtime {
    let runtime = Builder::new(store).batches_at_once(batches).gather_within(GATHER_WITHIN).build().unwrap();
    let charge = FnTool::new(move |_| {
        let made = made.clone();
        async move { Ok(serde_json::json!(made.fetch_add(1, Ordering::SeqCst))) }
    });
    runtime.register(Registered::new(ToolName::new("charge").unwrap(), charge, Policy::default()));
    runtime
}

async fn call(runtime: Runtime, key: String, run: Option<&'static str>) {
    let call = Call {
        tenant: tenant(),
        caller: Caller::new("test").unwrap(),
        tool: ToolName::new("charge").unwrap(),
        args: CanonicalJson::empty_object(),
        key: Some(CallKey::new(&key).unwrap()),
        run: run.map(|run| RunId::new(run).unwrap()),
        step: None,
        ordinal: 0,
    };
    let answer = runtime.call(call).await;
    assert_eq!(answer.status, Status::Success, "{:?}", answer.error);
}

async fn receipts(runtime: &Runtime, run: Option<&str>) -> Vec<Receipt> {
    let run = run.map(|run| RunId::new(run).unwrap());
    runtime.ledger().receipts(&tenant(), run.as_ref()).await.unwrap()
}

fn lanes(receipts: &[Receipt]) -> Vec<u16> {
    receipts.iter().map(|receipt| receipt.lane.0).collect::<BTreeSet<_>>().into_iter().collect()
}

fn effects(batch: &Batch) -> usize {
    batch.writes.iter().filter(|write| write.summary.kind == StreamKind::Effect).count()
}

/// Tells of each append how many effects it is about, and lets one through for each permit.
struct Gate {
    inner: Memory,
    begun: mpsc::UnboundedSender<usize>,
    through: Semaphore,
}

impl Store for Gate {
    fn append<'a>(&'a self, batch: &'a Batch) -> Eventually<'a, Result<Position, AppendError>> {
        Box::pin(async move {
            // Nobody listens when the test is over.
            let (Ok(()) | Err(_)) = self.begun.send(effects(batch));
            self.through.acquire().await.unwrap().forget();
            self.inner.append(batch).await
        })
    }
    passed_on!(inner: load, due, tail, search, prune);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_are_on_their_way_and_the_third_waits_for_one_of_them() {
    let (begun, mut beginning) = mpsc::unbounded_channel();
    let store = Arc::new(Gate { inner: Memory::default(), begun, through: Semaphore::new(0) });
    let made = Arc::new(AtomicUsize::new(0));
    let runtime = worker(store.clone(), 2, made.clone());
    let mut calling = Vec::new();
    for key in ["first", "second"] {
        calling.push(tokio::spawn(call(runtime.clone(), key.into(), None)));
        in_time(beginning.recv()).await.unwrap();
    }
    for key in ["third", "fourth"] {
        calling.push(tokio::spawn(call(runtime.clone(), key.into(), None)));
    }
    in_time(async {
        while runtime.ledger().queue_depth() < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(beginning.try_recv().is_err(), "both writers are away");
    // One comes back and goes again with both; nothing has run on the strength of a claim that is still on its way.
    assert_eq!(made.load(Ordering::SeqCst), 0);
    store.through.add_permits(1);
    assert!(in_time(beginning.recv()).await.unwrap() >= 2);
    store.through.add_permits(Semaphore::MAX_PERMITS / 2);
    for caller in calling {
        in_time(caller).await.unwrap();
    }
    let receipts = receipts(&runtime, None).await;
    assert_eq!((receipts.len(), made.load(Ordering::SeqCst)), (4, 4));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_alone_has_one_writer_and_one_chain() {
    let runtime = worker(Arc::new(Memory::default()), 2, Arc::default());
    for n in 0..200 {
        in_time(call(runtime.clone(), format!("{n}"), None)).await;
    }
    assert!(receipts(&runtime, None).await.iter().map(|receipt| (receipt.lane.0, receipt.seq)).eq((1..=200).map(|seq| (0, seq))));
}

/// Every append takes a while, so that there is always one on its way.
struct Slow(Memory);

impl Store for Slow {
    fn append<'a>(&'a self, batch: &'a Batch) -> Eventually<'a, Result<Position, AppendError>> {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            self.0.append(batch).await
        })
    }
    passed_on!(0: load, due, tail, search, prune);
}

/// Remembers how many effects its largest batch was about.
struct Measured {
    inner: Slow,
    largest: AtomicUsize,
}

impl Store for Measured {
    fn append<'a>(&'a self, batch: &'a Batch) -> Eventually<'a, Result<Position, AppendError>> {
        self.largest.fetch_max(effects(batch), Ordering::SeqCst);
        self.inner.append(batch)
    }
    passed_on!(inner: load, due, tail, search, prune);
}

/// Callers that were all in one batch would all come back at once: then the store waits for them, and they for the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn none_takes_what_would_be_anothers_share() {
    const CALLERS: usize = 50;
    let store = Arc::new(Measured { inner: Slow(Memory::default()), largest: AtomicUsize::new(0) });
    let made = Arc::new(AtomicUsize::new(0));
    let runtime = worker(store.clone(), 2, made.clone());
    let one = |caller: usize, runtime: Runtime| async move {
        for n in 0..20 {
            call(runtime.clone(), format!("{caller}/{n}"), None).await;
        }
    };
    let callers: Vec<_> = (0..CALLERS).map(|caller| tokio::spawn(one(caller, runtime.clone()))).collect();
    for caller in callers {
        in_time(caller).await.unwrap();
    }
    assert_eq!(made.load(Ordering::SeqCst), CALLERS * 20);
    let largest = store.largest.load(Ordering::SeqCst);
    assert!((2..=CALLERS / 2).contains(&largest), "{largest} of {CALLERS}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_leave_each_a_receipt_and_every_chain_is_whole() {
    // More than may go in one batch.
    const CALLERS: usize = 48;
    const CALLS: usize = 12;
    let made = Arc::new(AtomicUsize::new(0));
    let runtime = worker(Arc::new(Slow(Memory::default())), 2, made.clone());
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let runtime = runtime.clone();
            // Half of them in one run: its chain is written by both writers in turns.
            let run = (caller % 2 == 0).then_some("trip");
            tokio::spawn(async move {
                for n in 0..CALLS {
                    call(runtime.clone(), format!("{caller}/{n}"), run).await;
                    // Asked again by someone who did not hear the answer.
                    call(runtime.clone(), format!("{caller}/{n}"), run).await;
                }
            })
        })
        .collect();
    for caller in callers {
        in_time(caller).await.unwrap();
    }
    let (outside, inside) = (receipts(&runtime, None).await, receipts(&runtime, Some("trip")).await);
    assert_eq!((outside.len(), inside.len()), (CALLERS * CALLS / 2, CALLERS * CALLS / 2));
    assert_eq!(made.load(Ordering::SeqCst), CALLERS * CALLS);
    assert_eq!((lanes(&outside), lanes(&inside)), (vec![0, 1], vec![0]));
    let effects: BTreeSet<_> = outside.iter().chain(&inside).map(|receipt| receipt.effect).collect();
    assert_eq!(effects.len(), CALLERS * CALLS, "each has one");
}
