//! A runtime small enough to be read at once, for driving `decide` and the fold through whole lives of one effect.
//!
//! The store keeps encoded records behind a compare-and-append and refuses whatever the fold refuses. Sessions are calls in progress,
//! each with a worker of its own; a session keeps the arguments of its call and its permit, and learns everything else from the store.
//! The world counts for itself: no check reads from the ledger how often something happened.
//!
//! What the runtime is trusted with, here as in production: it dispatches only under a claim that it saw stored and whose lease has not
//! run out by its clock, it answers only what it loaded, and it says `holder_gone` only of a worker that is gone.

// Each test binary uses a part of it.
#![allow(dead_code)]

use std::collections::HashMap;
use std::time::Duration;

use counterfoil_core::codec;
use counterfoil_core::decide::{Hold, Refusal};
use counterfoil_core::effect::How;
use counterfoil_core::entry::{Claim, Ended, Finished, Late, LateOutcome, Opened, Probed, UndoCall, Verdict};
use counterfoil_core::ids::Digest32;
use counterfoil_core::receipt::{self, ChainHead, Draft, ReceiptId};
use counterfoil_core::retry::{self, Series};
use counterfoil_core::settled::Settled;
use counterfoil_core::{
    Caller, CanonicalJson, Conditions, Decision, Effect, EffectKey, Entry, Failure, Fence, Fingerprint, Json, Outcome, Policy, State,
    Success, Tenant, Timestamp, ToolName, WorkerId, call, decide,
};

pub fn json(text: &str) -> Json {
    Json::parse(text).expect("JSON")
}

pub fn tool() -> ToolName {
    ToolName::new("charge").unwrap()
}

/// The arguments a call may carry: the first is the one that was meant, the second reuses its key.
pub const ARGS: [&str; 2] = [r#"{"cents":500}"#, r#"{"cents":501}"#];

pub fn args(which: usize) -> CanonicalJson {
    CanonicalJson::parse(ARGS[which]).unwrap()
}

// ---------------------------------------------------------------- the store

#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    /// The ledger cannot be written.
    Down,
    /// Someone else was faster: load and decide again.
    Conflict,
    /// The fold does not allow it.
    Illegal,
}

pub struct Store {
    pub up: bool,
    /// Every entry stored, in order.
    pub entries: Vec<Entry>,
    pub bodies: Vec<String>,
    pub chain: Vec<String>,
    head: ChainHead,
    effect: Effect,
    /// Off: entries are folded as they are. For the exhaustive tests, which are about states and not about bytes.
    pub encoded: bool,
}

/// What the newest record alone answers must be what the whole history answers, and a plain "done" must always be answered by it.
fn check_settled(effect: &Effect, newest: &str) {
    let settled = Settled::read(newest);
    let plain = matches!(&effect.state, State::Done(done) if done.how == How::Reported && newest.contains("\"finished\""));
    assert_eq!(settled.is_some(), plain, "{newest}");
    let Some(settled) = settled else { return };
    let (opened, expires) = (effect.opened.as_ref().unwrap(), effect.expires().unwrap());
    assert_eq!(effect.state, State::Done(settled.done.clone()));
    let just_before = Timestamp(expires.0 - 1);
    assert!(settled.replays(&opened.fingerprint, just_before) && !settled.replays(&opened.fingerprint, expires));
    assert!(!settled.replays(&Digest32::of(b"other arguments"), just_before));
}

impl Store {
    pub fn new(key: EffectKey) -> Self {
        Self {
            up: true,
            entries: Vec::new(),
            bodies: Vec::new(),
            chain: Vec::new(),
            head: ChainHead::default(),
            effect: Effect::absent(key),
            encoded: true,
        }
    }

    pub fn load(&self) -> Result<Effect, Refused> {
        if self.up { Ok(self.effect.clone()) } else { Err(Refused::Down) }
    }

    /// For checks only: no session may look here.
    pub fn effect(&self) -> &Effect {
        &self.effect
    }

    pub fn append(&mut self, expected: u64, entries: Vec<Entry>) -> Result<(), Refused> {
        if !self.up {
            return Err(Refused::Down);
        }
        if expected != self.effect.version {
            return Err(Refused::Conflict);
        }
        let mut next = self.effect.clone();
        next.apply(entries.iter().cloned()).map_err(|_| Refused::Illegal)?;
        if self.encoded {
            let body = codec::encode(&entries);
            let mut read = self.effect.clone();
            read.apply_body(&body).expect("what is stored can be read");
            assert_eq!(read, next, "a stored record folds to what was meant: {body}");
            check_settled(&next, &body);
            self.bodies.push(body);
            self.receipts(&next, &entries);
        }
        self.effect = next;
        self.entries.extend(entries);
        Ok(())
    }

    fn receipts(&mut self, effect: &Effect, entries: &[Entry]) {
        for (id, result, ended) in entries.iter().filter_map(receipt_of) {
            let draft = Draft {
                id,
                tenant: Tenant::new("acme").unwrap(),
                run: None,
                effect: effect.key,
                attempt: effect.attempts,
                fence: effect.fence,
                tool: tool(),
                spec: call::spec_hash(&tool(), &effect.latest().expect("an end of something").args),
                outcome: effect.state.word(),
                result,
                by: None,
                why: None,
                started: Timestamp::ZERO,
                ended,
            };
            let (text, head) = self.head.seal(&draft.unsealed());
            self.head = head;
            self.chain.push(receipt::body_of(&[text]));
        }
    }
}

/// The receipt an entry asks for, the digest of what it speaks of, and when.
pub fn receipt_of(entry: &Entry) -> Option<(ReceiptId, Digest32, Timestamp)> {
    let nothing = Json::null().digest();
    let of = |failure: &Failure| Digest32::of(failure.code.as_bytes());
    match entry {
        Entry::Denied { receipt, at, .. }
        | Entry::Cancelled { receipt, at, .. }
        | Entry::UndoFinished { receipt, at, .. }
        | Entry::Flushed { receipt, at, .. } => Some((*receipt, nothing, *at)),
        Entry::Finished(finished) => match &finished.outcome {
            Ended::Done { success, receipt, .. } => Some((*receipt, success.result.digest(), finished.ended)),
            Ended::Failed { failure, receipt } => Some((*receipt, of(failure), finished.ended)),
            Ended::Retry { failure, receipt, .. } => receipt.map(|receipt| (receipt, of(failure), finished.ended)),
            Ended::Unknown { .. } => None,
        },
        Entry::Late(late) => match &late.outcome {
            LateOutcome::Done { result, .. } => Some((late.receipt, result.digest(), late.at)),
            LateOutcome::NotDone(failure) | LateOutcome::Unknown(failure) => Some((late.receipt, of(failure), late.at)),
        },
        Entry::Probed { at, answer: Probed::Happened { result, receipt, .. } } => Some((*receipt, result.digest(), *at)),
        Entry::Resolved { at, receipt, verdict: Verdict::Happened { result, .. }, .. } => Some((*receipt, result.digest(), *at)),
        Entry::Resolved { at, receipt, .. } => Some((*receipt, nothing, *at)),
        _ => None,
    }
}

// ---------------------------------------------------------------- the world

/// What one dispatch meets. Definite answers are true; the others leave open whether it acted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Says {
    Done(&'static str),
    NotDoneRetriable,
    NotDoneFinal,
    Unknown {
        acted: bool,
    },
    /// The worker hangs and says nothing, for as long as the test likes.
    Nothing {
        acted: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeSays {
    TheTruth,
    CannotTell,
    /// A provider that is not consistent yet, or a probe that was written wrong.
    ItDidNotHappen,
}

#[derive(Default)]
pub struct World {
    /// Answers to a key it knows with what it said before, and does not act again.
    pub keyed: bool,
    pub acted: u32,
    pub dispatches: u32,
    /// What came of it, by the key that was sent.
    pub results: HashMap<EffectKey, Json>,
}

impl World {
    fn act(&mut self, key: EffectKey, result: &str) -> Json {
        if let Some(result) = self.results.get(&key).filter(|_| self.keyed) {
            return result.clone();
        }
        self.acted += 1;
        self.results.insert(key, json(result));
        self.results[&key].clone()
    }

    /// `None`: no answer ever came.
    pub fn dispatch(&mut self, key: EffectKey, says: &Says) -> Option<Outcome> {
        self.dispatches += 1;
        let known = self.keyed && self.results.contains_key(&key);
        match says {
            Says::Done(result) => Some(Outcome::Done(Success::new(self.act(key, result)))),
            Says::NotDoneFinal if known => Some(Outcome::Done(Success::new(self.act(key, "null")))),
            Says::NotDoneFinal => Some(Outcome::NotDone(Failure::new("http_400", "rejected"))),
            Says::NotDoneRetriable => Some(Outcome::NotDone(Failure::of_dependency("http_503", "later"))),
            Says::Unknown { acted } => {
                if *acted {
                    self.act(key, r#"{"from":"the dark"}"#);
                }
                Some(Outcome::Unknown(Failure::of_dependency("timeout", "no answer in time")))
            }
            Says::Nothing { acted } => {
                if *acted {
                    self.act(key, r#"{"from":"the dark"}"#);
                }
                None
            }
        }
    }
}

// ---------------------------------------------------------------- sessions

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Result(Json),
    /// What was done and has since been undone, or is being undone.
    Undone(Json),
    Failure(Failure),
    Cancelled,
    InDoubt,
    NeedsApproval,
    Refused(Refusal),
    CircuitOpen,
    NoLedger,
}

#[derive(Debug, Clone)]
pub enum Step {
    Deciding,
    /// The claim is stored; the tool is not called yet. With the key it will be sent.
    Holding(Claim, EffectKey),
    /// The tool was called. `None`: it has not answered.
    Acting {
        claim: Claim,
        sent: EffectKey,
        started: Timestamp,
        acted: bool,
        said: Option<Outcome>,
    },
    Answered(Answer),
    Crashed,
}

pub struct Session {
    pub worker: WorkerId,
    pub args: usize,
    pub runnable: bool,
    pub series: Series,
    pub step: Step,
}

impl Session {
    pub fn answer(&self) -> Option<&Answer> {
        match &self.step {
            Step::Answered(answer) => Some(answer),
            _ => None,
        }
    }
}

/// What happened, in the order of real time; `stored` is how many entries were stored by then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Dispatched {
        fence: Fence,
        session: usize,
        stored: usize,
    },
    Acted,
    /// A probe or a person said that it did not happen.
    SaidNot,
    /// A person freed the key.
    Flushed,
    Answered {
        session: usize,
        answer: Answer,
        stored: usize,
    },
    /// A report under a fence that no longer holds the permit was refused as an outcome.
    Stale {
        fence: Fence,
    },
    Down,
    Up,
}

/// What the runtime knows of the tool.
#[derive(Clone)]
pub struct Setting {
    pub policy: Policy,
    pub can_probe: bool,
    pub needs_approval: bool,
    /// Dead workers are noticed; otherwise their leases are waited out.
    pub notices_death: bool,
    /// The rule under test, so that a broken one can be put in its place.
    pub decide: fn(&Effect, &Conditions<'_>) -> Decision,
}

impl Setting {
    pub fn new(policy: Policy) -> Self {
        Self { policy, can_probe: false, needs_approval: false, notices_death: true, decide }
    }
}

pub struct Model {
    pub key: EffectKey,
    pub now: Timestamp,
    pub setting: Setting,
    pub store: Store,
    pub world: World,
    pub sessions: Vec<Session>,
    pub log: Vec<Event>,
    /// Every decision taken, by name.
    pub decisions: Vec<&'static str>,
    fingerprints: [Fingerprint; 2],
}

impl Model {
    pub fn new(setting: Setting) -> Self {
        let key = Digest32::of(b"the effect");
        Self {
            key,
            now: Timestamp::from_millis(1_000_000),
            setting,
            store: Store::new(key),
            world: World::default(),
            sessions: Vec::new(),
            log: Vec::new(),
            decisions: Vec::new(),
            fingerprints: [fingerprint(0), fingerprint(1)],
        }
    }

    pub fn state(&self) -> &State {
        &self.store.effect().state
    }

    pub fn call(&mut self, args: usize, runnable: bool) -> usize {
        let id = self.sessions.len();
        self.sessions.push(Session {
            worker: WorkerId::new(&format!("worker-{id}")).unwrap(),
            args,
            runnable,
            series: Series { attempts: 0, probes: 0, deadline: self.now + self.setting.policy.deadline },
            step: Step::Deciding,
        });
        id
    }

    /// Goes on until the session is answered, waits, hangs, or has come `steps` far.
    pub fn run(&mut self, id: usize, says: &Says, probe: ProbeSays, steps: usize) {
        for _ in 0..steps {
            if !self.advance(id, says, probe) {
                return;
            }
        }
    }

    /// One step of one session. False: nothing to do for now.
    pub fn advance(&mut self, id: usize, says: &Says, probe: ProbeSays) -> bool {
        match self.sessions[id].step.clone() {
            Step::Deciding => self.decide(id, probe),
            Step::Holding(claim, sent) => {
                self.dispatch(id, claim, sent, says);
                true
            }
            Step::Acting { claim, started, said: Some(outcome), .. } => self.report(id, &claim, started, outcome),
            Step::Acting { said: None, .. } | Step::Answered(_) | Step::Crashed => false,
        }
    }

    fn decide(&mut self, id: usize, probe: ProbeSays) -> bool {
        let Ok(effect) = self.store.load() else {
            self.answer(id, Answer::NoLedger);
            return true;
        };
        let decision = self.decision(id, &effect);
        self.decisions.push(name(&decision));
        match decision {
            Decision::Execute(attempt) => {
                let claim = Claim {
                    at: self.now,
                    attempt: attempt.number,
                    fence: attempt.fence,
                    worker: self.sessions[id].worker.clone(),
                    lease_until: self.now + self.setting.policy.lease,
                };
                let entries = self.opening(id, &effect, Entry::Claimed(claim.clone()));
                if self.append(id, effect.version, entries) {
                    self.sessions[id].step = Step::Holding(claim, effect.sent_key());
                }
            }
            Decision::AskApproval => {
                let asked = Entry::ApprovalAsked { at: self.now, expires: self.now + self.setting.policy.approval_expires };
                let entries = self.opening(id, &effect, asked);
                self.append(id, effect.version, entries);
            }
            Decision::Record(entry) => {
                self.append(id, effect.version, vec![entry]);
            }
            Decision::Probe => {
                self.sessions[id].series.probes += 1;
                let answer = self.probe(&effect, probe);
                self.append(id, effect.version, vec![Entry::Probed { at: self.now, answer }]);
            }
            Decision::Wait { until } => {
                assert!(until > self.now, "a wait for {until:?} at {:?} would spin", self.now);
                return false;
            }
            Decision::Replay => self.answer(id, recorded(&effect)),
            Decision::Hold(Hold::Doubt) => self.answer(id, Answer::InDoubt),
            Decision::Hold(Hold::Approval) => self.answer(id, Answer::NeedsApproval),
            Decision::Refuse(refusal) => self.answer(id, Answer::Refused(refusal)),
        }
        true
    }

    pub fn decision(&self, id: usize, effect: &Effect) -> Decision {
        let session = &self.sessions[id];
        let holder_gone = match &effect.state {
            State::Running(claim) if self.setting.notices_death => {
                self.sessions.iter().any(|s| s.worker == claim.worker && matches!(s.step, Step::Crashed))
            }
            _ => false,
        };
        (self.setting.decide)(
            effect,
            &Conditions {
                now: self.now,
                policy: &self.setting.policy,
                series: session.series,
                fingerprint: self.fingerprints[session.args],
                can_probe: self.setting.can_probe,
                needs_approval: self.setting.needs_approval,
                holder_gone,
                runnable: session.runnable,
                of_run: false,
            },
        )
    }

    fn opening(&self, id: usize, effect: &Effect, then: Entry) -> Vec<Entry> {
        let mut entries = Vec::new();
        if effect.opened.is_none() {
            entries.push(Entry::Opened(Opened {
                at: self.now,
                tenant: Tenant::new("acme").unwrap(),
                caller: Caller::new("agent-7").unwrap(),
                tool: tool(),
                args: args(self.sessions[id].args),
                fingerprint: self.fingerprints[self.sessions[id].args],
                run: None,
                step: None,
                redacted: false,
                settles: self.setting.can_probe || self.setting.policy.repeatable(),
                lent: false,
                retain_ms: self.setting.policy.retain.as_millis() as u64,
            }));
        }
        entries.push(then);
        entries
    }

    /// False when the session must look again, or was answered that there is no ledger.
    fn append(&mut self, id: usize, version: u64, entries: Vec<Entry>) -> bool {
        match self.store.append(version, entries) {
            Ok(()) => true,
            Err(Refused::Down) => {
                self.answer(id, Answer::NoLedger);
                false
            }
            Err(Refused::Conflict) => false,
            Err(Refused::Illegal) => panic!("decide asked for what the fold refuses, in {:?}", self.state()),
        }
    }

    fn probe(&mut self, effect: &Effect, says: ProbeSays) -> Probed {
        let receipt = ReceiptId::new(&effect.key, effect.version + 1);
        match says {
            ProbeSays::CannotTell => Probed::CannotTell("the search is down".into()),
            ProbeSays::TheTruth if self.world.results.contains_key(&effect.sent_key()) => {
                Probed::Happened { result: self.world.results[&effect.sent_key()].clone(), undo: None, receipt }
            }
            ProbeSays::TheTruth | ProbeSays::ItDidNotHappen => {
                self.log.push(Event::SaidNot);
                Probed::DidNotHappen
            }
        }
    }

    fn dispatch(&mut self, id: usize, claim: Claim, sent: EffectKey, says: &Says) {
        if claim.lease_until <= self.now {
            // Lost its lease before it called the tool: it must not call it any more.
            self.sessions[id].step = Step::Deciding;
            return;
        }
        self.log.push(Event::Dispatched { fence: claim.fence, session: id, stored: self.store.entries.len() });
        let before = self.world.acted;
        let said = self.world.dispatch(sent, says);
        let acted = self.world.acted > before;
        if acted {
            self.log.push(Event::Acted);
        }
        self.sessions[id].series.attempts += 1;
        self.sessions[id].step = Step::Acting { claim, sent, started: self.now, acted, said };
    }

    fn report(&mut self, id: usize, claim: &Claim, started: Timestamp, outcome: Outcome) -> bool {
        let Ok(effect) = self.store.load() else { return false };
        let receipt = ReceiptId::new(&effect.key, effect.version + 1);
        let ended = self.ended(id, &effect, outcome.clone(), receipt);
        let finished = Finished {
            fence: claim.fence,
            attempt: claim.attempt,
            started,
            ended: self.now,
            answers: effect.answers(&ended, self.now),
            outcome: ended,
        };
        match self.store.append(effect.version, vec![Entry::Finished(finished)]) {
            Ok(()) => {}
            Err(Refused::Illegal) => {
                self.log.push(Event::Stale { fence: claim.fence });
                let late = Late { fence: claim.fence, at: self.now, outcome: outcome.into(), receipt };
                self.store.append(effect.version, vec![Entry::Late(late)]).expect("what a lost worker reports is kept");
            }
            Err(refused) => panic!("nobody else writes between load and append here: {refused:?}"),
        }
        self.sessions[id].step = Step::Deciding;
        true
    }

    fn ended(&self, id: usize, effect: &Effect, outcome: Outcome, receipt: ReceiptId) -> Ended {
        let next = |failure: &Failure| retry::next(&self.setting.policy.retry, self.sessions[id].series, failure, self.now, 0.5);
        match outcome {
            Outcome::Done(success) => Ended::Done { success, undo: Some(undo_call()), receipt },
            Outcome::NotDone(failure) if !failure.retriable => Ended::Failed { failure, receipt },
            Outcome::NotDone(failure) => {
                let next = next(&failure);
                let receipt = (next.exhausted && !effect.doubtful()).then_some(receipt);
                Ended::Retry { failure, not_before: next.not_before, receipt }
            }
            Outcome::Unknown(failure) => {
                let not_before = next(&failure).not_before;
                Ended::Unknown { failure, not_before, sent: None }
            }
        }
    }

    fn answer(&mut self, id: usize, answer: Answer) {
        self.log.push(Event::Answered { session: id, answer: answer.clone(), stored: self.store.entries.len() });
        self.sessions[id].step = Step::Answered(answer);
    }

    // ------------------------------------------------------------ what else can happen

    pub fn crash(&mut self, id: usize) {
        self.sessions[id].step = Step::Crashed;
    }

    pub fn tick(&mut self, by: Duration) {
        self.now = self.now + by;
    }

    /// A hanging worker comes back with what it knows: the truth, or nothing at all.
    pub fn wake(&mut self, id: usize, knows: bool) {
        if let Step::Acting { acted, sent, said: said @ None, .. } = &mut self.sessions[id].step {
            *said = Some(match (knows, *acted) {
                (true, true) => Outcome::Done(Success::new(self.world.results[sent].clone())),
                (true, false) => Outcome::NotDone(Failure::of_dependency("reset", "the request never left")),
                (false, _) => Outcome::Unknown(Failure::of_dependency("timeout", "no answer in time")),
            });
        }
    }

    /// The worker says that it is alive. Learns that it lost its permit when the ledger refuses.
    pub fn heartbeat(&mut self, id: usize) {
        let (Step::Holding(claim, _) | Step::Acting { claim, .. }) = &mut self.sessions[id].step else { return };
        let lease_until = self.now + self.setting.policy.lease;
        let Ok(effect) = self.store.load() else { return };
        if self.store.append(effect.version, vec![Entry::Extended { fence: claim.fence, lease_until }]).is_ok() {
            claim.lease_until = lease_until;
        } else if matches!(self.sessions[id].step, Step::Holding(..)) {
            self.sessions[id].step = Step::Deciding;
        }
    }

    /// The breaker is open: the permit goes back unused.
    pub fn release(&mut self, id: usize) {
        let Step::Holding(claim, _) = self.sessions[id].step.clone() else { return };
        let Ok(effect) = self.store.load() else { return };
        let released = Entry::Released { fence: claim.fence, at: self.now, why: "circuit_open".into() };
        match self.store.append(effect.version, vec![released]) {
            Ok(()) => self.answer(id, Answer::CircuitOpen),
            Err(_) => self.sessions[id].step = Step::Deciding,
        }
    }

    /// Someone outside a call writes. Whether the state allows it is the fold's to say.
    pub fn person(&mut self, entry: impl FnOnce(Timestamp, ReceiptId) -> Entry) -> bool {
        let Ok(effect) = self.store.load() else { return false };
        let entry = entry(self.now, ReceiptId::new(&effect.key, effect.version + 1));
        self.store.append(effect.version, vec![entry]).is_ok()
    }

    pub fn resolve(&mut self, verdict: Verdict) -> bool {
        let said_not = !matches!(verdict, Verdict::Happened { .. });
        let stored = self.person(|at, receipt| Entry::Resolved { at, by: "ada".into(), why: "looked".into(), verdict, receipt });
        if stored && said_not {
            self.log.push(Event::SaidNot);
        }
        stored
    }

    /// A person frees the key, as far as the fold lets them.
    pub fn flush(&mut self) -> bool {
        let flushed = self.person(|at, receipt| Entry::Flushed { at, by: "ada".into(), why: "again".into(), receipt });
        if flushed {
            self.log.push(Event::Flushed);
        }
        flushed
    }

    /// What the world did for the call that is recorded now.
    pub fn result(&self) -> Option<&Json> {
        self.world.results.get(&self.store.effect().sent_key())
    }

    pub fn set_up(&mut self, up: bool) {
        if self.store.up != up {
            self.log.push(if up { Event::Up } else { Event::Down });
            self.store.up = up;
        }
    }
}

fn undo_call() -> UndoCall {
    UndoCall { tool: ToolName::new("refund").unwrap(), args: CanonicalJson::empty_object() }
}

pub fn fingerprint(which: usize) -> Fingerprint {
    args(which).fingerprint()
}

/// The answer a recorded effect gives.
fn recorded(effect: &Effect) -> Answer {
    match &effect.state {
        State::Done(done) => Answer::Result(done.result.clone()),
        State::Undoing { done, .. } | State::Undone { done, .. } | State::UndoFailed { done, .. } => Answer::Undone(done.result.clone()),
        State::Failed { failure, .. } => Answer::Failure(failure.clone()),
        State::Retrying(retrying) => Answer::Failure(retrying.failure.clone()),
        State::Cancelled { .. } => Answer::Cancelled,
        state => panic!("{} has nothing to replay", state.word()),
    }
}

pub fn name(decision: &Decision) -> &'static str {
    match decision {
        Decision::Execute(_) => "execute",
        Decision::Replay => "replay",
        Decision::Wait { .. } => "wait",
        Decision::Probe => "probe",
        Decision::Hold(Hold::Doubt) => "hold doubt",
        Decision::Hold(Hold::Approval) => "hold approval",
        Decision::AskApproval => "ask approval",
        Decision::Record(Entry::Denied { .. }) => "record denied",
        Decision::Record(_) => "record lost",
        Decision::Refuse(Refusal::KeyReuseMismatch { .. }) => "refuse mismatch",
        Decision::Refuse(Refusal::KeyExpired) => "refuse expired",
        Decision::Refuse(Refusal::InFlight { .. }) => "refuse in flight",
        Decision::Refuse(Refusal::ArgumentsRedacted) => "refuse redacted",
        Decision::Refuse(Refusal::Flushed) => "refuse flushed",
    }
}
