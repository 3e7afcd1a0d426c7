//! A server in memory, so simple that it is obviously right, and the ways in which it can be made wrong.
//!
//! A request is carried out in phases, so that others, a disconnect or a kill can come in between. Each phase is atomic.

use std::collections::{BTreeMap, BTreeSet};

use counterfoil_lin::invocation::{self, Said};
use counterfoil_lin::resource::{self, Answer, Payload, Slot};
use counterfoil_lin::{Rng, Text};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    LostUpdate,
    StaleRead,
    DuplicateEffect,
    ReplayDiffers,
    KeyAppliedTwice,
    DeleteComesBack,
    ReadOfTheFuture,
    WritesLostByKill,
    KeysLostByKill,
    ResultsLostByKill,
    TwoCreatesWithOneKey,
    OtherPayloadReplayed,
    DoubtRunAgain,
    DoubtGuessedDone,
    OtherArgumentsRun,
}

pub const FAULTS: [Fault; 15] = [
    Fault::LostUpdate,
    Fault::StaleRead,
    Fault::DuplicateEffect,
    Fault::ReplayDiffers,
    Fault::KeyAppliedTwice,
    Fault::DeleteComesBack,
    Fault::ReadOfTheFuture,
    Fault::WritesLostByKill,
    Fault::KeysLostByKill,
    Fault::ResultsLostByKill,
    Fault::TwoCreatesWithOneKey,
    Fault::OtherPayloadReplayed,
    Fault::DoubtRunAgain,
    Fault::DoubtGuessedDone,
    Fault::OtherArgumentsRun,
];

/// How often a fault shows when it could.
const FAULT_PERCENT: u8 = 30;

#[derive(Debug, Clone)]
pub enum Ask {
    Tool(resource::Op),
    Effect(invocation::Op),
}

#[derive(Debug, Clone)]
pub enum Told {
    Tool(resource::Ret),
    Effect(invocation::Ret),
}

#[derive(Debug)]
pub struct Job {
    pub on: Text,
    pub ask: Ask,
    phase: Phase,
    /// Recorded, and not yet told.
    answer: Option<Answer>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Sent,
    Admitted,
    Dispatched(u64),
}

#[derive(Debug, Clone, Default)]
struct Tool {
    version: Option<Text>,
    before: Option<Text>,
    remembered: BTreeMap<Slot, (Payload, Answer)>,
}

#[derive(Debug, Clone, Default)]
struct Effect {
    args: Option<Text>,
    at: At,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum At {
    #[default]
    Ready,
    Running,
    /// Its caller was told that it is pending; the world has it already.
    Detached(u64),
    Doubt,
    Done(u64),
}

pub struct Server {
    tools: BTreeMap<Text, Tool>,
    /// An older picture of the tools, for a kill that loses writes.
    older: BTreeMap<Text, Tool>,
    in_flight: BTreeSet<Slot>,
    effects: BTreeMap<Text, Effect>,
    /// What happened, per effect key: survives everything.
    world: BTreeMap<Text, Vec<u64>>,
    happened: u64,
    /// Versions that nobody has put yet.
    future: Vec<(Text, Text)>,
    fault: Option<Fault>,
    rng: Rng,
}

impl Job {
    pub fn new(on: Text, ask: Ask) -> Self {
        Self { on, ask, phase: Phase::Sent, answer: None }
    }
}

impl Server {
    pub fn new(seed: u64, fault: Option<Fault>, future: Vec<(Text, Text)>) -> Self {
        Self {
            tools: BTreeMap::new(),
            older: BTreeMap::new(),
            in_flight: BTreeSet::new(),
            effects: BTreeMap::new(),
            world: BTreeMap::new(),
            happened: 0,
            future,
            fault,
            rng: Rng::new(seed),
        }
    }

    /// One phase further. `None`: not answered yet.
    pub fn advance(&mut self, job: &mut Job) -> Option<Told> {
        match job.ask.clone() {
            Ask::Tool(op) => self.tool(job, &op).map(Told::Tool),
            Ask::Effect(invocation::Op::Call { args }) => self.call(job, &args).map(Told::Effect),
            Ask::Effect(invocation::Op::Resolve(said)) => Some(Told::Effect(self.resolve(&job.on, &said))),
            Ask::Effect(invocation::Op::Claim { .. }) => unreachable!("nobody sends half a call"),
            Ask::Effect(invocation::Op::Observe) => Some(Told::Effect(invocation::Ret::World(self.results(&job.on).len() as u64))),
        }
    }

    /// What is durable stays; what was under way is lost, or in doubt.
    pub fn kill(&mut self) {
        self.in_flight.clear();
        for (key, effect) in &mut self.effects {
            if matches!(effect.at, At::Running | At::Detached(_)) {
                let guessed = self.fault == Some(Fault::DoubtGuessedDone);
                effect.at = if guessed { At::Done(self.world.get(key).map_or(0, |results| results[0])) } else { At::Doubt };
            }
            if self.fault == Some(Fault::ResultsLostByKill) && matches!(effect.at, At::Done(_)) && self.rng.percent(FAULT_PERCENT) {
                effect.at = At::Ready;
            }
        }
        match self.fault {
            Some(Fault::WritesLostByKill) => self.tools = self.older.clone(),
            Some(Fault::KeysLostByKill) => self.tools.values_mut().for_each(|tool| tool.remembered.clear()),
            _ => {}
        }
    }

    pub fn results(&self, effect: &Text) -> &[u64] {
        self.world.get(effect).map_or(&[], Vec::as_slice)
    }

    /// What a person sees who looks before speaking.
    pub fn may_be_settled(&self, effect: &Text) -> bool {
        self.effects.get(effect).is_some_and(|effect| matches!(effect.at, At::Doubt | At::Done(_)))
    }

    fn faulty(&mut self, fault: Fault) -> bool {
        self.fault == Some(fault) && self.rng.percent(FAULT_PERCENT)
    }

    fn tool(&mut self, job: &mut Job, op: &resource::Op) -> Option<resource::Ret> {
        let payload = match op {
            resource::Op::Get => return Some(self.get(&job.on)),
            resource::Op::Put { version, .. } => Payload::Put(version.clone()),
            resource::Op::Delete { .. } => Payload::Delete,
        };
        let Some(slot) = op.slot() else { return Some(resource::Ret::Fresh(self.write(&job.on, None, payload))) };
        if let Some(answer) = job.answer.take() {
            self.in_flight.remove(&slot);
            return Some(resource::Ret::Fresh(answer));
        }
        if job.phase == Phase::Admitted {
            job.answer = Some(self.write(&job.on, Some(&slot), payload));
            return None;
        }
        // Sometimes it is only seen that another is at it, recorded or not.
        if self.in_flight.contains(&slot) && self.rng.percent(30) {
            return Some(resource::Ret::InFlight);
        }
        if let Some((first, answer)) = self.tools.get(&job.on).and_then(|tool| tool.remembered.get(&slot)).cloned() {
            return Some(self.again(&job.on, payload, first, answer));
        }
        if self.in_flight.contains(&slot) && !self.faulty(Fault::TwoCreatesWithOneKey) {
            return None;
        }
        self.in_flight.insert(slot);
        job.phase = Phase::Admitted;
        None
    }

    fn get(&mut self, on: &Text) -> resource::Ret {
        if self.faulty(Fault::ReadOfTheFuture)
            && let Some((_, version)) = self.future.iter().find(|(tool, _)| tool == on)
        {
            return resource::Ret::Fresh(Answer::Found(version.clone()));
        }
        let stale = self.faulty(Fault::StaleRead);
        let tool = self.tools.entry(on.clone()).or_default();
        let version = if stale { tool.before.clone() } else { tool.version.clone() };
        resource::Ret::Fresh(version.map_or(Answer::NotFound, Answer::Found))
    }

    fn write(&mut self, on: &Text, slot: Option<&Slot>, payload: Payload) -> Answer {
        let (lost, back) = (self.faulty(Fault::LostUpdate), self.faulty(Fault::DeleteComesBack));
        if self.rng.percent(30) {
            self.older = self.tools.clone();
        }
        let tool = self.tools.entry(on.clone()).or_default();
        let (answer, version) = match &payload {
            Payload::Put(version) if tool.version.is_none() => (Answer::Created(version.clone()), Some(version.clone())),
            Payload::Put(version) => (Answer::Updated(version.clone()), Some(version.clone())),
            Payload::Delete if tool.version.is_some() => (Answer::Deleted, if back { tool.version.clone() } else { None }),
            Payload::Delete => (Answer::NotFound, None),
        };
        if !lost {
            tool.before = std::mem::replace(&mut tool.version, version);
        }
        if let Some(slot) = slot.filter(|_| answer != Answer::NotFound) {
            tool.remembered.insert(slot.clone(), (payload, answer.clone()));
        }
        answer
    }

    fn again(&mut self, on: &Text, payload: Payload, first: Payload, answer: Answer) -> resource::Ret {
        if payload != first {
            let replays = self.faulty(Fault::OtherPayloadReplayed);
            return if replays { resource::Ret::Replayed(answer) } else { resource::Ret::Mismatch };
        }
        if self.faulty(Fault::KeyAppliedTwice) {
            self.write(on, None, payload);
        } else if self.faulty(Fault::ReplayDiffers) {
            return resource::Ret::Replayed(match answer {
                Answer::Created(version) => Answer::Updated(version),
                Answer::Updated(version) => Answer::Created(version),
                Answer::Deleted => Answer::NotFound,
                _ => Answer::Deleted,
            });
        }
        resource::Ret::Replayed(answer)
    }

    fn call(&mut self, job: &mut Job, args: &Text) -> Option<invocation::Ret> {
        use invocation::Ret;
        let done = |result, replayed| Some(Ret::Done { result: Some(result), replayed });
        match job.phase {
            Phase::Admitted => return self.dispatch(job),
            Phase::Dispatched(result) => {
                self.effect(&job.on).at = At::Done(result);
                return done(result, false);
            }
            Phase::Sent => {}
        }
        let effect = self.effect(&job.on).clone();
        if effect.args.as_ref().is_some_and(|first| first != args) && !self.faulty(Fault::OtherArgumentsRun) {
            return Some(Ret::Mismatch);
        }
        let claimed = match effect.at {
            At::Ready => true,
            At::Doubt => self.faulty(Fault::DoubtRunAgain),
            _ => false,
        };
        if claimed {
            *self.effect(&job.on) = Effect { args: Some(args.clone()), at: At::Running };
            job.phase = Phase::Admitted;
            return None;
        }
        match effect.at {
            At::Running => self.rng.percent(30).then_some(Ret::Pending),
            At::Detached(_) if self.rng.percent(50) => Some(Ret::Pending),
            At::Detached(result) => {
                self.effect(&job.on).at = At::Done(result);
                done(result, true)
            }
            At::Doubt => match self.results(&job.on).first().copied() {
                // The lost worker reports after all.
                Some(result) if self.rng.percent(20) => {
                    self.effect(&job.on).at = At::Done(result);
                    done(result, true)
                }
                _ => Some(Ret::InDoubt),
            },
            At::Done(result) => done(result, true),
            At::Ready => unreachable!("claimed above"),
        }
    }

    /// The one place where the world changes. The world's answer may be lost, whether it acted or not.
    fn dispatch(&mut self, job: &mut Job) -> Option<invocation::Ret> {
        let lost = self.rng.percent(15);
        if lost && self.rng.percent(50) {
            self.effect(&job.on).at = At::Doubt;
            return Some(invocation::Ret::InDoubt);
        }
        let times = 1 + usize::from(self.faulty(Fault::DuplicateEffect));
        for _ in 0..times {
            self.happened += 1;
            self.world.entry(job.on.clone()).or_default().push(self.happened);
        }
        let result = self.happened;
        if lost {
            self.effect(&job.on).at = At::Doubt;
            return Some(invocation::Ret::InDoubt);
        }
        if self.rng.percent(5) {
            self.effect(&job.on).at = At::Detached(result);
            return Some(invocation::Ret::Pending);
        }
        job.phase = Phase::Dispatched(result);
        None
    }

    fn resolve(&mut self, on: &Text, said: &Said) -> invocation::Ret {
        let effect = self.effect(on);
        if effect.at != At::Doubt {
            return invocation::Ret::NotInDoubt;
        }
        effect.at = match said {
            Said::Happened { result } => At::Done(result.expect("the person of these tests names the result")),
            Said::DidNotHappen => At::Ready,
        };
        invocation::Ret::Resolved
    }

    fn effect(&mut self, on: &Text) -> &mut Effect {
        self.effects.entry(on.clone()).or_default()
    }

    /// From now on the version of this request is no longer of the future.
    pub fn announce(&mut self, on: &Text, ask: &Ask) {
        if let Ask::Tool(resource::Op::Put { version, .. }) = ask {
            self.future.retain(|(tool, other)| tool != on || other != version);
        }
    }
}
