//! Keeps a line to Redis: opens it, looks at the server before it is used and from time to time, opens another when it ends.
//!
//! What must stay true: no line is used before it is known that the same ledger is behind it, no older than what was acknowledged to this
//! process, and none is written to before the file of the Redis behind it is whole (`rewrite.rs`). While there is no line everything is refused at once; only the
//! first attempt to get a new one is waited for, and by whoever writes the file.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant as Moment};

use counterfoil_core::Timestamp;
use redis::{Pipeline, ServerError, Value, cmd, pipe};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};

use super::RedisOptions;
use super::address::Address;
use super::fault::{self, unavailable};
use super::keys::Keys;
use super::line::{Line, Silence};
use super::read::bytes;
use super::record::BatchId;
use super::rewrite::{self, File, Step};
use super::script::Scripts;
use super::settings::{Judgement, Settings, accept_loss, remedy};
use crate::StoreError;
use crate::remote::RemoteClock;

const PAUSE_MIN: Duration = Duration::from_millis(20);
/// Short beside how long a Redis takes to start, long beside what an attempt costs it.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Looks to let pass before a rewrite that failed is asked for again.
const REWRITE_AGAIN: u32 = 3;

pub struct Link {
    pub address: Address,
    pub keys: Keys,
    pub options: RedisOptions,
    pub scripts: Scripts,
    /// Which ledger this is. Another one at the same address is not written to.
    pub id: String,
    pub clock: Arc<RemoteClock>,
    state: watch::Sender<State>,
    risks: Mutex<Vec<String>>,
    /// The newest position that this process knows to be acknowledged.
    seen: AtomicU64,
    /// This process hears of commits itself, as far as it knows.
    listens: AtomicBool,
    /// Differs from that of every other process.
    nonce: u64,
    /// Batches that were sent.
    batches: AtomicU64,
}

enum State {
    Up(Arc<Line>, Writes),
    /// The line ended; another is being opened.
    Trying,
    /// No line could be opened; it is tried again.
    Down(StoreError),
}

/// What becomes of an append on a line.
#[derive(Clone, PartialEq, Eq)]
enum Writes {
    Taken,
    /// When Redis has rewritten its file.
    Soon,
    Refused(StoreError),
}

/// What a line that is kept may be used for, as of the last look.
struct Standing {
    /// Nothing may be written.
    refused: Option<StoreError>,
    risks: Vec<String>,
}

/// What a look at the server found.
pub struct Look {
    pub judgement: Judgement,
    pub id: Option<String>,
    position: u64,
    asked: Moment,
    told: Timestamp,
    answered: Moment,
}

impl Look {
    pub async fn at(line: &Line, keys: &Keys, by: Instant) -> Result<Result<Self, ServerError>, Silence> {
        // First, since only this is refused while Redis is loading.
        let mut questions = pipe();
        questions.cmd("HGET").arg(&keys.meta).arg("id").cmd("GET").arg(&keys.position);
        let answers = match line.ask_all(&questions, by).await? {
            Ok(answers) => answers,
            Err(error) => return Ok(Err(error)),
        };
        let mut texts = answers.into_iter().map(|value| String::from_utf8(bytes(value)?).ok());
        let id = texts.next().flatten();
        let position = texts.next().flatten().and_then(|text| text.parse().ok()).unwrap_or(0);
        let asked = Moment::now();
        let told = match line.ask(&cmd("TIME"), by).await? {
            Ok(time) => read_time(&time).ok_or_else(|| Silence(format!("TIME was answered with {time:?}")))?,
            Err(error) => return Ok(Err(error)),
        };
        let answered = Moment::now();
        let settings = Settings::ask(line, by).await?;
        Ok(Ok(Self { judgement: settings.judge(), id, position, asked, told, answered }))
    }

    pub fn clock(&self) -> RemoteClock {
        RemoteClock::new(self.asked, self.told, self.answered)
    }
}

impl Link {
    /// Around a line that was just looked at, behind which the ledger `id` is.
    pub fn new(address: Address, keys: Keys, options: RedisOptions, scripts: Scripts, id: String, line: Line, look: &Look) -> Arc<Self> {
        let (clock, seen) = (Arc::new(look.clock()), AtomicU64::new(look.position));
        let risks = Mutex::new(with_doubt(look.judgement.risks.clone(), &line));
        let writes = if line.file.get().is_some() { Writes::Taken } else { Writes::Soon };
        let (state, _) = watch::channel(State::Up(Arc::new(line), writes));
        let nonce = RandomState::new().hash_one((std::time::SystemTime::now(), std::process::id()));
        Arc::new(Self {
            address,
            keys,
            options,
            scripts,
            id,
            clock,
            state,
            risks,
            seen,
            listens: AtomicBool::new(false),
            nonce,
            batches: AtomicU64::new(0),
        })
    }

    pub fn risks(&self) -> Vec<String> {
        self.risks.lock().expect("nothing panics while it holds the risks").clone()
    }

    pub fn seen(&self) -> u64 {
        self.seen.load(Ordering::SeqCst)
    }

    pub fn saw(&self, position: u64) {
        self.seen.fetch_max(position, Ordering::SeqCst);
    }

    /// A name that no other batch has.
    pub fn batch(&self) -> BatchId {
        let mut name = [0; 16];
        name[..8].copy_from_slice(&self.nonce.to_be_bytes());
        name[8..].copy_from_slice(&self.batches.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        name
    }

    pub fn listens(&self) -> bool {
        self.listens.load(Ordering::SeqCst)
    }

    pub fn set_listens(&self, listens: bool) {
        self.listens.store(listens, Ordering::SeqCst);
    }

    pub fn deadline(&self) -> Instant {
        Instant::now() + self.options.answer_within
    }

    /// The line to read from.
    pub async fn line(&self, by: Instant) -> Result<Arc<Line>, StoreError> {
        self.when(by, |state| match state {
            State::Up(line, _) => Some(Ok(line.clone())),
            State::Down(error) => Some(Err(error.clone())),
            State::Trying => None,
        })
        .await
    }

    /// The line to write to, unless nothing may be written.
    pub async fn line_to_write(&self, by: Instant) -> Result<Arc<Line>, StoreError> {
        self.when(by, |state| match state {
            State::Up(line, Writes::Taken) => Some(Ok(line.clone())),
            State::Up(_, Writes::Refused(error)) | State::Down(error) => Some(Err(error.clone())),
            State::Up(_, Writes::Soon) | State::Trying => None,
        })
        .await
    }

    /// What `known` finds, as soon as it does.
    async fn when<T>(&self, by: Instant, known: impl Fn(&State) -> Option<Result<T, StoreError>>) -> Result<T, StoreError> {
        if let Some(known) = known(&self.state.borrow()) {
            return known;
        }
        let mut state = self.state.subscribe();
        let told = timeout_at(by, state.wait_for(|state| known(state).is_some())).await;
        if let Ok(Ok(state)) = told
            && let Some(known) = known(&state)
        {
            return known;
        }
        Err(match &*self.state.borrow() {
            State::Up(..) => unavailable(format!("{}: {}", self.address.label(), rewrite::UNDER_WAY)),
            _ => unavailable(format!("no connection to Redis within {:?}", self.options.answer_within)),
        })
    }

    /// The line is of no use any more.
    pub fn lost(&self, line: &Arc<Line>) {
        self.state.send_if_modified(|state| {
            let current = matches!(state, State::Up(up, _) if Arc::ptr_eq(up, line));
            if current {
                *state = State::Trying;
            }
            current
        });
    }

    pub fn refused(&self, line: &Arc<Line>, error: &ServerError) -> StoreError {
        if fault::ends_the_line(error) {
            self.lost(line);
        }
        fault::refused(&self.address.label(), error)
    }

    /// Some of a batch is there that was not accepted.
    pub fn half(&self, error: &ServerError) -> StoreError {
        fault::half(&self.address.label(), &error.to_string())
    }

    /// Reads, in one round trip. Asked once more when the line broke: reading twice does no harm.
    pub async fn read(&self, questions: &Pipeline) -> Result<Vec<Value>, StoreError> {
        let by = self.deadline();
        let line = self.line(by).await?;
        let silence = match line.ask_all(questions, by).await {
            Ok(answers) => return answers.map_err(|error| self.refused(&line, &error)),
            Err(silence) => silence,
        };
        self.lost(&line);
        if Instant::now() >= by {
            return Err(fault::unread(&silence));
        }
        let line = self.line(by).await?;
        match line.ask_all(questions, by).await {
            Ok(answers) => answers.map_err(|error| self.refused(&line, &error)),
            Err(silence) => {
                self.lost(&line);
                Err(fault::unread(&silence))
            }
        }
    }

    /// Runs until it is dropped.
    pub async fn keep(self: Arc<Self>, first: JoinHandle<()>) {
        let mut standing = Standing { refused: None, risks: self.risks() };
        let mut ended = first;
        loop {
            self.attend(ended, standing).await;
            let mut pause = PAUSE_MIN;
            (ended, standing) = loop {
                match self.connect().await {
                    Ok(connected) => break connected,
                    Err(error) => {
                        self.state.send_replace(State::Down(error));
                        // Spread, so that many processes do not all come back at the same moment.
                        let spread = RandomState::new().hash_one(()) % 1000;
                        sleep(pause * (500 + spread as u32) / 1000).await;
                        pause = (pause * 2).min(PAUSE_MAX);
                    }
                }
            };
        }
    }

    /// Returns when the line has ended, or is given up.
    async fn attend(&self, mut ended: JoinHandle<()>, standing: Standing) {
        let mut state = self.state.subscribe();
        let line = match &*state.borrow_and_update() {
            State::Up(line, _) => line.clone(),
            _ => return,
        };
        tokio::select! {
            _ = &mut ended => {}
            () = async { drop(state.wait_for(|state| !matches!(state, State::Up(..))).await) } => {}
            error = self.watch(&line, standing) => return drop(self.state.send_replace(State::Down(error))),
        }
        self.state.send_if_modified(|state| {
            let up = matches!(state, State::Up(..));
            if up {
                *state = State::Trying;
            }
            up
        });
    }

    /// Looks at Redis from time to time, and often until its file is whole. Returns with the reason why the line is of no use any more.
    async fn watch(&self, line: &Arc<Line>, mut standing: Standing) -> StoreError {
        let pause = self.options.look_every;
        let mut looked = Instant::now();
        let (mut asked, mut failed) = (false, None::<(Instant, String)>);
        loop {
            if standing.refused.is_none() && line.file.get().is_none() {
                // Each try leaves Redis another file, until one succeeds.
                if failed.as_ref().is_some_and(|(at, _)| at.elapsed() >= pause * REWRITE_AGAIN) {
                    (asked, failed) = (false, None);
                }
                match rewrite::step(line, &mut asked, self.deadline()).await {
                    Ok(Step::Failed(why)) if failed.is_none() => failed = Some((Instant::now(), why)),
                    Ok(_) => {}
                    Err(silence) => return fault::unread(&silence),
                }
            }
            let writes = self.tell(line, &standing, failed.as_ref().map(|(_, why)| why.as_str()));
            sleep(if writes == Writes::Soon { rewrite::PAUSE.min(pause) } else { pause }).await;
            if looked.elapsed() >= pause {
                match self.look(line).await {
                    Ok(found) => standing = found,
                    Err(error) => return error,
                }
                looked = Instant::now();
            }
        }
    }

    /// What an append may expect from now on, and what is at risk.
    fn tell(&self, line: &Arc<Line>, standing: &Standing, failed: Option<&str>) -> Writes {
        let label = self.address.label();
        *self.risks.lock().expect("nothing panics while it holds the risks") = with_doubt(standing.risks.clone(), line);
        let writes = match (&standing.refused, line.file.get(), failed) {
            (Some(refused), ..) => Writes::Refused(refused.clone()),
            (None, Some(File::Whole), _) => Writes::Taken,
            (None, Some(File::Doubtful(_)), _) if self.options.allow_volatile => Writes::Taken,
            (None, Some(File::Doubtful(why)), _) => Writes::Refused(unavailable(format!("{label}: {}", accept_loss(why)))),
            (None, None, Some(why)) => Writes::Refused(unavailable(format!("{label}: {why}"))),
            (None, None, None) => Writes::Soon,
        };
        self.state.send_if_modified(|state| match state {
            State::Up(up, known) if Arc::ptr_eq(up, line) && *known != writes => {
                known.clone_from(&writes);
                true
            }
            _ => false,
        });
        writes
    }

    async fn connect(&self) -> Result<(JoinHandle<()>, Standing), StoreError> {
        let opened = Line::open(&self.address, None, self.options.connect_within).await;
        let (line, ended) = opened.map_err(|why| unavailable(format!("{}: cannot be reached: {why}", self.address.label())))?;
        let standing = self.look(&line).await?;
        // Where one line ended the other probably has too, and may not know it yet.
        self.set_listens(false);
        self.state.send_replace(State::Up(Arc::new(line), Writes::Soon));
        Ok((ended, standing))
    }

    /// Whether the line may be used, and why nothing may be written to it.
    async fn look(&self, line: &Line) -> Result<Standing, StoreError> {
        let label = self.address.label();
        let seen = self.seen();
        let look = match Look::at(line, &self.keys, self.deadline()).await.map_err(|silence| fault::unread(&silence))? {
            Ok(look) => look,
            Err(error) => return Err(fault::refused(&label, &error)),
        };
        self.clock.learn(look.asked, look.told, look.answered);
        let damaged = |message: String| StoreError::Corrupt { place: label.clone(), message };
        if look.id.as_ref() != Some(&self.id) {
            return Err(damaged(fault::GONE.into()));
        }
        let Judgement { unfit, volatile, mut risks } = look.judgement;
        if look.position < seen {
            let lost = format!("it went back from position {seen} to {}: records that Redis had acknowledged are lost", look.position);
            if !self.options.allow_volatile {
                return Err(damaged(format!("{lost}; start again to go on with what is left")));
            }
            risks.push(lost);
            self.seen.store(look.position, Ordering::SeqCst);
        }
        if let Some(unfit) = unfit {
            return Err(unavailable(format!("{label}: {unfit}")));
        }
        let accepted = volatile.is_empty() || self.options.allow_volatile;
        let refused = (!accepted).then(|| unavailable(format!("{label}: {}", remedy(&volatile))));
        Ok(Standing { refused, risks })
    }
}

/// `risks`, and that of a file of which nothing can be told.
fn with_doubt(mut risks: Vec<String>, line: &Line) -> Vec<String> {
    match line.file.get() {
        Some(File::Doubtful(why)) if !risks.contains(why) => risks.push(why.clone()),
        _ => {}
    }
    risks
}

fn read_time(value: &Value) -> Option<Timestamp> {
    let Value::Array(parts) = value else { return None };
    let [Value::BulkString(seconds), Value::BulkString(micros)] = parts.as_slice() else { return None };
    let number = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse::<i64>().ok();
    Some(Timestamp(number(seconds)? * 1_000_000 + number(micros)?))
}
