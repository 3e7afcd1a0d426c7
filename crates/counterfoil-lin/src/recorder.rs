//! Notes what clients do and see, in one order that all threads and tasks share.
//!
//! What must stay true: the invocation is noted before the request can have any effect, the answer after it was read. Then the order of
//! ticks never claims more than real time did.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::history::{Moment, Operation, Text};

#[derive(Debug)]
pub struct Recorder<O, R> {
    shared: Arc<Shared<O, R>>,
}

#[derive(Debug)]
struct Shared<O, R> {
    began: Instant,
    noted: Mutex<Noted<O, R>>,
}

#[derive(Debug)]
struct Noted<O, R> {
    ticks: u64,
    /// `None`: withdrawn.
    operations: Vec<Option<Operation<O, R>>>,
}

/// An operation under way. Dropped without a word, its outcome is unknown: so a client that dies leaves the right trace.
#[derive(Debug)]
#[must_use = "say what came of it: answered, unknown or withdrawn"]
pub struct Open<O, R> {
    shared: Arc<Shared<O, R>>,
    index: usize,
}

impl<O, R> Clone for Recorder<O, R> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<O, R> Default for Recorder<O, R> {
    fn default() -> Self {
        let noted = Noted { ticks: 0, operations: Vec::new() };
        Self { shared: Arc::new(Shared { began: Instant::now(), noted: Mutex::new(noted) }) }
    }
}

impl<O: Clone, R: Clone> Recorder<O, R> {
    pub fn new() -> Self {
        Self::default()
    }

    /// To be called before the first byte is sent.
    pub fn begin(&self, client: u32, key: impl Into<Text>, op: O) -> Open<O, R> {
        let mut noted = self.shared.noted();
        let invoked = self.shared.tick(&mut noted);
        noted.operations.push(Some(Operation { client, key: key.into(), op, invoked, answer: None }));
        Open { shared: self.shared.clone(), index: noted.operations.len() - 1 }
    }

    /// Everything noted so far. What is still under way has an unknown outcome.
    pub fn history(&self) -> Vec<Operation<O, R>> {
        self.shared.noted().operations.iter().flatten().cloned().collect()
    }

    /// How many operations have begun: a server is killed when this reaches the next of its workload's kills.
    pub fn begun(&self) -> usize {
        self.shared.noted().operations.len()
    }
}

impl<O, R> Open<O, R> {
    /// To be called after the whole answer was read.
    pub fn answered(self, ret: R) {
        let mut noted = self.shared.noted();
        let moment = self.shared.tick(&mut noted);
        if let Some(operation) = &mut noted.operations[self.index] {
            operation.answer = Some((moment, ret));
        }
    }

    /// The connection broke, or an answer said that nobody knows. It may still take effect.
    pub fn unknown(self) {}

    /// It certainly had no effect and never will: the connection was refused, or the answer was a refusal before the claim that no
    /// model speaks of (429, 503).
    pub fn withdrawn(self) {
        self.shared.noted().operations[self.index] = None;
    }
}

impl<O, R> Shared<O, R> {
    /// A client that panicked leaves its operations as they are: unknown.
    fn noted(&self) -> MutexGuard<'_, Noted<O, R>> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tick(&self, noted: &mut Noted<O, R>) -> Moment {
        noted.ticks += 1;
        Moment { tick: noted.ticks, micros: self.began.elapsed().as_micros() as u64 }
    }
}
