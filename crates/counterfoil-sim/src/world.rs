//! The world beyond the tools: it counts what was done to it, and knows nothing of ledgers.
//!
//! A request is on its way by itself. It may act long after its sender gave up or died; its answer may be lost. A request of a tool with a probe
//! arrives within the tool's timeout or never: that is what a probe's word is worth anything by.

use std::collections::BTreeMap;

use counterfoil_core::{EffectKey, Failure, Json, Outcome, StreamId, Success};
use counterfoil_runtime::{Invocation, ProbeAnswer};
use tokio::sync::oneshot;

use crate::bugs::Bug;
use crate::checker::Subject;
use crate::marks::Mark;
use crate::state::{Life, Link, MS, Micros, SECOND, State};
use crate::store::Reply;
use crate::tools::{Kind, TIMEOUT, token_of};

#[derive(Default)]
pub struct World {
    pub requests: Vec<Request>,
    pub acts: Vec<Act>,
    /// What was done under a key: what a probe finds, and what a provider that honours keys answers with.
    done: BTreeMap<(Kind, EffectKey), Json>,
}

/// One dispatch, as the world sees it.
pub struct Request {
    pub life: Life,
    pub kind: Kind,
    pub subject: Subject,
    pub key: EffectKey,
    pub attempt: u32,
    pub at: Micros,
    /// On its way.
    pub travels: bool,
    pub acted: bool,
    /// The process was told that nothing was done.
    pub denied: bool,
    /// Somebody who looked said that nothing was done by then.
    pub cleared: bool,
    stoppable: bool,
    tell: Option<oneshot::Sender<Said>>,
}

pub struct Act {
    pub at: Micros,
    pub kind: Kind,
    pub subject: Subject,
    pub result: Json,
    pub request: usize,
}

pub enum Said {
    Answer(Outcome),
    Panic,
}

/// What somebody finds who looks.
pub enum Found {
    Acted(Json),
    Nothing,
    /// A request is still on its way.
    Travelling,
}

/// Everything lives shorter than that on its way.
const ON_ITS_WAY_MAX: Micros = 6 * SECOND;

impl World {
    pub fn is_quiet(&self) -> bool {
        self.requests.iter().all(|request| !request.travels)
    }

    /// Whether a live process waits for an answer about this effect.
    pub fn is_dispatched(&self, effect: &StreamId, lives: &[Link]) -> bool {
        let waits = |request: &Request| request.tell.as_ref().is_some_and(|tell| !tell.is_closed()) && lives[request.life].alive;
        self.requests.iter().any(|request| StreamId::effect(&request.key) == *effect && waits(request))
    }

    pub fn look(&self, subject: &Subject) -> Found {
        if let Some(act) = self.acts.iter().find(|act| act.subject == *subject) {
            return Found::Acted(act.result.clone());
        }
        match self.requests.iter().any(|request| request.subject == *subject && request.travels) {
            true => Found::Travelling,
            false => Found::Nothing,
        }
    }

    /// The clock is set forward: what a probe would be asked about too early is not under way at that moment (docs/adr/0023).
    pub fn forget_probed(&mut self) {
        self.requests.iter_mut().filter(|request| request.kind.has_probe()).for_each(|request| request.travels = false);
    }

    /// Whoever looked says that nothing was done so far.
    pub fn clear(&mut self, subject: &Subject) {
        self.requests.iter_mut().filter(|request| request.subject == *subject).for_each(|request| request.cleared = true);
    }
}

impl State {
    pub fn request(&mut self, life: Life, kind: Kind, invocation: &Invocation) -> (usize, oneshot::Receiver<Said>) {
        let (tell, told) = oneshot::channel();
        let id = self.world.requests.len();
        if !self.is_alive(life) {
            return (usize::MAX, told);
        }
        let subject = Subject { tenant: invocation.tenant.to_string(), token: token_of(&invocation.args) };
        self.say(|| format!("world: w{life} {kind:?} {subject} attempt {} key {}", invocation.attempt, key_short(&invocation.key)));
        let request = Request {
            life,
            kind,
            subject,
            key: invocation.key,
            attempt: invocation.attempt,
            at: self.now,
            travels: true,
            acted: false,
            denied: false,
            cleared: false,
            stoppable: self.rng.percent(50),
            tell: Some(tell),
        };
        self.checker.dispatched(&self.world, &request);
        self.world.requests.push(request);
        let crashes = self.chance(self.weather.crash_at_dispatch);
        if crashes {
            self.mark(Mark::CrashWhileDispatching);
            let wait = self.between(0, 200 * MS);
            self.after(wait, move |state| {
                if !state.calm {
                    state.doom(life);
                }
            });
        }
        if self.chance(self.weather.request_lost) {
            self.world.requests[id].travels = false;
            let outcome = Outcome::Unknown(Failure::of_dependency("connection_lost", "nobody knows how far it came"));
            self.answer(id, outcome);
        } else {
            let slow = self.chance(self.weather.slow_request);
            let longest = if kind.has_probe() { TIMEOUT.as_micros() as u64 - MS } else { ON_ITS_WAY_MAX };
            let wait = if slow { self.between(MS, longest) } else { self.between(0, 5 * MS) };
            self.after(wait, move |state| state.arrived(id));
        }
        self.touch(life);
        (id, told)
    }

    /// The process does not want it any more. `true`: it will not act.
    pub fn withdraw(&mut self, id: usize) -> bool {
        let Some(request) = self.world.requests.get_mut(id) else { return false };
        let stops = request.stoppable && request.travels;
        if stops {
            request.travels = false;
            request.denied = true;
            self.mark(Mark::ToolStopped);
        }
        stops
    }

    fn arrived(&mut self, id: usize) {
        let request = &mut self.world.requests[id];
        if !request.travels {
            return;
        }
        request.travels = false;
        let (kind, key, life) = (request.kind, request.key, request.life);
        if kind == Kind::Send
            && let Some(known) = self.world.done.get(&(kind, key)).cloned()
        {
            self.mark(Mark::KeyedRepeat);
            return self.answer(id, Outcome::Done(Success::new(known)));
        }
        if self.chance(self.weather.busy) {
            return self.answer(id, Outcome::NotDone(Failure::of_dependency("http_503", "busy")));
        }
        if self.chance(self.weather.refused) {
            return self.answer(id, Outcome::NotDone(Failure::new("http_422", "no")));
        }
        if kind == Kind::Set && self.world.done.contains_key(&(kind, key)) {
            self.mark(Mark::SafeRepeat);
        }
        if !self.is_alive(life) {
            self.mark(Mark::ActedAfterDeath);
        }
        let result = self.result(id, kind);
        self.world.requests[id].acted = true;
        self.world.done.insert((kind, key), result.clone());
        let subject = self.world.requests[id].subject.clone();
        self.say(|| format!("world: {kind:?} {subject} acts: {}", result.as_str()));
        self.world.acts.push(Act { at: self.now, kind, subject, result: result.clone(), request: id });
        self.checker.acted(&self.world);
        self.answer(id, Outcome::Done(Success::new(result)));
    }

    /// What a tool is easily misunderstood by: nothing, in all its forms.
    fn result(&mut self, id: usize, kind: Kind) -> Json {
        let shapes = ["null", "false", "0", "\"\"", "[]", "{}"];
        let subject = &self.world.requests[id].subject;
        let own = format!(r#"{{"act":{},"of":"{subject}"}}"#, self.world.acts.len() + 1);
        let text = if kind != Kind::Set && self.rng.percent(35) { (*self.rng.pick(&shapes)).to_owned() } else { own };
        Json::parse(&text).expect("it is JSON")
    }

    /// The answer sets out. It may not arrive, or say something else than was meant.
    fn answer(&mut self, id: usize, outcome: Outcome) {
        let acted = self.world.requests[id].acted;
        let lost = self.chance(self.weather.answer_lost);
        let said = if lost {
            if acted {
                self.mark(Mark::ActedAnswerLost);
            }
            return;
        } else if self.chance(self.weather.panic) {
            self.mark(Mark::ToolPanicked);
            Said::Panic
        } else if self.chance(self.weather.answer_error) {
            if acted {
                self.mark(Mark::ActedThenError);
            }
            Said::Answer(Outcome::Unknown(Failure::of_dependency("connection_lost", "hung up")))
        } else {
            Said::Answer(outcome)
        };
        let slow = self.chance(self.weather.slow_request);
        let wait = if slow { self.between(MS, ON_ITS_WAY_MAX) } else { self.between(0, 3 * MS) };
        self.after(wait, move |state| state.told(id, said));
    }

    fn told(&mut self, id: usize, said: Said) {
        let request = &mut self.world.requests[id];
        let denies = matches!(said, Said::Answer(Outcome::NotDone(_)));
        let life = request.life;
        if let Some(tell) = request.tell.take()
            && tell.send(said).is_ok()
        {
            request.denied |= denies;
            self.delivered(life);
        }
    }

    pub fn probe(&mut self, life: Life, kind: Kind, invocation: &Invocation) -> Reply<ProbeAnswer> {
        let subject = Subject { tenant: invocation.tenant.to_string(), token: token_of(&invocation.args) };
        let known = self.world.done.get(&(kind, invocation.key)).cloned();
        let cannot_tell = self.chance(self.weather.cannot_tell);
        let answer = match known {
            _ if cannot_tell && self.bug == Some(Bug::ProbeGuesses) => ProbeAnswer::DidNotHappen,
            _ if cannot_tell => {
                self.mark(Mark::ProbeCannotTell);
                ProbeAnswer::CannotTell("nobody answers".into())
            }
            Some(result) => {
                self.mark(Mark::ProbeHappened);
                ProbeAnswer::Happened(Success::new(result))
            }
            None => {
                self.mark(Mark::ProbeDidNot);
                self.world.clear(&subject);
                ProbeAnswer::DidNotHappen
            }
        };
        self.say(|| format!("world: w{life} asks about {kind:?} {subject}: {answer:?}"));
        let wait = self.between(0, 20 * MS);
        self.later(life, wait, answer)
    }
}

fn key_short(key: &EffectKey) -> String {
    key.to_string().chars().take(8).collect()
}
