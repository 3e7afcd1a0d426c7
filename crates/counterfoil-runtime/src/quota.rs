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
use counterfoil_store::{Version, Write};
use futures_util::future::{join_all, select_all};
use tokio::sync::OwnedMutexGuard;

use crate::clock::Clock;
use crate::ledger::{Ledger, LedgerError, plain_summary};

const DAY: Duration = Duration::from_secs(24 * 3600);
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
struct Known(Option<Stand>);

#[derive(Clone)]
struct Stand {
    day: i64,
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
        self.known.0 = Some(self.after);
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

    /// `None`: there is nothing to count.
    pub async fn take(
        &self,
        ledger: &Ledger,
        clock: &dyn Clock,
        limits: &Limits,
        place: Option<Place>,
        deadline: Timestamp,
    ) -> Result<Result<Option<Taken>, Short>, LedgerError> {
        let place = place.filter(|_| limits.concurrency.is_some());
        if limits.rate.is_none() && place.is_none() {
            return Ok(Ok(None));
        }
        let asked = clock.now();
        let mut line: Option<OwnedMutexGuard<Watch>> = None;
        loop {
            // Whoever has it waits for the disk, and no longer.
            let mut known = self.known.clone().lock_owned().await;
            let now = clock.now();
            if now >= deadline && deadline > asked {
                return Ok(Err(if place.is_some() { Short::Place } else { Short::Token(MOMENT) }));
            }
            // Taken out: whoever fails on the way leaves nothing that is believed.
            let (stand, mut writes) = self.stand(ledger, known.0.take(), now).await?;
            let over = self.over().clone();
            let quota = stand.quota.clone().without(&over);
            match quota.take(limits, place, now) {
                Ok(next) => {
                    self.over().retain(|place| !over.contains(place));
                    writes.push(self.write(ledger, stand.day, stand.version, &next));
                    let after = Stand { version: stand.version.next(), quota: next, ..stand };
                    return Ok(Ok(Some(Taken { known, after, place, writes })));
                }
                Err(wait) => {
                    // Of a day that has not begun, nothing is written yet.
                    known.0 = writes.is_empty().then_some(stand);
                    drop(known);
                    let short = match (wait, &mut line) {
                        (Wait::Token(wait), _) => until_token(now, wait, deadline).await,
                        (Wait::Place, Some(watch)) => self.until_place(ledger, clock, &quota.places, watch, deadline).await?,
                        (Wait::Place, none) => {
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
        let over = over(ledger, &watched, clock.now()).await?;
        if !over.is_empty() {
            self.over().extend(over);
            return Ok(None);
        }
        let left = deadline.since(clock.now());
        if left.is_zero() {
            return Ok(Some(Short::Place));
        }
        if ends.is_empty() {
            // A limit of none: nothing will ever be over.
            tokio::time::sleep(left).await;
            return Ok(Some(Short::Place));
        }
        // Nobody tells of a lease that runs out.
        drop(tokio::time::timeout(wakeups.look_every().min(left), select_all(ends)).await);
        Ok(None)
    }

    /// The quota as it stands today, and what must be written with a change of it: on a new day, that the last one is over.
    async fn stand(&self, ledger: &Ledger, known: Option<Stand>, now: Timestamp) -> Result<(Stand, Vec<Write>), LedgerError> {
        let mut day = now.0.div_euclid(DAY.as_micros() as i64);
        if let Some(stand) = known.filter(|stand| stand.day >= day) {
            return Ok((stand, Vec::new()));
        }
        loop {
            let (version, quota, expired) = ledger.newest_or_expired::<Quota>(self.stream(day)).await?;
            match quota {
                // Another worker's clock is a little ahead.
                Some(quota) if quota.moved => day += 1,
                Some(quota) => return Ok((Stand { day, version, quota }, Vec::new())),
                None if expired => day += 1,
                None => return self.carried(ledger, day).await,
            }
        }
    }

    /// The first of a day goes on from the day before, and closes it.
    async fn carried(&self, ledger: &Ledger, day: i64) -> Result<(Stand, Vec<Write>), LedgerError> {
        let (version, before) = ledger.newest::<Quota>(self.stream(day - 1)).await?;
        let Some(quota) = before.filter(|quota| !quota.moved) else {
            return Ok((Stand { day, version: Version::NONE, quota: Quota::default() }, Vec::new()));
        };
        let closed = self.write(ledger, day - 1, version, &Quota { moved: true, ..Quota::default() });
        Ok((Stand { day, version: Version::NONE, quota }, vec![closed]))
    }

    fn write(&self, ledger: &Ledger, day: i64, version: Version, quota: &Quota) -> Write {
        let over = Timestamp((day + 1).saturating_mul(DAY.as_micros() as i64));
        let summary =
            Summary { tool: Some(self.tool.clone()), expires: Some(over + DAY), ..plain_summary(StreamKind::Quota, self.tenant.clone()) };
        ledger.replacing(self.stream(day), version, quota, summary)
    }

    fn stream(&self, day: i64) -> StreamId {
        StreamId::quota(&self.tenant, &self.tool, day)
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
        let runs = matches!(&effect?.state, State::Running(claim) if claim.fence == place.fence && claim.lease_until > now);
        if !runs {
            over.push(*place);
        }
    }
    Ok(over)
}
