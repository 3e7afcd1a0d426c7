//! The search against the definition: on tiny histories every order is tried, and both must say the same.
//!
//! The brute force uses neither `narrowed` nor `is_passive`, so a model that promises too much there is found out here.

use std::collections::HashSet;

use counterfoil_lin::checker::{beginning, overlap};
use counterfoil_lin::invocation::{self, Said};
use counterfoil_lin::resource::{self, Answer};
use counterfoil_lin::{Invocation, Limit, Model, Moment, Operation, Resource, Rng, Text, check};

const OPERATIONS_MAX: usize = 6;
const HISTORIES: u64 = 8_000;

type History<M> = Vec<Operation<<M as Model>::Op, <M as Model>::Ret>>;

/// Is there an order of all answered and some unknown operations, true to real time, that the model allows? Step by step, every state
/// that some order of so many operations leads to.
fn explained<M: Model>(model: &M, history: &History<M>) -> bool {
    let taken = |set: u32, index: usize| set & (1 << index) != 0;
    let ended = |set: u32| (0..history.len()).all(|index| taken(set, index) || history[index].answer.is_none());
    let mut reached = HashSet::from([(0, model.init())]);
    while !reached.is_empty() {
        if reached.iter().any(|(set, _)| ended(*set)) {
            return true;
        }
        let mut next = HashSet::new();
        for (set, state) in reached {
            for (index, operation) in history.iter().enumerate().filter(|(index, _)| !taken(set, *index)) {
                let ended_before =
                    |other: &Operation<_, _>| other.answer.as_ref().is_some_and(|(end, _)| end.tick < operation.invoked.tick);
                if history.iter().enumerate().any(|(other, before)| !taken(set, other) && ended_before(before)) {
                    continue;
                }
                let states = model.step(&state, &operation.op, operation.answer.as_ref().map(|(_, ret)| ret));
                next.extend(states.into_iter().map(|state| (set | (1 << index), state)));
            }
        }
        reached = next;
    }
    false
}

/// Does every answer that speaks of others find them?
fn possible<M: Model>(model: &M, history: &History<M>) -> bool {
    history.iter().all(|operation| {
        let others: Vec<_> = history.iter().filter(|other| overlap(operation, other)).map(|other| &other.op).collect();
        operation.answer.as_ref().is_none_or(|(_, ret)| model.is_possible_beside(&operation.op, ret, &others))
    })
}

/// Random intervals with random operations; answers taken from a random order that the model allows, then some of them spoilt.
fn history<M: Model>(model: &M, rng: &mut Rng, op: impl Fn(&mut Rng) -> M::Op, rets: &[M::Ret]) -> History<M> {
    let count = 1 + rng.below(OPERATIONS_MAX);
    let span = 2 + rng.below(3 * count);
    let mut points: Vec<_> = (0..count)
        .map(|_| {
            let (a, b) = (rng.below(span) as u64, rng.below(span) as u64);
            let (from, to) = (a.min(b), a.max(b));
            (from + rng.below((to - from + 1) as usize) as u64, from, to)
        })
        .collect();
    points.sort_unstable();
    let cut_off = *rng.pick(&[5, 15, 50]);
    let mut state = model.init();
    let mut history = Vec::new();
    for (client, (_, from, to)) in points.into_iter().enumerate() {
        let op = op(rng);
        let fitting: Vec<_> = rets.iter().filter(|ret| !model.step(&state, &op, Some(ret)).is_empty()).collect();
        let took_effect = rng.percent(90);
        let mut ret = (!fitting.is_empty()).then(|| (*rng.pick(&fitting)).clone());
        if took_effect && let Some(ret) = &ret {
            state = rng.pick(&model.step(&state, &op, Some(ret))).clone();
        }
        if !took_effect || rng.percent(cut_off) {
            ret = None;
        }
        if ret.is_some() && rng.percent(12) {
            ret = Some(rng.pick(rets).clone());
        }
        let answer = ret.map(|ret| (Moment::at(to), ret));
        history.push(Operation { client: client as u32, key: "it".into(), op, invoked: Moment::at(from), answer });
    }
    history
}

fn same_verdict<M: Model + Default>(op: impl Fn(&mut Rng) -> M::Op, rets: &[M::Ret]) {
    let model = M::default();
    let (mut yes, mut no) = (0, 0);
    for seed in 0..HISTORIES {
        let history = history(&model, &mut Rng::new(seed), &op, rets);
        let beginnings: Vec<_> = history.iter().filter_map(|operation| beginning(&model, operation)).collect();
        let expected = possible(&model, &history) && explained(&model, &[history.clone(), beginnings].concat());
        let verdict = check(&model, &history, Limit::default());
        let right = if expected { verdict.is_linearizable() } else { verdict.is_violation() };
        assert!(right, "seed {seed}: should be {expected}, is {verdict}\n{}", shown::<M>(&history));
        if expected { yes += 1 } else { no += 1 }
    }
    assert!(yes > HISTORIES / 5 && no > HISTORIES / 10, "a generator that shows one side only: {yes} yes, {no} no");
}

fn shown<M: Model>(history: &History<M>) -> String {
    let line = |o: &Operation<M::Op, M::Ret>| match &o.answer {
        Some((end, ret)) => format!("{}..{} {} -> {ret}\n", o.invoked.tick, end.tick, o.op),
        None => format!("{}.. {} -> (unknown)\n", o.invoked.tick, o.op),
    };
    history.iter().map(line).collect()
}

fn text(rng: &mut Rng, among: &[&str]) -> Text {
    (*rng.pick(among)).into()
}

#[test]
fn tools() {
    let answers = || {
        [
            Answer::Created("a".into()),
            Answer::Created("b".into()),
            Answer::Updated("a".into()),
            Answer::Updated("b".into()),
            Answer::Deleted,
            Answer::NotFound,
        ]
    };
    let mut rets: Vec<_> =
        answers().into_iter().flat_map(|answer| [resource::Ret::Fresh(answer.clone()), resource::Ret::Replayed(answer)]).collect();
    rets.extend([resource::Ret::Mismatch, resource::Ret::InFlight]);
    rets.extend(["a", "b"].map(|version| resource::Ret::Fresh(Answer::Found(version.into()))));
    let key = |rng: &mut Rng| rng.percent(70).then(|| text(rng, &["k", "l"]));
    same_verdict::<Resource>(
        |rng| match rng.below(4) {
            0 => resource::Op::Get,
            1 => resource::Op::Delete { key: key(rng) },
            _ => resource::Op::Put { version: text(rng, &["a", "b"]), key: key(rng) },
        },
        &rets,
    );
}

fn call(rng: &mut Rng) -> invocation::Op {
    let args = if rng.percent(85) { "usual" } else { "other" };
    invocation::Op::Call { args: args.into() }
}

fn effect_rets() -> Vec<invocation::Ret> {
    use invocation::Ret::*;
    let done = |result, replayed| Done { result: Some(result), replayed };
    vec![
        done(1, false),
        done(1, true),
        done(2, false),
        done(2, true),
        InDoubt,
        Mismatch,
        Pending,
        Resolved,
        NotInDoubt,
        World(0),
        World(1),
        World(2),
    ]
}

#[test]
fn effects() {
    same_verdict::<Invocation>(
        |rng| match rng.below(6) {
            0 => invocation::Op::Observe,
            1 => invocation::Op::Resolve(Said::DidNotHappen),
            2 => invocation::Op::Resolve(Said::Happened { result: Some(1) }),
            _ => call(rng),
        },
        &effect_rets(),
    );
}

#[test]
fn effects_without_a_person() {
    same_verdict::<Invocation>(|rng| if rng.percent(20) { invocation::Op::Observe } else { call(rng) }, &effect_rets());
}
