//! What waits to be written, and which writer takes it.
//!
//! Whatever arrived while the last batch was flushed is the next batch. Where a store can do with several batches at once there are as many writers: the
//! next is woken only while those before it are away, and only for many callers or a distant store; none takes more than its share of the callers.
//!
//! What must stay true: where something waits that a writer may take, one is about to look or on its way back; no two batches on their way name the same
//! stream; nobody waits for ever, however a writer ends. What a request says is none of its business.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use counterfoil_core::StreamId;
use counterfoil_core::receipt::Unsealed;
use counterfoil_store::spread::Set;
use counterfoil_store::{AppendError, StoreError, Write, Written};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::gather::{FEW, Gather};
use super::patience::Patience;
use crate::builder::Threads;

/// Requests in one batch. Bounds the memory of a batch and how long its first request waits for the last.
const GROUP_MAX: usize = 4096;
/// Where batches go beside each other, none takes less than this if more wait: a batch has a price of its own.
const SHARE_MIN: usize = 16;
/// Few callers go in one batch after another where that is soon back: two halves would pay that price twice. A store that takes longer is distant.
pub const SOON: Duration = Duration::from_millis(2);
/// Requests that may wait. More are refused: a queue without bound hides that the disk cannot keep up.
const QUEUE_MAX: usize = 100_000;

/// What one caller wants written together.
pub struct Request {
    pub writes: Vec<Write>,
    pub receipt: Option<Unsealed>,
}

pub struct Job {
    pub request: Request,
    pub reply: oneshot::Sender<Result<(), AppendError>>,
}

impl Job {
    /// All that it writes to, but for lanes: each writer has its own, and where two meet in one all the same the store refuses one of them.
    fn streams(&self) -> impl Iterator<Item = StreamId> {
        let chain = self.request.receipt.as_ref().filter(|receipt| receipt.run.is_some()).map(|receipt| receipt.chain);
        self.request.writes.iter().map(|write| write.stream).chain(chain)
    }
}

pub struct Queue {
    inner: Mutex<Waiting>,
    /// One for each writer.
    bells: Vec<Bell>,
    /// Something waits, or nothing more will come: seen without the lock.
    stirred: AtomicBool,
    /// The last append failed, and none has succeeded since.
    pub failing: AtomicBool,
}

/// What a writer finds.
pub enum Taken {
    Jobs(Vec<Job>),
    Nothing,
    /// And nothing left to write.
    Closed,
}

impl Queue {
    /// For so many writers. The first is there before the others, whichever thread is.
    pub fn new(writers: usize, threads: Threads) -> Self {
        let bell = || match threads {
            Threads::Own => Bell::Thread(Condvar::new()),
            Threads::None => Bell::Task(Notify::new()),
        };
        let waiting = Waiting {
            jobs: Vec::new(),
            busy: (0..writers).map(|_| Busy::default()).collect(),
            writers: (0..writers).map(|place| if place == 0 { Standing::Here } else { Standing::Asleep }).collect(),
            callers: 0,
            beside: false,
            closed: false,
        };
        Self {
            inner: Mutex::new(waiting),
            bells: (0..writers).map(|_| bell()).collect(),
            stirred: AtomicBool::new(false),
            failing: AtomicBool::new(false),
        }
    }

    pub fn put(&self, request: Request) -> Result<oneshot::Receiver<Result<(), AppendError>>, AppendError> {
        let (reply, answer) = oneshot::channel();
        let mut waiting = self.lock();
        if waiting.closed || waiting.queued() >= QUEUE_MAX {
            let message =
                if waiting.closed { "the ledger is closed".into() } else { format!("{QUEUE_MAX} appends are waiting for the disk") };
            return Err(StoreError::Unavailable { message, written: Written::No }.into());
        }
        waiting.jobs.push(Job { request, reply });
        self.stirred.store(true, Ordering::Release);
        self.call(&mut waiting);
        Ok(answer)
    }

    /// What is not on its way yet.
    pub fn depth(&self) -> usize {
        self.lock().queued()
    }

    /// What the last batch put off comes first.
    pub fn take(&self, writer: usize, put_off: &mut Vec<Job>) -> Taken {
        let mut waiting = self.lock();
        if put_off.is_empty() && waiting.nothing_for(writer) {
            return if waiting.closed { Taken::Closed } else { Taken::Nothing };
        }
        let mut jobs = std::mem::take(put_off);
        loop {
            let room = waiting.share().saturating_sub(jobs.len()).min(waiting.jobs.len());
            if room == waiting.jobs.len() {
                jobs.append(&mut waiting.jobs);
            } else {
                jobs.extend(waiting.jobs.drain(..room));
            }
            jobs = waiting.apart(writer, jobs);
            if !jobs.is_empty() || waiting.jobs.is_empty() {
                break;
            }
        }
        // Set again under this lock by whoever comes next.
        self.stirred.store(!waiting.jobs.is_empty() || waiting.closed, Ordering::Release);
        if jobs.is_empty() {
            return Taken::Nothing;
        }
        waiting.writers[writer] = Standing::Away { jobs: jobs.len(), since: Instant::now() };
        self.call(&mut waiting);
        Taken::Jobs(jobs)
    }

    /// Lets callers that were just answered come back first, for as long as that is worth it.
    pub async fn gather(&self, writer: usize, gather: &mut Gather) {
        {
            let mut waiting = self.lock();
            let wanted = waiting.share().min(waiting.callers);
            if waiting.leaves(writer) || !gather.is_worth(waiting.jobs.len(), wanted) {
                return;
            }
            waiting.writers[writer] = Standing::Gathering;
        }
        while gather.goes_on(self.lock().jobs.len()) {
            // Behind whatever else can run on this thread: the callers among others. A timer would be coarser than all of this takes.
            tokio::task::yield_now().await;
        }
        self.lock().writers[writer] = Standing::Here;
    }

    /// Blocks until something may be there.
    pub fn wait(&self, writer: usize, patience: &mut Patience) {
        let Bell::Thread(arrived) = &self.bells[writer] else { return };
        // A caller alone has one writer: the others have nobody to look out for.
        if writer == 0 && !self.stirred.load(Ordering::Acquire) {
            patience.look_on(|| self.stirred.load(Ordering::Acquire));
        }
        let mut waiting = self.lock();
        while waiting.may_sleep(writer) {
            waiting.writers[writer] = Standing::Asleep;
            waiting = arrived.wait(waiting).unwrap_or_else(|poisoned| poisoned.into_inner());
            waiting.writers[writer] = Standing::Here;
        }
    }

    /// The same for a task.
    pub async fn rung(&self, writer: usize) {
        let Bell::Task(arrived) = &self.bells[writer] else { return };
        let nothing = {
            let mut waiting = self.lock();
            // From now on the bell is rung, and kept until it is heard.
            waiting.writers[writer] = Standing::Asleep;
            waiting.may_sleep(writer)
        };
        if nothing {
            arrived.notified().await;
        }
        self.lock().writers[writer] = Standing::Here;
    }

    /// A writer has its answer, after so long, and will look what waits.
    pub fn back(&self, writer: usize, took: Duration) {
        let mut waiting = self.lock();
        waiting.callers = waiting.queued() + waiting.away();
        waiting.beside = waiting.writers.len() > 1 && (waiting.callers > FEW || took > SOON);
        waiting.writers[writer] = Standing::Here;
    }

    /// All callers of a writer's batch are told: what waited behind it comes first.
    pub fn through(&self, writer: usize) {
        let mut waiting = self.lock();
        let Busy { streams, behind } = &mut waiting.busy[writer];
        streams.clear();
        let mut behind = std::mem::take(behind);
        if !behind.is_empty() {
            behind.append(&mut waiting.jobs);
            waiting.jobs = behind;
            self.stirred.store(true, Ordering::Release);
        }
    }

    /// A writer goes again with what it has.
    pub fn away(&self, writer: usize, jobs: usize) {
        let mut waiting = self.lock();
        waiting.writers[writer] = Standing::Away { jobs, since: Instant::now() };
        self.call(&mut waiting);
    }

    /// A writer that others counted on is not back yet.
    pub fn overdue(&self) {
        self.call(&mut self.lock());
    }

    /// Nothing more comes: writers end when nothing is left.
    pub fn close(&self) {
        self.lock().closed = true;
        self.stirred.store(true, Ordering::Release);
        self.bells.iter().for_each(Bell::ring);
    }

    /// A writer has ended, and not in order: what is left may be its own. It is dropped, and with it each reply; what others are away with goes on.
    pub fn abandon(&self, writer: usize) {
        let mut waiting = self.lock();
        waiting.closed = true;
        waiting.jobs.clear();
        waiting.busy[writer] = Busy::default();
    }

    /// Whoever changed what waits, or who is there, has someone woken for it, who from now on is about to look.
    fn call(&self, waiting: &mut Waiting) {
        if let Some(writer) = waiting.called() {
            waiting.writers[writer] = Standing::Here;
            self.bells[writer].ring();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // A panic while the lock is held leaves a list of jobs, which is whole at every moment.
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Wakes a writer.
enum Bell {
    Thread(Condvar),
    Task(Notify),
}

impl Bell {
    fn ring(&self) {
        match self {
            Self::Thread(arrived) => arrived.notify_one(),
            Self::Task(arrived) => arrived.notify_one(),
        }
    }
}

struct Waiting {
    jobs: Vec<Job>,
    writers: Vec<Standing>,
    /// What each writer is away with, until its callers are told: streams, and the requests that wait behind it because they name one of them.
    busy: Vec<Busy>,
    /// As many as there were when a batch was last answered: in it, in others, or waiting.
    callers: usize,
    /// Whether a batch goes while another is away.
    beside: bool,
    closed: bool,
}

#[derive(Default)]
struct Busy {
    streams: Set,
    behind: Vec<Job>,
}

/// Where a writer is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// About to look what waits.
    Here,
    /// With so many on their way.
    Away { jobs: usize, since: Instant },
    /// Until something waits for it.
    Asleep,
    /// About to take what waits, when a few more have come.
    Gathering,
}

impl Waiting {
    /// How many wait, for a writer or behind one.
    fn queued(&self) -> usize {
        self.jobs.len() + self.busy.iter().map(|busy| busy.behind.len()).sum::<usize>()
    }

    /// How many are on their way.
    fn away(&self) -> usize {
        self.writers.iter().map(|standing| if let Standing::Away { jobs, .. } = standing { *jobs } else { 0 }).sum()
    }

    /// The most that one batch takes. Where several go beside each other none takes what would be another's: its callers would all be on their way at
    /// once, then all come back at once, and the store and they would wait for each other in turns.
    fn share(&self) -> usize {
        match self.beside {
            false => GROUP_MAX,
            true => self.callers.div_ceil(self.writers.len()).clamp(SHARE_MIN, GROUP_MAX),
        }
    }

    /// Those of `jobs` that this writer may go with. Two batches on their way never name the same stream: whoever is told of a record must not have to
    /// hear after that of one before it.
    fn apart(&mut self, writer: usize, jobs: Vec<Job>) -> Vec<Job> {
        if self.busy.len() == 1 {
            return jobs;
        }
        let mut own = std::mem::take(&mut self.busy[writer].streams);
        let mut going = Vec::with_capacity(jobs.len());
        for job in jobs {
            match self.busy.iter_mut().find(|busy| job.streams().any(|stream| busy.streams.contains(&stream))) {
                Some(busy) => busy.behind.push(job),
                None => {
                    own.extend(job.streams());
                    going.push(job);
                }
            }
        }
        self.busy[writer].streams = own;
        going
    }

    /// Whether there is nothing for this writer.
    fn nothing_for(&self, writer: usize) -> bool {
        self.jobs.is_empty() || self.leaves(writer) && !self.closed
    }

    /// Whether this writer leaves what waits to another, who is about to take it or will be. Who is not back soon is not counted on: its store may say
    /// nothing for long, and this one's may be well.
    fn leaves(&self, writer: usize) -> bool {
        self.writers.iter().enumerate().any(|(other, standing)| match standing {
            Standing::Gathering => other != writer,
            Standing::Away { since, .. } => other != writer && !self.beside && since.elapsed() < SOON,
            Standing::Here | Standing::Asleep => false,
        })
    }

    /// Whether a writer may sleep: what there is, one before it is about to take.
    fn may_sleep(&self, writer: usize) -> bool {
        !self.closed && (self.nothing_for(writer) || self.writers[..writer].contains(&Standing::Here))
    }

    /// The writer to be woken: the first that sleeps, if there is something for it and nobody is about to look.
    fn called(&self) -> Option<usize> {
        match self.writers.contains(&Standing::Here) {
            true => None,
            false => self.writers.iter().position(|standing| *standing == Standing::Asleep).filter(|writer| !self.nothing_for(*writer)),
        }
    }
}
