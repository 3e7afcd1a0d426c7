//! Lives of one run: each byte of the input chooses what is recorded next, in an order that nobody would.
//!
//! Holds, whatever is recorded: what was folded from values is folded from the stored records as well; a run that has ended stays so, but for its undoing; what was done is
//! undone in the reverse of its order, and what was dealt with is not on a list again; nothing that was asked to be undone is forgotten.
#![no_main]

use std::sync::{Arc, LazyLock};

use counterfoil_core::ids::Digest32;
use counterfoil_core::run::confirm::{Check, Confirmed, Finding, Occasion, OnDrift};
use counterfoil_core::run::entry::{Awaited, Began, By, RunEnd, Signalled, Started, StepEnd, Undone};
use counterfoil_core::run::plan::Plan;
use counterfoil_core::run::{Flow, Run, RunEntry};
use counterfoil_core::{CanonicalJson, Failure, Fence, Json, StepPath, Timestamp, codec};
use counterfoil_fuzz::Dice;
use counterfoil_runtime::workflow::Workflow;
use libfuzzer_sys::fuzz_target;

const TEXT: &str = r"
workflow: trip
steps:
  - { id: a, tool: charge }
  - { id: choose, decision: [ { when: 'true', then: [b] }, { else: [c] } ] }
  - { id: b, tool: charge, needs: [choose] }
  - { id: c, tool: charge, needs: [choose] }
  - id: s
    needs: [b, c]
    scope: { steps: [ { id: d, tool: charge }, { id: e, tool: charge } ] }
  - id: m
    map: { over: '${[1, 2]}', as: it, steps: [ { id: f, tool: charge } ] }
  - id: p
    parallel: { join: any, branches: [ [ { id: g, tool: charge } ], [ { id: h, sleep: 1s } ] ] }
";

static PLAN: LazyLock<Arc<Plan>> = LazyLock::new(|| Workflow::parse(TEXT, "trip.yaml").expect("a workflow").plan);

const STEPS: [&str; 14] = ["a", "choose", "b", "c", "s", "d", "e", "m", "m[0].f", "m[1].f", "p", "g", "h", "nobody"];

fuzz_target!(|data: &[u8]| {
    let mut dice = Dice::new(data);
    let planned = dice.flag();
    let started = Arc::new(started(&mut dice));
    let begin = || Run::new(started.clone(), planned.then(|| Flow::new(PLAN.clone(), dice_max(data), Timestamp(1))));
    let (mut run, mut stored) = (begin(), begin());
    let mut now = 1_000_000;
    while !dice.is_empty() {
        now += i64::from(dice.below(4));
        let entry = entry(&mut dice, &run, Timestamp(now));
        let body = codec::encode(std::slice::from_ref(&entry));
        let ended = run.end.clone();
        // A record that is refused is never stored: whoever meets one has a damaged ledger, and stops.
        let mut after = run.clone();
        if after.apply(std::slice::from_ref(&entry)).is_err() {
            continue;
        }
        run = after;
        stored.apply_body(&body).expect("it was folded before");
        assert_eq!(told(&run), told(&stored));
        assert!(ended.is_none() || run.end == ended, "it ended twice");
        undone_in_order(&run);
    }
});

fn dice_max(data: &[u8]) -> Option<u64> {
    data.get(1).map(|max| u64::from(max % 8)).filter(|max| *max > 0)
}

fn told(run: &Run) -> String {
    let flow = run.flow().map(|flow| {
        let ready: Vec<&StepPath> = flow.ready().collect();
        let stopping: Vec<&StepPath> = flow.stopping().collect();
        format!("{ready:?} {stopping:?} {:?} {:?}", flow.fate(), flow.next_deadline())
    });
    format!("{:?} {:?} {:?} {:?} {flow:?}", run.summary(), run.next_time(), run.to_undo(None), run.held_up())
}

fn undone_in_order(run: &Run) {
    let list = run.to_undo(None);
    let places: Vec<usize> = list.iter().map(|step| run.committed.iter().position(|of| of == step).expect("it was done")).collect();
    assert!(places.windows(2).all(|pair| pair[0] > pair[1]), "{list:?} of {:?}", run.committed);
    for step in &run.committed {
        let dealt = run.sagas.iter().any(|saga| matches!(saga.dealt.get(step), Some(Ok(_))));
        assert_ne!(dealt, list.contains(step), "{step} is to be undone, or was: not both, and not neither");
    }
    for step in &run.order {
        let _ = (run.semantics(step), run.effect(step), run.to_undo(Some(step)));
    }
}

fn started(dice: &mut Dice<'_>) -> Started {
    Started {
        at: Timestamp(1),
        tenant: "acme".parse().expect("a name"),
        run: "r".parse().expect("a name"),
        caller: "cli".parse().expect("a name"),
        workflow: "trip".parse().expect("a name"),
        by: dice.of(&[By::Plan, By::Function, By::Client]),
        definition: Digest32::of(TEXT.as_bytes()),
        input: CanonicalJson::empty_object(),
        parent: None,
        forked: None,
        tools: None,
        deadline: dice.flag().then_some(Timestamp(1_000_010)),
        lease_ms: dice.flag().then_some(u64::MAX),
        retain_ms: dice.of(&[0, u64::MAX]),
    }
}

fn entry(dice: &mut Dice<'_>, run: &Run, at: Timestamp) -> RunEntry {
    let ready: Vec<StepPath> = run.flow().map(|flow| flow.ready().cloned().collect()).unwrap_or_default();
    // Mostly a step that may begin, or one that has; at times any.
    let step = match dice.below(4) {
        0 => dice.of(&STEPS).parse().expect("a path"),
        1 | 2 if !ready.is_empty() => ready[usize::from(dice.byte()) % ready.len()].clone(),
        _ => {
            let running: Vec<&StepPath> = run.running.iter().collect();
            if running.is_empty() { dice.of(&STEPS).parse().expect("a path") } else { dice.of(&running).clone() }
        }
    };
    let (by, why) = ("ada".to_owned(), "so".to_owned());
    let failure = Failure::new("no", "no");
    let until = dice.flag().then_some(at);
    match dice.below(20) {
        0 => RunEntry::Owned { at, worker: dice.of(&["w", "v"]).parse().expect("a name"), fence: Fence(run.fence.0 + 1), lease_until: at },
        1 => RunEntry::Parked { at, due: until, unconfirmed: dice.flag() },
        2..=5 => {
            let what = match dice.below(8) {
                0 => Began::Sleep { until: at },
                1 => Began::Wait { on: Awaited::Signal { name: "go".into(), correlation: None }, until },
                2 => Began::Wait { on: Awaited::Approval { message: "?".into() }, until },
                3 | 4 => Began::Map { items: vec![Json::null(); usize::from(dice.below(3))] },
                5 => Began::Child { run: "child".parse().expect("a name") },
                _ => Began::Effect {
                    tool: "charge".parse().expect("a name"),
                    key: Digest32::of(step.as_str().as_bytes()),
                    pure: dice.flag(),
                },
            };
            RunEntry::StepBegan { at, step, what }
        }
        6..=9 => {
            let how = match dice.below(6) {
                0 => StepEnd::Failed { failure, doubt: dice.flag() },
                1 => StepEnd::Cancelled { doubt: dice.flag() },
                _ => StepEnd::Done { result: Json::null(), way: dice.of(&[None, Some(0), Some(1), Some(u32::MAX)]), undo: dice.flag() },
            };
            RunEntry::StepEnded { at, step, how }
        }
        10 => RunEntry::TimedOut { at, step: dice.flag().then_some(step) },
        11 => RunEntry::Signalled(Signalled {
            at,
            id: dice.below(4).to_string(),
            name: dice.of(&["go", counterfoil_core::run::APPROVAL]).to_owned(),
            correlation: dice.flag().then(|| step.to_string()),
            payload: Json::null(),
            by,
        }),
        12 => RunEntry::CancelAsked { at, by, why, step: dice.flag().then_some(step), undo: dice.flag() },
        13 => RunEntry::FinishAsked { at, how: RunEnd::Failed { failure } },
        14 => RunEntry::Stirred { at, resumed: dice.flag() },
        15 => {
            let finding = match dice.below(4) {
                0 => Finding::Verified,
                1 => Finding::Drifted { expected: "1".into(), found: "2".into() },
                2 => Finding::Unavailable { why },
                _ => Finding::InDoubt,
            };
            confirmed(dice, at, step, finding)
        }
        16 => RunEntry::ConfirmDecided { at, by, why, accepted: dice.flag() },
        17 => {
            let scope = dice.flag().then_some(step);
            let of = run.to_undo(scope.as_ref());
            RunEntry::CompensationTriggered { at, scope, by, why, of }
        }
        18 => {
            let step = run.saga().and_then(|saga| saga.next()).cloned().unwrap_or(step);
            match dice.below(4) {
                0 => RunEntry::CompensationFailed { at, step, failure },
                1 => RunEntry::CompensationCompleted { at, step, how: Undone::NothingToUndo },
                2 => RunEntry::CompensationCompleted { at, step, how: Undone::Skipped { by, why } },
                _ => RunEntry::CompensationCompleted { at, step, how: Undone::Undone },
            }
        }
        _ => RunEntry::RunEnded { at, how: if dice.flag() { RunEnd::Cancelled } else { RunEnd::Failed { failure } } },
    }
}

fn confirmed(dice: &mut Dice<'_>, at: Timestamp, step: StepPath, finding: Finding) -> RunEntry {
    let mode = dice.of(&[OnDrift::Strict, OnDrift::Warn, OnDrift::Human]);
    let check = Check { step, effect: Digest32::of(b"key"), tool: "charge".parse().expect("a name"), mode, finding };
    RunEntry::Confirmed(Confirmed { at, occasion: Occasion::TakenOver, verified: 0, unverified: 0, checks: vec![check] })
}
