//! Group commit: a writer drains what waits, one batch, one flush, wakes all.
//!
//! Written once, above every store. Whatever arrived while the last batch was flushed is the next batch; behind a network a small one
//! may wait a moment for more (gather.rs). Where a store can do with several batches at once there are as many writers: the next is woken only while those
//! before it are away, none takes more than its share of the callers, and each has a lane of receipts of its own. A request that loses its race is taken out and answered `Conflict`, the others go through.
//! Receipts get their place in the chain here, because nothing above knows the order in which outcomes become durable. Nothing is answered before
//! the store has said that it is durable.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use counterfoil_core::receipt::{self, ChainHead, ChainRecord, Unsealed};
use counterfoil_core::summary::StreamKind;
use counterfoil_core::{Lane, RunId, StreamId, Summary, Tenant, Timestamp};
use counterfoil_store::spread::{Map, Set};
use counterfoil_store::{AppendError, Batch, Reach, Store, StoreError, Version, Write, Written};
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use crate::builder::Threads;
use crate::fresh::Fresh;
use crate::gather::Gather;
use crate::observe::LedgerMeters;
use crate::patience::Patience;
use crate::wake::Wakeups;

/// Requests in one batch. Bounds the memory of a batch and how long its first request waits for the last.
const GROUP_MAX: usize = 4096;
/// Where batches go beside each other, none takes less than this if more wait: a batch has a price of its own.
const SHARE_MIN: usize = 16;
/// Requests that may wait. More are refused: a queue without bound hides that the disk cannot keep up.
const QUEUE_MAX: usize = 100_000;
/// Up to so many callers are woken by the writer itself: at once, without a detour.
const TOLD_INLINE_MAX: usize = 8;
/// Chain heads remembered. One more than this, and all are forgotten: they are read again when needed.
const HEADS_MAX: usize = 10_000;

/// What one caller wants written together.
pub struct Request {
    pub writes: Vec<Write>,
    pub receipt: Option<Unsealed>,
}

/// How appends become batches, as suits the store.
#[derive(Debug, Clone, Copy)]
pub struct Grouping {
    /// Batches on their way at once.
    pub at_once: usize,
    /// A small batch waits for callers that were just answered, as long as one comes within each such moment.
    pub gather_within: Option<Duration>,
}

pub struct Group {
    queue: Arc<Queue>,
    writers: Vec<JoinHandle<()>>,
}

struct Queue {
    inner: Mutex<Waiting>,
    /// One for each writer.
    bells: Vec<Bell>,
    /// Something waits, or nothing more will come: seen without the lock.
    stirred: AtomicBool,
    /// The last append failed, and none has succeeded since.
    failing: AtomicBool,
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
    /// As many as there were when a batch was last answered: in it, in others, or waiting.
    callers: usize,
    closed: bool,
}

/// Where a writer is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// About to look what waits.
    Here,
    /// With so many on their way.
    Away(usize),
    /// Until something waits for it.
    Asleep,
    /// About to take what waits, or asleep until so many do.
    Gathering(usize),
}

impl Waiting {
    /// What waits is left to the one that gathers.
    fn gathering(&self) -> Option<usize> {
        self.writers.iter().position(|standing| matches!(standing, Standing::Gathering(_)))
    }

    /// How many are on their way.
    fn away(&self) -> usize {
        self.writers.iter().map(|standing| if let Standing::Away(jobs) = standing { *jobs } else { 0 }).sum()
    }

    /// The most that one batch takes. Where several go beside each other none takes what would be another's: its callers would all be on their way at
    /// once, then all come back at once, and the store and they would wait for each other in turns.
    fn share(&self) -> usize {
        match self.writers.len() {
            1 => GROUP_MAX,
            several => self.callers.div_ceil(several).clamp(SHARE_MIN, GROUP_MAX),
        }
    }

    /// Whether there is nothing for a writer that has just come back.
    fn nothing_for(&self, writer: usize) -> bool {
        self.jobs.is_empty() || self.gathering().is_some_and(|gathering| gathering != writer) && !self.closed
    }

    /// Whether a writer may sleep: what there is, one before it is about to take.
    fn may_sleep(&self, writer: usize) -> bool {
        !self.closed && (self.nothing_for(writer) || self.writers[..writer].contains(&Standing::Here))
    }

    /// The writer to be woken: the first that sleeps, if nobody is about to look.
    fn called(&self) -> Option<usize> {
        let first = || match self.writers.contains(&Standing::Here) {
            true => None,
            false => self.writers.iter().position(|standing| *standing == Standing::Asleep),
        };
        let enough = |writer: &usize| match self.writers[*writer] {
            Standing::Gathering(wanted) => self.jobs.len() >= wanted,
            _ => !self.jobs.is_empty(),
        };
        self.gathering().or_else(first).filter(enough)
    }
}

struct Job {
    request: Request,
    reply: oneshot::Sender<Result<(), AppendError>>,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // A panic while the lock is held leaves a list of jobs, which is whole at every moment.
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Whoever changed what waits, or who is there, has someone woken for it, who from now on is about to look.
    fn call(&self, waiting: &mut Waiting) {
        if let Some(writer) = waiting.called() {
            if waiting.writers[writer] == Standing::Asleep {
                waiting.writers[writer] = Standing::Here;
            }
            self.bells[writer].ring();
        }
    }

    /// A writer has its answer, and will look what waits: how many wait, here or for their own answers.
    fn back(&self, writer: usize) -> usize {
        let mut waiting = self.lock();
        waiting.callers = waiting.jobs.len() + waiting.away();
        waiting.writers[writer] = Standing::Here;
        waiting.jobs.len() + waiting.away()
    }

    /// A writer goes again with what it has.
    fn away(&self, writer: usize, jobs: usize) {
        let mut waiting = self.lock();
        waiting.writers[writer] = Standing::Away(jobs);
        self.call(&mut waiting);
    }
}

impl Group {
    /// Must be called inside a Tokio runtime: the store is polled through it.
    pub fn start(writer: Writer, threads: Threads, grouping: Grouping) -> Self {
        let writers = writer.several(grouping.at_once);
        let bell = || match threads {
            Threads::Own => Bell::Thread(Condvar::new()),
            Threads::None => Bell::Task(Notify::new()),
        };
        // The first is there before the others, whichever thread is.
        let standing = writers.iter().map(|writer| if writer.place == 0 { Standing::Here } else { Standing::Asleep }).collect();
        let queue = Arc::new(Queue {
            inner: Mutex::new(Waiting { jobs: Vec::new(), writers: standing, callers: 0, closed: false }),
            bells: writers.iter().map(|_| bell()).collect(),
            stirred: AtomicBool::new(false),
            failing: AtomicBool::new(false),
        });
        let mut started = Vec::new();
        for writer in writers {
            let (waiting, handle) = (queue.clone(), Handle::current());
            match threads {
                Threads::None => drop(handle.spawn(write_as_task(writer, waiting))),
                Threads::Own => {
                    let builder = std::thread::Builder::new().name("counterfoil-ledger".into());
                    let gather = Gather::new(grouping);
                    let thread = builder.spawn(move || write_on_thread(writer, waiting, gather, &handle));
                    started.push(thread.expect("a thread for the ledger's writer can be started"));
                }
            }
        }
        Self { queue, writers: started }
    }

    /// Requests that no writer has taken yet.
    pub fn depth(&self) -> usize {
        self.queue.lock().jobs.len()
    }

    /// Durable when the future is ready with `Ok`. The request is in the queue when this returns, whether or not anyone waits for the end.
    pub fn submit(&self, request: Request) -> impl Future<Output = Result<(), AppendError>> + use<> {
        let answer = self.enqueue(request);
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

    fn enqueue(&self, request: Request) -> Result<oneshot::Receiver<Result<(), AppendError>>, AppendError> {
        let (reply, answer) = oneshot::channel();
        let mut waiting = self.queue.lock();
        if waiting.closed || waiting.jobs.len() >= QUEUE_MAX {
            let message =
                if waiting.closed { "the ledger is closed".into() } else { format!("{QUEUE_MAX} appends are waiting for the disk") };
            return Err(StoreError::Unavailable { message, written: Written::No }.into());
        }
        waiting.jobs.push(Job { request, reply });
        self.queue.stirred.store(true, Ordering::Release);
        self.queue.call(&mut waiting);
        Ok(answer)
    }
}

impl Drop for Group {
    /// What was submitted is still written: a writer ends when the queue is empty.
    fn drop(&mut self) {
        self.queue.lock().closed = true;
        self.queue.stirred.store(true, Ordering::Release);
        self.queue.bells.iter().for_each(Bell::ring);
        for thread in self.writers.drain(..).filter(|thread| thread.thread().id() != std::thread::current().id()) {
            // A panic in the writer was already answered to every caller as "perhaps written".
            drop(thread.join());
        }
    }
}

/// However a writer ends, nobody waits for it for ever: what is queued is dropped, and its callers are told "perhaps written".
struct Closing(Arc<Queue>);

impl Drop for Closing {
    fn drop(&mut self) {
        let mut waiting = self.0.lock();
        waiting.closed = true;
        waiting.jobs.clear();
    }
}

fn write_on_thread(mut writer: Writer, queue: Arc<Queue>, mut gather: Gather, handle: &Handle) {
    let _closing = Closing(queue.clone());
    let (mut put_off, mut patience) = (Vec::new(), Patience::default());
    queue.wait(writer.place, &mut patience);
    loop {
        queue.gather(writer.place, &mut gather);
        match queue.take(writer.place, &mut put_off) {
            Taken::Jobs(jobs) => {
                let taken = jobs.len();
                let committed = handle.block_on(writer.commit(&queue, jobs));
                put_off = committed.put_off;
                gather.answered(taken - put_off.len(), committed.waited);
            }
            Taken::Nothing => queue.wait(writer.place, &mut patience),
            Taken::Closed => return,
        }
    }
}

async fn write_as_task(mut writer: Writer, queue: Arc<Queue>) {
    let _closing = Closing(queue.clone());
    let mut put_off = Vec::new();
    loop {
        match queue.take(writer.place, &mut put_off) {
            Taken::Jobs(jobs) => put_off = writer.commit(&queue, jobs).await.put_off,
            Taken::Nothing => queue.rung(writer.place).await,
            Taken::Closed => return,
        }
    }
}

/// What a writer finds.
enum Taken {
    Jobs(Vec<Job>),
    Nothing,
    /// And nothing left to write.
    Closed,
}

impl Queue {
    /// What the last batch put off comes first.
    fn take(&self, writer: usize, put_off: &mut Vec<Job>) -> Taken {
        let mut waiting = self.lock();
        if put_off.is_empty() && waiting.nothing_for(writer) {
            return if waiting.closed { Taken::Closed } else { Taken::Nothing };
        }
        let mut jobs = std::mem::take(put_off);
        let room = waiting.share().saturating_sub(jobs.len()).min(waiting.jobs.len());
        if room == waiting.jobs.len() {
            jobs.append(&mut waiting.jobs);
        } else {
            jobs.extend(waiting.jobs.drain(..room));
        }
        // Set again under this lock by whoever comes next.
        self.stirred.store(!waiting.jobs.is_empty() || waiting.closed, Ordering::Release);
        waiting.writers[writer] = Standing::Away(jobs.len());
        self.call(&mut waiting);
        Taken::Jobs(jobs)
    }

    /// Blocks for as long as it is worth waiting for more than there are.
    fn gather(&self, writer: usize, gather: &mut Gather) {
        let Bell::Thread(arrived) = &self.bells[writer] else { return };
        let mut waiting = self.lock();
        if waiting.nothing_for(writer) {
            return;
        }
        let Some((wanted, moment)) = gather.worth(waiting.jobs.len()) else { return };
        let mut came = true;
        while came && waiting.jobs.len() < wanted && !waiting.closed {
            let before = waiting.jobs.len();
            waiting.writers[writer] = Standing::Gathering(wanted);
            (waiting, _) = arrived.wait_timeout(waiting, moment).unwrap_or_else(|poisoned| poisoned.into_inner());
            came = waiting.jobs.len() > before;
        }
        gather.learn(came);
    }

    /// Blocks until something may be there.
    fn wait(&self, writer: usize, patience: &mut Patience) {
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
    async fn rung(&self, writer: usize) {
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
}

#[derive(Clone)]
pub struct Writer {
    store: Arc<dyn Store>,
    wakeups: Arc<Wakeups>,
    meters: LedgerMeters,
    fresh: Arc<Fresh>,
    heads: Arc<Heads>,
    /// Which chain of a tenant this writer's receipts outside runs go to. Its first, until another process is met there.
    lane: Lane,
    /// Among the writers of this process.
    place: usize,
}

/// Where chains stand, as this process knows it: one for all of its writers, which take turns in writing a run's.
#[derive(Default)]
struct Heads(Mutex<Map<Head>>);

impl Heads {
    fn lock(&self) -> MutexGuard<'_, Map<Head>> {
        // What is wrong here is refused by the store, and read again.
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn extend(&self, ends: Vec<(StreamId, Head)>) {
        let mut heads = self.lock();
        if heads.len() > HEADS_MAX {
            heads.clear();
        }
        heads.extend(ends);
    }

    /// Chains have moved that a batch would have brought here. What another writer has learned since then stands.
    fn forget<'a>(&self, ends: impl Iterator<Item = &'a (StreamId, Head)>) {
        let mut heads = self.lock();
        for (stream, end) in ends {
            if heads.get(stream).is_some_and(|head| head.version.next() == end.version) {
                heads.remove(stream);
            }
        }
    }
}

/// What a commit leaves behind.
struct Committed {
    /// They must wait for the next batch.
    put_off: Vec<Job>,
    /// Requests that were waiting when the first of the batch was about to be answered: none of them is of a caller that came back.
    waited: usize,
}

#[derive(Clone, Copy)]
struct Head {
    chain: ChainHead,
    version: Version,
}

impl Writer {
    pub(crate) fn new(store: Arc<dyn Store>, wakeups: Arc<Wakeups>, meters: LedgerMeters, fresh: Arc<Fresh>) -> Self {
        Self { store, wakeups, meters, fresh, heads: Arc::default(), lane: Lane::FIRST, place: 0 }
    }

    /// So many that write beside each other.
    fn several(self, count: usize) -> Vec<Self> {
        (0..count).map(|place| Self { lane: Lane(place as u16 % Lane::COUNT), place, ..self.clone() }).collect()
    }

    /// Commits as many of `jobs` as can be.
    async fn commit(&mut self, queue: &Queue, jobs: Vec<Job>) -> Committed {
        let (jobs, rivals) = split(jobs);
        let mut jobs = self.without_damaged_chains(jobs).await;
        let (mut moved, mut refused): (Map<Version>, Map<Version>) = Default::default();
        let mut waited = None;
        while !jobs.is_empty() {
            let appended = self.append(&mut jobs).await;
            let waiting = queue.back(self.place);
            waited.get_or_insert(waiting);
            match appended {
                Ok(()) => {
                    queue.failing.store(false, Ordering::Relaxed);
                    if !rivals.is_empty() {
                        moved = jobs.iter().flat_map(|job| &job.request.writes).map(|w| (w.stream, w.expected.next())).collect();
                    }
                    self.tell(std::mem::take(&mut jobs));
                }
                Err(AppendError::Conflict { streams }) => {
                    self.give_way(&streams, &jobs);
                    let (lost, rest): (Vec<Job>, Vec<Job>) =
                        jobs.into_iter().partition(|job: &Job| job.request.writes.iter().any(|w| streams.contains(&w.stream)));
                    if !rivals.is_empty() {
                        let writes = lost.iter().flat_map(|job| &job.request.writes).filter(|w| streams.contains(&w.stream));
                        refused.extend(writes.map(|w| (w.stream, w.expected)));
                    }
                    // Heads are read for it: meanwhile others may look.
                    queue.away(self.place, rest.len());
                    // Also of the lane that it may have moved to.
                    jobs = self.without_damaged_chains(rest).await;
                    answer_all(lost, &AppendError::Conflict { streams });
                }
                Err(AppendError::Store(error)) => {
                    queue.failing.store(true, Ordering::Relaxed);
                    // The heads in memory may be ahead of the disk, or behind: forget them.
                    self.heads.lock().clear();
                    self.meters.failed(&error);
                    let error = AppendError::Store(error);
                    answer_all(std::mem::take(&mut jobs), &error);
                }
            }
        }
        // Fifty callers with one key: the first got it, or was refused, and the others need no look at the store to know that they are.
        let beaten =
            |w: &Write| moved.get(&w.stream).is_some_and(|version| *version != w.expected) || refused.get(&w.stream) == Some(&w.expected);
        let (lost, rest): (Vec<Job>, Vec<Job>) = rivals.into_iter().partition(|job| job.request.writes.iter().any(beaten));
        for job in lost {
            let streams = job.request.writes.iter().filter(|w| beaten(w)).map(|w| w.stream).collect();
            drop(job.reply.send(Err(AppendError::Conflict { streams })));
        }
        // Where nothing was left to go, it was not away.
        let waited = waited.unwrap_or_else(|| queue.back(self.place));
        Committed { put_off: rest, waited }
    }

    /// Chains that moved belong to no caller: another process wrote a receipt. In a run's chain, after it; outside runs, beside it: two who
    /// write to one chain would take turns in losing.
    fn give_way(&mut self, moved: &[StreamId], jobs: &[Job]) {
        let shared = |receipt: &Unsealed| receipt.run.is_none() && moved.contains(&self.lane_of(receipt));
        if jobs.iter().filter_map(|job| job.request.receipt.as_ref()).any(shared) {
            self.lane = self.lane.another(self.fresh.number());
        }
    }

    /// It is durable: wakes everyone. Waking many costs as much as writing for them, so that is left to the runtime's own threads.
    fn tell(&self, jobs: Vec<Job>) {
        let many = jobs.len() > TOLD_INLINE_MAX;
        let wakeups = self.wakeups.clone();
        let tell = move || {
            for job in jobs {
                wakeups.wake(job.request.writes.iter().map(|w| w.stream));
                // The caller may have gone away; what it asked for is durable all the same.
                drop(job.reply.send(Ok(())));
            }
            wakeups.wake_followers();
        };
        match many {
            true => drop(tokio::spawn(async move { tell() })),
            false => tell(),
        }
    }

    /// A receipt chain that cannot be read takes down the requests that need it, and no others.
    async fn without_damaged_chains(&mut self, jobs: Vec<Job>) -> Vec<Job> {
        let mut whole = Vec::with_capacity(jobs.len());
        // Of neighbours with one chain, which most are, one look tells.
        let mut readable_chain = None;
        for job in jobs {
            let readable = match &job.request.receipt {
                Some(receipt) if readable_chain != Some(receipt.chain) => {
                    let readable = self.head(receipt).await.map(drop);
                    readable_chain = readable.is_ok().then_some(receipt.chain);
                    readable
                }
                _ => Ok(()),
            };
            match readable {
                Err(error @ StoreError::Corrupt { .. }) => {
                    self.meters.failed(&error);
                    answer_all(vec![job], &AppendError::Store(error));
                }
                // Whatever else is wrong with the store, the append itself will say.
                Ok(()) | Err(StoreError::Unavailable { .. }) => whole.push(job),
            }
        }
        whole
    }

    async fn append(&mut self, jobs: &mut [Job]) -> Result<(), AppendError> {
        let chains = self.sealed(jobs).await?;
        // Moved into the batch and back: a job that loses its race is taken out, and the others go again.
        let mut batch = Batch { writes: Vec::with_capacity(jobs.len() + chains.len()) };
        let counts: Vec<usize> = jobs.iter().map(|job| job.request.writes.len()).collect();
        jobs.iter_mut().for_each(|job| batch.writes.append(&mut job.request.writes));
        let (ends, chains): (Vec<_>, Vec<_>) = chains.into_iter().map(Chain::finish).unzip();
        batch.writes.extend(chains);
        let started = Instant::now();
        let appended = self.store.append(&batch).await;
        self.meters.appended(jobs.len(), started.elapsed());
        let mut writes = batch.writes.into_iter();
        for (job, count) in jobs.iter_mut().zip(counts) {
            job.request.writes.extend(writes.by_ref().take(count));
        }
        match &appended {
            Ok(_) => self.heads.extend(ends),
            Err(AppendError::Conflict { streams }) => self.heads.forget(ends.iter().filter(|(stream, _)| streams.contains(stream))),
            Err(AppendError::Store(_)) => {}
        }
        appended.map(drop)
    }

    /// The receipts of `jobs`, each at its place in its chain.
    async fn sealed(&mut self, jobs: &[Job]) -> Result<Vec<Chain>, StoreError> {
        let mut chains: Vec<Chain> = Vec::new();
        let mut places: Map<usize> = Map::default();
        for receipt in jobs.iter().filter_map(|job| job.request.receipt.as_ref()) {
            let place = match places.get(&receipt.chain) {
                Some(place) => *place,
                None => {
                    let (stream, head) = self.head(receipt).await?;
                    chains.push(Chain::new(receipt, stream, head));
                    places.insert(receipt.chain, chains.len() - 1);
                    chains.len() - 1
                }
            };
            chains[place].add(receipt);
        }
        Ok(chains)
    }

    /// The chain that the receipt goes to.
    fn lane_of(&self, receipt: &Unsealed) -> StreamId {
        match receipt.run.is_some() || self.lane.is_first() {
            true => receipt.chain,
            false => StreamId::lane(&receipt.tenant, self.lane),
        }
    }

    async fn head(&mut self, receipt: &Unsealed) -> Result<(StreamId, Head), StoreError> {
        let stream = self.lane_of(receipt);
        let known = self.heads.lock().get(&stream).copied();
        if let Some(head) = known {
            return Ok((stream, head));
        }
        let lane = if receipt.run.is_some() { Lane::FIRST } else { self.lane };
        let history = self.store.load(stream, Reach::Newest(1)).await?;
        let chain = match history.records.last() {
            None => ChainHead::start(lane),
            Some(newest) => receipt::head_of(&newest.body)
                .map_err(|e| StoreError::Corrupt { place: format!("receipt chain {stream}"), message: e.to_string() })?,
        };
        let head = Head { chain, version: history.version };
        self.heads.lock().insert(stream, head);
        Ok((stream, head))
    }
}

/// A batch names a stream once: the first request for a stream goes, its rivals wait until it is known what became of it.
fn split(jobs: Vec<Job>) -> (Vec<Job>, Vec<Job>) {
    let mut named = Set::with_capacity_and_hasher(jobs.len(), Default::default());
    let mut first = Vec::with_capacity(jobs.len());
    let mut rivals = Vec::new();
    for job in jobs {
        if job.request.writes.iter().any(|w| named.contains(&w.stream)) {
            rivals.push(job);
        } else {
            named.extend(job.request.writes.iter().map(|w| w.stream));
            first.push(job);
        }
    }
    (first, rivals)
}

fn answer_all(jobs: Vec<Job>, error: &AppendError) {
    for job in jobs {
        drop(job.reply.send(Err(error.clone())));
    }
}

/// The receipts of one batch for one chain: one record.
struct Chain {
    stream: StreamId,
    tenant: Tenant,
    run: Option<RunId>,
    version: Version,
    at: Timestamp,
    record: ChainRecord,
}

impl Chain {
    fn new(receipt: &Unsealed, stream: StreamId, head: Head) -> Self {
        let record = ChainRecord::after(head.chain);
        Self { stream, tenant: receipt.tenant.clone(), run: receipt.run.clone(), version: head.version, at: receipt.ended, record }
    }

    fn add(&mut self, receipt: &Unsealed) {
        self.record.seal(receipt);
        self.at = self.at.max(receipt.ended);
    }

    /// Where the chain stands when this is written, and the write.
    fn finish(self) -> ((StreamId, Head), Write) {
        let Self { stream, tenant, run, version, at, record } = self;
        let (body, chain) = record.finish();
        let summary = Summary { kind: StreamKind::Chain, tenant, state: "", tool: None, run, open: false, due: None, expires: None };
        ((stream, Head { chain, version: version.next() }), Write { stream, expected: version, at, body, summary })
    }
}
