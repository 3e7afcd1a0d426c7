//! Group commit: a writer drains what waits, one batch, one flush, wakes all.
//!
//! Written once, above every store. An embedded store works on the thread that appends, so the writer has one of its own; behind a network it mostly
//! waits, so it is a task among those of its callers, and nobody is woken on another thread to be answered. There a small batch may wait a moment for
//! more (gather.rs), and there may be several writers, each with a lane of receipts of its own (queue.rs says who takes what, writer.rs writes it).

mod gather;
mod patience;
mod queue;
mod teller;
mod writer;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use counterfoil_store::{AppendError, StoreError, Written};
use tokio::runtime::Handle;

pub use self::gather::GATHER_WITHIN;
use self::gather::Gather;
use self::patience::Patience;
pub use self::queue::Request;
use self::queue::{Queue, SOON, Taken};
pub use self::teller::Teller;
pub use self::writer::Writer;
use crate::builder::Threads;

/// How appends become batches, as suits the store.
#[derive(Debug, Clone, Copy)]
pub struct Grouping {
    /// Batches on their way at once.
    pub at_once: usize,
    /// A small batch waits for callers that were just answered, as long as one comes within each such moment. Only where writers are tasks.
    pub gather_within: Option<Duration>,
}

pub struct Group {
    queue: Arc<Queue>,
    writers: Vec<JoinHandle<()>>,
}

impl Group {
    /// Must be called inside a Tokio runtime: the store is polled through it. Several writers are tasks.
    pub fn start(writer: Writer, threads: Threads, grouping: Grouping) -> Self {
        let queue = Arc::new(Queue::new(grouping.at_once, threads));
        let mut started = Vec::new();
        for writer in writer.several(grouping.at_once) {
            // Made here: a task that ends with its Tokio runtime before it is ever polled ends all the same.
            let ending = Ending { queue: queue.clone(), writer: writer.place, in_order: false };
            let handle = Handle::current();
            match threads {
                Threads::None => drop(handle.spawn(write_as_task(writer, ending, Gather::new(grouping.gather_within)))),
                Threads::Own => {
                    let builder = std::thread::Builder::new().name("counterfoil-ledger".into());
                    let thread = builder.spawn(move || write_on_thread(writer, ending, &handle));
                    started.push(thread.expect("a thread for the ledger's writer can be started"));
                }
            }
        }
        Self { queue, writers: started }
    }

    /// Requests that no writer has taken yet.
    pub fn depth(&self) -> usize {
        self.queue.depth()
    }

    /// Durable when the future is ready with `Ok`. The request is in the queue when this returns, whether or not anyone waits for the end.
    pub fn submit(&self, request: Request) -> impl Future<Output = Result<(), AppendError>> + use<> {
        let answer = self.queue.put(request);
        async move {
            answer?.await.unwrap_or_else(|_| {
                Err(StoreError::Unavailable { message: "the ledger's writer stopped".into(), written: Written::Perhaps }.into())
            })
        }
    }

    /// Whether the last append failed.
    pub fn failing(&self) -> bool {
        self.queue.failing.load(Ordering::Relaxed)
    }
}

impl Drop for Group {
    /// What was submitted is still written: a writer ends when the queue is empty. One that is a task may end before that, with its Tokio runtime; whoever
    /// waited for it is told "perhaps written".
    fn drop(&mut self) {
        self.queue.close();
        for thread in self.writers.drain(..).filter(|thread| thread.thread().id() != std::thread::current().id()) {
            // A panic in the writer was already answered to every caller as "perhaps written".
            drop(thread.join());
        }
    }
}

/// However a writer ends, nobody waits for it for ever. One that does not end in order leaves what is queued to nobody: it is dropped, and its callers are
/// told "perhaps written".
struct Ending {
    queue: Arc<Queue>,
    writer: usize,
    in_order: bool,
}

impl Drop for Ending {
    fn drop(&mut self) {
        if !self.in_order {
            self.queue.abandon(self.writer);
        }
    }
}

fn write_on_thread(mut writer: Writer, mut ending: Ending, handle: &Handle) {
    let queue = ending.queue.clone();
    let (mut put_off, mut patience) = (Vec::new(), Patience::default());
    queue.wait(writer.place, &mut patience);
    loop {
        match queue.take(writer.place, &mut put_off) {
            Taken::Jobs(jobs) => {
                put_off = handle.block_on(writer.commit(&queue, jobs));
                queue.through(writer.place);
            }
            Taken::Nothing => queue.wait(writer.place, &mut patience),
            Taken::Closed => return ending.in_order = true,
        }
    }
}

async fn write_as_task(mut writer: Writer, mut ending: Ending, mut gather: Gather) {
    let queue = ending.queue.clone();
    let (place, mut put_off) = (writer.place, Vec::new());
    // Whichever is polled first: the next takes nothing before it is called.
    queue.rung(place).await;
    loop {
        match queue.take(place, &mut put_off) {
            Taken::Jobs(jobs) => {
                put_off = overdue(&queue, writer.commit(&queue, jobs)).await;
                queue.through(place);
                // What could go at once waits for nobody.
                if put_off.is_empty() {
                    queue.gather(place, &mut gather).await;
                }
            }
            Taken::Nothing => queue.rung(place).await,
            Taken::Closed => return ending.in_order = true,
        }
    }
}

/// Sees a batch through. Others may have been left what waits to its writer, who was to be back soon: where it is not, they are told.
async fn overdue<T>(queue: &Queue, committing: impl Future<Output = T>) -> T {
    let mut committing = pin!(committing);
    loop {
        match tokio::time::timeout(SOON, &mut committing).await {
            Ok(committed) => return committed,
            Err(_) => queue.overdue(),
        }
    }
}
