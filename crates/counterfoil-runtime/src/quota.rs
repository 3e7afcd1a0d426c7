//! `limits.rate` and `limits.concurrency`, kept by all workers together.
//!
//! What is taken is written in the same append as the claim: two attempts that race for the last token or place cannot both win, and an attempt
//! whose process died has taken exactly what its claim says. A place is not given back by a write: it is free once its claim is over, and
//! whoever needs it looks. Within a process one attempt at a time takes from a tool's quota, until its claim is durable; between processes
//! the ledger decides, and who lost looks again.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use counterfoil_core::effect::State;
use counterfoil_core::limit::{Place, Quota, Wait};
use counterfoil_core::policy::Limits;
use counterfoil_core::summary::StreamKind;
use counterfoil_core::{StreamId, Summary, Tenant, Timestamp, ToolName};
use counterfoil_store::{StoreError, Version, Write};
use futures_util::future::{join_all, select_all};
use tokio::sync::OwnedMutexGuard;

use crate::clock::Clock;
use crate::ledger::{Ledger, LedgerError, plain_summary};

/// Records of one stream; then it goes on in the next. A stream is pruned whole, and a long one would hold up everybody.
const RECORDS_MAX: u64 = 256;
/// So long after the last claim nothing is remembered: by then the bucket is full again, and whatever runs is not counted any more.
const REMEMBERED: Duration = Duration::from_secs(2 * 24 * 3600);
/// How long one that has gone on is kept for a process that still believes in it. Without it, it would look again.
const OVER: Duration = Duration::from_secs(3600);
/// How long whoever does not wait for a limit waits for its turn to ask.
const TURN_MAX: Duration = Duration::from_secs(5);
/// Attempts that are looked at and waited for at once when every place is taken. Of more, others are the next time.
const WATCHED_MAX: usize = 64;

/// When to ask again, for whoever queued for too long to know better.
const MOMENT: Duration = Duration::from_secs(1);

/// Of one tenant and tool, in this process.
pub struct Counter {
    tenant: Tenant,
    tool: ToolName,
    known: Arc<tokio::sync::Mutex<Known>>,
    /// Attempts that are over, and whose places may still be written down as taken.
    over: Mutex<Vec<Place>>,
    /// Held by whoever of this process watches for a place. Were it everyone who needs one, all would look at the same attempts.
    line: Arc<tokio::sync::Mutex<Watch>>,
}

/// Which of the attempts in the way were looked at last.
#[derive(Default)]
struct Watch(usize);

/// The quota as this process wrote or read it last. Others may have taken since: then the append says so.
#[derive(Default)]
struct Known {
    stand: Option<Stand>,
    /// The newest stream that was ever seen; 0 before the first look.
    generation: u64,
}

#[derive(Clone)]
struct Stand {
    generation: u64,
    version: Version,
    quota: Quota,
}

/// What an attempt takes, if its claim is made. Until it is dropped or recorded, nobody else in this process takes from the same quota.
pub struct Taken {
    known: OwnedMutexGuard<Known>,
    after: Stand,
    place: Option<Place>,
    pub writes: Vec<Write>,
}

/// Why there is nothing to take before the deadline.
pub enum Short {
    Place,
    Token(Duration),
}

impl Taken {
    /// The claim is durable, and what was taken with it.
    pub fn recorded(mut self) -> Option<Place> {
        self.known.generation = self.after.generation;
        self.known.stand = Some(self.after);
        self.place
    }
}

impl Counter {
    pub fn new(tenant: Tenant, tool: ToolName) -> Self {
        Self { tenant, tool, known: Arc::default(), over: Mutex::default(), line: Arc::default() }
    }

    /// An attempt is over: its place can be had without a look at the ledger.
    pub fn free(&self, place: Place) {
        self.over().push(place);
    }

    /// `Ok(None)`: there is nothing to count. Without a deadline it does not wait: whoever asked can ask again.
    pub async fn take(
        &self,
        ledger: &Ledger,
        clock: &dyn Clock,
        limits: &Limits,
        place: Option<Place>,
        deadline: Option<Timestamp>,
    ) -> Result<Result<Option<Taken>, Short>, LedgerError> {
        let place = place.filter(|_| limits.concurrency.is_some());
        if limits.rate.is_none() && place.is_none() {
            return Ok(Ok(None));
        }
        // Queued for too long to know better.
        let late = || if place.is_some() { Short::Place } else { Short::Token(MOMENT) };
        let mut line: Option<OwnedMutexGuard<Watch>> = None;
        loop {
            let turn_max = deadline.map_or(TURN_MAX, |deadline| deadline.since(clock.now()));
            let Ok(mut known) = tokio::time::timeout(turn_max, self.known.clone().lock_owned()).await else { return Ok(Err(late())) };
            let now = clock.now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Ok(Err(late()));
            }
            let stand = self.stand(ledger, &mut known).await?;
            let over = self.over().clone();
            let quota = stand.quota.clone().without(&over);
            match quota.take(limits, place, now) {
                Ok(next) => {
                    self.over().retain(|place| !over.contains(place));
                    let (after, writes) = self.after(ledger, stand, next, now);
                    return Ok(Ok(Some(Taken { known, after, place, writes })));
                }
                Err(wait) => {
                    known.stand = Some(stand);
                    drop(known);
                    let short = match (wait, deadline, &mut line) {
                        (Wait::Token(wait), None, _) => Some(Short::Token(wait)),
                        (Wait::Token(wait), Some(deadline), line) => {
                            // Others may find a place meanwhile.
                            *line = None;
                            until_token(now, wait, deadline).await
                        }
                        (Wait::Place, None, _) => (!self.frees(ledger, &quota.places, now).await?).then_some(Short::Place),
                        (Wait::Place, Some(deadline), Some(watch)) => {
                            self.until_place(ledger, clock, &quota.places, watch, deadline).await?
                        }
                        (Wait::Place, Some(deadline), none) => {
                            *none = tokio::time::timeout(deadline.since(now), self.line.clone().lock_owned()).await.ok();
                            none.is_none().then_some(Short::Place)
                        }
                    };
                    if let Some(short) = short {
                        return Ok(Err(short));
                    }
                }
            }
        }
    }

    /// Until one of the attempts that have places is over, or perhaps is. `Some`: none was in time.
    async fn until_place(
        &self,
        ledger: &Ledger,
        clock: &dyn Clock,
        places: &[Place],
        watch: &mut Watch,
        deadline: Timestamp,
    ) -> Result<Option<Short>, LedgerError> {
        let from = watch.0 % places.len().max(1);
        let watched: Vec<Place> = places.iter().cycle().skip(from).take(places.len().min(WATCHED_MAX)).copied().collect();
        watch.0 = from + watched.len();
        let wakeups = ledger.wakeups();
        let waiters: Vec<_> = watched.iter().map(|place| wakeups.register(StreamId::effect(&place.effect))).collect();
        // Listening before looking: what ends between the two still wakes us.
        let mut ends: Vec<_> = waiters.iter().map(|waiter| Box::pin(waiter.notify.notified())).collect();
        ends.iter_mut().for_each(|end| {
            end.as_mut().enable();
        });
        if self.frees(ledger, &watched, clock.now()).await? {
            return Ok(None);
        }
        let left = deadline.since(clock.now());
        // A limit of none: nothing will ever be over.
        if left.is_zero() || ends.is_empty() {
            return Ok(Some(Short::Place));
        }
        // Nobody tells of a lease that runs out.
        drop(tokio::time::timeout(wakeups.look_every().min(left), select_all(ends)).await);
        Ok(None)
    }

    /// Whether one of these attempts is over: then there is a place.
    async fn frees(&self, ledger: &Ledger, places: &[Place], now: Timestamp) -> Result<bool, LedgerError> {
        let over = over(ledger, places, now).await?;
        let frees = !over.is_empty();
        self.over().extend(over);
        Ok(frees)
    }

    /// The quota as it stands. Taken out of what is known: whoever fails on the way leaves nothing that is believed.
    async fn stand(&self, ledger: &Ledger, known: &mut Known) -> Result<Stand, LedgerError> {
        if let Some(stand) = known.stand.take() {
            return Ok(stand);
        }
        if known.generation == 0 {
            known.generation = self.newest(ledger).await?;
        }
        loop {
            let generation = known.generation;
            let (version, quota, expired) = ledger.newest_or_expired::<Quota>(self.stream(generation)).await?;
            match quota {
                Some(quota) if !quota.moved => return Ok(Stand { generation, version, quota }),
                None if !expired => return Ok(Stand { generation, version: Version::NONE, quota: Quota::default() }),
                // It went on, or it was forgotten: in both cases the next one counts.
                _ => known.generation += 1,
            }
        }
    }

    /// The newest stream there is, or the first. They follow one another without a gap, and those that were pruned are still known.
    async fn newest(&self, ledger: &Ledger) -> Result<u64, LedgerError> {
        let (mut there, mut beyond) = (1, 2);
        while self.exists(ledger, beyond).await? {
            (there, beyond) = (beyond, beyond.saturating_mul(2));
        }
        while beyond - there > 1 {
            let middle = there + (beyond - there) / 2;
            match self.exists(ledger, middle).await? {
                true => there = middle,
                false => beyond = middle,
            }
        }
        Ok(there)
    }

    async fn exists(&self, ledger: &Ledger, generation: u64) -> Result<bool, LedgerError> {
        let (version, _, expired) = ledger.newest_or_expired::<Quota>(self.stream(generation)).await?;
        Ok(version != Version::NONE || expired)
    }

    /// Where it stands after `next`, and what is written for it: a stream that is long enough is closed in the same append that begins the next.
    fn after(&self, ledger: &Ledger, stand: Stand, next: Quota, now: Timestamp) -> (Stand, Vec<Write>) {
        let Stand { generation, version, .. } = stand;
        if version.0 < RECORDS_MAX {
            let write = self.write(ledger, generation, version, &next, now + REMEMBERED);
            return (Stand { generation, version: version.next(), quota: next }, vec![write]);
        }
        let closed = self.write(ledger, generation, version, &Quota { moved: true, ..Quota::default() }, now + OVER);
        let begun = self.write(ledger, generation + 1, Version::NONE, &next, now + REMEMBERED);
        (Stand { generation: generation + 1, version: Version::NONE.next(), quota: next }, vec![closed, begun])
    }

    fn write(&self, ledger: &Ledger, generation: u64, version: Version, quota: &Quota, expires: Timestamp) -> Write {
        let summary =
            Summary { tool: Some(self.tool.clone()), expires: Some(expires), ..plain_summary(StreamKind::Quota, self.tenant.clone()) };
        ledger.replacing(self.stream(generation), version, quota, summary)
    }

    fn stream(&self, generation: u64) -> StreamId {
        StreamId::quota(&self.tenant, &self.tool, generation)
    }

    fn over(&self) -> MutexGuard<'_, Vec<Place>> {
        // A list of places, whole at every moment.
        self.over.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Until there is a token. `Some`: not in time.
async fn until_token(now: Timestamp, wait: Duration, deadline: Timestamp) -> Option<Short> {
    if now + wait >= deadline {
        return Some(Short::Token(wait));
    }
    tokio::time::sleep(wait).await;
    None
}

/// Which of these attempts are over: ended, given up, or silent for longer than their lease.
async fn over(ledger: &Ledger, places: &[Place], now: Timestamp) -> Result<Vec<Place>, LedgerError> {
    let effects = join_all(places.iter().map(|place| ledger.load(place.effect))).await;
    let mut over = Vec::new();
    for (place, effect) in places.iter().zip(effects) {
        let runs = match effect {
            Ok(effect) => matches!(&effect.state, State::Running(claim) if claim.fence == place.fence && claim.lease_until > now),
            Err(error @ LedgerError::Store(StoreError::Unavailable { .. })) => return Err(error),
            // One that is damaged must not hold up all the others.
            Err(error) => {
                tracing::error!(effect = %place.effect, %error, "an attempt that has a place cannot be read; its place is taken for free");
                false
            }
        };
        if !runs {
            over.push(*place);
        }
    }
    Ok(over)
}
