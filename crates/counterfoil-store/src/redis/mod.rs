//! A ledger in Redis, shared by any number of processes.
//!
//! Reading order: `address`, `keys` (what is where), `record` (one record), `append` and `accept.lua`, `fold` (the index follows), `read` (load, due, tail), `search`,
//! `prune`, `graves`; then `line` (one connection), `settings` (is this Redis fit), `rewrite` (its file is whole), `link` (the connection is kept), `open`, `hear`, `fault`.
//!
//! What must stay true: a batch is one transaction with one script and is sent once; nothing can fail in a script after its first write; nothing is acknowledged
//! before Redis has answered, which with `appendfsync always` it does after the flush. Why it is so: ADR 0013 and 0029.

mod address;
mod append;
mod fault;
mod fold;
mod graves;
mod hear;
mod keys;
mod line;
mod link;
mod open;
mod prune;
mod read;
mod record;
mod rewrite;
mod script;
mod search;
mod settings;

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::{StreamId, Timestamp};
use tokio::sync::broadcast;
use tokio::task::AbortHandle;

use self::address::Address;
use self::link::Link;
use crate::remote::{Heard, RemoteClock};
use crate::{
    AppendError, Batch, Cursor, Eventually, Graves, Graveyard, History, OpenError, Page, Position, Pruned, Query, Reach, Recorded, Store,
    StoreError, Tombstone, Written,
};

/// Commits that a slow listener may be behind before it is told that it missed some.
const HEARD_MAX: usize = 1024;

#[derive(Debug, Clone)]
pub struct RedisOptions {
    /// Accept a Redis that can lose what it acknowledged.
    pub allow_volatile: bool,
    /// How long opening a connection may take.
    pub connect_within: Duration,
    /// How long one operation may take.
    pub answer_within: Duration,
    /// How often Redis is asked for its time and its settings.
    pub look_every: Duration,
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self {
            allow_volatile: false,
            connect_within: Duration::from_secs(5),
            answer_within: Duration::from_secs(5),
            look_every: Duration::from_secs(10),
        }
    }
}

/// A ledger in Redis. Must be opened and used within a Tokio runtime.
pub struct Redis {
    link: Arc<Link>,
    heard: broadcast::Sender<Heard>,
    tasks: [AbortHandle; 2],
}

impl Redis {
    /// Opens the ledger at `redis://[user:password@]host[:port][/db][?ledger=NAME]`, and makes it when there is none.
    pub async fn open(url: &str, options: RedisOptions) -> Result<Self, OpenError> {
        let (link, ended) = open::open(Address::parse(url)?, options).await?;
        let (heard, _) = broadcast::channel(HEARD_MAX);
        let keeping = tokio::spawn(link.clone().keep(ended)).abort_handle();
        let listening = tokio::spawn(hear::listen(link.clone(), heard.clone())).abort_handle();
        Ok(Self { link, heard, tasks: [keeping, listening] })
    }

    /// The ledger's address without the password.
    pub fn label(&self) -> String {
        self.link.address.label()
    }

    /// What can be lost as Redis is set, as of the last look.
    pub fn risks(&self) -> Vec<String> {
        self.link.risks()
    }

    /// Redis's time.
    pub fn clock(&self) -> Arc<RemoteClock> {
        self.link.clock.clone()
    }

    /// Commits from now on, of this process and of others.
    pub fn heard(&self) -> broadcast::Receiver<Heard> {
        self.heard.subscribe()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Store for Redis {
    fn load(&self, stream: StreamId, reach: Reach) -> Eventually<'_, Result<History, StoreError>> {
        Box::pin(read::load(&self.link, stream, reach))
    }

    fn append<'a>(&'a self, batch: &'a Batch) -> Eventually<'a, Result<Position, AppendError>> {
        Box::pin(async move {
            let appended = append::append(&self.link, batch).await;
            // Perhaps heard twice: it is a hint.
            match &appended {
                Ok(_) => drop(self.heard.send(hear::own(batch))),
                Err(AppendError::Store(StoreError::Unavailable { written: Written::Perhaps, .. })) => {
                    drop(self.heard.send(Heard::Anything))
                }
                Err(_) => {}
            }
            appended
        })
    }

    fn due(&self, now: Timestamp, limit: usize) -> Eventually<'_, Result<Vec<StreamId>, StoreError>> {
        Box::pin(read::due(&self.link, now, limit))
    }

    fn tail(&self, after: Position, limit: usize) -> Eventually<'_, Result<Vec<Recorded>, StoreError>> {
        Box::pin(read::tail(&self.link, after, limit))
    }

    fn search(&self, query: Query) -> Eventually<'_, Result<Page, StoreError>> {
        Box::pin(async move { search::search(&self.link, &query).await })
    }

    fn prune(&self, before: Timestamp, limit: usize) -> Eventually<'_, Result<Pruned, StoreError>> {
        Box::pin(prune::prune(&self.link, before, limit))
    }
}

impl Graves for Redis {
    fn tombstones(&self, from: Option<Cursor>, limit: usize) -> Eventually<'_, Result<Graveyard, StoreError>> {
        Box::pin(graves::tombstones(&self.link, from, limit))
    }

    fn entomb<'a>(&'a self, tombstones: &'a [Tombstone]) -> Eventually<'a, Result<(), AppendError>> {
        Box::pin(graves::entomb(&self.link, tombstones))
    }
}
