//! The ledger in PostgreSQL, or in what speaks its language: shared by any number of processes on any number of machines.
//!
//! Reading order: `schema` (what is in the database), `row`, `writer` (append), `settle` (which positions may be shown, and the index that
//! follows behind), `loads`, `reader` (due, tail, search), `bury`, `prune`, `graves`, then how it is reached: `address`, `tls`,
//! `session`, `link` (a connection that is kept), `watch` (the clock, and what others commit), `tell` (what we commit).
//!
//! What must stay true: nothing is acknowledged before its commit was answered; nothing ever appears below a position that was shown;
//! nothing relies on what only PostgreSQL has (advisory locks, triggers, extensions), except where it is tried and done without.

mod address;
mod bury;
mod fault;
mod graves;
mod link;
mod loads;
mod prune;
mod reader;
mod row;
mod schema;
mod session;
mod settle;
mod tell;
mod tls;
mod watch;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use counterfoil_core::{StreamId, Timestamp};
use tokio::sync::broadcast;
use tokio::task::AbortHandle;

use self::address::Address;
use self::link::{Common, Link};
use self::loads::Loads;
use self::session::{Limits, Refusal};
use self::tell::Tell;
use self::watch::{Watch, time};
use self::writer::Writer;
use crate::remote::{Heard, RemoteClock};
use crate::{
    AppendError, Batch, Cursor, Eventually, Graves, Graveyard, History, OpenError, Page, Position, Pruned, Query, Reach, Recorded, Store,
    StoreError, Tombstone,
};

/// What people and sweeps ask for may take so many times as long as what a call waits for.
const BROWSING_TIMES: u32 = 6;

/// Hints that a slow listener may be behind before it is told to look at everything.
const HEARD_MAX: usize = 1024;

#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// The PostgreSQL schema that holds the ledger. `?schema=` in the URL goes before it.
    pub schema: String,
    /// How long a call waits for a connection, for what another holds, for an answer.
    pub patience: Duration,
    /// How long making a connection may take, and so also how long opening waits for a server that says nothing.
    pub connect_max: Duration,
    /// Connections for appends: so many may be on their way at once.
    pub writers: usize,
    /// Connections for loads; each query carries all that wait.
    pub readers: usize,
    /// Take a server that may lose what it acknowledged (`fsync = off`).
    pub allow_volatile: bool,
    /// Use LISTEN where it works. Otherwise, or where it does not, what is new is polled for.
    pub listen: bool,
    pub poll_every: Duration,
    /// How often the database's clock is looked at.
    pub learn_every: Duration,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            schema: "counterfoil".into(),
            patience: Duration::from_secs(5),
            connect_max: Duration::from_secs(10),
            writers: 2,
            readers: 2,
            allow_volatile: false,
            listen: true,
            poll_every: Duration::from_millis(100),
            learn_every: Duration::from_secs(10),
        }
    }
}

/// What `doctor` shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// As the server names itself.
    pub server: String,
    pub synchronous_commit: String,
    /// `None`: the server knows no such setting.
    pub fsync: Option<bool>,
    /// Whether commits of others are notified; otherwise they are polled for.
    pub listens: bool,
    /// There and back again.
    pub round_trip: Duration,
}

/// A ledger in PostgreSQL.
pub struct Postgres {
    common: Arc<Common>,
    writer: Writer,
    readers: Vec<Arc<Link>>,
    loads: Loads,
    /// For due, tail, search and prune, so that none of them keeps a load waiting.
    browser: Link,
    /// Slices of two prunings must not mix on the one connection.
    pruning: tokio::sync::Mutex<()>,
    clock: Arc<RemoteClock>,
    listens: Arc<AtomicBool>,
    watch: AbortHandle,
    allow_volatile: bool,
}

impl Postgres {
    /// Opens the ledger that `url` names, `postgres://user:password@host:port/database`, and makes it when there is none.
    pub async fn open(url: &str, options: PostgresOptions) -> Result<Self, OpenError> {
        let address = Address::parse(url, &options)?;
        // A little sooner than the statement's own end: "no lock" says more than "too long".
        let limits = Limits { statement: options.patience, lock: options.patience * 4 / 5, allow_volatile: options.allow_volatile };
        let browsing = Limits { statement: options.patience * BROWSING_TIMES, ..limits };
        let (notifies, clock) = prepare(&address, browsing, &options).await?;
        let common = Arc::new(Common {
            address,
            notifies,
            patience: options.patience,
            connect_max: options.connect_max,
            heard: broadcast::Sender::new(HEARD_MAX),
        });
        let link = |limits: Limits| Link::start(common.clone(), limits);
        let listener = Arc::new(link(limits));
        let writers = (0..options.writers.max(1)).map(|_| link(limits));
        let writer = Writer::new(writers, Tell::start(listener.clone(), notifies));
        let readers: Vec<Arc<Link>> = (0..options.readers.max(1)).map(|_| Arc::new(link(limits))).collect();
        let loads = Loads::start(&readers);
        let browser = link(browsing);
        let (clock, listens) = (Arc::new(clock), Arc::new(AtomicBool::new(false)));
        let watch = Watch {
            link: listener,
            other: readers[0].clone(),
            common: common.clone(),
            clock: clock.clone(),
            listens: listens.clone(),
            poll_every: options.poll_every,
            learn_every: options.learn_every,
        };
        let (ready, told) = tokio::sync::oneshot::channel();
        let watch = tokio::spawn(watch.keep(ready)).abort_handle();
        let (pruning, allow_volatile) = (tokio::sync::Mutex::new(()), options.allow_volatile);
        let opened = Self { common, writer, readers, loads, browser, pruning, clock, listens, watch, allow_volatile };
        let unreachable = |message: String| OpenError::Unreachable { store: opened.describe(), message };
        opened.connected(options.connect_max).await.map_err(|error| unreachable(error.to_string()))?;
        match tokio::time::timeout(options.connect_max, told).await {
            Ok(Ok(())) => Ok(opened),
            _ => Err(unreachable("the connection that listens cannot be made".into())),
        }
    }

    async fn connected(&self, within: Duration) -> Result<(), StoreError> {
        let deadline = Instant::now() + within;
        for writer in self.writer.links() {
            writer.session(deadline).await?;
        }
        self.browser.session(deadline).await?;
        for reader in &self.readers {
            reader.session(deadline).await?;
        }
        Ok(())
    }

    /// The database's time, as this process reckons it.
    pub fn clock(&self) -> Arc<RemoteClock> {
        self.clock.clone()
    }

    /// Hints of what is committed from now on, by this process and by others.
    pub fn heard(&self) -> broadcast::Receiver<Heard> {
        self.common.heard.subscribe()
    }

    /// Where the ledger is, without the password.
    pub fn describe(&self) -> String {
        self.common.address.label.clone()
    }

    /// What can be lost although it was acknowledged. Unless it was allowed, every connection is checked and none with a risk is used.
    pub fn risks(&self) -> Vec<String> {
        match self.allow_volatile {
            true => vec![
                "allow_volatile: fsync and synchronous_commit of this PostgreSQL are not demanded, so a power cut may lose effects".into(),
            ],
            false => Vec::new(),
        }
    }

    pub async fn facts(&self) -> Result<Facts, StoreError> {
        let session = self.browser.session(self.browser.deadline()).await?;
        let refused = |error: tokio_postgres::Error| fault::refused(&error);
        let reading = time(&session.client, &session.prepared.time).await.map_err(refused)?;
        let fitness = session::ask(&session.client).await.map_err(refused)?;
        Ok(Facts {
            server: fitness.server,
            synchronous_commit: fitness.synchronous_commit,
            fsync: fitness.fsync,
            listens: self.listens.load(Ordering::Relaxed),
            round_trip: reading.answered.saturating_duration_since(reading.asked),
        })
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

/// Makes or migrates the schema, on a connection of its own. Says whether the server can notify, and what time it has.
async fn prepare(address: &Address, limits: Limits, options: &PostgresOptions) -> Result<(bool, RemoteClock), OpenError> {
    let unreachable = |message: String| OpenError::Unreachable { store: address.label.clone(), message };
    let connecting = tokio::time::timeout(options.connect_max, address.config.connect(address.tls.clone()));
    let (client, wire) = match connecting.await {
        Ok(connected) => connected.map_err(|error| unreachable(fault::words(&error)))?,
        Err(_) => return Err(unreachable(format!("no answer within {} ms", options.connect_max.as_millis()))),
    };
    let driver = tokio::spawn(session::drive(wire, |_| {}));
    let prepared = async {
        let silent = |_| unreachable("connected, and then nothing was answered".into());
        let patience = options.patience * BROWSING_TIMES;
        let fit = tokio::time::timeout(patience, session::fit(&client, limits)).await.map_err(silent)?;
        fit.map_err(|refusal| match refusal {
            Refusal::Unreachable(message) => unreachable(message),
            Refusal::Unfit(message) => OpenError::Unfit { store: address.label.clone(), message },
        })?;
        schema::bring_up(&client, address, patience).await?;
        let asked = async {
            let notifies = options.listen && client.query("SELECT pg_notify($1, '')", &[&address.schema]).await.is_ok();
            let statement = client.prepare(watch::TIME).await?;
            Ok((notifies, time(&client, &statement).await?))
        };
        let told = tokio::time::timeout(patience, asked).await.map_err(silent)?;
        let (notifies, reading) = told.map_err(|error: tokio_postgres::Error| unreachable(fault::words(&error)))?;
        Ok((notifies, RemoteClock::new(reading.asked, reading.told, reading.answered)))
    };
    let prepared = prepared.await;
    driver.abort();
    prepared
}

impl Store for Postgres {
    fn load(&self, stream: StreamId, reach: Reach) -> Eventually<'_, Result<History, StoreError>> {
        Box::pin(self.loads.load(stream, reach))
    }

    fn append<'a>(&'a self, batch: &'a Batch) -> Eventually<'a, Result<Position, AppendError>> {
        Box::pin(async move {
            match batch.writes.is_empty() {
                true => Ok(settle::settle(&self.browser, self.browser.patience()).await?.whole()?),
                false => self.writer.append(batch).await,
            }
        })
    }

    fn due(&self, now: Timestamp, limit: usize) -> Eventually<'_, Result<Vec<StreamId>, StoreError>> {
        Box::pin(reader::due(&self.browser, now, limit))
    }

    fn tail(&self, after: Position, limit: usize) -> Eventually<'_, Result<Vec<Recorded>, StoreError>> {
        Box::pin(reader::tail(&self.browser, after, limit))
    }

    fn search(&self, query: Query) -> Eventually<'_, Result<Page, StoreError>> {
        Box::pin(async move { reader::search(&self.browser, &query).await })
    }

    fn prune(&self, before: Timestamp, limit: usize) -> Eventually<'_, Result<Pruned, StoreError>> {
        Box::pin(prune::prune(&self.browser, &self.pruning, before, limit))
    }
}

impl Graves for Postgres {
    fn tombstones(&self, from: Option<Cursor>, limit: usize) -> Eventually<'_, Result<Graveyard, StoreError>> {
        Box::pin(graves::tombstones(&self.browser, from, limit))
    }

    fn entomb<'a>(&'a self, tombstones: &'a [Tombstone]) -> Eventually<'a, Result<(), AppendError>> {
        Box::pin(graves::entomb(&self.browser, &self.pruning, tombstones))
    }
}
