//! Bearer tokens in the ledger: create, list, revoke, and who presents one.
//!
//! Each change is one compare-and-append that says who. What `authenticate` answers is at most a second old, so a token that is revoked in one process is
//! refused in all of them a second later. Guessing costs little and gains nothing: what is not the text of a token is refused without a look
//! at the ledger, what was wrong is remembered for a moment in bounded memory, and strangers never keep known callers waiting.

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::policy::Rate;
use counterfoil_core::summary::StreamKind;
use counterfoil_core::token::{Change, ID_DIGITS, Label, Rights, Secret, Token, TokenId, listed_under};
use counterfoil_core::{Caller, StreamId, Tenant, Timestamp};
use counterfoil_store::{Query, Version};
use thiserror::Error;
use tokio::sync::Semaphore;

use crate::clock::Clock;
use crate::fresh::unguessable;
use crate::ledger::{Ledger, LedgerError};
use crate::operate::Operator;
use crate::runtime::Runtime;
use memory::{Memory, Remembered};

mod memory;

/// How long an answer is believed. A little less than the second that is promised, for what a store's reader may lag behind other processes.
const FRESH_FOR: Duration = Duration::from_millis(900);
/// Looks at the ledger at one time for tokens that were good a moment ago.
const KNOWN_AT_ONCE: usize = 64;
/// And for all others: whoever guesses waits for others who guess, and has only this small part of the store.
const STRANGERS_AT_ONCE: usize = 8;
/// Fewest digits that may stand for an id: a slip of the finger shall not revoke a token.
const PREFIX_DIGITS_MIN: usize = 4;
const PAGE: usize = 1000;

/// What a token is to allow.
#[derive(Debug, Clone)]
pub struct NewToken {
    pub tenant: Tenant,
    pub caller: Caller,
    pub rights: Rights,
    pub label: Option<Label>,
    pub expires: Option<Timestamp>,
    pub rate: Option<Rate>,
}

/// None of these repeats what was typed beyond an id: it may have been a secret.
#[derive(Debug, Error)]
pub enum TokenError {
    #[error("that is not the id of a token: give its {ID_DIGITS} hex digits, or the first {PREFIX_DIGITS_MIN} or more of them")]
    NotAnId,
    #[error("there is no token {id}; `counterfoil tokens list` shows those there are")]
    NotFound { id: String },
    #[error("{count} tokens begin with {id}: give more digits")]
    Ambiguous { id: String, count: usize },
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// One per process is enough: it holds what was learned of the tokens presented here.
pub struct Tokens {
    ledger: Arc<Ledger>,
    clock: Arc<dyn Clock>,
    memory: Memory,
    known: Semaphore,
    strangers: Semaphore,
}

impl Tokens {
    pub fn new(runtime: &Runtime) -> Self {
        Self {
            ledger: runtime.inner.ledger.clone(),
            clock: runtime.inner.clock.clone(),
            memory: Memory::default(),
            known: Semaphore::new(KNOWN_AT_ONCE),
            strangers: Semaphore::new(STRANGERS_AT_ONCE),
        }
    }

    /// Makes a token. The secret is nowhere but in what this returns. After an error the token may exist; without its secret it is of no use to anyone.
    pub async fn create(&self, new: NewToken, operator: &Operator) -> Result<(Token, Secret), LedgerError> {
        let NewToken { tenant, caller, rights, label, expires, rate } = new;
        let [a, b, c, d, e, f, ..] = unguessable();
        let id = TokenId([a, b, c, d, e, f]);
        let secret = Secret::new(id, unguessable());
        let token = Token { id, tenant, caller, rights, label, created: self.change(operator), expires, revoked: None, rate };
        self.write(secret.stream(), Version::NONE, &token).await?;
        Ok((token, secret))
    }

    /// Every token there ever was, oldest first. Looks through the whole ledger.
    pub async fn list(&self) -> Result<Vec<Token>, LedgerError> {
        let mut tokens: Vec<Token> = self.found(&[]).await?.into_iter().map(|(.., token)| token).collect();
        tokens.sort_by_key(|token| (token.created.at, token.id));
        Ok(tokens)
    }

    /// Whether someone could be let in: with no token that is active, a server has no way to tell callers apart.
    pub async fn any_exist(&self) -> Result<bool, LedgerError> {
        let now = self.clock.now();
        Ok(self.found(&["active"]).await?.iter().any(|(.., token)| token.admits(now).is_ok()))
    }

    /// Ends a token, named by its id, the first digits of it, or its whole text. One that is revoked already stays as it is.
    pub async fn revoke(&self, typed: &str, operator: &Operator) -> Result<Token, TokenError> {
        let wanted = id_digits(typed).ok_or(TokenError::NotAnId)?;
        loop {
            let (stream, version, token) = self.find(&wanted).await?;
            if token.revoked.is_some() {
                return Ok(token);
            }
            let revoked = Token { revoked: Some(self.change(operator)), ..token };
            match self.write(stream, version, &revoked).await {
                Err(LedgerError::Conflict) => continue,
                written => written?,
            }
            self.memory.refuse(stream, self.clock.now());
            return Ok(revoked);
        }
    }

    /// Who presents this text: the token, when it is one and is let in now.
    pub async fn authenticate(&self, presented: &str) -> Result<Option<Token>, LedgerError> {
        let Ok(secret) = Secret::parse(presented) else { return Ok(None) };
        let stream = secret.stream();
        let token = match self.memory.recall(&stream, self.clock.now()) {
            Remembered::Fresh(answer) => answer,
            Remembered::Stale => self.look(stream, &self.known).await?,
            Remembered::Nothing => self.look(stream, &self.strangers).await?,
        };
        // Time goes on in between: an answer may be remembered, an expiry is exact.
        Ok(token.filter(|token| token.admits(self.clock.now()).is_ok()))
    }

    /// Looks at the ledger, once for all who ask at the same time.
    async fn look(&self, stream: StreamId, places: &Semaphore) -> Result<Option<Token>, LedgerError> {
        let _place = places.acquire().await.expect("it is never closed");
        // From before the load: what is written during it may be missed.
        let looked = self.clock.now();
        if let Remembered::Fresh(answer) = self.memory.recall(&stream, looked) {
            return Ok(answer);
        }
        let (_, token) = self.ledger.newest::<Token>(stream).await?;
        match token {
            Some(token) => match token.admits(looked) {
                Ok(()) => {
                    self.memory.admit(stream, &token, looked);
                    return Ok(Some(token));
                }
                Err(refusal) => tracing::warn!(token = %token.id, caller = %token.caller, "a token was presented and refused: {refusal}"),
            },
            None => tracing::debug!("an unknown token was presented"),
        }
        self.memory.refuse(stream, looked);
        Ok(None)
    }

    /// The one token that is meant. Those that are active first: they are listed at once, and are what one wants to revoke.
    async fn find(&self, wanted: &str) -> Result<(StreamId, Version, Token), TokenError> {
        for state in ["active", "revoked"] {
            let mut found = self.found(&[state]).await?;
            found.retain(|(.., token)| token.id.to_string().starts_with(wanted));
            match found.len() {
                0 => {}
                1 => return Ok(found.remove(0)),
                count => return Err(TokenError::Ambiguous { id: wanted.to_owned(), count }),
            }
        }
        Err(TokenError::NotFound { id: wanted.to_owned() })
    }

    async fn found(&self, states: &[&'static str]) -> Result<Vec<(StreamId, Version, Token)>, LedgerError> {
        let query = Query { kind: StreamKind::Token, states: states.to_vec(), limit: PAGE, ..Query::effects(listed_under()) };
        let mut tokens = Vec::new();
        for found in self.ledger.all_of(query).await? {
            // Read anew: a list is a glance, a record is the truth.
            let (version, token) = self.ledger.newest::<Token>(found.stream).await?;
            tokens.extend(token.map(|token| (found.stream, version, token)));
        }
        Ok(tokens)
    }

    fn change(&self, operator: &Operator) -> Change {
        Change { at: self.clock.now(), by: operator.by.clone(), why: operator.why.clone() }
    }

    async fn write(&self, stream: StreamId, expected: Version, token: &Token) -> Result<(), LedgerError> {
        self.ledger.append(vec![self.ledger.replacing(stream, expected, token, token.summary())]).await
    }
}

/// The digits of an id in what was typed: with or without `cf_`, some of them or all, or the whole text of a token that is to be ended.
fn id_digits(typed: &str) -> Option<String> {
    if let Ok(secret) = Secret::parse(typed) {
        return Some(secret.id().to_string());
    }
    let digits = typed.strip_prefix("cf_").unwrap_or(typed);
    let plausible = (PREFIX_DIGITS_MIN..=ID_DIGITS).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
    plausible.then(|| digits.to_ascii_lowercase())
}
