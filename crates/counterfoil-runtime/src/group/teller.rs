//! Tells callers that what they asked for is durable, batch after batch.
//!
//! Waking many costs as much as writing for them, so a writer's thread leaves that to a task. A writer that is a task tells its callers itself.
//!
//! What must stay true: nobody is told of a record before those are that precede it. So a batch of few, which a thread would tell at once, goes behind
//! batches that are still to be told.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;

use super::queue::Job;
use crate::builder::Threads;
use crate::wake::Wakeups;

/// Up to so many callers are woken by a writer's thread itself: at once, without a detour.
const INLINE_MAX: usize = 8;

#[derive(Clone)]
pub struct Teller {
    wakeups: Arc<Wakeups>,
    task: Option<Task>,
}

#[derive(Clone)]
struct Task {
    batches: mpsc::UnboundedSender<Vec<Job>>,
    /// Batches that were handed over and are not told yet.
    untold: Arc<AtomicUsize>,
}

impl Teller {
    /// For one writer. Must be called inside a Tokio runtime.
    pub fn start(wakeups: Arc<Wakeups>, threads: Threads) -> Self {
        let task = (threads == Threads::Own).then(|| Task::start(wakeups.clone()));
        Self { wakeups, task }
    }

    pub fn tell(&self, jobs: Vec<Job>) {
        match &self.task {
            Some(task) if jobs.len() > INLINE_MAX || task.untold.load(Ordering::Acquire) > 0 => {
                task.untold.fetch_add(1, Ordering::Relaxed);
                // The Tokio runtime may have ended, and the task with it: whoever still waits is told "perhaps written".
                drop(task.batches.send(jobs));
            }
            _ => tell(&self.wakeups, jobs),
        }
    }
}

impl Task {
    fn start(wakeups: Arc<Wakeups>) -> Self {
        let (batches, mut waiting) = mpsc::unbounded_channel();
        let untold = Arc::new(AtomicUsize::new(0));
        let left = untold.clone();
        tokio::spawn(async move {
            while let Some(jobs) = waiting.recv().await {
                tell(&wakeups, jobs);
                left.fetch_sub(1, Ordering::Release);
            }
        });
        Self { batches, untold }
    }
}

fn tell(wakeups: &Wakeups, jobs: Vec<Job>) {
    for job in jobs {
        wakeups.wake(job.request.writes.iter().map(|w| w.stream));
        // The caller may have gone away; what it asked for is durable all the same.
        drop(job.reply.send(Ok(())));
    }
    wakeups.wake_followers();
}
