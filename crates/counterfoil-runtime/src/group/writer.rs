//! Writes a batch: each receipt at its place in its chain, one append, and then everyone is told.
//!
//! Receipts get their place here, because nothing above knows the order in which outcomes become durable. A request that loses its race is taken out
//! and answered `Conflict`, the others go through. Nothing is answered before the store has said that it is durable.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

use counterfoil_core::receipt::{self, ChainHead, ChainRecord, Unsealed};
use counterfoil_core::summary::StreamKind;
use counterfoil_core::{Lane, RunId, StreamId, Summary, Tenant, Timestamp};
use counterfoil_store::spread::{Map, Set};
use counterfoil_store::{AppendError, Batch, Reach, Store, StoreError, Version, Write};
use tokio::time::Instant;

use super::queue::{Job, Queue};
use super::teller::Teller;
use crate::fresh::Fresh;
use crate::observe::LedgerMeters;

/// Chain heads remembered. One more than this, and all are forgotten: they are read again when needed.
const HEADS_MAX: usize = 10_000;

#[derive(Clone)]
pub struct Writer {
    store: Arc<dyn Store>,
    teller: Teller,
    meters: LedgerMeters,
    fresh: Arc<Fresh>,
    heads: Arc<Heads>,
    /// Which chain of a tenant this writer's receipts outside runs go to. Its first, until another process is met there.
    lane: Lane,
    /// Among the writers of this process.
    pub(super) place: usize,
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

#[derive(Clone, Copy)]
struct Head {
    chain: ChainHead,
    version: Version,
}

impl Writer {
    pub(crate) fn new(store: Arc<dyn Store>, teller: Teller, meters: LedgerMeters, fresh: Arc<Fresh>) -> Self {
        Self { store, teller, meters, fresh, heads: Arc::default(), lane: Lane::FIRST, place: 0 }
    }

    /// So many that write beside each other.
    pub(super) fn several(self, count: usize) -> Vec<Self> {
        (0..count).map(|place| Self { lane: Lane(place as u16 % Lane::COUNT), place, ..self.clone() }).collect()
    }

    /// Commits as many of `jobs` as can be. Those that must wait for the next batch are given back.
    pub(super) async fn commit(&mut self, queue: &Queue, jobs: Vec<Job>) -> Vec<Job> {
        let (jobs, rivals) = split(jobs);
        let mut jobs = self.without_damaged_chains(jobs).await;
        let (mut moved, mut refused): (Map<Version>, Map<Version>) = Default::default();
        while !jobs.is_empty() {
            let began = Instant::now();
            let appended = self.append(&mut jobs).await;
            queue.back(self.place, began.elapsed());
            match appended {
                Ok(()) => {
                    queue.failing.store(false, Ordering::Relaxed);
                    if !rivals.is_empty() {
                        moved = jobs.iter().flat_map(|job| &job.request.writes).map(|w| (w.stream, w.expected.next())).collect();
                    }
                    self.teller.tell(std::mem::take(&mut jobs));
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
        rest
    }

    /// Chains that moved belong to no caller: another process wrote a receipt. In a run's chain, after it; outside runs, beside it: two who
    /// write to one chain would take turns in losing.
    fn give_way(&mut self, moved: &[StreamId], jobs: &[Job]) {
        let shared = |receipt: &Unsealed| receipt.run.is_none() && moved.contains(&self.lane_of(receipt));
        if jobs.iter().filter_map(|job| job.request.receipt.as_ref()).any(shared) {
            self.lane = self.lane.another(self.fresh.number());
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
