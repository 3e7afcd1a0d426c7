//! Opening: is this a Redis that may hold a ledger, is there one, can this program read it.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use redis::{ServerError, Value, cmd};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::RedisOptions;
use super::address::Address;
use super::fault;
use super::keys::Keys;
use super::line::{Line, Silence};
use super::link::{Link, Look};
use super::read::bytes;
use super::rewrite::{self, File};
use super::script::{self, Scripts};
use super::settings::{accept_loss, remedy};
use crate::OpenError;

/// The format that this program writes, and the only one it reads.
const FORMAT: u32 = 3;
/// Keys that Redis looks at per step of a search for foreign ones.
const SCAN_COUNT: usize = 10_000;

pub async fn open(address: Address, options: RedisOptions) -> Result<(Arc<Link>, JoinHandle<()>), OpenError> {
    let opening = Opening { keys: Keys::new(&address.ledger), label: address.label() };
    let by = Instant::now() + options.connect_within + options.answer_within;
    let opened = Line::open(&address, None, options.connect_within).await;
    let (line, ended) = opened.map_err(|message| opening.unreachable(message))?;
    let look = opening.answered(Look::at(&line, &opening.keys, by).await)?;
    if let Some(message) = &look.judgement.unfit {
        return Err(opening.unfit(message.clone()));
    }
    if !look.judgement.volatile.is_empty() && !options.allow_volatile {
        return Err(opening.unfit(remedy(&look.judgement.volatile)));
    }
    if look.id.is_none() {
        opening.nothing_foreign(&line, by).await?;
    }
    opening.whole(&line, &options, look.id.is_some(), by).await?;
    opening.answered(line.ask_all(&script::rehearse_transaction(), by).await)?;
    // The rehearsal writes.
    if line.file.get().is_some() {
        match line.ask(&script::rehearse(&opening.keys.meta), by).await {
            // What is there can be read, and pruned to make room.
            Ok(Err(error)) if look.id.is_some() && error.code() == "OOM" => {}
            answer => drop(opening.answered(answer)?),
        }
    }
    let id = opening.stamp(&line, by).await?;
    let scripts = opening.answered(Scripts::load(&line, by).await)?;
    Ok((Link::new(address, opening.keys, options, scripts, id, line, &look), ended))
}

struct Opening {
    keys: Keys,
    label: String,
}

impl Opening {
    /// Waits until something may be written. A ledger that is `there` may be read before: then its file is still unknown after this.
    async fn whole(&self, line: &Line, options: &RedisOptions, there: bool, by: Instant) -> Result<(), OpenError> {
        let by = if there { Instant::now() + options.answer_within } else { by };
        match rewrite::wait(line, by).await.map_err(|silence| self.unreachable(silence.0))? {
            Ok(()) => {}
            Err(_) if there => return Ok(()),
            Err(why) => return Err(OpenError::Store(fault::unavailable(format!("{}: {why}", self.label)))),
        }
        match line.file.get() {
            Some(File::Doubtful(why)) if !options.allow_volatile => Err(self.unfit(accept_loss(why))),
            _ => Ok(()),
        }
    }

    /// Which ledger is here; a new one if there was none.
    async fn stamp(&self, line: &Line, by: Instant) -> Result<String, OpenError> {
        let nonce = RandomState::new().hash_one(std::time::SystemTime::now());
        let answer = self.answered(line.ask(&script::stamp(&self.keys.meta, FORMAT, nonce), by).await)?;
        let Value::Array(stamp) = answer else { return Err(self.not_a_ledger(format!("{} answers {answer:?}", self.keys.meta))) };
        let mut texts = stamp.into_iter().map(|value| String::from_utf8(bytes(value)?).ok());
        let (product, format, id) = (texts.next().flatten(), texts.next().flatten(), texts.next().flatten());
        match (product.as_deref(), format.and_then(|format| format.parse().ok()), id) {
            (Some("counterfoil"), Some(FORMAT), Some(id)) => Ok(id),
            (Some("counterfoil"), Some(found), _) if found > FORMAT => {
                Err(OpenError::TooNew { store: self.label.clone(), found, supported: FORMAT })
            }
            (Some("counterfoil"), Some(found), _) => Err(self.unfit(format!(
                "this ledger has format {found}, from before the first release, and this program reads format {FORMAT}; \
                 `counterfoil store copy` of the program that wrote it carries it elsewhere, and the same of this one back"
            ))),
            (product, ..) => Err(self.not_a_ledger(format!("{} says it belongs to {product:?}", self.keys.meta))),
        }
    }

    /// A ledger is not begun among keys of someone else.
    async fn nothing_foreign(&self, line: &Line, by: Instant) -> Result<(), OpenError> {
        let mut cursor = b"0".to_vec();
        loop {
            let step = cmd("SCAN").arg(&cursor).arg("MATCH").arg(self.keys.pattern()).arg("COUNT").arg(SCAN_COUNT).to_owned();
            let Value::Array(answer) = self.answered(line.ask(&step, by).await)? else { return Ok(()) };
            let [Value::BulkString(next), Value::Array(keys)] = answer.as_slice() else { return Ok(()) };
            // Someone who begins the same ledger at this moment is not foreign: the stamp decides.
            let foreign = |key: &Vec<u8>| !key.starts_with(self.keys.rehearsal().as_bytes()) && key != self.keys.meta.as_bytes();
            let foreign = keys.iter().find_map(|key| match key {
                Value::BulkString(key) if foreign(key) => Some(key),
                _ => None,
            });
            if let Some(key) = foreign
                && self.answered(line.ask(cmd("EXISTS").arg(&self.keys.meta), by).await)? == Value::Int(0)
            {
                return Err(self.not_a_ledger(format!("there is {:?}, and no ledger", String::from_utf8_lossy(key))));
            }
            if next == b"0" {
                return Ok(());
            }
            cursor.clone_from(next);
        }
    }

    fn answered<T>(&self, answer: Result<Result<T, ServerError>, Silence>) -> Result<T, OpenError> {
        match answer {
            Ok(Ok(value)) => Ok(value),
            Err(silence) => Err(self.unreachable(silence.0)),
            Ok(Err(error)) => Err(match error.code() {
                "CFFOREIGN" | "WRONGTYPE" => self.not_a_ledger(error.details().unwrap_or_default().to_owned()),
                "LOADING" => self.unreachable("Redis is loading its data after a start".into()),
                "NOPERM" => self.unfit(format!("this user may not do what a ledger needs: {}", error.details().unwrap_or_default())),
                _ => match fault::refused(&self.label, &error) {
                    crate::StoreError::Unavailable { message, .. } => self.unfit(message),
                    damaged => OpenError::Store(damaged),
                },
            }),
        }
    }

    fn unreachable(&self, message: String) -> OpenError {
        OpenError::Unreachable { store: self.label.clone(), message }
    }

    fn unfit(&self, message: String) -> OpenError {
        OpenError::Unfit { store: self.label.clone(), message }
    }

    fn not_a_ledger(&self, found: String) -> OpenError {
        OpenError::NotALedger { store: self.label.clone(), found }
    }
}
