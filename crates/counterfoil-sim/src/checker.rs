//! Who watches: knows what the world counted and what callers were told, and nothing of the ledger.
//!
//! What must hold, always:
//! - What may not be repeated acts once, whatever happens to processes, stores, clocks and wires.
//! - After an attempt of which nobody knows how it ended, nothing is dispatched again unless a probe or a person said that nothing was done.
//! - One claim is one dispatch; nothing is dispatched any more once somebody was told that it is done.
//! - A result is the world's own, byte for byte, also when it is empty; told once, it is told to everyone and for ever.
//! - Who is told that nothing was done is told the truth. One end is the only one.
//! - A key belongs to one tenant, one tool and one set of arguments.
//! - A run that ended has ended so for ever; what it did stands or was undone once, newest first.
//! - Each end that was told has exactly one receipt.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use counterfoil_core::ids::Digest32;
use counterfoil_core::receipt::ReceiptId;
use counterfoil_core::{EffectKey, StreamId};
use counterfoil_runtime::{Answer, Status};

use crate::runs::{Script, Step};
use crate::state::{Life, Micros};
use crate::tools::Kind;
use crate::world::{Request, World};

/// One thing to be done: whose, and what. Equal calls are the same thing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    pub tenant: String,
    pub token: String,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.tenant, self.token)
    }
}

#[derive(Default)]
pub struct Checker {
    pub violations: Vec<String>,
    told: BTreeMap<Subject, Told>,
    dispatched: BTreeSet<(EffectKey, u32)>,
    /// Who drives a run, by its stream.
    owners: BTreeMap<StreamId, String>,
    runs: BTreeMap<Subject, Told>,
    /// Receipts that callers were shown.
    receipts: BTreeSet<(String, Digest32)>,
    audits: usize,
}

/// What callers were told about one thing.
#[derive(Default)]
struct Told {
    /// The result, and when it was first told.
    success: Option<(String, Micros)>,
    /// An end other than success.
    end: Option<String>,
    /// Its key answers no more.
    expired: bool,
    /// The last time somebody was told that nothing was done.
    denied: Option<Asking>,
}

/// A question on its way to its answer: what is answered was true at some moment in between.
#[derive(Debug, Clone, Copy)]
pub struct Asking {
    /// Who was asked.
    pub life: Life,
    pub since: Micros,
    pub until: Micros,
    /// The last attempt that it heard of.
    pub attempt: u32,
}

impl Asking {
    /// Whether a request was part of what the answer is about. What another process sent in the meantime need not be.
    fn covers(&self, request: &Request) -> bool {
        request.at < self.since || (request.life == self.life && request.attempt <= self.attempt)
    }
}

impl Checker {
    pub fn violated(&mut self, what: String) {
        self.violations.push(what);
    }

    /// A request sets out. Asked before it is in the world's list.
    pub fn dispatched(&mut self, world: &World, request: &Request) {
        let Request { kind, subject, key, attempt, .. } = request;
        if !self.dispatched.insert((*key, *attempt)) {
            self.violated(format!("{kind:?} {subject} was dispatched twice in attempt {attempt}"));
        }
        if self.told.get(subject).is_some_and(|told| told.success.is_some()) {
            self.violated(format!("{kind:?} {subject} was dispatched after its result had been told"));
        }
        let open = |earlier: &&Request| earlier.subject == *subject && !earlier.denied && !earlier.cleared;
        if kind.is_once()
            && let Some(earlier) = world.requests.iter().find(open)
        {
            self.violated(format!("{kind:?} {subject} was dispatched on a guess: nobody knows what attempt {} did", earlier.attempt));
        }
        if let Some(missing) = missing_before(world, subject) {
            self.violated(format!("{subject} was begun before {missing} was done"));
        }
    }

    /// The newest act of the world.
    pub fn acted(&mut self, world: &World) {
        let Some(act) = world.acts.last() else { return };
        let (kind, subject) = (act.kind, &act.subject);
        let count = world.acts.iter().filter(|other| other.subject == *subject && other.kind == kind).count();
        if (kind.is_once() || kind == Kind::Send) && count > 1 {
            self.violated(format!("{kind:?} {subject} was done {count} times"));
        }
        let request = &world.requests[act.request];
        let denied = self.told.get(subject).and_then(|told| told.denied).filter(|asking| asking.covers(request));
        if denied.is_some() && kind.changes_the_world() {
            self.violated(format!("{kind:?} {subject} was done by a request of which somebody had been told that it did nothing"));
        }
    }

    /// A caller is answered.
    pub fn answered(&mut self, world: &World, kind: Kind, subject: &Subject, answer: &Answer, asking: Asking) {
        let code = answer.error.as_ref().map_or("", |error| error.code.as_str());
        self.receipts.extend(answer.receipt.map(|receipt| (subject.tenant.clone(), receipt.0)));
        let told = self.told.entry(subject.clone()).or_default();
        let mut wrong = Vec::new();
        match answer.status {
            Status::Success => {
                let data = answer.data.as_ref().map_or("nothing at all", |data| data.as_str());
                if !world.acts.iter().any(|act| act.subject == *subject && act.kind == kind && act.result.as_str() == data) {
                    wrong.push(format!("was told {data}, which the world never said to {}", subject.tenant));
                }
                match &told.success {
                    Some((first, _)) if first != data => wrong.push(format!("was told {data}, and {first} before")),
                    Some(_) => {}
                    None => told.success = Some((data.to_owned(), asking.until)),
                }
                if let Some(end) = &told.end {
                    wrong.push(format!("was told a result, and {end} before"));
                }
            }
            _ if told.success.as_ref().is_some_and(|(_, at)| *at < asking.since)
                && !unavailable(code)
                && !(code == "key_expired" && kind == Kind::Note) =>
            {
                wrong.push(format!("was told {} {code}, and a result before", answer.status.word()));
            }
            _ => {}
        }
        if matches!(answer.outcome, "retryable_failure" | "permanent_failure") && kind.changes_the_world() {
            told.denied = Some(asking);
            if world.requests.iter().any(|request| request.subject == *subject && request.acted && asking.covers(request)) {
                wrong.push(format!("was told {} {code}: nothing was done; and it was", answer.status.word()));
            }
        }
        told.expired |= code == "key_expired";
        if is_end(answer, code) {
            let end = format!("{} {code}", answer.status.word());
            match &told.end {
                Some(first) if *first != end => wrong.push(format!("was told {end}, and {first} before")),
                _ => told.end = Some(end),
            }
        }
        for wrong in wrong {
            self.violated(format!("{kind:?} {subject} {wrong}"));
        }
    }

    /// Whether there is nothing more to come.
    pub fn is_settled(&self, subject: &Subject) -> bool {
        self.told.get(subject).is_some_and(|told| told.success.is_some() || told.end.is_some() || told.expired)
    }

    /// Somebody looked at a run. `true`: it has ended.
    pub fn seen(&mut self, world: &World, script: Script, run: &Subject, state: &str) -> bool {
        let known = self.runs.entry(run.clone()).or_default();
        if let Some(end) = &known.end {
            if end != state {
                let wrong = format!("the run {run} was {end}, and is {state}");
                self.violated(wrong);
            }
            return true;
        }
        let ended = matches!(state, "completed" | "failed" | "cancelled" | "compensated" | "compensation_failed");
        if ended {
            known.end = Some(state.to_owned());
            if let Some(wrong) = wrong_end(world, script, run, state) {
                self.violated(format!("the run {run} is {state}: {wrong}"));
            }
        }
        ended
    }

    pub fn is_over(&self, run: &Subject) -> bool {
        self.runs.get(run).is_some_and(|told| told.end.is_some())
    }

    /// All runs once more, when nothing is on its way any more.
    pub fn at_the_end(&mut self, world: &World, runs: &[(Script, Subject)]) {
        for (script, run) in runs {
            let end = self.runs.get(run).and_then(|told| told.end.clone());
            if let Some(end) = end
                && let Some(wrong) = wrong_end(world, *script, run, &end)
            {
                self.violated(format!("the run {run} is {end}: {wrong}"));
            }
        }
    }

    /// All receipts of a tenant, as they are in its chains.
    pub fn audited(&mut self, tenant: &str, found: &[ReceiptId]) {
        self.audits += 1;
        let mut wrong = Vec::new();
        for (_, shown) in self.receipts.iter().filter(|(of, _)| of == tenant) {
            let count = found.iter().filter(|receipt| receipt.0 == *shown).count();
            if count != 1 {
                wrong.push(format!("a receipt that somebody was shown is in the chains of {tenant} {count} times"));
            }
        }
        self.violations.append(&mut wrong);
    }

    pub fn was_audited(&self) -> bool {
        self.audits > 0
    }

    /// `true`: another worker than the last one has the run now.
    pub fn owned(&mut self, run: &StreamId, worker: &str) -> bool {
        self.owners.insert(*run, worker.to_owned()).is_some_and(|before| before != worker)
    }
}

/// The store could not be asked: that says nothing about the effect.
fn unavailable(code: &str) -> bool {
    code == "store_unavailable"
}

/// Ends that nothing may follow. What may be tried again is none.
fn is_end(answer: &Answer, code: &str) -> bool {
    let failed = answer.status == Status::Error && answer.outcome == "permanent_failure";
    failed || answer.status == Status::Cancelled || code == "key_reuse_mismatch"
}

/// A step of a run that should have acted before this one is begun.
fn missing_before(world: &World, subject: &Subject) -> Option<Subject> {
    let (run, step) = subject.token.split_once('.')?;
    let acted = |token: String| {
        let before = Subject { tenant: subject.tenant.clone(), token };
        (!world.acts.iter().any(|act| act.subject == before)).then_some(before)
    };
    match step.strip_suffix(".undo") {
        Some(undone) => acted(format!("{run}.{undone}")),
        None => Script::of(run)?.step(step)?.after.iter().find_map(|before| acted(format!("{run}.{before}"))),
    }
}

/// What is not as it should be when a run has ended so.
fn wrong_end(world: &World, script: Script, run: &Subject, state: &str) -> Option<String> {
    let at = |step: &str| {
        let token = format!("{}.{step}", run.token);
        world.acts.iter().position(|act| act.subject.tenant == run.tenant && act.subject.token == token)
    };
    let undo_at = |step: &str| at(&format!("{step}.undo"));
    let undoable = || script.steps().iter().filter(|step| step.undo);
    let standing = |step: &&Step| at(step.id).is_some() && undo_at(step.id).is_none();
    match state {
        "completed" => {
            if let Some(step) = script.steps().iter().find(|step| step.needed && at(step.id).is_none()) {
                return Some(format!("{} was never done", step.id));
            }
            if let Some(step) = undoable().find(|step| step.needed && undo_at(step.id).is_some()) {
                return Some(format!("{} was undone", step.id));
            }
            let left = script.scope().filter(|(step, judge)| at(judge).is_none() && at(step).is_some() && undo_at(step).is_none());
            left.filter(|(step, _)| !refused(world, run, step)).map(|(step, _)| format!("{step} was not undone with its scope"))
        }
        "compensated" => match undoable().find(standing) {
            Some(step) => Some(format!("{} was not undone", step.id)),
            None => script.pairs().iter().find_map(|(first, second)| match (undo_at(first), undo_at(second)) {
                (Some(first_undone), Some(second_undone)) if first_undone < second_undone => {
                    Some(format!("{first} was undone before {second}, which was done after it"))
                }
                _ => None,
            }),
        },
        "compensation_failed" => {
            let left = undoable().find(|step| standing(step) && !refused(world, run, step.id));
            left.map(|step| format!("{} was not undone, and nobody refused it", step.id))
        }
        "failed" => undoable().find(standing).map(|step| format!("{} stands", step.id)),
        _ => None,
    }
}

/// Whether the world, or somebody in its place, declined to undo the step as often as it was asked: not at all, if a worker ran out of time before it could.
fn refused(world: &World, run: &Subject, step: &str) -> bool {
    let token = format!("{}.{step}.undo", run.token);
    let of = |request: &&Request| request.subject.tenant == run.tenant && request.subject.token == token;
    world.requests.iter().filter(of).all(|request| request.denied || request.cleared)
}
