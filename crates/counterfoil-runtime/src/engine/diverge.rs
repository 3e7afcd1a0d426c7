//! A recorded run held against another definition: how far its record goes by that plan, and where the two part.
//!
//! The record is followed entry by entry. What the plan would have done at each step is worked out as it would be when the run was driven, by the same code,
//! and compared with what was done; nothing is done here. The first difference is named, with what the plan expects and what is recorded.

use std::sync::Arc;

use counterfoil_core::run::Run;
use counterfoil_core::run::entry::{Began, RunEntry, Started, StepEnd};
use counterfoil_core::{RunId, StepPath, Tenant, codec};
use counterfoil_store::Reach;
use serde::Serialize;

use super::advance::expected_way;
use super::step::NotNow;
use super::{RunError, book};
use crate::ledger::LedgerError;
use crate::runtime::Runtime;
use crate::workflow::{StepSpec, Workflow};

/// Steps that are named where the record ends.
const NEXT_SHOWN_MAX: usize = 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Divergence {
    /// The definition that the run has, and the one it was held against.
    pub recorded: String,
    pub given: String,
    /// Steps of the record that go by the given plan.
    pub followed: u64,
    /// Where they part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<Difference>,
    /// The record ends, and the plan goes on with these steps.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub log_exhausted: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    pub step: String,
    /// What the given plan would do.
    pub expected: String,
    /// What was done.
    pub actual: String,
}

impl Divergence {
    /// The record does not go by the plan. (That the plan goes on where the record ends is none.)
    pub fn is_one(&self) -> bool {
        self.first.is_some()
    }
}

impl Runtime {
    pub(super) async fn recorded_entries(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunEntry>, RunError> {
        let history = self.inner.ledger.records(counterfoil_core::StreamId::run(tenant, run), Reach::Whole).await?;
        let mut entries = Vec::new();
        for record in &history.records {
            let version = record.version.0;
            let source = |source| counterfoil_core::run::RunFoldError::Codec { version, source };
            let decoded: Vec<RunEntry> =
                codec::decode(&record.body).map_err(|error| LedgerError::Run { run: run.to_string(), source: source(error) })?;
            entries.extend(decoded);
        }
        Ok(entries)
    }
}

/// Follows `entries`, the record of `run`, by the plan of `workflow`.
pub(super) fn diverges(runtime: &Runtime, run: &Run, entries: &[RunEntry], workflow: &Workflow) -> Divergence {
    let started = Arc::new(Started { definition: workflow.digest, ..(*run.started).clone() });
    let mut following = Run::new(started.clone(), Some(book::flow_of(workflow, &started)));
    let mut told = Divergence {
        recorded: run.started.definition.to_string(),
        given: workflow.digest.to_string(),
        followed: 0,
        first: None,
        log_exhausted: Vec::new(),
    };
    for entry in entries {
        let difference = match entry {
            RunEntry::RunStarted(_) => continue,
            // What follows from its end is not the plan's.
            RunEntry::RunEnded { .. } => break,
            RunEntry::StepBegan { step, what, .. } => began(runtime, &following, workflow, step, what),
            RunEntry::StepEnded { step, how, .. } => ended(&following, workflow, step, how),
            _ => None,
        };
        let difference = difference.or_else(|| {
            let error = following.note(entry).err()?;
            Some((step_of(entry), expected(&following), format!("{} ({error})", counterfoil_core::run::word(entry))))
        });
        if let Some((step, expected, actual)) = difference {
            told.first = Some(Difference { step, expected, actual });
            return told;
        }
        told.followed += u64::from(matches!(entry, RunEntry::StepEnded { .. }));
    }
    if following.fate().is_none() {
        told.log_exhausted =
            following.flow().into_iter().flat_map(|flow| flow.ready()).take(NEXT_SHOWN_MAX).map(ToString::to_string).collect();
    }
    told
}

type Parted = (String, String, String);

/// A step that was begun, against what the plan would begin there.
fn began(runtime: &Runtime, run: &Run, workflow: &Workflow, step: &StepPath, what: &Began) -> Option<Parted> {
    let part = |expected: String, actual: String| Some((step.to_string(), expected, actual));
    let Some(spec) = run.flow().and_then(|flow| flow.node(step)).map(|node| workflow.step(node)) else {
        return part(expected(run), format!("the step {step}: {}", told(what)));
    };
    match (spec, what) {
        (StepSpec::Tool(spec), Began::Effect { tool, .. }) if spec.tool != *tool => {
            part(format!("the tool {}", spec.tool), format!("the tool {tool}"))
        }
        (StepSpec::Tool(spec), Began::Effect { tool, key, .. }) => match runtime.prepare(run, workflow, step, spec) {
            Ok(prepared) if prepared.task.key == *key => None,
            // Of a fork, the steps before it are another run's effects.
            Ok(_) if run.started.forked.is_some() => None,
            Ok(prepared) => part(
                format!("{tool} with the arguments {} (effect {})", prepared.task.stored.as_str(), prepared.task.key),
                format!("{tool} as the effect {key}: other arguments, or another key"),
            ),
            Err(NotNow::Failed(failure)) => part(format!("a failure: {}: {}", failure.code, failure.message), told(what)),
            // Without the tool nobody can say which effect it would be.
            Err(NotNow::NotHere(_)) => None,
        },
        (StepSpec::Sleep(_), Began::Sleep { .. })
        | (StepSpec::Wait(_), Began::Wait { .. })
        | (StepSpec::Map { .. }, Began::Map { .. })
        | (StepSpec::Call { .. }, Began::Child { .. }) => None,
        (spec, what) => part(format!("a step with {}", super::view::kind(spec)), told(what)),
    }
}

/// A step that ended by itself, such as a decision, against how it would end by the plan.
fn ended(run: &Run, workflow: &Workflow, step: &StepPath, how: &StepEnd) -> Option<Parted> {
    let spec = run.flow().and_then(|flow| flow.node(step)).map(|node| workflow.step(node))?;
    let (StepSpec::Decision { when }, StepEnd::Done { way, .. }) = (spec, how) else { return None };
    let expected = expected_way(run, workflow, step, when);
    let shown = |way: &Result<Option<u32>, String>| match way {
        Ok(Some(way)) => format!("way {way}"),
        Ok(None) => "no way".into(),
        Err(error) => format!("a failure: {error}"),
    };
    let actual = Ok(*way);
    (expected != actual).then(|| (step.to_string(), shown(&expected), shown(&actual)))
}

/// What the plan would do next.
fn expected(run: &Run) -> String {
    let ready: Vec<&str> = run.flow().into_iter().flat_map(|flow| flow.ready()).take(NEXT_SHOWN_MAX).map(StepPath::as_str).collect();
    match (ready.is_empty(), run.running.iter().next()) {
        (false, _) => format!("one of: {}", ready.join(", ")),
        (true, Some(running)) => format!("the end of {running}"),
        (true, None) => "the end of the run".into(),
    }
}

fn told(what: &Began) -> String {
    match what {
        Began::Effect { tool, .. } => format!("a call of {tool}"),
        Began::Sleep { .. } => "a sleep".into(),
        Began::Wait { .. } => "a wait".into(),
        Began::Map { .. } => "a map".into(),
        Began::Child { run } => format!("the child run {run}"),
    }
}

fn step_of(entry: &RunEntry) -> String {
    match entry {
        RunEntry::StepBegan { step, .. } | RunEntry::StepEnded { step, .. } => step.to_string(),
        RunEntry::TimedOut { step: Some(step), .. } | RunEntry::CancelAsked { step: Some(step), .. } => step.to_string(),
        _ => String::new(),
    }
}
