//! What one process keeps up with: the database's clock, and what others commit.
//!
//! Where LISTEN works, notifications come by themselves; whether it works is tried, not assumed. Elsewhere what is new is polled for, from
//! the last position below which everything is settled: what comes late is not passed over, and some is told twice.
//! After every reconnect whoever waits is told to look again: what happened meanwhile was not heard.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use counterfoil_core::Timestamp;
use tokio::sync::broadcast;
use tokio_postgres::{Client, Statement};

use super::link::{Common, Link};
use super::row;
use super::session::Session;
use super::settle::settled_now;
use crate::remote::{Heard, RemoteClock, StreamPrefix};
use crate::{Position, StoreError};

pub const TIME: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8";

/// The streams that were written after a position, oldest first.
pub const SINCE: &str = "SELECT stream FROM {s}.record WHERE pos > $1 AND kind > 0 ORDER BY pos LIMIT $2";

/// More than this at once is "anything".
const POLLED_STREAMS_MAX: i64 = 1000;

/// How long a notification to ourselves may take before LISTEN counts as not working.
const PROBE_MAX: Duration = Duration::from_secs(2);

/// How long to wait before a connection that was of no use is replaced.
const TRY_AGAIN: Duration = Duration::from_millis(200);

pub struct Watch {
    pub link: Arc<Link>,
    /// To be notified from another connection, as it will be in earnest.
    pub other: Arc<Link>,
    pub common: Arc<Common>,
    pub clock: Arc<RemoteClock>,
    /// LISTEN works.
    pub listens: Arc<AtomicBool>,
    pub poll_every: Duration,
    pub learn_every: Duration,
}

impl Watch {
    /// For as long as the ledger is open. `ready` is told once what is committed from then on is heard.
    pub async fn keep(self, ready: tokio::sync::oneshot::Sender<()>) {
        let mut ready = Some(ready);
        loop {
            // Its error says that there is no connection yet; it is being made.
            let Ok(session) = self.link.session(self.link.deadline()).await else { continue };
            if let Err(why) = self.follow(&session, &mut ready).await {
                tracing::debug!(store = %self.common.address.label, %why, "the connection that listens is of no use");
                session.discard();
                tokio::time::sleep(TRY_AGAIN).await;
            }
        }
    }

    /// Until the connection is lost.
    async fn follow(&self, session: &Arc<Session>, ready: &mut Option<tokio::sync::oneshot::Sender<()>>) -> Result<(), StoreError> {
        let listens = self.common.notifies && self.listen(session).await;
        self.listens.store(listens, Ordering::Relaxed);
        let mut settled = settled_now(&self.link).await?;
        match ready.take() {
            // Nobody waits for it when opening was given up.
            Some(ready) => drop(ready.send(())),
            None => self.tell(Heard::Anything),
        }
        let mut learned: Option<Instant> = None;
        loop {
            if learned.is_none_or(|learned| learned.elapsed() >= self.learn_every) {
                self.learn(session).await?;
                learned = Some(Instant::now());
            }
            tokio::select! {
                () = self.link.ended(session) => return Ok(()),
                () = tokio::time::sleep(if listens { self.learn_every } else { self.poll_every.min(self.learn_every) }) => {}
            }
            if !listens {
                settled = self.poll(settled).await?;
            }
        }
    }

    /// True when a notification that another connection sends arrives on this one.
    async fn listen(&self, session: &Session) -> bool {
        let channel = &self.common.address.schema;
        let mut hints = self.common.heard.subscribe();
        if session.client.batch_execute(&format!("LISTEN \"{channel}\"")).await.is_err() {
            return false;
        }
        let Ok(other) = self.other.session(self.other.deadline()).await else { return false };
        if other.client.query("SELECT pg_notify($1, '')", &[channel]).await.is_err() {
            return false;
        }
        matches!(tokio::time::timeout(PROBE_MAX, hints.recv()).await, Ok(Ok(_) | Err(broadcast::error::RecvError::Lagged(_))))
    }

    async fn learn(&self, session: &Session) -> Result<(), StoreError> {
        let answered = tokio::time::timeout(self.link.answer_max(), time(&session.client, &session.prepared.time)).await;
        match answered {
            Ok(Ok(reading)) => {
                self.clock.learn(reading.asked, reading.told, reading.answered);
                Ok(())
            }
            Ok(Err(error)) => Err(super::fault::refused(&error)),
            Err(_) => Err(super::fault::unavailable("no answer", crate::Written::No)),
        }
    }

    async fn poll(&self, after: Position) -> Result<Position, StoreError> {
        // Asked for first: what is settled by then is among what is read.
        let settled = settled_now(&self.link).await?;
        let rows = self.link.query(|prepared| &prepared.since, &[&row::clamp(after.0), &POLLED_STREAMS_MAX]).await?;
        if rows.len() as i64 >= POLLED_STREAMS_MAX {
            self.tell(Heard::Anything);
        } else if !rows.is_empty() {
            let prefixes = rows.iter().map(|row| Ok(StreamPrefix::from(&row::stream(row, 0)?)));
            self.tell(Heard::Streams(prefixes.collect::<Result<_, StoreError>>()?));
        }
        Ok(settled.max(after))
    }

    fn tell(&self, heard: Heard) {
        // Nobody may be listening.
        let _ = self.common.heard.send(heard);
    }
}

/// One look at the database's clock.
pub struct Reading {
    pub asked: Instant,
    pub told: Timestamp,
    pub answered: Instant,
}

pub async fn time(client: &Client, statement: &Statement) -> Result<Reading, tokio_postgres::Error> {
    let asked = Instant::now();
    let row = client.query_one(statement, &[]).await?;
    Ok(Reading { asked, told: Timestamp(row.try_get(0)?), answered: Instant::now() })
}

/// A notification's payload. What cannot be read is still a sign that something happened; our own probe is empty.
pub fn parse(payload: &str) -> Heard {
    let prefixes: Option<Vec<StreamPrefix>> =
        payload.as_bytes().chunks(16).map(|hex| StreamPrefix::from_hex(std::str::from_utf8(hex).ok()?)).collect();
    prefixes.map_or(Heard::Anything, Heard::Streams)
}
