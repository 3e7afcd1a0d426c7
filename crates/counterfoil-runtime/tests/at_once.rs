//! As many batches are on their way at once as the store was said to do with, and no more; whoever could go with the first does. And nobody is told of a
//! record before those of the same stream are that precede it.

#[macro_use]
mod passed_on;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use counterfoil_core::ids::CallKey;
use counterfoil_core::receipt::Receipt;
use counterfoil_core::summary::StreamKind;
use counterfoil_core::{Call, Caller, CanonicalJson, Policy, RunId, StreamId, Summary, Tenant, Timestamp, ToolName};
use counterfoil_runtime::{Builder, FnTool, GATHER_WITHIN, Registered, Runtime, Status};
use counterfoil_store::memory::Memory;
use counterfoil_store::{AppendError, Batch, Eventually, Position, Reach, Store, Version, Write};
use futures_util::FutureExt;
use futures_util::future::poll_immediate;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

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

fn gate() -> (Arc<Gate>, mpsc::UnboundedReceiver<usize>) {
    let (begun, beginning) = mpsc::unbounded_channel();
    (Arc::new(Gate { inner: Memory::default(), begun, through: Semaphore::new(0) }), beginning)
}

/// Looks on while the others run. No clock passes meanwhile, so looks are counted: many times those that a test needs.
async fn soon(mut there: impl FnMut() -> bool) {
    for _ in 0..1_000_000 {
        if there() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("it does not come");
}

async fn waiting(runtime: &Runtime, count: usize) {
    soon(|| runtime.ledger().queue_depth() >= count).await;
}

#[tokio::test(start_paused = true)]
async fn few_wait_for_a_batch_that_is_soon_back() {
    let (store, mut beginning) = gate();
    let runtime = worker(store.clone(), 2, Arc::default());
    let first = tokio::spawn(call(runtime.clone(), "first".into(), None));
    in_time(beginning.recv()).await.unwrap();
    let others = ["second", "third"].map(|key| tokio::spawn(call(runtime.clone(), key.into(), None)));
    waiting(&runtime, 2).await;
    assert!(beginning.try_recv().is_err(), "one is away, and nobody goes beside it");
    store.through.add_permits(1);
    assert!(in_time(beginning.recv()).await.unwrap() >= 2, "both go when it is back");
    store.through.add_permits(Semaphore::MAX_PERMITS / 2);
    in_time(first).await.unwrap();
    for other in others {
        in_time(other).await.unwrap();
    }
}

fn write(stream: StreamId, expected: u64) -> Write {
    let summary =
        Summary { kind: StreamKind::Effect, tenant: tenant(), state: "", tool: None, run: None, open: false, due: None, expires: None };
    Write { stream, expected: Version(expected), at: Timestamp(0), body: "1[]".into(), summary }
}

/// It is in the queue, and not answered yet.
async fn submitted(appending: &mut (impl Future + Unpin)) {
    assert!(poll_immediate(appending).await.is_none());
}

/// Found by the simulator: a worker told its caller the result of a late report, and then heard that a claim of before it was durable, and called the tool.
#[tokio::test(start_paused = true)]
async fn what_names_a_stream_that_is_away_goes_behind_it() {
    let (store, mut beginning) = gate();
    let runtime = worker(store.clone(), 2, Arc::default());
    let away = StreamId([7; 32]);
    let append = |stream: StreamId, expected: u64| {
        let (runtime, write) = (runtime.clone(), write(stream, expected));
        tokio::spawn(async move { runtime.ledger().append(vec![write]).await })
    };
    let first = append(away, 0);
    in_time(beginning.recv()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    // Of these only the last may go beside it.
    let (second, third, other) = (append(away, 1), append(away, 2), append(StreamId([8; 32]), 0));
    assert_eq!(in_time(beginning.recv()).await, Some(1));
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(beginning.try_recv().is_err(), "both writers are away");
    store.through.add_permits(Semaphore::MAX_PERMITS / 2);
    for appended in [first, second, third, other] {
        in_time(appended).await.unwrap().unwrap();
    }
}

/// A connection may say nothing for seconds, and the other be well: outcomes and leases do not wait for it, whenever they came.
#[tokio::test(start_paused = true)]
async fn whoever_does_not_come_back_is_not_waited_for() {
    for after in [Duration::ZERO, Duration::from_millis(1), Duration::from_millis(20)] {
        let (store, mut beginning) = gate();
        let runtime = worker(store.clone(), 2, Arc::default());
        let hung = tokio::spawn(call(runtime.clone(), "hung".into(), None));
        in_time(beginning.recv()).await.unwrap();
        tokio::time::sleep(after).await;
        let other = tokio::spawn(call(runtime.clone(), "other".into(), None));
        assert_eq!(in_time(beginning.recv()).await, Some(1), "beside the one that is away, {after:?} after it went");
        store.through.add_permits(Semaphore::MAX_PERMITS / 2);
        for caller in [hung, other] {
            in_time(caller).await.unwrap();
        }
    }
}

/// What was submitted is written, whoever waits for it and whichever writer is done first.
#[tokio::test(start_paused = true)]
async fn what_waits_behind_a_batch_is_written_after_everyone_has_gone() {
    let (store, mut beginning) = gate();
    let runtime = worker(store.clone(), 2, Arc::default());
    let stream = StreamId([7; 32]);
    for expected in [0, 1] {
        // It is in the queue, and its caller goes away.
        submitted(&mut Box::pin(runtime.ledger().append(vec![write(stream, expected)]))).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(in_time(beginning.recv()).await, Some(1));
    assert_eq!(runtime.ledger().queue_depth(), 1, "behind the one that is away with its stream");
    drop(runtime);
    // The other writer has nothing more to do, and ends.
    tokio::time::sleep(Duration::from_millis(20)).await;
    store.through.add_permits(2);
    soon(|| store.inner.load(stream, Reach::Whole).now_or_never().unwrap().unwrap().version == Version(2)).await;
}

/// Many are told by a task. Few, whom a writer's thread tells itself, do not overtake them.
#[tokio::test]
async fn few_are_not_told_before_many_that_were_written_before_them() {
    let (store, mut beginning) = gate();
    let runtime = Builder::new(store.clone()).build().unwrap();
    let append = |stream: u8, expected: u64| Box::pin(runtime.ledger().append(vec![write(StreamId([stream; 32]), expected)]));
    let mut first = append(0, 0);
    submitted(&mut first).await;
    in_time(beginning.recv()).await.unwrap();
    let mut many: Vec<_> = (1..20).map(|stream| append(stream, 0)).collect();
    for appending in &mut many {
        submitted(appending).await;
    }
    store.through.add_permits(1);
    in_time(first).await.unwrap();
    assert_eq!(in_time(beginning.recv()).await, Some(many.len()));
    // From here on nothing else runs on this thread, so no task tells anyone.
    store.through.add_permits(Semaphore::MAX_PERMITS / 2);
    let durable = |version: u64| {
        let until = std::time::Instant::now() + Duration::from_secs(60);
        while store.inner.load(StreamId([1; 32]), Reach::Newest(1)).now_or_never().unwrap().unwrap().version != Version(version) {
            assert!(std::time::Instant::now() < until, "it is written in time");
            std::thread::yield_now();
        }
    };
    durable(1);
    let mut after = append(1, 1);
    submitted(&mut after).await;
    durable(2);
    // A writer is done with the callers of one batch when it takes the next.
    let mut last = append(1, 2);
    submitted(&mut last).await;
    durable(3);
    let told = poll_immediate(&mut after).await.is_some();
    assert_eq!((poll_immediate(&mut many[0]).await.is_some(), told), (false, false), "before the many");
    in_time(last).await.unwrap();
    for appending in many.into_iter().chain([after]) {
        assert!(poll_immediate(appending).await.unwrap().is_ok(), "all before the last");
    }
}

#[test]
fn a_writer_that_never_began_is_not_waited_for() {
    let current = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // Its tasks end with this one, before they are ever looked at.
    let runtime = current().block_on(async { worker(Arc::new(Memory::default()), 2, Arc::default()) });
    let refused = current().block_on(in_time(runtime.ledger().append(vec![write(StreamId([7; 32]), 0)]))).unwrap_err();
    assert!(refused.to_string().contains("closed"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn of_a_distant_store_two_are_on_their_way_and_the_third_waits_for_one_of_them() {
    let (store, mut beginning) = gate();
    let made = Arc::new(AtomicUsize::new(0));
    let runtime = worker(store.clone(), 2, made.clone());
    let distant = tokio::spawn(call(runtime.clone(), "distant".into(), None));
    // As long as the way there takes.
    let way = || tokio::time::sleep(Duration::from_millis(20));
    for _ in ["claim", "outcome"] {
        in_time(beginning.recv()).await.unwrap();
        way().await;
        store.through.add_permits(1);
    }
    in_time(distant).await.unwrap();
    let mut calling = Vec::new();
    for key in ["first", "second"] {
        calling.push(tokio::spawn(call(runtime.clone(), key.into(), None)));
        in_time(beginning.recv()).await.unwrap();
    }
    for key in ["third", "fourth"] {
        calling.push(tokio::spawn(call(runtime.clone(), key.into(), None)));
    }
    waiting(&runtime, 2).await;
    assert!(beginning.try_recv().is_err(), "both writers are away");
    // One comes back and goes again with both; nothing has run on the strength of a claim that is still on its way.
    assert_eq!(made.load(Ordering::SeqCst), 1);
    way().await;
    store.through.add_permits(1);
    assert!(in_time(beginning.recv()).await.unwrap() >= 2);
    store.through.add_permits(Semaphore::MAX_PERMITS / 2);
    for caller in calling {
        in_time(caller).await.unwrap();
    }
    let receipts = receipts(&runtime, None).await;
    assert_eq!((receipts.len(), made.load(Ordering::SeqCst)), (5, 5));
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

/// Callers that were all in one batch would all come back at once: then the store waits for them, and they for the store.
#[tokio::test(start_paused = true)]
async fn none_takes_what_would_be_anothers_share() {
    // Of less than half of them any batch may take all: they are few.
    const CALLERS: usize = 100;
    let (store, mut beginning) = gate();
    let runtime = worker(store.clone(), 2, Arc::default());
    let one = |caller: usize, runtime: Runtime| async move {
        for n in 0.. {
            call(runtime.clone(), format!("{caller}/{n}"), None).await;
        }
    };
    let mut callers: JoinSet<()> = (0..CALLERS).map(|caller| one(caller, runtime.clone())).collect();
    // Until the first is back nobody knows how many callers there are.
    let mut away = VecDeque::from([in_time(beginning.recv()).await.unwrap()]);
    let mut sizes = Vec::new();
    for _ in 0..CALLERS {
        // Each is on the way or waits before the next batch comes back: a batch that found less would be right to take them for few.
        soon(|| {
            while let Ok(effects) = beginning.try_recv() {
                away.push_back(effects);
                sizes.push(effects);
            }
            away.iter().sum::<usize>() + runtime.ledger().queue_depth() == CALLERS
        })
        .await;
        assert!(away.pop_front().is_some(), "one is always on its way");
        store.through.add_permits(1);
    }
    assert!(sizes.iter().max().is_some_and(|largest| (2..=CALLERS / 2).contains(largest)), "{sizes:?}");
    callers.shutdown().await;
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
    // Whether the second was ever needed is the machine's to say.
    assert!([vec![0], vec![0, 1]].contains(&lanes(&outside)) && lanes(&inside) == [0], "{:?} {:?}", lanes(&outside), lanes(&inside));
    let effects: BTreeSet<_> = outside.iter().chain(&inside).map(|receipt| receipt.effect).collect();
    assert_eq!(effects.len(), CALLERS * CALLS, "each has one");
}
