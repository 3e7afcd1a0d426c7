//! The typed writer of entries above a store: the only file that appends.
//!
//! A [`Permit`] can exist only once its claim is durable, and nothing but a permit lets `execute` touch the world. An outcome that
//! cannot be recorded under its permit (the lease was lost, the effect cancelled) is recorded as `late`: evidence is never dropped.

mod beyond;
mod permit;
mod veils;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use counterfoil_core::call::spec_hash;
use counterfoil_core::decide::Attempt;
use counterfoil_core::effect::{FoldError, State};
use counterfoil_core::entry::{Claim, Ended, Finished, Late, LateOutcome, UndoCall};
use counterfoil_core::ids::Digest32;
use counterfoil_core::receipt::{ChainHead, Draft, Receipt, ReceiptId, follow};
use counterfoil_core::redact::Salt;
use counterfoil_core::run::RunFoldError;
use counterfoil_core::settled::Settled;
use counterfoil_core::summary::StreamKind;
use counterfoil_core::veil::{Veil, is_veiled};
use counterfoil_core::{Effect, EffectKey, Entry, Lane, Outcome, RunId, StreamId, Summary, Tenant, Timestamp, WorkerId, codec};
use counterfoil_store::{
    AppendError, Batch, Found, History, Page, Position, Pruned, Query, Reach, Record, Recorded, Store, StoreError, Version, Write,
};
use thiserror::Error;

pub use self::permit::{Claiming, Holding, Lease, Permit};
pub use self::veils::body;
use crate::builder::{Receipts, Threads};
use crate::clock::Clock;
use crate::fresh::Fresh;
use crate::group::{Group, Grouping, Request, Teller, Writer};
use crate::observe::LedgerMeters;
use crate::trace;
use crate::wake::Wakeups;

#[derive(Debug, Error)]
pub enum LedgerError {
    /// Someone else was faster: load and decide again.
    #[error("the effect changed meanwhile")]
    Conflict,
    /// The effect is as it was, and what was to be written beside it is not: nothing was written.
    #[error("what was to be recorded together with the effect changed meanwhile; nothing was recorded")]
    BesideTaken { streams: Vec<StreamId> },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the effect {key} cannot be read: {source}")]
    Fold { key: EffectKey, source: FoldError },
    #[error("the run {run} cannot be read: {source}")]
    Run { run: String, source: RunFoldError },
}

impl LedgerError {
    /// Stable; each has a page in docs/errors.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Store(StoreError::Corrupt { .. }) | Self::Fold { .. } | Self::Run { .. } => "ledger_corrupt",
            Self::Store(StoreError::Unavailable { .. }) | Self::Conflict | Self::BesideTaken { .. } => "store_unavailable",
        }
    }
}

impl From<AppendError> for LedgerError {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::Conflict { .. } => Self::Conflict,
            AppendError::Store(error) => Self::Store(error),
        }
    }
}

pub struct Ledger {
    store: Arc<dyn Store>,
    group: Group,
    threads: Threads,
    receipts: Receipts,
    clock: Arc<dyn Clock>,
    worker: WorkerId,
    wakeups: Arc<Wakeups>,
    meters: LedgerMeters,
    /// When this worker made its last claim, in microseconds.
    claimed: AtomicI64,
}

/// What a look at an effect gave.
pub enum Glance {
    Whole(Effect),
    /// It is done, and its newest record says all that a repeat of the call must know.
    Settled(Settled),
}

/// What ends an attempt, beside its outcome.
pub struct Ending {
    pub outcome: Ended,
    /// Kept as evidence should the permit be lost.
    pub evidence: LateOutcome,
}

/// What goes with the end of an attempt, if that is in time.
#[derive(Default)]
pub struct Along {
    pub writes: Vec<Write>,
    pub claiming: Option<Claiming>,
}

/// What became of the report of an attempt.
pub enum Reported {
    /// It came under its permit: this is the outcome.
    InTime(Effect),
    /// The permit was lost. `kept` as evidence, unless the effect is gone or this claim has said before what it had to say.
    Late { effect: Effect, kept: bool },
}

impl Reported {
    pub fn into_effect(self) -> Effect {
        match self {
            Self::InTime(effect) | Self::Late { effect, .. } => effect,
        }
    }
}

/// Somebody's word, with the reason.
#[derive(Clone, Copy)]
pub struct Said<'a> {
    pub by: &'a str,
    pub why: &'a str,
}

/// Who ended an effect, and when: what a receipt says beside the effect's own facts.
pub struct Sealed<'a> {
    pub outcome: &'static str,
    pub result: Digest32,
    /// Who says so, and why, where it was not the tool.
    pub said: Option<Said<'a>>,
    pub started: Timestamp,
    pub ended: Timestamp,
}

impl Ledger {
    /// Must be called inside a Tokio runtime: the writer polls the store through it.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        worker: WorkerId,
        threads: Threads,
        grouping: Grouping,
        fresh: Arc<Fresh>,
    ) -> Self {
        let wakeups = Arc::new(Wakeups::default());
        let meters = LedgerMeters::new();
        let writer = Writer::new(store.clone(), Teller::start(wakeups.clone(), threads), meters.clone(), fresh);
        let group = Group::start(writer, threads, grouping);
        Self { store, group, threads, receipts: Receipts::Written, clock, worker, wakeups, meters, claimed: AtomicI64::new(0) }
    }

    pub(crate) fn with_receipts(self, receipts: Receipts) -> Self {
        Self { receipts, ..self }
    }

    /// Appends that wait for the disk.
    pub fn queue_depth(&self) -> usize {
        self.group.depth()
    }

    /// The last append failed, and none has succeeded since.
    pub fn failing(&self) -> bool {
        self.group.failing()
    }

    pub fn worker(&self) -> &WorkerId {
        &self.worker
    }

    pub fn wakeups(&self) -> &Wakeups {
        &self.wakeups
    }

    /// Ready at the next commit of this process; what other processes commit is seen by looking.
    pub fn committed(&self) -> tokio::sync::futures::Notified<'_> {
        self.wakeups.committed()
    }

    pub async fn load(&self, key: EffectKey) -> Result<Effect, LedgerError> {
        let (history, veil) = self.read(StreamId::effect(&key), Reach::Whole).await?;
        fold(key, &history, veil)
    }

    /// The effect, or only what a replay of it needs, if that is all there is to it.
    pub async fn glance(&self, key: EffectKey) -> Result<Glance, LedgerError> {
        let (newest, veil) = self.read(StreamId::effect(&key), Reach::Newest(1)).await?;
        if newest.version.0 == newest.records.len() as u64 || newest.expired {
            return fold(key, &newest, veil).map(Glance::Whole);
        }
        match newest.records.last().and_then(|record| Settled::read(&record.body)) {
            Some(settled) => Ok(Glance::Settled(settled)),
            None => self.load(key).await.map(Glance::Whole),
        }
    }

    /// The entries of an effect as they are stored, each with the time of its record.
    pub async fn history(&self, key: EffectKey) -> Result<Vec<serde_json::Value>, LedgerError> {
        let history = self.records(StreamId::effect(&key), Reach::Whole).await?;
        let mut entries = Vec::new();
        for record in &history.records {
            let decoded: Vec<serde_json::Value> = codec::decode(&record.body)
                .map_err(|e| StoreError::Corrupt { place: format!("effect {key}, record {}", record.version.0), message: e.to_string() })?;
            entries.extend(decoded.into_iter().map(|entry| serde_json::json!({ "at": record.at, "entry": entry })));
        }
        Ok(entries)
    }

    /// A claim to [`begin`](Self::begin) with. No two of this worker have the same time: one that was perhaps written can be told from one that
    /// was made in its place, under the same fence, when it was not.
    pub fn claim(&self, attempt: Attempt, lease: Duration) -> Claim {
        let now = self.clock.now();
        let later = |last: i64| now.0.max(last + 1);
        let last = self.claimed.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |last| Some(later(last))).unwrap_or_else(|last| last);
        let at = Timestamp(later(last));
        Claim { at, attempt: attempt.number, fence: attempt.fence, worker: self.worker.apart(), lease_until: now + lease }
    }

    /// Claims an attempt. The permit exists only when the claim is durable. `before` is an entry that the same record begins with
    /// (`opened`), `beside` are writes that hold or fall with the claim (a budget, a window).
    pub async fn begin(
        &self,
        effect: &Effect,
        claim: &Claim,
        lease: Duration,
        before: Option<Entry>,
        beside: Vec<Write>,
    ) -> Result<Permit, LedgerError> {
        let claimed = tokio::time::Instant::now();
        let mut entries = Vec::with_capacity(usize::from(before.is_some()) + 1);
        entries.extend(before);
        entries.push(Entry::Claimed(claim.clone()));
        match self.record_with(effect, entries, None, |_| beside).await {
            Ok(effect) => Ok(Permit::of(Holding::of(effect, claim, lease, claimed))),
            // What goes with a claim is worked out anew like the claim itself.
            Err(LedgerError::BesideTaken { .. }) => Err(LedgerError::Conflict),
            Err(error) => Err(error),
        }
    }

    /// Records what the attempt said. The answer may be shown when this returns `Ok`. `conclude` is given the effect as it stands
    /// under the permit, heartbeats included: receipts are numbered by it. `beside` goes with an outcome that is in time, and with nothing else.
    pub async fn finish(
        &self,
        holding: &Holding,
        conclude: impl Fn(&Effect, Timestamp) -> Ending,
        beside: impl Fn(&Effect) -> Vec<Write>,
    ) -> Result<Reported, LedgerError> {
        let along = |after: &Effect| Along { writes: beside(after), claiming: None };
        Ok(self.finish_along(holding, conclude, along).await?.0)
    }

    /// The same, and perhaps with the claim of another effect: its permit exists when both are durable.
    pub async fn finish_along(
        &self,
        holding: &Holding,
        conclude: impl Fn(&Effect, Timestamp) -> Ending,
        along: impl Fn(&Effect) -> Along,
    ) -> Result<(Reported, Option<Permit>), LedgerError> {
        let mut effect = holding.lease.effect.lock().await;
        loop {
            let mut claimed = None;
            let beside = |after: &Effect| {
                let mut along = along(after);
                if let Some((holding, write)) = along.claiming.take().and_then(|claiming| self.claiming(claiming).ok()) {
                    claimed = Some(holding);
                    along.writes.push(write);
                }
                along.writes
            };
            let ended = self.clock.now();
            let ending = conclude(&effect, ended);
            let entry = Entry::Finished(Finished {
                fence: holding.lease.fence,
                attempt: holding.attempt,
                started: holding.started,
                ended,
                answers: effect.answers(&ending.outcome, ended),
                outcome: ending.outcome.clone(),
            });
            let sealed = seal_of(&ending.outcome, holding.started, ended);
            let recording = self.record_with(&effect, vec![entry], sealed, beside);
            match recording.await {
                Ok(recorded) => {
                    *effect = recorded.clone();
                    return Ok((Reported::InTime(recorded), claimed.map(Permit::of)));
                }
                // Boxed, here and below: what is rare takes no room in every call.
                Err(LedgerError::Conflict) => match Box::pin(self.still_held(&holding.lease)).await? {
                    Some(current) => *effect = current,
                    None => return Ok((Box::pin(self.report_late(holding, ending.evidence, ended)).await?, None)),
                },
                Err(error) => return Err(error),
            }
        }
    }

    /// A claim as it will be held, and the write that makes it.
    fn claiming(&self, claiming: Claiming) -> Result<(Holding, Write), LedgerError> {
        let Claiming { effect, claim, lease, before } = claiming;
        let entries = before.into_iter().chain([Entry::Claimed(claim.clone())]).collect();
        let since = tokio::time::Instant::now();
        let (claimed, mut request) = self.following(&effect, entries, None, |_| Vec::new())?;
        Ok((Holding::of(claimed, &claim, lease, since), request.writes.remove(0)))
    }

    /// Appends `writes`, and with them a claim. `Conflict`: none of it was written.
    pub fn append_claiming(
        &self,
        writes: Vec<Write>,
        claiming: Option<Claiming>,
    ) -> impl Future<Output = Result<Option<Permit>, LedgerError>> + use<> {
        let mut writes = writes;
        let claimed = claiming.map(|claiming| self.claiming(claiming)).transpose().map(|claimed| {
            claimed.map(|(holding, write)| {
                writes.push(write);
                holding
            })
        });
        let submitted = claimed.map(|claimed| (claimed, self.group.submit(Request { writes, receipt: None })));
        async move {
            let (claimed, durable) = submitted?;
            durable.await?;
            Ok(claimed.map(Permit::of))
        }
    }

    /// The effect as it is now, if this lease still holds it. A version that moved is not yet a permit that is lost: an older worker's late
    /// report moves it too, and so does an append that was written although the store could not say so.
    async fn still_held(&self, lease: &Lease) -> Result<Option<Effect>, LedgerError> {
        let current = self.load(lease.key).await?;
        let held = matches!(&current.state, State::Running(claim) if claim.fence == lease.fence);
        Ok(held.then_some(current))
    }

    /// Gives back a claim of this worker that may or may not have been written: nothing was dispatched under it.
    pub async fn release(&self, key: EffectKey, claim: &Claim, why: &str) -> Result<(), LedgerError> {
        loop {
            let effect = self.load(key).await?;
            if !runs_under(&effect, claim) {
                return Ok(());
            }
            let entry = Entry::Released { fence: claim.fence, at: self.clock.now(), why: why.into() };
            match self.record(&effect, vec![entry], None).await {
                Err(LedgerError::Conflict) => continue,
                released => return released.map(drop),
            }
        }
    }

    /// Says that the permit's holder is alive. `Conflict` means that the permit is lost.
    pub async fn extend(&self, lease: &Lease) -> Result<(), LedgerError> {
        let mut effect = lease.effect.lock().await;
        let still_ours = matches!(&effect.state, State::Running(claim) if claim.fence == lease.fence);
        if !still_ours {
            return Ok(());
        }
        loop {
            let lease_until = self.clock.now() + lease.length;
            let entry = Entry::Extended { fence: lease.fence, lease_until };
            match self.record(&effect, vec![entry], None).await {
                Ok(extended) => {
                    *effect = extended;
                    lease.until.store(lease_until.0, Ordering::SeqCst);
                    return Ok(());
                }
                Err(LedgerError::Conflict) => match self.still_held(lease).await? {
                    Some(current) => *effect = current,
                    None => {
                        lease.lose();
                        return Err(LedgerError::Conflict);
                    }
                },
                Err(error) => return Err(error),
            }
        }
    }

    /// How long the lease lasts for certain.
    pub fn left(&self, lease: &Lease) -> Duration {
        lease.until().since(self.clock.latest())
    }

    /// Keeps what a holder says whose claim was lost.
    pub async fn report_late(&self, holding: &Holding, outcome: LateOutcome, at: Timestamp) -> Result<Reported, LedgerError> {
        holding.lease.lose();
        loop {
            let effect = self.load(holding.lease.key).await?;
            if effect.expired || effect.latest().is_none() {
                return Ok(Reported::Late { effect, kept: false });
            }
            let (result, word) = match &outcome {
                LateOutcome::Done { result, .. } => (result.digest(), "late_done"),
                LateOutcome::NotDone(failure) => (digest_of(failure), "late_not_done"),
                LateOutcome::Unknown(failure) => (digest_of(failure), "late_unknown"),
            };
            let receipt = ReceiptId::new(&effect.key, effect.version + 1);
            let entry = Entry::Late(Late { fence: holding.lease.fence, at, outcome: outcome.clone(), receipt });
            let sealed = Sealed { outcome: word, result, said: None, started: holding.started, ended: at };
            match self.record(&effect, vec![entry], Some(sealed)).await {
                Err(LedgerError::Conflict) => continue,
                // This claim has already said what it had to say: a report is recorded once.
                Err(LedgerError::Fold { source: FoldError::Illegal { .. }, .. }) => return Ok(Reported::Late { effect, kept: false }),
                kept => return Ok(Reported::Late { effect: kept?, kept: true }),
            }
        }
    }

    /// Appends `entries` to the effect as one record, with a receipt where they end it, and gives the effect as it then is. Submitted when this
    /// returns, durable when the future is ready. (Not `async`: such a function keeps its arguments in the future twice, and a call holds this one.)
    pub fn record(
        &self,
        effect: &Effect,
        entries: Vec<Entry>,
        sealed: Option<Sealed<'_>>,
    ) -> impl Future<Output = Result<Effect, LedgerError>> + use<> {
        self.record_with(effect, entries, sealed, |_| Vec::new())
    }

    /// `beside` sees the effect as it will be, and gives the writes that hold or fall with it: `BesideTaken` when one of them lost its race.
    pub fn record_with<B: FnOnce(&Effect) -> Vec<Write>>(
        &self,
        effect: &Effect,
        entries: Vec<Entry>,
        sealed: Option<Sealed<'_>>,
        beside: B,
    ) -> impl Future<Output = Result<Effect, LedgerError>> + use<B> {
        let from = effect.state.word();
        let submitted = self.following(effect, entries, sealed, beside).map(|(next, request)| (next, self.group.submit(request)));
        async move {
            let (next, durable) = submitted?;
            match durable.await {
                Err(AppendError::Conflict { streams }) if !streams.contains(&StreamId::effect(&next.key)) => {
                    Err(LedgerError::BesideTaken { streams })
                }
                written => {
                    written?;
                    trace::moved(from, &next);
                    Ok(next)
                }
            }
        }
    }

    /// The effect after `entries`, and what must be written for it.
    fn following(
        &self,
        effect: &Effect,
        entries: Vec<Entry>,
        sealed: Option<Sealed<'_>>,
        beside: impl FnOnce(&Effect) -> Vec<Write>,
    ) -> Result<(Effect, Request), LedgerError> {
        let (stream, expected) = (StreamId::effect(&effect.key), Version(effect.version));
        let body = body(effect.veil.as_ref(), &stream, expected, &entries);
        let mut next = effect.clone();
        next.apply(entries).map_err(|source| LedgerError::Fold { key: effect.key, source })?;
        let write = Write { stream, expected, at: self.clock.now(), body, summary: next.summary() };
        let receipt = sealed.filter(|_| self.receipts == Receipts::Written).map(|sealed| draft(&next, sealed).unsealed());
        // Most write nothing besides, and no more room than needed.
        let beside = beside(&next);
        let mut writes = Vec::with_capacity(1 + beside.len());
        writes.push(write);
        writes.extend(beside);
        Ok((next, Request { writes, receipt }))
    }

    /// The records of a stream, and what they are veiled with.
    pub async fn read(&self, stream: StreamId, reach: Reach) -> Result<(History, Option<Arc<Veil>>), LedgerError> {
        let history = self.store.load(stream, reach).await.inspect_err(|e| self.meters.failed(e))?;
        if !history.records.iter().any(|record| is_veiled(&record.body)) {
            return Ok((history, None));
        }
        // Boxed: what is rare takes no room in every call.
        Box::pin(self.unveiled(stream, history)).await
    }

    pub async fn records(&self, stream: StreamId, reach: Reach) -> Result<History, LedgerError> {
        Ok(self.read(stream, reach).await?.0)
    }

    /// Every record beyond `known`, in order.
    pub async fn records_beyond(&self, stream: StreamId, known: Version) -> Result<Vec<Record>, LedgerError> {
        beyond::beyond(known, |reach| self.records(stream, reach)).await
    }

    /// A stream whose newest record is its whole state: breakers, budgets, windows, modes.
    pub async fn newest<T: serde::de::DeserializeOwned>(&self, stream: StreamId) -> Result<(Version, Option<T>), LedgerError> {
        let (version, newest, _) = self.newest_or_expired(stream).await?;
        Ok((version, newest))
    }

    /// And whether it was pruned.
    pub async fn newest_or_expired<T: serde::de::DeserializeOwned>(
        &self,
        stream: StreamId,
    ) -> Result<(Version, Option<T>, bool), LedgerError> {
        let history = self.records(stream, Reach::Newest(1)).await?;
        let Some(record) = history.records.last() else { return Ok((history.version, None, history.expired)) };
        let mut items: Vec<T> =
            codec::decode(&record.body).map_err(|e| StoreError::Corrupt { place: format!("stream {stream}"), message: e.to_string() })?;
        Ok((history.version, items.pop(), history.expired))
    }

    /// The write that replaces the whole state of such a stream.
    pub fn replacing<T: serde::Serialize>(&self, stream: StreamId, expected: Version, value: &T, summary: Summary) -> Write {
        Write { stream, expected, at: self.clock.now(), body: codec::encode(&[value]), summary }
    }

    pub async fn append(&self, writes: Vec<Write>) -> Result<(), LedgerError> {
        Ok(self.group.submit(Request { writes, receipt: None }).await?)
    }

    /// `write` with what holds or falls with it: `BesideTaken` when it was not `write` itself that lost its race.
    pub async fn append_beside(&self, write: Write, beside: Vec<Write>) -> Result<(), LedgerError> {
        let own = write.stream;
        let mut writes = vec![write];
        writes.extend(beside);
        match self.group.submit(Request { writes, receipt: None }).await {
            Err(AppendError::Conflict { streams }) if !streams.contains(&own) => Err(LedgerError::BesideTaken { streams }),
            written => Ok(written?),
        }
    }

    /// Whether it can be written. Asks the store only after an append has failed: then with an append of its own.
    pub async fn writable(&self) -> Result<(), LedgerError> {
        if !self.group.failing() {
            return Ok(());
        }
        let tenant = Tenant::new("counterfoil").expect("a plain word");
        let (version, _) = self.newest::<Timestamp>(StreamId::pulse()).await?;
        let write = self.replacing(StreamId::pulse(), version, &self.clock.now(), plain_summary(StreamKind::Meta, tenant));
        match self.append(vec![write]).await {
            Err(LedgerError::Conflict) => Ok(()),
            written => written,
        }
    }

    /// The ledger's salt, made on first use.
    pub async fn salt(&self, fresh: impl Fn() -> [u8; 32], tenant: &Tenant) -> Result<Salt, LedgerError> {
        loop {
            let (version, known) = self.newest::<Digest32>(StreamId::salt()).await?;
            if let Some(salt) = known {
                return Ok(Salt(salt.0));
            }
            let summary = plain_summary(StreamKind::Meta, tenant.clone());
            match self.append(vec![self.replacing(StreamId::salt(), version, &Digest32(fresh()), summary)]).await {
                Ok(()) | Err(LedgerError::Conflict) => continue,
                Err(error) => return Err(error),
            }
        }
    }

    /// All receipts of one run, or of the tenant's calls outside runs, verified link by link. In the order of their chain; of several chains,
    /// in the order of their ends.
    pub async fn receipts(&self, tenant: &Tenant, run: Option<&RunId>) -> Result<Vec<Receipt>, LedgerError> {
        if run.is_some() {
            return self.chain(StreamId::chain(tenant, run), Lane::FIRST).await;
        }
        let mut lanes = Vec::new();
        for lane in Lane::all() {
            lanes.push(self.chain(StreamId::lane(tenant, lane), lane).await?);
        }
        lanes.retain(|receipts| !receipts.is_empty());
        let several = lanes.len() > 1;
        let mut receipts: Vec<Receipt> = lanes.into_iter().flatten().collect();
        if several {
            receipts.sort_by_key(|receipt| receipt.ended);
        }
        Ok(receipts)
    }

    async fn chain(&self, stream: StreamId, lane: Lane) -> Result<Vec<Receipt>, LedgerError> {
        let damaged = |message: String| StoreError::Corrupt { place: format!("receipt chain {stream}"), message };
        let history = self.store.load(stream, Reach::Whole).await.inspect_err(|e| self.meters.failed(e))?;
        let (head, receipts) =
            follow(ChainHead::start(lane), history.records.iter().map(|r| r.body.as_str())).map_err(|e| damaged(e.to_string()))?;
        if head.lane != lane {
            return Err(damaged(format!("its receipts belong to lane {}, and this is lane {}", head.lane.0, lane.0)).into());
        }
        Ok(receipts)
    }

    /// What is to be looked at by now, or will be within `ahead`; earliest first.
    pub async fn due(&self, ahead: Duration, limit: usize) -> Result<Vec<EffectKey>, LedgerError> {
        let streams = self.off_thread(move |store, now| Box::pin(async move { store.due(now + ahead, limit).await })).await?;
        Ok(streams.into_iter().map(|s| Digest32(s.0)).collect())
    }

    pub async fn search(&self, query: Query) -> Result<Page, LedgerError> {
        self.off_thread(move |store, _| Box::pin(async move { store.search(query).await })).await
    }

    pub async fn tail(&self, after: Position, limit: usize) -> Result<Vec<Recorded>, LedgerError> {
        self.off_thread(move |store, _| Box::pin(async move { store.tail(after, limit).await })).await
    }

    pub async fn prune(&self, limit: usize) -> Result<Pruned, LedgerError> {
        self.off_thread(move |store, now| Box::pin(async move { store.prune(now, limit).await })).await
    }

    /// The newest position: what an append of nothing is answered with. Everything up to it is visible.
    pub async fn end(&self) -> Result<Position, LedgerError> {
        self.off_thread(|store, _| {
            Box::pin(async move {
                match store.append(&Batch::default()).await {
                    Ok(position) => Ok(position),
                    Err(AppendError::Store(error)) => Err(error),
                    Err(AppendError::Conflict { .. }) => unreachable!("a batch without writes meets nobody"),
                }
            })
        })
        .await
    }

    /// Every stream of one kind, by its newest record.
    pub async fn all_of(&self, query: Query) -> Result<Vec<Found>, LedgerError> {
        let mut found = Vec::new();
        let mut below = None;
        loop {
            let page = self.search(Query { below, ..query.clone() }).await?;
            found.extend(page.found);
            below = page.next;
            if below.is_none() {
                return Ok(found);
            }
        }
    }

    /// Embedded stores work on the polling thread: what may take long is polled where it holds nobody up.
    async fn off_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce(Arc<dyn Store>, Timestamp) -> counterfoil_store::Eventually<'static, Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, LedgerError> {
        let (store, now) = (self.store.clone(), self.clock.now());
        let worked = match self.threads {
            Threads::Own => {
                let handle = tokio::runtime::Handle::current();
                tokio::task::spawn_blocking(move || handle.block_on(work(store, now))).await.expect("a store does not panic")
            }
            Threads::None => work(store, now).await,
        };
        Ok(worked.inspect_err(|e| self.meters.failed(e))?)
    }
}

fn fold(key: EffectKey, history: &History, veil: Option<Arc<Veil>>) -> Result<Effect, LedgerError> {
    let mut effect = Effect::absent(key);
    for record in &history.records {
        effect.apply_body(&record.body).map_err(|source| LedgerError::Fold { key, source })?;
    }
    effect.version = history.version.0;
    effect.expired = history.expired;
    effect.veil = veil;
    Ok(effect)
}

/// Whether it runs under this very claim: where one was not written, the same call may have been made again meanwhile, under the same fence, and be
/// under way.
pub(crate) fn runs_under(effect: &Effect, claim: &Claim) -> bool {
    matches!(&effect.state, State::Running(running) if running == claim)
}

/// A summary for streams that are not effects.
pub fn plain_summary(kind: StreamKind, tenant: Tenant) -> Summary {
    Summary { kind, tenant, state: "", tool: None, run: None, open: false, due: None, expires: None }
}

/// Which ends of an attempt get a receipt, and what it says.
fn seal_of(outcome: &Ended, started: Timestamp, ended: Timestamp) -> Option<Sealed<'static>> {
    let (word, result) = match outcome {
        Ended::Done { success, .. } => ("done", success.result.digest()),
        Ended::Failed { failure, .. } => ("failed", digest_of(failure)),
        Ended::Retry { failure, receipt: Some(_), .. } => ("retry_exhausted", digest_of(failure)),
        Ended::Retry { receipt: None, .. } | Ended::Unknown { .. } => return None,
    };
    Some(Sealed { outcome: word, result, said: None, started, ended })
}

pub fn digest_of(failure: &counterfoil_core::Failure) -> Digest32 {
    Digest32::of(serde_json::to_string(failure).expect("a failure is plain data").as_bytes())
}

fn draft(effect: &Effect, sealed: Sealed<'_>) -> Draft {
    let opened = effect.latest().expect("an effect that ends was opened");
    // A receipt is for everyone to read, and outlives the subject's key.
    let blind = |digest: Digest32| effect.veil.as_ref().map_or(digest, |veil| veil.blind(&digest));
    Draft {
        id: ReceiptId::new(&effect.key, effect.version),
        tenant: opened.tenant.clone(),
        run: opened.run.clone(),
        effect: effect.key,
        attempt: effect.attempts,
        fence: effect.fence,
        tool: opened.tool.clone(),
        spec: blind(spec_hash(&opened.tool, &opened.args)),
        outcome: sealed.outcome,
        result: blind(sealed.result),
        by: sealed.said.map(|said| said.by.to_owned()),
        why: sealed.said.map(|said| blind(Digest32::of(said.why.as_bytes()))),
        started: sealed.started,
        ended: sealed.ended,
    }
}

/// The record that would end the attempt `effect` is in gets this receipt.
pub fn next_receipt(effect: &Effect) -> ReceiptId {
    ReceiptId::new(&effect.key, effect.version + 1)
}

/// An outcome as evidence, with the undo call it would have had.
pub fn evidence(outcome: &Outcome, undo: Option<UndoCall>) -> LateOutcome {
    match outcome.clone().into() {
        LateOutcome::Done { result, flags, state_changed, .. } => LateOutcome::Done { result, flags, state_changed, undo },
        other => other,
    }
}
