//! Bearer tokens over a store that counts how often it is asked, with a clock that moves only when told.

#[macro_use]
mod passed_on;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use counterfoil_core::policy::Rate;
use counterfoil_core::token::{Label, Right, Rights, SECRET_CHARS, Secret, TokenId};
use counterfoil_core::{Caller, StreamId, Tenant, Timestamp, Token};
use counterfoil_runtime::{Builder, Clock, NewToken, Operator, TokenError, Tokens};
use counterfoil_store::memory::Memory;
use counterfoil_store::sqlite::Sqlite;
use counterfoil_store::{Eventually, History, Reach, Store, StoreError, Written};

/// Stands still until it is moved.
struct Hand(AtomicI64);
impl Hand {
    fn new() -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(1_700_000_000_000_000)))
    }
    fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_micros() as i64, Ordering::SeqCst);
    }
    fn back(&self, by: Duration) {
        self.0.fetch_sub(by.as_micros() as i64, Ordering::SeqCst);
    }
}
impl Clock for Hand {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

/// Counts the loads it passes on, and fails them all when told to.
#[derive(Default)]
struct Counting {
    inner: Memory,
    loads: AtomicU64,
    /// Loads under way now, and the most there ever were.
    at_once: AtomicU64,
    at_once_max: AtomicU64,
    down: std::sync::atomic::AtomicBool,
}

impl Store for Counting {
    fn load(&self, stream: StreamId, reach: Reach) -> Eventually<'_, Result<History, StoreError>> {
        self.loads.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            let now = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
            self.at_once_max.fetch_max(now, Ordering::SeqCst);
            // Everyone who may look does so before anyone is answered.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            self.at_once.fetch_sub(1, Ordering::SeqCst);
            if self.down.load(Ordering::SeqCst) {
                return Err(StoreError::Unavailable { message: "gone".into(), written: Written::No });
            }
            self.inner.load(stream, reach).await
        })
    }
    passed_on!(inner: append, due, tail, search, prune);
}

struct Lab {
    store: Arc<Counting>,
    clock: Arc<Hand>,
    tokens: Tokens,
}

impl Lab {
    fn new() -> Self {
        let (store, clock) = (Arc::new(Counting::default()), Hand::new());
        let tokens = open(store.clone(), clock.clone());
        Self { store, clock, tokens }
    }
    fn loads(&self) -> u64 {
        self.store.loads.load(Ordering::SeqCst)
    }
    async fn lets_in(&self, presented: &str) -> bool {
        self.tokens.authenticate(presented).await.unwrap().is_some()
    }
}

fn open(store: Arc<dyn Store>, clock: Arc<Hand>) -> Tokens {
    Tokens::new(&Builder::new(store).clock(clock).build().unwrap())
}

fn new_token() -> NewToken {
    NewToken {
        tenant: Tenant::new("acme").unwrap(),
        caller: Caller::new("agent 7").unwrap(),
        rights: Rights::up_to(Right::Operate),
        label: Some(Label::new("the office").unwrap()),
        expires: None,
        rate: Some(Rate { count: 100, per: Duration::from_secs(1) }),
    }
}

fn ada() -> Operator {
    Operator::new("ada", "because")
}

/// Well formed, and nobody's.
fn stranger(n: u64) -> String {
    let mut random = [0; 32];
    random[..8].copy_from_slice(&n.to_be_bytes());
    Secret::new(TokenId([7; 6]), random).reveal().to_owned()
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn created_presented_revoked_refused() {
    let lab = Lab::new();
    let (token, secret) = lab.tokens.create(new_token(), &ada()).await.unwrap();
    assert_eq!(secret.id(), token.id);
    assert_eq!((token.created.by.as_str(), token.created.why.as_str(), token.created.at), ("ada", "because", lab.clock.now()));
    let presented = lab.tokens.authenticate(secret.reveal()).await.unwrap().unwrap();
    assert_eq!(presented, token, "as it was made, label and rate too");
    assert!(presented.allows(Right::Call) && presented.allows(Right::Operate) && !presented.allows(Right::Admin));
    lab.clock.advance(SECOND);
    let revoked = lab.tokens.revoke(&token.id.to_string(), &Operator::new("bob", "leaked")).await.unwrap();
    assert!(!lab.lets_in(secret.reveal()).await, "here at once");
    let how = revoked.revoked.clone().unwrap();
    assert_eq!((how.by.as_str(), how.why.as_str(), how.at), ("bob", "leaked", lab.clock.now()));
    let again = lab.tokens.revoke(&token.id.to_string(), &Operator::new("eve", "")).await.unwrap();
    assert_eq!(again, revoked, "the first word stays");
    lab.clock.advance(Duration::from_secs(86_400));
    assert!(!lab.lets_in(secret.reveal()).await, "for ever");
    assert_eq!(lab.tokens.list().await.unwrap(), [revoked]);
}

#[tokio::test]
async fn another_process_refuses_it_within_a_second() {
    let lab = Lab::new();
    let (token, secret) = lab.tokens.create(new_token(), &ada()).await.unwrap();
    assert!(lab.lets_in(secret.reveal()).await);
    let elsewhere = open(lab.store.clone(), lab.clock.clone());
    elsewhere.revoke(&token.id.to_string(), &ada()).await.unwrap();
    lab.clock.advance(SECOND / 2);
    let loads = lab.loads();
    assert!(lab.lets_in(secret.reveal()).await, "remembered: this is what the bound is about");
    assert_eq!(lab.loads(), loads);
    lab.clock.advance(SECOND / 2);
    assert!(!lab.lets_in(secret.reveal()).await);
}

#[tokio::test]
async fn a_clock_that_is_set_back_keeps_no_revoked_token_alive() {
    let lab = Lab::new();
    let (token, secret) = lab.tokens.create(new_token(), &ada()).await.unwrap();
    assert!(lab.lets_in(secret.reveal()).await);
    open(lab.store.clone(), lab.clock.clone()).revoke(&token.id.to_string(), &ada()).await.unwrap();
    lab.clock.back(Duration::from_secs(3600));
    assert!(!lab.lets_in(secret.reveal()).await);
}

#[tokio::test]
async fn a_token_expires_to_the_microsecond() {
    let lab = Lab::new();
    let expires = lab.clock.now() + SECOND / 2;
    let (_, secret) = lab.tokens.create(NewToken { expires: Some(expires), ..new_token() }, &ada()).await.unwrap();
    lab.clock.advance(SECOND / 2 - Duration::from_micros(1));
    assert!(lab.lets_in(secret.reveal()).await);
    assert!(lab.tokens.any_exist().await.unwrap());
    lab.clock.advance(Duration::from_micros(1));
    assert!(!lab.lets_in(secret.reveal()).await, "although the answer is remembered");
    lab.clock.advance(SECOND);
    assert!(!lab.lets_in(secret.reveal()).await, "and when it is not");
    assert!(!lab.tokens.any_exist().await.unwrap());
}

#[tokio::test]
async fn garbage_is_refused_without_a_look_at_the_ledger() {
    let lab = Lab::new();
    let (_, secret) = lab.tokens.create(new_token(), &ada()).await.unwrap();
    let good = secret.reveal();
    let loads = lab.loads();
    let mut garbage: Vec<String> =
        ["", " ", "\0", "cf_", "Bearer", "null", "☃", "../../etc/passwd", "' OR 1=1"].map(str::to_owned).to_vec();
    garbage.extend([good.to_uppercase(), format!("{good}\n"), format!("Bearer {good}"), good[1..].to_owned(), good.repeat(2)]);
    garbage.extend(["x".repeat(SECRET_CHARS), "é".repeat(SECRET_CHARS / 2), "cf_".repeat(1 << 20)]);
    for text in &garbage {
        assert!(!lab.lets_in(text).await);
    }
    assert_eq!(lab.loads(), loads);
    assert!(lab.lets_in(good).await);
}

#[tokio::test]
async fn repeating_a_token_costs_one_load_a_second() {
    let lab = Lab::new();
    let (_, secret) = lab.tokens.create(new_token(), &ada()).await.unwrap();
    let wrong = stranger(1);
    for (presented, good) in [(secret.reveal(), true), (&wrong, false)] {
        let before = lab.loads();
        for _ in 0..100 {
            assert_eq!(lab.lets_in(presented).await, good);
        }
        assert_eq!(lab.loads() - before, 1, "good: {good}");
        lab.clock.advance(SECOND);
        assert_eq!(lab.lets_in(presented).await, good);
        assert_eq!(lab.loads() - before, 2, "good: {good}");
    }
}

/// A flood of well formed guesses, and one caller with a good token who is asked for again in the middle of it.
#[tokio::test]
async fn guessing_holds_up_nobody_and_has_a_small_part_of_the_store() {
    let lab = Arc::new(Lab::new());
    let (_, secret) = lab.tokens.create(new_token(), &ada()).await.unwrap();
    assert!(lab.lets_in(secret.reveal()).await);
    lab.clock.advance(SECOND);
    let guesses: Vec<_> = (0..3000)
        .map(|n| {
            let lab = lab.clone();
            tokio::spawn(async move { lab.lets_in(&stranger(n)).await })
        })
        .collect();
    // Every guess waits or looks by now; the good token is stale, and does not queue behind them.
    tokio::task::yield_now().await;
    let before = lab.loads();
    assert!(lab.lets_in(secret.reveal()).await);
    assert!(lab.loads() - before < 100, "answered while most guesses still wait");
    for guess in guesses {
        assert!(!guess.await.unwrap());
    }
    let most = lab.store.at_once_max.load(Ordering::SeqCst);
    assert!((2..=9).contains(&most), "eight guesses and the caller, not {most}");
    let loads = lab.loads();
    assert!(lab.lets_in(secret.reveal()).await);
    assert_eq!(lab.loads(), loads, "no guess pushed it out");
}

#[tokio::test]
async fn all_who_present_one_token_at_once_share_a_few_looks() {
    let lab = Arc::new(Lab::new());
    let (_, secret) = lab.tokens.create(new_token(), &ada()).await.unwrap();
    let before = lab.loads();
    let asked: Vec<_> = (0..1000)
        .map(|_| {
            let (lab, text) = (lab.clone(), secret.reveal().to_owned());
            tokio::spawn(async move { lab.lets_in(&text).await })
        })
        .collect();
    for answer in asked {
        assert!(answer.await.unwrap());
    }
    assert!(lab.loads() - before <= 8, "{} looks", lab.loads() - before);
}

#[tokio::test]
async fn without_the_ledger_nobody_is_let_in_and_nothing_is_remembered() {
    let lab = Lab::new();
    let (_, secret) = lab.tokens.create(new_token(), &ada()).await.unwrap();
    assert!(lab.lets_in(secret.reveal()).await);
    lab.clock.advance(SECOND);
    lab.store.down.store(true, Ordering::SeqCst);
    for presented in [secret.reveal(), &stranger(1)] {
        assert_eq!(lab.tokens.authenticate(presented).await.unwrap_err().code(), "store_unavailable");
    }
    assert!(!lab.lets_in("garbage").await, "for this no ledger is needed");
    lab.store.down.store(false, Ordering::SeqCst);
    assert!(lab.lets_in(secret.reveal()).await);
}

#[tokio::test]
async fn a_token_is_revoked_by_its_id_its_first_digits_or_its_text() {
    let lab = Lab::new();
    let mut made = Vec::new();
    for _ in 0..4 {
        made.push(lab.tokens.create(new_token(), &ada()).await.unwrap());
    }
    let id = |n: usize| made[n].0.id.to_string();
    let spellings = [id(0), id(1).to_uppercase(), format!("cf_{}", id(2)), made[3].1.reveal().to_owned()];
    for (spelling, (token, secret)) in spellings.iter().zip(&made) {
        assert!(lab.lets_in(secret.reveal()).await);
        assert_eq!(lab.tokens.revoke(spelling, &ada()).await.unwrap().id, token.id);
        assert!(!lab.lets_in(secret.reveal()).await);
    }
    let (token, _) = lab.tokens.create(new_token(), &ada()).await.unwrap();
    assert_eq!(lab.tokens.revoke(&token.id.to_string()[..8], &ada()).await.unwrap().id, token.id);
}

#[tokio::test]
async fn what_names_no_token_or_several_revokes_none() {
    let lab = Lab::new();
    let (token, secret) = lab.tokens.create(new_token(), &ada()).await.unwrap();
    let mistyped = format!("{}0", secret.reveal());
    for typed in ["", "abc", "token", "0123456789abc", "cf_", &mistyped, &"a".repeat(1 << 20)] {
        let error = lab.tokens.revoke(typed, &ada()).await.unwrap_err();
        assert!(matches!(error, TokenError::NotAnId), "{error}");
        assert!(!error.to_string().contains(secret.reveal()) && error.to_string().len() < 200);
    }
    let absent = stranger(1);
    for typed in ["07070707", "070707070707", &absent] {
        let error = lab.tokens.revoke(typed, &ada()).await.unwrap_err();
        assert!(matches!(&error, TokenError::NotFound { .. }) && !error.to_string().contains(&absent), "{error}");
    }
    // Four digits are 65,536: enough tokens, and two of them begin alike.
    let mut made = vec![token];
    let alike = loop {
        let (next, _) = lab.tokens.create(new_token(), &ada()).await.unwrap();
        let digits = next.id.to_string()[..4].to_owned();
        let twin = made.iter().any(|other: &Token| other.id.to_string().starts_with(&digits));
        made.push(next);
        if twin {
            break digits;
        }
    };
    let error = lab.tokens.revoke(&alike, &ada()).await.unwrap_err();
    assert!(matches!(error, TokenError::Ambiguous { count: 2, .. }), "{error}");
    assert!(lab.tokens.list().await.unwrap().iter().all(|token| token.revoked.is_none()));
}

#[tokio::test]
async fn whether_any_exist_and_which() {
    let lab = Lab::new();
    assert!(!lab.tokens.any_exist().await.unwrap());
    assert_eq!(lab.tokens.list().await.unwrap(), []);
    let (first, _) = lab.tokens.create(new_token(), &ada()).await.unwrap();
    lab.clock.advance(SECOND);
    let (second, _) = lab.tokens.create(NewToken { tenant: Tenant::new("globex").unwrap(), ..new_token() }, &ada()).await.unwrap();
    assert!(lab.tokens.any_exist().await.unwrap());
    assert_eq!(lab.tokens.list().await.unwrap(), [first.clone(), second.clone()], "of all tenants, oldest first");
    lab.tokens.revoke(&first.id.to_string(), &ada()).await.unwrap();
    assert!(lab.tokens.any_exist().await.unwrap());
    lab.tokens.revoke(&second.id.to_string(), &ada()).await.unwrap();
    assert!(!lab.tokens.any_exist().await.unwrap());
    assert_eq!(lab.tokens.list().await.unwrap().len(), 2);
}

#[tokio::test]
async fn secrets_are_all_different() {
    let lab = Lab::new();
    let mut texts = std::collections::HashSet::new();
    for _ in 0..200 {
        let (_, secret) = lab.tokens.create(new_token(), &ada()).await.unwrap();
        let (head, random) = secret.reveal().split_at(SECRET_CHARS - 64);
        assert!(texts.insert(head.to_owned()) && texts.insert(random.to_owned()));
    }
}

/// Two runtimes with nothing in common but the file.
#[tokio::test]
async fn two_stores_on_one_file() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Hand::new();
    let at = |name: &str| Arc::new(Sqlite::open(dir.path().join(name), Default::default()).unwrap());
    let (server, command) = (open(at("ledger.db"), clock.clone()), open(at("ledger.db"), clock.clone()));
    assert!(!server.any_exist().await.unwrap());
    let (token, secret) = command.create(new_token(), &ada()).await.unwrap();
    assert!(server.any_exist().await.unwrap());
    assert_eq!(server.authenticate(secret.reveal()).await.unwrap(), Some(token.clone()));
    assert_eq!(server.list().await.unwrap(), std::slice::from_ref(&token));
    command.revoke(&token.id.to_string(), &ada()).await.unwrap();
    clock.advance(SECOND);
    assert_eq!(server.authenticate(secret.reveal()).await.unwrap(), None);
    assert!(!server.any_exist().await.unwrap());
    // Both at once: one of them is told of the other's word.
    let (token, secret) = server.create(new_token(), &ada()).await.unwrap();
    let id = token.id.to_string();
    let (bob, eve) = (Operator::new("bob", ""), Operator::new("eve", ""));
    let (here, there) = tokio::join!(server.revoke(&id, &bob), command.revoke(&id, &eve));
    assert_eq!(here.unwrap(), there.unwrap());
    clock.advance(SECOND);
    for tokens in [&server, &command, &open(at("ledger.db"), clock.clone())] {
        assert_eq!(tokens.authenticate(secret.reveal()).await.unwrap(), None);
        assert_eq!(tokens.list().await.unwrap().len(), 2);
    }
}
