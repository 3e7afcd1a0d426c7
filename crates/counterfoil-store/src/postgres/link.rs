//! A connection that is kept: a task makes it, moves its bytes, and makes it again when it is lost.
//!
//! Who needs it while it is down waits, but not for ever; then the answer says what is wrong, and that nothing was sent.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement};

use super::address::Address;
use super::fault::{again, lost, refused, unavailable, useless};
use super::session::{Limits, Prepared, Refusal, Session, drive, fit};
use crate::remote::Heard;
use crate::{StoreError, Written};

const BACKOFF_MIN: Duration = Duration::from_millis(20);
/// Short: a database that is back should not wait for us.
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// How much longer than the server we wait for the server's own word: it knows more.
const GRACE: Duration = Duration::from_secs(1);

/// What every connection to one ledger has in common.
pub struct Common {
    pub address: Address,
    /// The server knows `pg_notify`.
    pub notifies: bool,
    /// How long a call waits for a connection.
    pub patience: Duration,
    pub connect_max: Duration,
    pub heard: tokio::sync::broadcast::Sender<Heard>,
}

pub struct Link {
    state: watch::Sender<State>,
    common: Arc<Common>,
    limits: Limits,
    keeper: AbortHandle,
}

#[derive(Clone)]
enum State {
    Up(Arc<Session>),
    Down(String),
}

impl Link {
    pub fn start(common: Arc<Common>, limits: Limits) -> Self {
        let state = watch::Sender::new(State::Down("not connected yet".into()));
        let keeper = tokio::spawn(keep(common.clone(), limits, state.clone())).abort_handle();
        Self { state, common, limits, keeper }
    }

    pub fn is_up(&self) -> bool {
        self.up().is_some()
    }

    fn up(&self) -> Option<Arc<Session>> {
        match &*self.state.borrow() {
            State::Up(session) if !session.client.is_closed() => Some(session.clone()),
            _ => None,
        }
    }

    /// Until this session is no longer the one in use.
    pub async fn ended(&self, session: &Arc<Session>) {
        let over = |state: &State| !matches!(state, State::Up(current) if Arc::ptr_eq(current, session));
        // An error would say that the link is gone, and we hold it.
        drop(self.state.subscribe().wait_for(over).await);
    }

    pub fn address(&self) -> &Address {
        &self.common.address
    }

    /// How long a call may wait for what others hold.
    pub fn patience(&self) -> Duration {
        self.limits.lock
    }

    /// Until when a call that begins now may wait for a connection.
    pub fn deadline(&self) -> Instant {
        Instant::now() + self.common.patience
    }

    /// How long the answer to one statement may take.
    pub fn answer_max(&self) -> Duration {
        self.limits.statement + GRACE
    }

    /// A connection that works, as far as is known here.
    pub async fn session(&self, deadline: Instant) -> Result<Arc<Session>, StoreError> {
        if let Some(session) = self.up() {
            return Ok(session);
        }
        let mut states = self.state.subscribe();
        let up = |state: &State| matches!(state, State::Up(session) if !session.client.is_closed());
        let waited = tokio::time::timeout_at(deadline.into(), states.wait_for(up)).await;
        if let Ok(Ok(state)) = waited
            && let State::Up(session) = &*state
        {
            return Ok(session.clone());
        }
        let why = match &*self.state.borrow() {
            State::Down(why) => why.clone(),
            State::Up(_) => "the connection was lost".into(),
        };
        Err(unavailable(format!("{}: {why}", self.common.address.label), Written::No))
    }

    /// Asks until there is an answer or patience ends: reading twice does no harm.
    pub async fn query(&self, which: impl Fn(&Prepared) -> &Statement, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, StoreError> {
        let deadline = self.deadline();
        loop {
            let session = self.session(deadline).await?;
            let asked = session.client.query(which(&session.prepared), params);
            match tokio::time::timeout(self.answer_max(), asked).await {
                Ok(Ok(rows)) => return Ok(rows),
                Ok(Err(error)) => {
                    if useless(&error) || error.code().is_none() {
                        session.discard();
                    }
                    let worth = lost(&error) || again(&error) || useless(&error);
                    if !worth || Instant::now() >= deadline {
                        return Err(refused(&error));
                    }
                    tokio::task::yield_now().await;
                }
                Err(_) => {
                    session.discard();
                    return Err(unavailable(format!("{}: no answer", self.common.address.label), Written::No));
                }
            }
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

async fn keep(common: Arc<Common>, limits: Limits, state: watch::Sender<State>) {
    let mut backoff = BACKOFF_MIN;
    // Said once for each time it is down, not for each try.
    let mut told = false;
    loop {
        let why = match hold(&common, limits, &state).await {
            Ended::Lost(why) => {
                (backoff, told) = (BACKOFF_MIN, false);
                why
            }
            Ended::Refused(why) => why,
        };
        if !told {
            tracing::warn!(store = %common.address.label, %why, "no connection to the ledger's store; trying again");
            told = true;
        }
        state.send_replace(State::Down(why));
        tokio::time::sleep(jittered(backoff)).await;
        backoff = (backoff * 2).min(BACKOFF_MAX);
    }
}

enum Ended {
    /// It was up.
    Lost(String),
    Refused(String),
}

/// Connects, says so, and stays until the connection ends.
async fn hold(common: &Common, limits: Limits, state: &watch::Sender<State>) -> Ended {
    let connecting = tokio::time::timeout(common.connect_max, common.address.config.connect(common.address.tls.clone()));
    let (client, wire) = match connecting.await {
        Ok(Ok(pair)) => pair,
        Ok(Err(error)) => return Ended::Refused(Refusal::from(error).message()),
        Err(_) => return Ended::Refused("no answer to a connection attempt".into()),
    };
    let heard = common.heard.clone();
    let driver = drive(wire, move |hint| {
        // Nobody may be listening.
        let _ = heard.send(hint);
    });
    let mut driver = std::pin::pin!(driver);
    let ready = async {
        fit(&client, limits).await?;
        Ok::<_, Refusal>(Prepared::new(&client, &common.address).await?)
    };
    let prepared = tokio::select! {
        ready = tokio::time::timeout(common.connect_max, ready) => match ready {
            Ok(Ok(prepared)) => prepared,
            Ok(Err(refusal)) => return Ended::Refused(refusal.message()),
            Err(_) => return Ended::Refused("the connection was made and then nothing was answered".into()),
        },
        why = &mut driver => return Ended::Refused(why),
    };
    let session = Arc::new(Session { client, prepared, discarded: tokio::sync::Notify::new() });
    state.send_replace(State::Up(session.clone()));
    tokio::select! {
        why = &mut driver => Ended::Lost(why),
        () = session.discarded.notified() => Ended::Lost("the connection was given up".into()),
    }
}

/// Between half and all of it, so that processes that lost the same server do not come back in step.
pub fn jittered(span: Duration) -> Duration {
    let random = RandomState::new().hash_one(0_u8) as f64 / u64::MAX as f64;
    span.mul_f64(0.5 + random / 2.0)
}
