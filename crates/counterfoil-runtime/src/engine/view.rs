//! A run as people and programs are shown it: its steps as the tree that the workflow is, each with what it means for the world.

use counterfoil_core::run::confirm::{Check, Finding, Judgement, Occasion};
use counterfoil_core::run::entry::{Awaited, Began, RunEnd, StepEnd};
use counterfoil_core::run::plan::{BlockId, NodeId, Plan, Shape};
use counterfoil_core::run::{Run, StepState};
use counterfoil_core::{Failure, Json, StepPath, Timestamp};
use serde::Serialize;

use super::sight::status;
use crate::shown::time;
use crate::workflow::{StepSpec, Workflow};

#[derive(Debug, Clone, Serialize)]
pub struct RunView {
    pub run: String,
    pub workflow: String,
    pub definition: String,
    pub state: &'static str,
    pub input: Json,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// RFC 3339, here and below.
    pub started: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// When it goes on by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due: Option<String>,
    /// When it was last held against the world, what was found, and what follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirmation: Option<ConfirmationView>,
    pub steps: Vec<StepView>,
    /// What was undone, in that order, and what could not be.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub compensations: Vec<CompensationView>,
}

#[derive(Debug, Clone, Serialize)]
pub struct StepView {
    pub step: String,
    pub kind: &'static str,
    /// How far it has come: blocked, ready, running, done, failed, timed_out, skipped, cancelled, …
    pub status: &'static str,
    /// What it means for the world: pure, side_effect_committed, in_doubt, compensated, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
    /// The child run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// What it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub began: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepView>,
}

#[derive(Debug, Clone, Serialize)]
pub struct ConfirmationView {
    pub at: String,
    /// `taken_over`, `resumed` or `picked_up`.
    pub occasion: Occasion,
    /// `agrees`, `warned`, `asks_again`, `needs_person`, `failed`; after a person decided `accepted` or `refused`.
    pub judgement: &'static str,
    pub verified: u64,
    pub unverified: u64,
    pub checks: Vec<FindingView>,
    /// What a person may do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
}

/// One effect as it was found.
#[derive(Debug, Clone, Serialize)]
pub struct FindingView {
    pub step: String,
    pub effect: String,
    pub tool: String,
    pub finding: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl FindingView {
    fn of(check: &Check) -> Self {
        let mut view = Self {
            step: check.step.to_string(),
            effect: check.effect.to_string(),
            tool: check.tool.to_string(),
            finding: check.finding.word(),
            expected: None,
            found: None,
            why: None,
        };
        match check.finding.clone() {
            Finding::Drifted { expected, found } => (view.expected, view.found) = (Some(expected), Some(found)),
            Finding::Unavailable { why } | Finding::Unverified { why } => view.why = Some(why),
            Finding::Verified | Finding::InDoubt => {}
        }
        view
    }
}

#[derive(Debug, Clone, Serialize)]
pub struct CompensationView {
    pub step: String,
    /// `undone`, `nothing_to_undo`, `skipped`, `failed`, or `pending`.
    pub status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// What a person has to do before it goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
}

impl RunView {
    /// A step, however deep.
    pub fn step_mut(&mut self, path: &str) -> Option<&mut StepView> {
        fn find<'a>(steps: &'a mut [StepView], path: &str) -> Option<&'a mut StepView> {
            steps.iter_mut().find_map(|step| if step.step == path { Some(step) } else { find(&mut step.steps, path) })
        }
        find(&mut self.steps, path)
    }

    pub fn of(run: &Run, workflow: &Workflow) -> Self {
        let (ended, output, error) = match &run.end {
            Some((at, RunEnd::Completed { output })) => (Some(*at), Some(output.clone()), None),
            Some((at, RunEnd::Failed { failure })) => (Some(*at), None, Some(failure.clone())),
            Some((at, RunEnd::Cancelled)) => (Some(*at), None, None),
            None => (None, None, None),
        };
        Self {
            run: run.started.run.to_string(),
            workflow: run.started.workflow.to_string(),
            definition: run.started.definition.to_string(),
            state: run.state().word(),
            input: run.started.input.clone().into(),
            output,
            error,
            started: time(run.started.at),
            ended: ended.map(time),
            duration_ms: ended.map(|ended| between(run.started.at, ended)),
            parent: run.started.parent.as_ref().map(|parent| parent.run.to_string()),
            due: run.due().filter(|_| run.owner.is_none()).map(time),
            confirmation: confirmation(run),
            steps: if run.flow().is_some() {
                block(run, workflow, Plan::ROOT, &[])
            } else {
                run.order.iter().map(|path| plain(run, path)).collect()
            },
            compensations: compensations(run),
        }
    }
}

fn confirmation(run: &Run) -> Option<ConfirmationView> {
    let confirmed = run.confirmed.as_ref()?;
    let judgement = match run.decided {
        Some(true) => "accepted",
        Some(false) => "refused",
        None => confirmed.judged().word(),
    };
    let id = &run.started.run;
    let waits_for = run.held_up().filter(|_| !run.state().is_end()).map(|(_, judged)| {
        let what = match judged {
            Judgement::NeedsPerson => "the world no longer agrees with what it did",
            _ => "the world could not be asked, and is asked again",
        };
        format!("{what}: counterfoil runs confirm {id} --accept (go on as recorded) | --fail")
    });
    Some(ConfirmationView {
        at: time(confirmed.at),
        occasion: confirmed.occasion,
        judgement,
        verified: confirmed.verified,
        unverified: confirmed.unverified,
        checks: confirmed.checks.iter().map(FindingView::of).collect(),
        waits_for,
    })
}

fn compensations(run: &Run) -> Vec<CompensationView> {
    let mut shown = Vec::new();
    for saga in &run.sagas {
        for step in &saga.of {
            let (status, error) = match saga.dealt.get(step) {
                Some(Ok(how)) => (how.word(), None),
                Some(Err(failure)) => ("failed", Some(failure.clone())),
                None => ("pending", None),
            };
            shown.push(CompensationView { step: step.to_string(), status, error, waits_for: None });
        }
    }
    shown
}

fn block(run: &Run, workflow: &Workflow, block_id: BlockId, items: &[u32]) -> Vec<StepView> {
    workflow.plan.block(block_id).nodes.iter().map(|node| step(run, workflow, *node, items)).collect()
}

fn step(run: &Run, workflow: &Workflow, node: NodeId, items: &[u32]) -> StepView {
    let path = run.flow().expect("a workflow's run has a flow").path(node, items);
    let (word, failure) = status(run, &path);
    let tool = if let StepSpec::Tool(spec) = workflow.step(node) { Some(spec.tool.to_string()) } else { None };
    let error = failure.cloned();
    view(run, &path, Shown { kind: kind(workflow.step(node)), status: word, tool, error, steps: inside(run, workflow, node, &path, items) })
}

/// A step of a run that goes by no plan.
fn plain(run: &Run, path: &StepPath) -> StepView {
    let known = run.step(path).expect("it is in the order");
    let (kind, tool) = match &known.what {
        Some(Began::Effect { tool, .. }) => ("tool", Some(tool.to_string())),
        Some(Began::Sleep { .. }) => ("sleep", None),
        Some(Began::Wait { .. }) => ("wait", None),
        Some(Began::Child { .. }) => ("call", None),
        Some(Began::Map { .. }) | None => ("value", None),
    };
    let (status, error) = match &known.state {
        StepState::Running => ("running", None),
        StepState::Ended { how: StepEnd::Done { .. }, .. } => ("done", None),
        StepState::Ended { how: StepEnd::Failed { failure, .. }, .. } => ("failed", Some(failure.clone())),
        StepState::Ended { how: StepEnd::Cancelled { .. }, .. } => ("cancelled", None),
    };
    view(run, path, Shown { kind, status, tool, error, steps: Vec::new() })
}

/// What the plan knows of a step, or its first entry.
struct Shown {
    kind: &'static str,
    status: &'static str,
    tool: Option<String>,
    error: Option<Failure>,
    steps: Vec<StepView>,
}

fn view(run: &Run, path: &StepPath, shown: Shown) -> StepView {
    let Shown { kind, status, tool, error, steps } = shown;
    let mut view = StepView {
        step: path.to_string(),
        kind,
        status,
        outcome: None,
        tool,
        effect: run.effect(path).map(|key| key.to_string()),
        run: None,
        waits_for: None,
        until: None,
        began: None,
        ended: None,
        duration_ms: None,
        result: None,
        error,
        steps,
    };
    if let Some(known) = run.step(path) {
        view.began = Some(time(known.began));
        if let StepState::Ended { at, how } = &known.state {
            view.ended = Some(time(*at));
            view.duration_ms = Some(between(known.began, *at));
            view.outcome = Some(run.semantics(path).word());
            if let StepEnd::Done { result, .. } = how {
                view.result = Some(result.clone());
            }
        }
        match &known.what {
            Some(Began::Child { run }) => view.run = Some(run.to_string()),
            Some(what @ Began::Wait { on, .. }) if view.ended.is_none() => {
                view.waits_for = Some(waits_for(on));
                view.until = what.until().map(time);
            }
            Some(what @ Began::Sleep { .. }) if view.ended.is_none() => view.until = what.until().map(time),
            _ => {}
        }
    }
    view
}

fn inside(run: &Run, workflow: &Workflow, node: NodeId, path: &StepPath, items: &[u32]) -> Vec<StepView> {
    match &workflow.plan.node(node).shape {
        Shape::Act => Vec::new(),
        Shape::Scope { body, .. } => block(run, workflow, *body, items),
        Shape::Parallel { branches, .. } => branches.iter().flat_map(|branch| block(run, workflow, *branch, items)).collect(),
        Shape::Map { body, .. } => {
            let count = match run.step(path).and_then(|step| step.what.as_ref()) {
                Some(Began::Map { items }) => items.len() as u32,
                _ => 0,
            };
            (0..count).flat_map(|item| block(run, workflow, *body, &items.iter().copied().chain([item]).collect::<Vec<_>>())).collect()
        }
    }
}

fn between(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.since(from).as_millis()).unwrap_or(u64::MAX)
}

/// In words.
pub fn waits_for(on: &Awaited) -> String {
    match on {
        Awaited::Signal { name, correlation: None } => format!("signal {name}"),
        Awaited::Signal { name, correlation: Some(correlation) } => format!("signal {name} with correlation {correlation}"),
        Awaited::Approval { message } => format!("approval: {message}"),
    }
}

pub(super) fn kind(spec: &StepSpec) -> &'static str {
    match spec {
        StepSpec::Tool(_) => "tool",
        StepSpec::Decision { .. } => "decision",
        StepSpec::Parallel => "parallel",
        StepSpec::Map { .. } => "map",
        StepSpec::Scope { .. } => "scope",
        StepSpec::Sleep(_) => "sleep",
        StepSpec::Wait(_) => "wait",
        StepSpec::Call { .. } => "call",
    }
}
