//! Workflow files, any text.
//!
//! Holds: it is a workflow or a list of mistakes, the same every time, each mistake inside the text. A workflow that was accepted comes to an end, whichever way its
//! steps end: none begins before what it needs, none twice, and nothing is left running.
#![no_main]

use std::collections::BTreeSet;

use counterfoil_core::ids::Digest32;
use counterfoil_core::run::entry::{Began, StepEnd};
use counterfoil_core::run::flow::{Flow, Progress};
use counterfoil_core::run::{RunEntry, plan::Plan};
use counterfoil_core::{Failure, Json, StepPath, Timestamp};
use counterfoil_fuzz::{Dice, caught_panics_are_no_crash};
use counterfoil_runtime::workflow::Workflow;
use libfuzzer_sys::fuzz_target;

const NOW: Timestamp = Timestamp(1_000_000);
/// Maps inside maps are many steps.
const TURNS_MAX: usize = 3_000;

fuzz_target!(
    init: caught_panics_are_no_crash(),
    |text: &str| {
        let read = || Workflow::parse(text, "trip.yaml");
        match (read(), read()) {
            (Ok(workflow), Ok(again)) => {
                assert_eq!((&workflow.plan, workflow.digest), (&again.plan, Digest32::of(text.as_bytes())));
                assert_eq!(workflow.steps.len(), workflow.plan.nodes().count());
                drive(&workflow, &mut Dice::new(&workflow.digest.0.repeat(8)));
            }
            (Err(errors), Err(again)) => {
                assert_eq!(errors, again);
                // As YAML counts them.
                let lines = text.split(['\n', '\r']).count();
                for place in errors.mistakes().iter().filter_map(|mistake| mistake.place) {
                    assert!((1..=lines + 1).contains(&place.line) && place.column >= 1, "{place:?} of {lines} lines");
                }
                assert!(!errors.to_string().is_empty() && !errors.mistakes().is_empty());
            }
            _ => panic!("read once as a workflow and once not"),
        }
    }
);

fn drive(workflow: &Workflow, dice: &mut Dice<'_>) {
    let plan: &Plan = &workflow.plan;
    let mut flow = Flow::new(workflow.plan.clone(), workflow.effects_max, NOW);
    let (mut busy, mut begun) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..TURNS_MAX {
        if flow.fate().is_some() {
            assert!(busy.is_empty(), "it ended while {busy:?} ran");
            assert!(flow.ready().next().is_none() && flow.stopping().next().is_none() && flow.next_deadline().is_none());
            return;
        }
        let undoing = flow.undoing().next().cloned();
        if let Some(scope) = undoing {
            flow.undone(&scope, NOW);
            continue;
        }
        let ready: Vec<StepPath> = flow.ready().cloned().collect();
        assert!(!ready.is_empty() || !busy.is_empty(), "nothing can begin, nothing runs, and it has not ended");
        if !ready.is_empty() && (busy.is_empty() || dice.flag()) {
            let step = ready[usize::from(dice.byte()) % ready.len()].clone();
            assert!(begun.insert(step.clone()), "{step} began twice");
            let (node, items) = (flow.node(&step).expect("it is ready"), flow.items(&step).expect("it is ready").to_vec());
            for need in &plan.node(node).needs {
                assert!(matches!(flow.progress(&flow.path(*need, &items)), Some(Progress::Ended(_))), "{step} began too early");
            }
            let what = match plan.node(node).maps {
                true => Began::Map { items: vec![Json::null(); usize::from(dice.below(3))] },
                false => {
                    busy.insert(step.clone());
                    Began::Sleep { until: NOW }
                }
            };
            flow.apply(&RunEntry::StepBegan { at: NOW, step, what }).expect("it is ready");
        } else {
            let step = busy.iter().nth(usize::from(dice.byte()) % busy.len()).cloned().expect("one is busy");
            busy.remove(&step);
            let ways = flow.node(&step).map_or(0, |node| plan.node(node).skips.len());
            let way = (ways > 0).then(|| u32::from(dice.byte()) % ways as u32);
            let how = match dice.below(8) {
                0 => StepEnd::Failed { failure: Failure::new("no", "no"), doubt: false },
                1 => StepEnd::Cancelled { doubt: dice.flag() },
                _ => StepEnd::Done { result: Json::null(), way, undo: dice.flag() },
            };
            flow.apply(&RunEntry::StepEnded { at: NOW, step, how }).expect("it is busy");
        }
    }
}
