//! What stands before a dispatch: concurrency, rate and the breaker, per (tenant, tool).
//!
//! Passed before the claim is made, so that a refusal leaves nothing to take back. What a pass takes of the limits is written with the claim
//! (`quota`), so that all workers together keep them; the places counted here only make a process queue before it asks. Breaker state is kept in
//! the ledger too, so that a restart, a CLI call and a second process know it. A pass that was not used gives everything back when dropped.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use counterfoil_core::breaker::{Admission, Breaker, Health, Phase};
use counterfoil_core::limit::Place;
use counterfoil_core::summary::StreamKind;
use counterfoil_core::{Effect, Outcome, Policy, StreamId, Summary, Tenant, Timestamp, ToolName};
use counterfoil_store::{Version, Write};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::answer::{AnswerError, Ending, Status};
use crate::clock::Clock;
use crate::ledger::{Ledger, LedgerError};
use crate::observe::Meters;
use crate::quota::{Counter, Short, Taken};
use crate::stripes::Copies;

/// Attempts that may wait for a place when the policy names no `queue`.
const QUEUE_DEFAULT: u32 = 1000;
/// How long this process trusts its own memory of a breaker before it looks at the ledger again.
const BREAKER_FRESH_FOR: Duration = Duration::from_secs(1);
/// Not known to be calm.
const STIRRED: i64 = i64::MIN;

pub struct Gates {
    ledger: Arc<Ledger>,
    clock: Arc<dyn Clock>,
    meters: Arc<Meters>,
    gates: Copies<HashMap<ToolName, HashMap<Tenant, Handle>>>,
}

/// A gate is one for all; each copy of the table has a handle of its own, since every attempt counts on it.
type Handle = Arc<Arc<Gate>>;

struct Gate {
    tenant: Tenant,
    tool: ToolName,
    places: Option<Arc<Semaphore>>,
    places_total: u32,
    quota: Counter,
    breaker: Mutex<Kept>,
    /// So long, in microseconds, nobody need ask the breaker: it lets everyone pass, and a success leaves it as it is. Whoever changes it ends that first.
    calm_until: AtomicI64,
    /// Held while the breaker is written: within this process, writes follow one another and never race.
    writing: tokio::sync::Mutex<()>,
}

impl Gate {
    /// Whether the ledger was looked at a moment ago.
    fn is_fresh(&self, now: Timestamp) -> bool {
        lock(&self.breaker).looked.is_some_and(|at| now.since(at) < BREAKER_FRESH_FOR)
    }

    fn is_calm(&self, now: Timestamp) -> bool {
        now.0 < self.calm_until.load(Ordering::Acquire)
    }

    /// Whether it is as it was when it was last found to be calm, however long ago: who does not ask it whether to pass may rely on that.
    fn is_unstirred(&self) -> bool {
        self.calm_until.load(Ordering::Acquire) > STIRRED
    }

    /// The breaker, to be changed.
    fn stirred(&self) -> MutexGuard<'_, Kept> {
        let kept = lock(&self.breaker);
        self.calm_until.store(STIRRED, Ordering::Release);
        kept
    }

    /// For as long as what is known of it counts.
    fn calmed(&self, kept: &Kept, policy: &Policy) {
        if let Some(looked) = kept.looked.filter(|_| kept.breaker.is_calm(&policy.breaker)) {
            self.calm_until.store((looked + BREAKER_FRESH_FOR).0, Ordering::Release);
        }
    }
}

/// The breaker as this process knows it.
struct Kept {
    breaker: Breaker,
    version: Version,
    looked: Option<Timestamp>,
    /// The probe that is out was lent: unless it reports, it counts as lost from then on.
    probe_lent_until: Option<Timestamp>,
}

/// The right to dispatch once, as far as limits and the breaker go.
pub struct Pass {
    gate: Handle,
    admission: Admission,
    _place: Option<OwnedSemaphorePermit>,
    /// What the claim takes with it.
    taken: Option<Box<Taken>>,
    /// Among those of all workers.
    place: Option<Place>,
    used: bool,
}

/// Why there is no pass. Nothing was dispatched and nothing is recorded.
pub struct Barred(pub Status, pub AnswerError);

impl Barred {
    /// Says what was sent before.
    pub fn after(mut self, effect: &Effect) -> Ending {
        let sent = match effect.attempts {
            0 => "nothing was sent".to_owned(),
            attempts => format!("nothing more is sent after attempt {attempts}"),
        };
        self.1.message = format!("{}; {sent}", self.1.message);
        Ending::NotAdmitted(self.0, self.1)
    }
}

impl Gates {
    pub(crate) fn new(ledger: Arc<Ledger>, clock: Arc<dyn Clock>, meters: Arc<Meters>) -> Self {
        Self { ledger, clock, meters, gates: Copies::default() }
    }

    pub async fn pass(
        &self,
        tenant: &Tenant,
        tool: &ToolName,
        policy: &Policy,
        attempt: Place,
        deadline: Timestamp,
    ) -> Result<Result<Pass, Barred>, LedgerError> {
        let gate = self.gate(tenant, tool, policy);
        self.refresh(&gate).await?;
        let place = match self.place(&gate, policy, deadline).await {
            Ok(place) => place,
            Err(barred) => return Ok(Err(barred)),
        };
        // Who must not queue here does not queue for another worker's places either.
        let waits = policy.limits.queue != Some(0) && self.clock.now() < deadline;
        match self.taken(&gate, policy, Some(attempt), waits.then_some(deadline)).await? {
            Ok(taken) => Ok(self.admitted(gate, policy, place, taken, self.clock.now())),
            Err(barred) => Ok(Err(barred)),
        }
    }

    /// The same without waiting for anything: `None` where there is something to wait for, to look up or to write.
    pub fn pass_at_once(&self, tenant: &Tenant, tool: &ToolName, policy: &Policy) -> Option<Pass> {
        let gate = self.gate(tenant, tool, policy);
        let now = self.clock.now();
        if policy.limits.shared() || gate.places.is_some() {
            return None;
        }
        if gate.is_calm(now) {
            return Some(Pass { gate, admission: Admission::Pass, _place: None, taken: None, place: None, used: false });
        }
        gate.is_fresh(now).then(|| self.admitted(gate, policy, None, None, now).ok()).flatten()
    }

    /// For an attempt that is made elsewhere. It takes no place among `limits.concurrency`: only its client knows when it ends, and a place must not
    /// be lost with a client. It does not wait for a token either: whoever asked can ask again.
    pub async fn pass_out(&self, tenant: &Tenant, tool: &ToolName, policy: &Policy) -> Result<Result<Pass, Barred>, LedgerError> {
        let gate = self.gate(tenant, tool, policy);
        self.refresh(&gate).await?;
        match self.taken(&gate, policy, None, None).await? {
            Ok(taken) => Ok(self.admitted(gate, policy, None, taken, self.clock.now())),
            Err(barred) => Ok(Err(barred)),
        }
    }

    fn admitted(
        &self,
        gate: Handle,
        policy: &Policy,
        place: Option<OwnedSemaphorePermit>,
        taken: Option<Box<Taken>>,
        now: Timestamp,
    ) -> Result<Pass, Barred> {
        let admission = {
            let mut kept = gate.stirred();
            if kept.probe_lent_until.is_some_and(|until| until <= now) {
                kept.probe_lent_until = None;
                kept.breaker.probing = false;
            }
            kept.breaker.admit(&policy.breaker, now)
        };
        match admission {
            Admission::Refuse { retry_at } => Err(self.circuit_open(&gate, retry_at)),
            admission => Ok(Pass { gate, admission, _place: place, taken, place: None, used: false }),
        }
    }

    /// Tells the breaker how an attempt went that was made elsewhere, perhaps admitted by another process: as what it passed follows from when
    /// it was claimed.
    pub async fn report_lent(
        &self,
        (tenant, tool): (&Tenant, &ToolName),
        policy: &Policy,
        claimed: Timestamp,
        outcome: &Outcome,
    ) -> Result<(), LedgerError> {
        let gate = self.gate(tenant, tool, policy);
        self.reload(&gate).await?;
        let admission = {
            let mut kept = gate.stirred();
            let admission = kept.breaker.admitted_at(claimed);
            if admission == Admission::Probe {
                kept.probe_lent_until = None;
            }
            admission
        };
        let pass = Pass { gate, admission, _place: None, taken: None, place: None, used: true };
        self.report(pass, policy, outcome, false).await
    }

    /// Tells the breaker how the dispatch went, and writes down what changed.
    pub async fn report(&self, mut pass: Pass, policy: &Policy, outcome: &Outcome, stopped: bool) -> Result<(), LedgerError> {
        pass.used = true;
        // What was told to stop says nothing about the dependency.
        let health = if stopped { Health::Silent } else { health_of(outcome) };
        let unchanged = health == Health::Good && pass.admission == Admission::Pass && pass.gate.is_unstirred();
        if unchanged || !self.count(&pass, policy, health) {
            return Ok(());
        }
        // Boxed: most attempts change no breaker.
        Box::pin(self.write_down(&pass, policy, health)).await
    }

    async fn write_down(&self, pass: &Pass, policy: &Policy, health: Health) -> Result<(), LedgerError> {
        let _writing = pass.gate.writing.lock().await;
        loop {
            let (snapshot, version) = {
                let kept = lock(&pass.gate.breaker);
                (kept.breaker.clone(), kept.version)
            };
            match self.write(&pass.gate, version, &snapshot, Vec::new()).await {
                // Another process wrote: take its state and count this dispatch on top of it.
                Err(LedgerError::Conflict) => {
                    self.reload(&pass.gate).await?;
                    if !self.count(pass, policy, health) {
                        return Ok(());
                    }
                }
                done => return done,
            }
        }
    }

    fn count(&self, pass: &Pass, policy: &Policy, health: Health) -> bool {
        let now = self.clock.now();
        let mut kept = pass.gate.stirred();
        let before = kept.breaker.phase(now);
        let changed = kept.breaker.count(&policy.breaker, pass.admission, health, now);
        let after = kept.breaker.phase(now);
        let reason = kept.breaker.open.as_ref().map_or("the probe succeeded", |o| o.reason.as_str());
        self.moved(&pass.gate, before, after, reason);
        pass.gate.calmed(&kept, policy);
        changed
    }

    fn moved(&self, gate: &Gate, before: Phase, after: Phase, reason: &str) {
        if before != after {
            let (from, to) = (before.word(), after.word());
            tracing::warn!(tool = %gate.tool, tenant = %gate.tenant, from, to, reason, "breaker changed");
            // As the next scrape will find it, if no other tenant's is worse.
            self.meters.of(&gate.tool).breaker(after);
        }
    }

    /// Where the breaker of each tool stands that this process has looked at: of several tenants', the worst.
    pub fn phases(&self) -> HashMap<ToolName, Phase> {
        let now = self.clock.now();
        let mut worst: HashMap<ToolName, Phase> = HashMap::new();
        for gate in self.gates.read().values().flat_map(HashMap::values) {
            let kept = lock(&gate.breaker);
            if kept.looked.is_some() {
                let phase = kept.breaker.phase(now);
                let known = worst.entry(gate.tool.clone()).or_insert(phase);
                *known = worse(*known, phase);
            }
        }
        worst
    }

    /// Who has had a gate here.
    pub fn tenants(&self) -> HashSet<Tenant> {
        self.gates.read().values().flat_map(HashMap::keys).cloned().collect()
    }

    /// A person's word: closed, or open until further notice.
    pub async fn set(
        &self,
        tenant: &Tenant,
        tool: &ToolName,
        policy: &Policy,
        change: impl Fn(&mut Breaker),
        beside: impl Fn(&Breaker) -> Vec<Write>,
    ) -> Result<Breaker, LedgerError> {
        let gate = self.gate(tenant, tool, policy);
        let _writing = gate.writing.lock().await;
        let mut tried = None;
        let mut before;
        loop {
            self.reload(&gate).await?;
            let (mut changed, version) = {
                let kept = lock(&gate.breaker);
                before = kept.breaker.phase(self.clock.now());
                (kept.breaker.clone(), kept.version)
            };
            // Not the breaker was written by someone else, so it was what stands beside it.
            if tried.replace(version) == Some(version) {
                return Err(LedgerError::Conflict);
            }
            change(&mut changed);
            match self.write(&gate, version, &changed, beside(&changed)).await {
                Err(LedgerError::Conflict) => continue,
                Err(error) => return Err(error),
                Ok(()) => {
                    gate.stirred().breaker = changed.clone();
                    let reason = changed.open.as_ref().map_or("reset by hand", |open| open.reason.as_str());
                    self.moved(&gate, before, changed.phase(self.clock.now()), reason);
                    return Ok(changed);
                }
            }
        }
    }

    /// The breaker as the ledger has it now.
    pub async fn breaker(&self, tenant: &Tenant, tool: &ToolName, policy: &Policy) -> Result<(Breaker, Phase), LedgerError> {
        let gate = self.gate(tenant, tool, policy);
        self.reload(&gate).await?;
        let kept = lock(&gate.breaker);
        Ok((kept.breaker.clone(), kept.breaker.phase(self.clock.now())))
    }

    fn gate(&self, tenant: &Tenant, tool: &ToolName, policy: &Policy) -> Handle {
        if let Some(known) = self.gates.read().get(tool).and_then(|gates| gates.get(tenant)) {
            return known.clone();
        }
        let gate = Arc::new(Gate {
            tenant: tenant.clone(),
            tool: tool.clone(),
            places: policy.limits.concurrency.map(|n| Arc::new(Semaphore::new(n as usize))),
            places_total: policy.limits.concurrency.unwrap_or(0),
            quota: Counter::new(tenant.clone(), tool.clone()),
            breaker: Mutex::new(Kept { breaker: Breaker::default(), version: Version::NONE, looked: None, probe_lent_until: None }),
            calm_until: AtomicI64::new(STIRRED),
            writing: tokio::sync::Mutex::new(()),
        });
        // Unless somebody was faster, whose gate is in all copies then.
        self.gates.change(|gates| {
            let gates = gates.entry(tool.clone()).or_default();
            gates.entry(tenant.clone()).or_insert_with(|| Arc::new(gate.clone())).clone()
        })
    }

    async fn place(&self, gate: &Gate, policy: &Policy, deadline: Timestamp) -> Result<Option<OwnedSemaphorePermit>, Barred> {
        let Some(places) = &gate.places else { return Ok(None) };
        if let Ok(place) = places.clone().try_acquire_owned() {
            return Ok(Some(place));
        }
        let queue = policy.limits.queue.unwrap_or(QUEUE_DEFAULT);
        // Counted by strong handles: each waiter below holds one, the gate itself one, each place in use one.
        let waiting = Arc::strong_count(places).saturating_sub(1 + gate.places_total as usize);
        if waiting >= queue as usize {
            let message =
                format!("limits.concurrency {} of {} is in use and {queue} calls are waiting already", gate.places_total, gate.tool);
            return Err(Barred(Status::Error, AnswerError::new("limit_queue_full", message).retriable(Some(Duration::from_secs(1)))));
        }
        let left = deadline.since(self.clock.now());
        match tokio::time::timeout(left, places.clone().acquire_owned()).await {
            Ok(Ok(place)) => Ok(Some(place)),
            _ => Err(no_place(gate)),
        }
    }

    /// What the attempt takes of the limits that all workers keep together.
    async fn taken(
        &self,
        gate: &Gate,
        policy: &Policy,
        place: Option<Place>,
        deadline: Option<Timestamp>,
    ) -> Result<Result<Option<Box<Taken>>, Barred>, LedgerError> {
        let limits = &policy.limits;
        if !limits.shared() {
            return Ok(Ok(None));
        }
        let taken = Box::pin(gate.quota.take(&self.ledger, &*self.clock, limits, place, deadline)).await?;
        Ok(taken.map(|taken| taken.map(Box::new)).map_err(|short| match short {
            Short::Token(wait) => {
                let message = format!("limits.rate of {} is used up, and no token comes in time", gate.tool);
                Barred(Status::Error, AnswerError::new("rate_limited", message).retriable(Some(wait)))
            }
            Short::Place => no_place(gate),
        }))
    }

    fn circuit_open(&self, gate: &Gate, retry_at: Option<Timestamp>) -> Barred {
        let kept = lock(&gate.breaker);
        let reason = kept.breaker.open.as_ref().map_or("", |o| o.reason.as_str());
        let message = format!("the breaker of {} is open: {reason}", gate.tool);
        let wait = retry_at.map(|at| at.since(self.clock.now()));
        Barred(Status::CircuitOpen, AnswerError::new("circuit_open", message).retriable(wait))
    }

    async fn refresh(&self, gate: &Gate) -> Result<(), LedgerError> {
        if gate.is_fresh(self.clock.now()) { Ok(()) } else { self.reload(gate).await }
    }

    async fn reload(&self, gate: &Gate) -> Result<(), LedgerError> {
        let (version, stored) = self.ledger.newest::<Breaker>(StreamId::breaker(&gate.tenant, &gate.tool)).await?;
        let mut kept = gate.stirred();
        kept.looked = Some(self.clock.now());
        if version > kept.version {
            let probing = kept.breaker.probing;
            kept.breaker = Breaker { probing, ..stored.unwrap_or_default() };
            kept.version = version;
        }
        Ok(())
    }

    async fn write(&self, gate: &Gate, expected: Version, breaker: &Breaker, beside: Vec<Write>) -> Result<(), LedgerError> {
        let stream = StreamId::breaker(&gate.tenant, &gate.tool);
        let summary = Summary {
            kind: StreamKind::Breaker,
            tenant: gate.tenant.clone(),
            state: if breaker.open.is_some() { "open" } else { "closed" },
            tool: Some(gate.tool.clone()),
            run: None,
            open: breaker.open.is_some(),
            due: None,
            expires: None,
        };
        let mut writes = beside;
        writes.insert(0, self.ledger.replacing(stream, expected, breaker, summary));
        self.ledger.append(writes).await?;
        let mut kept = lock(&gate.breaker);
        kept.version = kept.version.max(expected.next());
        Ok(())
    }
}

fn no_place(gate: &Gate) -> Barred {
    let message = format!("no place among limits.concurrency {} of {} became free before the deadline", gate.places_total, gate.tool);
    Barred(Status::Error, AnswerError::new("limit_timeout", message).retriable(Some(Duration::from_secs(1))))
}

impl Pass {
    /// What must be written with the claim, or not at all.
    pub fn writes(&mut self) -> Vec<Write> {
        self.taken.as_mut().map(|taken| std::mem::take(&mut taken.writes)).unwrap_or_default()
    }

    /// The claim is durable, and what it takes of the limits.
    pub fn claimed(&mut self) {
        self.place = self.taken.take().and_then(|taken| taken.recorded());
    }

    /// The attempt is on its way, elsewhere. The breaker's probe stays out until `until`, unless it reports before.
    pub fn lend(mut self, until: Timestamp) {
        self.used = true;
        self.claimed();
        if self.admission == Admission::Probe {
            lock(&self.gate.breaker).probe_lent_until = Some(until);
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.gate.quota.free(place);
        }
        if !self.used && self.admission == Admission::Probe {
            // A probe that was never sent gives its permit back.
            lock(&self.gate.breaker).breaker.probing = false;
        }
    }
}

fn health_of(outcome: &Outcome) -> Health {
    match outcome {
        Outcome::Done(_) => Health::Good,
        Outcome::NotDone(failure) if failure.dependency => Health::Bad,
        // It answered, and said no: the dependency is alive.
        Outcome::NotDone(failure) if failure.code.starts_with("http_") => Health::Good,
        // Refused on our side, before anything was sent.
        Outcome::NotDone(_) => Health::Silent,
        Outcome::Unknown(_) => Health::Bad,
    }
}

fn worse(a: Phase, b: Phase) -> Phase {
    let rank = |phase| match phase {
        Phase::Closed => 0,
        Phase::HalfOpen => 1,
        Phase::Open => 2,
    };
    if rank(b) > rank(a) { b } else { a }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Plain values, whole at every moment.
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
