//! What the expressions of a step see: the run's input, what earlier steps gave, the item it is for. Nothing else, so the same on every machine.
//!
//! Only what an expression names is brought: a step of a long run does not cost more than one of a short run.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use counterfoil_core::run::entry::{Began, StepEnd};
use counterfoil_core::run::flow::{Fate, Progress};
use counterfoil_core::run::plan::{BlockId, NodeId, Shape};
use counterfoil_core::run::{Run, StepState};
use counterfoil_core::{Failure, Json, StepPath};

use crate::template::{Expr, Scope};
use crate::workflow::{StepSpec, Workflow};

/// Variables by name, as JSON: what an expression that is evaluated later will see.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen(Vec<(String, Json)>);

impl Seen {
    pub fn scope(&self) -> Scope {
        self.0.iter().fold(Scope::new(), |scope, (name, value)| scope.with_json(name, value))
    }
}

/// What `exprs`, written in `step`, see. `None`: in the workflow's output.
pub(crate) fn seen(run: &Run, workflow: &Workflow, step: Option<&StepPath>, exprs: &[&Expr]) -> Seen {
    let mut seen = Seen::default();
    if exprs.is_empty() {
        return seen;
    }
    let variables: BTreeSet<String> = exprs.iter().flat_map(|expr| expr.variables()).collect();
    let items = step.and_then(|step| run.flow()?.items(step)).unwrap_or_default();
    for variable in &variables {
        let value = match variable.as_str() {
            "input" => Json::from(run.started.input.clone()),
            "run" => json(format!("{{\"id\":{}}}", quoted(run.started.run.as_str()))),
            "steps" => {
                let names: BTreeSet<String> = exprs.iter().flat_map(|expr| expr.step_names()).collect();
                steps(run, workflow, items, &names)
            }
            "index" => json(items.last().copied().unwrap_or_default().to_string()),
            other => match step.and_then(|step| item(run, workflow, step, items, other)) {
                Some(item) => item,
                None => continue,
            },
        };
        seen.0.push((variable.clone(), value));
    }
    seen
}

/// What the map that calls its item so is at.
fn item(run: &Run, workflow: &Workflow, step: &StepPath, items: &[u32], name: &str) -> Option<Json> {
    let (plan, flow) = (&workflow.plan, run.flow()?);
    let mut maps: Vec<NodeId> = plan.around(flow.node(step)?).filter(|node| plan.node(*node).maps).collect();
    maps.reverse();
    let depth = maps.iter().rposition(|map| matches!(workflow.step(*map), StepSpec::Map { item, .. } if item == name))?;
    let map = flow.path(maps[depth], &items[..depth]);
    let Some(Began::Map { items: list }) = &run.step(&map)?.what else { return None };
    list.get(items[depth] as usize).cloned()
}

fn steps(run: &Run, workflow: &Workflow, items: &[u32], names: &BTreeSet<String>) -> Json {
    let mut out = String::from("{");
    for name in names {
        let Some(node) = workflow.plan.find(name) else { continue };
        let comma = if out.len() > 1 { "," } else { "" };
        let path = path_of(run, workflow, node, items);
        let (status, failure) = status(run, &path);
        let error = match failure {
            Some(failure) => format!(",\"error\":{{\"code\":{},\"message\":{}}}", quoted(&failure.code), quoted(&failure.message)),
            None => String::new(),
        };
        let result = result(run, workflow, node, &path);
        write!(out, "{comma}{}:{{\"result\":{result},\"status\":{}{error}}}", quoted(name), quoted(status)).expect("a string takes it");
    }
    out.push('}');
    json(out)
}

fn path_of(run: &Run, workflow: &Workflow, node: NodeId, items: &[u32]) -> StepPath {
    let depth = workflow.plan.around(node).filter(|around| workflow.plan.node(*around).maps).count();
    run.flow().expect("a workflow's run has a flow").path(node, &items[..depth.min(items.len())])
}

/// `done`, `failed`, …: how far a step has come, and with which failure.
pub(crate) fn status<'a>(run: &'a Run, path: &StepPath) -> (&'static str, Option<&'a Failure>) {
    match run.flow().and_then(|flow| flow.progress(path)) {
        Some(Progress::Ended(Fate::Done)) => ("done", None),
        Some(Progress::Ended(Fate::Failed(failure))) if failure.code == "step_timeout" => ("timed_out", Some(failure)),
        Some(Progress::Ended(Fate::Failed(failure))) => ("failed", Some(failure)),
        Some(Progress::Ended(Fate::Skipped)) => ("skipped", None),
        Some(Progress::Ended(Fate::Cancelled)) => ("cancelled", None),
        Some(Progress::Ready) => ("ready", None),
        Some(Progress::Busy | Progress::Open) => ("running", None),
        Some(Progress::Stopping) => ("stopping", None),
        Some(Progress::Undoing) => ("undoing", None),
        Some(Progress::Blocked) | None => ("blocked", None),
    }
}

/// What a step gave, as JSON text: of one with steps inside, what the last of them gave, as a list where there are several.
fn result(run: &Run, workflow: &Workflow, node: NodeId, path: &StepPath) -> String {
    let Some(flow) = run.flow() else { return "null".into() };
    let items = flow.items(path).unwrap_or_default();
    let last = |block: BlockId, items: &[u32]| match workflow.plan.block(block).nodes.last() {
        Some(last) => result(run, workflow, *last, &flow.path(*last, items)),
        None => "null".into(),
    };
    match &workflow.plan.node(node).shape {
        Shape::Act => match run.step(path).map(|step| &step.state) {
            Some(StepState::Ended { how: StepEnd::Done { result, .. }, .. }) if delivered(run, path) => result.as_str().to_owned(),
            _ => "null".into(),
        },
        Shape::Scope { body, .. } => last(*body, items),
        Shape::Parallel { branches, .. } => {
            format!("[{}]", branches.iter().map(|branch| last(*branch, items)).collect::<Vec<_>>().join(","))
        }
        Shape::Map { body, .. } => {
            let count = match run.step(path).and_then(|step| step.what.as_ref()) {
                Some(Began::Map { items }) => items.len() as u32,
                _ => 0,
            };
            let each = (0..count).map(|item| last(*body, &items.iter().copied().chain([item]).collect::<Vec<_>>()));
            format!("[{}]", each.collect::<Vec<_>>().join(","))
        }
    }
}

/// What came after the step had been stopped is kept, and nobody sees it.
fn delivered(run: &Run, path: &StepPath) -> bool {
    matches!(run.flow().and_then(|flow| flow.progress(path)), Some(Progress::Ended(Fate::Done)))
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a text is JSON")
}

fn json(text: String) -> Json {
    Json::parse(&text).expect("put together from JSON")
}
