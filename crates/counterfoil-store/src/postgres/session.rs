//! One connection, fit for a ledger: durable commits, bounded statements, everything prepared.

use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, Client, Connection, Socket, Statement};

use super::address::Address;
use super::fault::words;
use super::schema::in_schema;
use super::tls::Tls;
use super::{loads, reader, settle, watch, writer};
use crate::remote::Heard;

pub type Wire = Connection<Socket, <Tls as MakeTlsConnect<Socket>>::Stream>;

/// Good to have, and harmless where the server does not know them: a ledger is always looked up by an index, and a plan that was made
/// while the tables were empty must not read all of them when they are full. The receipts of a batch are one long text: the usual
/// compression of it takes longer than the rest of the batch.
const NICETIES: [&str; 8] = [
    "SET default_toast_compression = lz4",
    "SET jit = off",
    "SET enable_seqscan = off",
    "SET enable_hashjoin = off",
    "SET enable_mergejoin = off",
    "SET plan_cache_mode = force_generic_plan",
    "SET client_min_messages = warning",
    "SET tcp_keepalives_idle = 30",
];

/// Longest that a transaction of ours may stand still: a process that was stopped in the middle must not hold up the others.
const IDLE_IN_TRANSACTION_MAX: Duration = Duration::from_secs(10);

/// What a session is for.
#[derive(Clone, Copy)]
pub struct Limits {
    pub statement: Duration,
    pub lock: Duration,
    pub allow_volatile: bool,
}

/// What the server says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fitness {
    pub server: String,
    pub synchronous_commit: String,
    /// `None`: the server knows no such setting.
    pub fsync: Option<bool>,
}

pub enum Refusal {
    Unreachable(String),
    Unfit(String),
}

impl Refusal {
    pub fn message(self) -> String {
        match self {
            Self::Unreachable(message) | Self::Unfit(message) => message,
        }
    }
}

impl From<tokio_postgres::Error> for Refusal {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Unreachable(words(&error))
    }
}

pub struct Session {
    pub client: Client,
    pub prepared: Prepared,
    /// Told to give the connection up.
    pub discarded: tokio::sync::Notify,
}

impl Session {
    /// Gives the connection up, whatever it is doing; another one is made.
    pub fn discard(&self) {
        self.discarded.notify_one();
    }
}

/// The statements of a ledger, on one connection.
pub struct Prepared {
    pub load: Statement,
    pub look: Statement,
    pub fold: Statement,
    pub due: Statement,
    pub tail: Statement,
    pub search: Statement,
    pub append: Statement,
    pub conflicts: Statement,
    pub time: Statement,
    pub since: Statement,
}

impl Prepared {
    pub async fn new(client: &Client, address: &Address) -> Result<Self, tokio_postgres::Error> {
        let (look, fold, append) = (settle::look_sql(), settle::fold_sql(), writer::append_sql());
        let texts =
            [loads::LOAD, &look, &fold, reader::DUE, reader::TAIL, reader::SEARCH, &append, writer::CONFLICTS, watch::TIME, watch::SINCE];
        let texts = texts.map(|text| in_schema(text, address));
        let prepared = try_join_all(texts.iter().map(|text| client.prepare(text))).await?;
        let [load, look, fold, due, tail, search, append, conflicts, time, since] =
            <[Statement; 10]>::try_from(prepared).expect("as many as there are texts");
        Ok(Self { load, look, fold, due, tail, search, append, conflicts, time, since })
    }
}

/// Sets the session up, and refuses a server that would lose what it acknowledged.
pub async fn fit(client: &Client, limits: Limits) -> Result<Fitness, Refusal> {
    let ms = |span: Duration| span.as_millis().max(1);
    // Most statements are transactions of their own, and must see what they waited for.
    let settings = format!(
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED; \
         SET statement_timeout = {}; SET lock_timeout = {}; SET idle_in_transaction_session_timeout = {}",
        ms(limits.statement),
        ms(limits.lock),
        ms(IDLE_IN_TRANSACTION_MAX)
    );
    client.batch_execute(&settings).await?;
    // Each by itself: what one server does not know must not keep it from the next.
    join_all(NICETIES.iter().map(|set| client.batch_execute(set))).await;
    let mut fitness = ask(client).await?;
    if !is_durable(&fitness.synchronous_commit) {
        client.batch_execute("SET synchronous_commit = on").await?;
        fitness = ask(client).await?;
    }
    if limits.allow_volatile {
        return Ok(fitness);
    }
    if !is_durable(&fitness.synchronous_commit) {
        let message = format!("synchronous_commit is {} and cannot be set to on", fitness.synchronous_commit);
        return Err(Refusal::Unfit(format!("{message}: a commit that is acknowledged could be lost")));
    }
    if fitness.fsync == Some(false) {
        return Err(Refusal::Unfit("fsync is off on this server: a power cut could lose or damage the ledger; set fsync = on".into()));
    }
    Ok(fitness)
}

/// `remote_apply` promises more than `on`; `remote_write`, `local` and `off` promise less.
fn is_durable(synchronous_commit: &str) -> bool {
    matches!(synchronous_commit, "on" | "remote_apply")
}

pub async fn ask(client: &Client) -> Result<Fitness, tokio_postgres::Error> {
    let sql = "SELECT version(), coalesce(current_setting('synchronous_commit', true), 'on'), current_setting('fsync', true)";
    let row = client.query_one(sql, &[]).await?;
    let fsync: Option<String> = row.try_get(2)?;
    Ok(Fitness { server: row.try_get(0)?, synchronous_commit: row.try_get(1)?, fsync: fsync.map(|fsync| fsync == "on") })
}

/// Moves bytes until the connection ends, and says why it did. Notifications become hints.
pub async fn drive(mut wire: Wire, mut hint: impl FnMut(Heard)) -> String {
    loop {
        match std::future::poll_fn(|cx| wire.poll_message(cx)).await {
            Some(Ok(AsyncMessage::Notification(notification))) => hint(watch::parse(notification.payload())),
            Some(Ok(_)) => {}
            Some(Err(error)) => return words(&error),
            None => return "the connection was closed".into(),
        }
    }
}
