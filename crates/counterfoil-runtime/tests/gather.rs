//! A small batch waits for callers that were just answered, and for nobody who does not come.

#[macro_use]
mod passed_on;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use counterfoil_core::ids::CallKey;
use counterfoil_core::summary::StreamKind;
use counterfoil_core::{Call, Caller, CanonicalJson, Policy, Tenant, ToolName};
use counterfoil_runtime::{Builder, FnTool, Registered, Runtime, Status};
use counterfoil_store::memory::Memory;
use counterfoil_store::{AppendError, Batch, Eventually, Position, Store};
use tokio::sync::{Semaphore, mpsc};

/// Longer than any test: whoever waits for a moment in which nobody comes waits for ever.
const FOR_EVER: Duration = Duration::from_secs(3600);

/// Whoever waits for nobody would wait for ever: that is to fail, not to hang.
async fn in_time<T>(coming: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), coming).await.expect("nobody is waited for in vain")
}

/// Tells to how many effects each batch writes.
struct Telling {
    inner: Memory,
    batches: mpsc::UnboundedSender<usize>,
    /// Whoever holds it keeps appends waiting.
    door: tokio::sync::Mutex<()>,
}

impl Store for Telling {
    fn append<'a>(&'a self, batch: &'a Batch) -> Eventually<'a, Result<Position, AppendError>> {
        let effects = batch.writes.iter().filter(|write| write.summary.kind == StreamKind::Effect).count();
        // Nobody listens when the test is over.
        let (Ok(()) | Err(_)) = self.batches.send(effects);
        Box::pin(async move {
            drop(self.door.lock().await);
            self.inner.append(batch).await
        })
    }
    passed_on!(inner: load, due, tail, search, prune);
}

fn tool() -> ToolName {
    ToolName::new("charge").unwrap()
}

async fn call(runtime: &Runtime, key: String) {
    let call = Call {
        tenant: Tenant::new("acme").unwrap(),
        caller: Caller::new("test").unwrap(),
        tool: tool(),
        args: CanonicalJson::parse("{}").unwrap(),
        key: Some(CallKey::new(&key).unwrap()),
        run: None,
        step: None,
        ordinal: 0,
    };
    let answer = runtime.call(call).await;
    assert_eq!(answer.status, Status::Success, "{:?}", answer.error);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_are_quick_to_come_back_go_together() {
    const CALLERS: usize = 4;
    let (batches, mut told) = mpsc::unbounded_channel();
    let store = Arc::new(Telling { inner: Memory::default(), batches, door: Default::default() });
    let runtime = Builder::new(store.clone()).gather_within(FOR_EVER).build().unwrap();
    runtime.register(Registered::new(tool(), FnTool::new(|_| async { Ok(serde_json::json!(1)) }), Policy::default()));
    let closed = store.door.lock().await;
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let runtime = runtime.clone();
            tokio::spawn(async move {
                for n in 0.. {
                    call(&runtime, format!("{caller}/{n}")).await;
                }
            })
        })
        .collect();
    // Some are on their way, the others wait: those go together who are not in the first batch.
    let first = told.recv().await.unwrap();
    while first + runtime.ledger().queue_depth() < CALLERS {
        tokio::task::yield_now().await;
    }
    drop(closed);
    for _ in 0..100 {
        assert_eq!(in_time(told.recv()).await, Some(CALLERS), "from then on none goes without the others");
    }
    callers.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_come_back_keeps_nobody_waiting() {
    let runtime = Builder::new(Arc::new(Memory::default())).gather_within(Duration::from_millis(1)).build().unwrap();
    let (begun, mut beginning) = mpsc::unbounded_channel();
    let (released, over) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicBool::new(false)));
    let slow = FnTool::new({
        let (released, over) = (released.clone(), over.clone());
        move |_| {
            let (released, over, begun) = (released.clone(), over.clone(), begun.clone());
            async move {
                begun.send(()).unwrap();
                if !over.load(Ordering::SeqCst) {
                    released.acquire().await.unwrap().forget();
                }
                Ok(serde_json::json!(1))
            }
        }
    });
    runtime.register(Registered::new(tool(), slow, Policy::default()));
    let calling = (0..8).map(|n| {
        let runtime = runtime.clone();
        tokio::spawn(async move { call(&runtime, format!("slow/{n}")).await })
    });
    let calling: Vec<_> = calling.collect();
    for _ in 0..8 {
        in_time(beginning.recv()).await.unwrap();
    }
    // Eight were answered, and none of them comes back before these are done.
    over.store(true, Ordering::SeqCst);
    for n in 0..8 {
        in_time(call(&runtime, format!("quick/{n}"))).await;
    }
    released.add_permits(8);
    for caller in calling {
        caller.await.unwrap();
    }
}
