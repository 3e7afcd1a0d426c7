//! The store as one process reaches it: over a wire that delays, loses and cuts off, to a log that keeps what it took.
//!
//! A request is on its way by itself: it may be written after its sender was told that it failed, and after its sender is dead. What was acknowledged is
//! in the log, always; whatever was not may be there or not.

use std::sync::Arc;

use counterfoil_core::summary::StreamKind;
use counterfoil_core::{StreamId, Timestamp};
use counterfoil_store::remote::{Heard, StreamPrefix};
use counterfoil_store::{
    AppendError, Batch, Eventually, History, Page, Position, Pruned, Query, Reach, Recorded, Store, StoreError, Write, Written,
};
use tokio::sync::oneshot;

use crate::bugs::Bug;
use crate::marks::Mark;
use crate::sabotage;
use crate::state::{Hub, Life, MS, Micros, SECOND, State};

pub struct SimStore {
    pub hub: Arc<Hub>,
    pub life: Life,
}

/// An answer that is there, or is on its way.
pub enum Reply<T> {
    Now(T),
    Later(oneshot::Receiver<T>),
}

impl<T> Reply<T> {
    pub async fn heard(self) -> T {
        match self {
            Self::Now(answer) => answer,
            Self::Later(answer) => match answer.await {
                Ok(answer) => answer,
                // Nobody will ever say anything.
                Err(_) => std::future::pending().await,
            },
        }
    }
}

impl Store for SimStore {
    fn load(&self, stream: StreamId, reach: Reach) -> Eventually<'_, Result<History, StoreError>> {
        let reply = self.hub.lock().read(self.life, |state| state.log.load(&stream, reach));
        Box::pin(reply.heard())
    }

    fn append<'a>(&'a self, batch: &'a Batch) -> Eventually<'a, Result<Position, AppendError>> {
        let reply = self.hub.lock().submit(self.life, batch);
        Box::pin(reply.heard())
    }

    fn due(&self, now: Timestamp, limit: usize) -> Eventually<'_, Result<Vec<StreamId>, StoreError>> {
        let reply = self.hub.lock().read(self.life, |state| state.log.due(now, limit));
        Box::pin(reply.heard())
    }

    fn tail(&self, after: Position, limit: usize) -> Eventually<'_, Result<Vec<Recorded>, StoreError>> {
        let reply = self.hub.lock().read(self.life, |state| state.log.tail(after, limit));
        Box::pin(reply.heard())
    }

    fn search(&self, query: Query) -> Eventually<'_, Result<Page, StoreError>> {
        let reply = self.hub.lock().read(self.life, |state| state.log.search(&query));
        Box::pin(reply.heard())
    }

    fn prune(&self, before: Timestamp, limit: usize) -> Eventually<'_, Result<Pruned, StoreError>> {
        let reply = self.hub.lock().read(self.life, |state| sabotage::prune(state, before, limit));
        Box::pin(reply.heard())
    }
}

fn unavailable(message: &str, written: Written) -> StoreError {
    StoreError::Unavailable { message: message.into(), written }
}

/// What becomes of one append.
enum Fate {
    /// Written at once and acknowledged at once.
    AtOnce,
    /// Written after so long, acknowledged after that.
    Delayed(Micros, Micros),
    /// Reported as failed after so long. Written by then, later, or never.
    Failed { after: Micros, message: &'static str, written: Written, lands: Option<Micros> },
    /// Its sender dies. Written at once, later, or never.
    Crash { lands: Option<Micros> },
}

impl State {
    fn read<T: Send + 'static>(&mut self, life: Life, what: impl FnOnce(&mut Self) -> T) -> Reply<Result<T, StoreError>> {
        if !self.is_alive(life) {
            return Reply::Later(oneshot::channel().1);
        }
        if self.lives[life].cut_until > self.now {
            let wait = self.between(MS, 400 * MS);
            return self.later(life, wait, Err(unavailable("the store cannot be reached", Written::No)));
        }
        if self.chance(self.weather.read_error) {
            return Reply::Now(Err(unavailable("the read failed", Written::No)));
        }
        let answer = Ok(what(self));
        if self.chance(self.weather.slow_read) {
            self.mark(Mark::StaleRead);
            let wait = self.between(MS, 800 * MS);
            return self.later(life, wait, answer);
        }
        Reply::Now(answer)
    }

    pub fn later<T: Send + 'static>(&mut self, life: Life, wait: Micros, answer: T) -> Reply<T> {
        let (tell, told) = oneshot::channel();
        self.after(wait, move |state| {
            if tell.send(answer).is_ok() {
                state.delivered(life);
            }
        });
        self.touch(life);
        Reply::Later(told)
    }

    fn submit(&mut self, life: Life, batch: &Batch) -> Reply<Result<Position, AppendError>> {
        if !self.is_alive(life) {
            return Reply::Later(oneshot::channel().1);
        }
        if self.bug == Some(Bug::ClaimNotAwaited) && sabotage::claims(batch) {
            let (batch, wait) = (batch.clone(), self.between(MS, 300 * MS));
            self.after(wait, move |state| {
                if state.is_alive(life) {
                    drop(state.apply(life, &batch));
                }
            });
            self.touch(life);
            return Reply::Now(Ok(self.log.last()));
        }
        match self.fate_of_append(life) {
            Fate::AtOnce => Reply::Now(self.apply(life, batch)),
            Fate::Delayed(lands, acknowledged) => {
                let (tell, told) = oneshot::channel();
                let batch = batch.clone();
                self.lives[life].appending += 1;
                if self.lives[life].appending > 1 {
                    self.mark(Mark::TwoBatchesAway);
                }
                self.after(lands, move |state| {
                    let dead = !state.is_alive(life);
                    let answer = state.apply(life, &batch);
                    if dead && answer.is_ok() {
                        state.mark(Mark::DeadMansAppend);
                    }
                    state.after(acknowledged, move |state| {
                        state.lives[life].appending -= 1;
                        if tell.send(answer).is_ok() {
                            state.delivered(life);
                        }
                    });
                });
                self.touch(life);
                Reply::Later(told)
            }
            Fate::Failed { after, message, written, lands } => {
                if let Some(lands) = lands {
                    self.lands(life, batch, lands, lands > after);
                }
                self.later(life, after, Err(unavailable(message, written).into()))
            }
            Fate::Crash { lands } => {
                if let Some(lands) = lands {
                    self.lands(life, batch, lands, false);
                }
                self.doom(life);
                Reply::Later(oneshot::channel().1)
            }
        }
    }

    fn fate_of_append(&mut self, life: Life) -> Fate {
        if self.full_until > self.now {
            self.mark(Mark::DiskFull);
            return Fate::Failed { after: MS, message: "no space left on device", written: Written::No, lands: None };
        }
        if self.lives[life].cut_until > self.now {
            self.mark(Mark::PartitionedAppend);
            let after = self.between(100 * MS, 1500 * MS);
            let lands = match self.rng.below(3) {
                0 => return Fate::Failed { after: MS, message: "connection refused", written: Written::No, lands: None },
                1 => None,
                _ => Some(self.between(0, after)),
            };
            return Fate::Failed { after, message: "no answer from the store", written: Written::Perhaps, lands };
        }
        if self.chance(self.weather.crash_before_append) {
            self.mark(Mark::CrashBeforeAppend);
            let lands = if self.rng.percent(30) { Some(self.between(MS, SECOND)) } else { None };
            return Fate::Crash { lands };
        }
        if self.chance(self.weather.crash_after_append) {
            self.mark(Mark::CrashAfterAppend);
            return Fate::Crash { lands: Some(0) };
        }
        if self.chance(self.weather.fsync_error) {
            let lands = self.rng.percent(50).then_some(0);
            self.mark(if lands.is_some() { Mark::FsyncErrorWritten } else { Mark::FsyncErrorLost });
            return Fate::Failed { after: self.between(0, 20 * MS), message: "fsync: I/O error", written: Written::Perhaps, lands };
        }
        if self.chance(self.weather.ghost) {
            let after = self.between(50 * MS, 400 * MS);
            let lands = Some(after + self.between(MS, 4 * SECOND));
            return Fate::Failed { after, message: "no answer from the store", written: Written::Perhaps, lands };
        }
        if self.chance(self.weather.slow_store) {
            return Fate::Delayed(self.between(0, 1500 * MS), self.between(0, 2500 * MS));
        }
        match self.chance(self.weather.wire) {
            true => Fate::Delayed(self.between(0, 4 * MS), self.between(0, 4 * MS)),
            false => Fate::AtOnce,
        }
    }

    /// An append on its way whose sender will not hear of it.
    fn lands(&mut self, life: Life, batch: &Batch, wait: Micros, ghost: bool) {
        let batch = sabotage::survives(self.bug, batch);
        let land = move |state: &mut Self| {
            let dead = !state.is_alive(life);
            if state.apply(life, &batch).is_ok() {
                if ghost {
                    state.mark(Mark::GhostAppend);
                }
                if dead {
                    state.mark(Mark::DeadMansAppend);
                }
            }
        };
        match wait {
            0 => land(self),
            _ => self.after(wait, land),
        }
    }

    /// Writes to the log. From here on it is durable.
    fn apply(&mut self, life: Life, batch: &Batch) -> Result<Position, AppendError> {
        let Some(batch) = sabotage::written(self, batch) else { return Ok(self.log.last()) };
        match self.log.append(&batch) {
            Ok(position) => {
                batch.writes.iter().for_each(|write| self.appended(life, write));
                let streams: Vec<StreamPrefix> = batch.writes.iter().map(|write| StreamPrefix::from(&write.stream)).collect();
                self.tell_others(&streams);
                sabotage::after_append(self, position);
                Ok(position)
            }
            Err(AppendError::Conflict { streams }) => {
                self.mark(Mark::LostRace);
                self.say(|| format!("store: w{life} lost a race for {} stream(s)", streams.len()));
                match self.bug {
                    Some(Bug::LostRaceAcknowledged) => Ok(self.log.last()),
                    _ => Err(AppendError::Conflict { streams }),
                }
            }
            Err(error) => Err(error),
        }
    }

    fn appended(&mut self, life: Life, write: &Write) {
        self.say(|| format!("store: w{life} {:?} {} v{} {}", write.summary.kind, short(&write.stream), write.expected.0 + 1, write.body));
        match write.summary.kind {
            StreamKind::Effect => self.effect_recorded(write),
            StreamKind::Run => self.run_recorded(write),
            StreamKind::Breaker if write.summary.open => self.mark(Mark::BreakerOpened),
            _ => {}
        }
    }

    fn effect_recorded(&mut self, write: &Write) {
        if self.bug.is_none_or(|bug| !sabotage::bends_records(bug))
            && let Err(wrong) = self.model.step(&write.stream, write.expected.0 + 1, &write.body)
        {
            self.checker.violated(format!("the formal model does not allow it: {wrong}: {} {}", short(&write.stream), write.body));
        }
        let body = &write.body;
        if body.starts_with("1[{\"lost\":") && self.world.is_dispatched(&write.stream, &self.lives) {
            self.mark(Mark::LeaseLostWhileDispatching);
        } else if body.starts_with("1[{\"released\":") {
            self.mark(Mark::ClaimReleased);
        } else if body.starts_with("1[{\"late\":") {
            let done = body.contains("\"outcome\":{\"done\"");
            let mark = if done { Mark::LateDone } else { Mark::LateNotDone };
            self.mark(mark);
        } else if body.contains("\"code\":\"permit_lost\"") {
            self.mark(Mark::PermitLostBeforeDispatch);
        } else if body.starts_with("1[{\"cancelled\":") && self.world.is_dispatched(&write.stream, &self.lives) {
            self.mark(Mark::CancelledRunning);
        }
    }

    fn run_recorded(&mut self, write: &Write) {
        if write.body.contains("{\"compensation_triggered\":") && write.body.contains("\"scope\":") {
            self.mark(Mark::ScopeUndone);
        }
        if let Some(owner) = sabotage::text_after(&write.body, "\"worker\":\"")
            && self.checker.owned(&write.stream, owner)
        {
            self.mark(Mark::RunTakenOver);
        }
    }

    /// A hint, which may be lost.
    fn tell_others(&mut self, streams: &[StreamPrefix]) {
        if !self.weather.hearing {
            return;
        }
        for life in 0..self.lives.len() {
            if self.is_alive(life) && (self.calm || !self.chance(100)) {
                // Nobody listens yet, or nobody does any more.
                drop(self.lives[life].heard.send(Heard::Streams(streams.to_vec())));
            }
        }
    }
}

/// Enough of a digest to tell streams apart.
pub fn short(stream: &StreamId) -> String {
    stream.to_string().chars().take(8).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weather::Weather;
    use counterfoil_store::conformance::check_all;
    use counterfoil_store::conformance::differential::{Plan, differential};

    fn fair() -> Arc<dyn Store> {
        let mut state = State::new(1, None, false);
        state.weather = Weather::default();
        let life = state.begin_life(0);
        Arc::new(SimStore { hub: Hub::new(state), life })
    }

    #[tokio::test]
    async fn without_faults_it_is_a_store_like_any_other() {
        check_all(async || fair()).await;
        differential(Plan { seed: 7, operations_min: 3000, handles: 1, durable: false }, async || fair()).await;
    }
}
