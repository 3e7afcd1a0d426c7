//! Every way to die, two and three lives deep: not sampled, enumerated.
//!
//! A life is one caller of the same key. It reaches a point and crashes there (or does not), meets one answer of the tool, and arrives
//! while the last holder's lease still runs or after it, with the death of that holder noticed or not. After the lives comes one more
//! caller whose world is healthy, then the workers that hung wake up and report what they know, then a last caller.
//!
//! The checks count effects in the world and compare what the ledger says with what was written; a broken rule is put in at
//! the end to show that they bite.

mod model;

use std::time::Duration;

use counterfoil_core::decide::{Attempt, Hold};
use counterfoil_core::entry::{Ended, LateOutcome, Probed};
use counterfoil_core::policy::Jitter;
use counterfoil_core::{Conditions, Decision, Effect, Entry, Fence, Policy, Repeat, State, decide};
use model::{Answer, Event, Model, ProbeSays, Says, Setting, Step};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Point {
    BeforeClaim,
    /// The claim was stored, and the worker was told that the store failed: it lives, and does not go on.
    ClaimUnseen,
    BeforeDispatch,
    /// The tool was called; what it answered is lost.
    BeforeOutcome,
    /// The outcome is stored; the caller never hears of it.
    BeforeReply,
    /// It does not crash.
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Arrival {
    During,
    After,
}

#[derive(Debug, Clone)]
struct Life {
    point: Point,
    says: Says,
    arrival: Arrival,
    /// The runtime learns that the crashed holder is gone; otherwise its lease is waited out.
    notices_death: bool,
}

#[derive(Debug, Clone, Copy)]
struct Tool {
    repeat: Repeat,
    probe: Option<ProbeSays>,
}

const SAYS: [Says; 7] = [
    Says::Done("0"),
    Says::NotDoneRetriable,
    Says::NotDoneFinal,
    Says::Unknown { acted: true },
    Says::Unknown { acted: false },
    Says::Nothing { acted: true },
    Says::Nothing { acted: false },
];

/// Where it dies and what the tool says; the answer does not matter where the tool is not called.
fn ends() -> Vec<(Point, Says)> {
    let mut ends: Vec<_> = [Point::BeforeClaim, Point::ClaimUnseen, Point::BeforeDispatch].map(|point| (point, SAYS[0].clone())).into();
    for says in SAYS {
        ends.push((Point::BeforeOutcome, says.clone()));
        ends.push((Point::Never, says.clone()));
        if !matches!(says, Says::Nothing { .. }) {
            ends.push((Point::BeforeReply, says));
        }
    }
    ends
}

const ARRIVALS: [(Arrival, bool); 4] = [(Arrival::During, true), (Arrival::During, false), (Arrival::After, true), (Arrival::After, false)];

fn lives(arrivals: &[(Arrival, bool)]) -> Vec<Life> {
    let with = |(point, says): &(Point, Says)| {
        let life = |&(arrival, notices_death)| Life { point: *point, says: says.clone(), arrival, notices_death };
        arrivals.iter().map(life).collect::<Vec<_>>()
    };
    ends().iter().flat_map(with).collect()
}

fn tools() -> Vec<Tool> {
    let probes = [None, Some(ProbeSays::TheTruth), Some(ProbeSays::CannotTell)];
    let with = |repeat| probes.map(|probe| Tool { repeat, probe });
    [Repeat::Never, Repeat::Safe, Repeat::Keyed].into_iter().flat_map(with).collect()
}

struct Trial {
    model: Model,
    probe: ProbeSays,
}

impl Trial {
    fn new(tool: Tool, rule: fn(&Effect, &Conditions<'_>) -> Decision) -> Self {
        let mut policy = Policy { repeat: tool.repeat, ..Policy::default() };
        policy.retry.attempts = 2;
        policy.retry.jitter = Jitter::Off;
        let mut setting = Setting::new(policy);
        setting.can_probe = tool.probe.is_some();
        setting.decide = rule;
        let mut model = Model::new(setting);
        model.store.encoded = false;
        model.world.keyed = tool.repeat == Repeat::Keyed;
        Self { model, probe: tool.probe.unwrap_or(ProbeSays::CannotTell) }
    }

    /// One caller, up to its crash.
    fn live(&mut self, life: &Life) {
        if life.arrival == Arrival::After {
            let lease = self.model.setting.policy.lease;
            self.model.tick(lease);
        }
        self.model.setting.notices_death = life.notices_death;
        let id = self.model.call(0, true);
        for _ in 0..40 {
            if self.reached(id, life.point) {
                match life.point {
                    Point::ClaimUnseen => self.model.sessions[id].step = Step::Answered(Answer::NoLedger),
                    Point::Never => {}
                    _ => self.model.crash(id),
                }
                return;
            }
            if !self.model.advance(id, &life.says, self.probe) && !self.wait(id) {
                return;
            }
        }
        panic!("caller {id} goes round in circles: {life:?} in {:?}", self.model.state());
    }

    fn reached(&self, id: usize, point: Point) -> bool {
        let step = &self.model.sessions[id].step;
        match point {
            Point::BeforeClaim => {
                matches!(step, Step::Deciding) && matches!(self.model.decision(id, self.model.store.effect()), Decision::Execute(_))
            }
            Point::ClaimUnseen | Point::BeforeDispatch => matches!(step, Step::Holding(..)),
            Point::BeforeOutcome => matches!(step, Step::Acting { .. }),
            Point::BeforeReply => matches!(step, Step::Deciding) && self.model.sessions[id].series.attempts > 0,
            Point::Never => matches!(step, Step::Answered(_)),
        }
    }

    /// Waits as long as `decide` says. False when there is nothing to wait for: the session is answered, or its tool hangs.
    fn wait(&mut self, id: usize) -> bool {
        if !matches!(self.model.sessions[id].step, Step::Deciding) {
            return false;
        }
        let effect = self.model.store.effect().clone();
        let Decision::Wait { until } = self.model.decision(id, &effect) else { return false };
        self.model.now = until;
        true
    }

    fn healthy_caller(&mut self) {
        self.model.tick(Duration::from_secs(60));
        self.live(&Life { point: Point::Never, says: Says::Done("0"), arrival: Arrival::After, notices_death: false });
    }

    fn wake_the_hanging(&mut self) {
        for id in 0..self.model.sessions.len() {
            if matches!(self.model.sessions[id].step, Step::Acting { said: None, .. }) {
                self.model.wake(id, true);
                self.model.run(id, &Says::Done("0"), self.probe, 1);
            }
        }
    }
}

/// Whether the records leave it open if it happened: some claim said nothing, and nothing said since closes that.
fn unknowable(entries: &[Entry]) -> bool {
    let mut silent: Vec<Fence> = Vec::new();
    for entry in entries {
        match entry {
            Entry::Claimed(claim) => silent.push(claim.fence),
            Entry::Released { fence, .. } => silent.retain(|f| f != fence),
            Entry::Finished(finished) => match finished.outcome {
                Ended::Done { .. } => silent.clear(),
                Ended::Failed { .. } | Ended::Retry { .. } => silent.retain(|f| *f != finished.fence),
                Ended::Unknown { .. } => {}
            },
            Entry::Late(late) => match late.outcome {
                LateOutcome::Done { .. } => silent.clear(),
                LateOutcome::NotDone(_) => silent.retain(|f| *f != late.fence),
                LateOutcome::Unknown(_) => {}
            },
            Entry::Probed { answer: Probed::Happened { .. } | Probed::DidNotHappen, .. } => silent.clear(),
            _ => {}
        }
    }
    !silent.is_empty()
}

/// What must hold once all leases are over, or what does not.
fn check(tool: Tool, model: &Model) -> Result<(), String> {
    let (state, acted) = (model.state(), model.world.acted);
    if tool.repeat != Repeat::Safe && acted > 1 {
        return Err(format!("the world acted {acted} times"));
    }
    let at_rest = matches!(state, State::Done(_) | State::Failed { .. } | State::Retrying(_) | State::InDoubt(_));
    if !at_rest {
        return Err(format!("stuck in {}", state.word()));
    }
    for event in &model.log {
        if let Event::Answered { answer: Answer::Result(acknowledged), .. } = event
            && !matches!(state, State::Done(done) if done.result == *acknowledged)
        {
            return Err(format!("{acknowledged} was acknowledged and is lost"));
        }
    }
    if matches!(state, State::Done(_)) && acted == 0 {
        return Err("done, and nothing happened".into());
    }
    // Also for tools that are safe to repeat: a second delete that finds nothing must not say that the first did not happen.
    let denies = matches!(state, State::Failed { .. } | State::Retrying(_));
    if denies && acted > 0 {
        return Err(format!("{} means certainly not done, and it happened", state.word()));
    }
    let in_doubt = matches!(state, State::InDoubt(_));
    if in_doubt != unknowable(&model.store.entries) {
        return Err(format!("in {} where the records leave it {}", state.word(), if in_doubt { "known" } else { "open" }));
    }
    let can_settle = tool.repeat != Repeat::Never || tool.probe == Some(ProbeSays::TheTruth);
    if in_doubt && can_settle {
        return Err("still in doubt after a caller for whom all went well".into());
    }
    Ok(())
}

fn try_one(tool: Tool, lives: &[&Life], rule: fn(&Effect, &Conditions<'_>) -> Decision) -> Result<(), String> {
    let mut trial = Trial::new(tool, rule);
    lives.iter().for_each(|life| trial.live(life));
    trial.healthy_caller();
    check(tool, &trial.model).map_err(|e| format!("{e}, before the hanging workers report"))?;
    trial.wake_the_hanging();
    trial.healthy_caller();
    check(tool, &trial.model).map_err(|e| format!("{e}, after the hanging workers reported"))
}

/// Tries them all; how many were tried and what was wrong.
fn try_all<'a>(
    tools: &[Tool],
    lives: impl Iterator<Item = Vec<&'a Life>>,
    rule: fn(&Effect, &Conditions<'_>) -> Decision,
) -> (usize, Vec<String>) {
    let (mut tried, mut wrong) = (0, Vec::new());
    for lives in lives {
        for tool in tools {
            tried += 1;
            if let Err(e) = try_one(*tool, &lives, rule) {
                wrong.push(format!("{e}\n  {tool:?}\n  {lives:#?}"));
            }
        }
    }
    (tried, wrong)
}

fn assert_none(tried: usize, wrong: &[String]) {
    assert!(wrong.is_empty(), "{} of {tried} went wrong; the first: {}", wrong.len(), wrong[0]);
}

#[test]
fn two_lives_of_every_kind() {
    let lives = lives(&ARRIVALS);
    let pairs = lives.iter().flat_map(|a| lives.iter().map(move |b| vec![a, b]));
    let (tried, wrong) = try_all(&tools(), pairs, decide);
    println!("{tried} interleavings of two lives");
    assert_none(tried, &wrong);
    assert!(tried >= 60_000, "only {tried}");
}

/// Three deep, with the ways to arrive that differ most.
#[test]
fn three_lives() {
    let (early, late) = (&lives(&ARRIVALS[..1]), &lives(&ARRIVALS[3..]));
    let triples = early.iter().flat_map(|a| late.iter().flat_map(move |b| early.iter().map(move |c| vec![a, b, c])));
    let (tried, wrong) = try_all(&tools(), triples, decide);
    println!("{tried} interleavings of three lives");
    assert_none(tried, &wrong);
    assert!(tried >= 90_000, "only {tried}");
}

/// The check of the check: a rule that runs again where a person should be asked is caught, and caught as a second effect in the world.
#[test]
fn a_rule_that_guesses_is_caught() {
    fn guessing(effect: &Effect, conditions: &Conditions<'_>) -> Decision {
        match decide(effect, conditions) {
            Decision::Hold(Hold::Doubt) if conditions.series.attempts == 0 => {
                Decision::Execute(Attempt { number: effect.attempts + 1, fence: Fence(effect.version + 1) })
            }
            decision => decision,
        }
    }
    let lives = lives(&ARRIVALS);
    let never = Tool { repeat: Repeat::Never, probe: None };
    let (_, wrong) = try_all(&[never], lives.iter().map(|life| vec![life]), guessing);
    assert!(wrong.iter().any(|e| e.starts_with("the world acted 2 times")), "{wrong:?}");
    let (tried, wrong) = try_all(&[never], lives.iter().map(|life| vec![life]), decide);
    assert_none(tried, &wrong);
}

/// And so is a probe that lies: the one way to a second effect that no rule can close.
#[test]
fn a_lying_probe_is_the_one_way_to_a_second_effect() {
    let acted_then_lost = Life { point: Point::BeforeOutcome, says: Says::Done("0"), arrival: Arrival::During, notices_death: true };
    let lying = Tool { repeat: Repeat::Never, probe: Some(ProbeSays::ItDidNotHappen) };
    let wrong = try_one(lying, &[&acted_then_lost], decide).unwrap_err();
    assert!(wrong.starts_with("the world acted 2 times"), "{wrong}");
    let keyed = Tool { repeat: Repeat::Keyed, ..lying };
    assert_eq!(try_one(keyed, &[&acted_then_lost], decide), Ok(()), "a world that honours keys forgives it");
}
