//! A step that is a run of its own: started once, waited for, stopped and undone with the run it is a step of.

use std::time::Duration;

use counterfoil_core::run::entry::{Parent, RunEnd, StepEnd, Undone};
use counterfoil_core::run::{Run, RunState};
use counterfoil_core::{CanonicalJson, Failure, RunId, StepPath, Tenant, ToolName};

use futures_util::future::BoxFuture;

use super::beside::RunBeside;
use super::book::{self, Book};
use super::drivers::Rest;
use super::live::What;
use super::operate::Cancelling;
use super::sight::seen;
use super::unwind::Unwound;
use super::{NewRun, RunError};
use crate::operate::Operator;
use crate::runtime::Runtime;
use crate::workflow::{StepSpec, Workflow};

/// How long until a child that waits for something is looked at again. Its end stirs this run before that.
const CHILD_LOOK: Duration = Duration::from_secs(60);

/// How deep runs may be inside runs: one that starts itself ends somewhere.
const DEPTH_MAX: u32 = 32;

impl Runtime {
    /// Starts the child, if it is not there, and sees it as far as it comes.
    pub(super) async fn child_step(&self, parent: &Book, step: &StepPath, child: RunId) -> Result<What, RunError> {
        if let Err(RunError::NotFound(_)) = book::read(&self.inner, &parent.tenant, &child).await {
            let new = match self.new_child(parent, step, child.clone()).await? {
                Ok(new) => new,
                Err(failure) => return Ok(What::Ended(StepEnd::Failed { failure, doubt: false })),
            };
            let around = parent.lock().run.veil.clone();
            match self.start_run_within(new, around, &RunBeside::default()).await {
                Ok(_) => {}
                Err(RunError::Ledger(error)) => return Err(error.into()),
                Err(error) => {
                    let failure = Failure::new(error.code(), error.to_string());
                    return Ok(What::Ended(StepEnd::Failed { failure, doubt: false }));
                }
            }
        }
        let rest = self.drive_apart(&parent.tenant, &child).await?;
        let (run, _) = book::read(&self.inner, &parent.tenant, &child).await?;
        match child_end(&run) {
            Some(how) => Ok(What::Ended(how)),
            None => {
                let look = self.now() + CHILD_LOOK;
                let until = if let Rest::Parked { due: Some(due) } = rest { due.min(look) } else { look };
                Ok(What::Held { until, why: format!("the run {child} is {}", run.state().word()) })
            }
        }
    }

    /// By a task of its own: a run inside a run inside a run is no deeper on any stack.
    fn drive_apart(&self, tenant: &Tenant, run: &RunId) -> BoxFuture<'static, Result<Rest, RunError>> {
        let (runtime, tenant, run) = (self.clone(), tenant.clone(), run.clone());
        Box::pin(async move {
            match tokio::spawn(async move { runtime.drive_run(&tenant, &run).await }).await {
                Ok(rest) => rest,
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                // The runtime ends, and this future with it.
                Err(_) => std::future::pending().await,
            }
        })
    }

    async fn new_child(&self, parent: &Book, step: &StepPath, child: RunId) -> Result<Result<NewRun, Failure>, RunError> {
        let (name, input, tools, started) = {
            let pages = parent.lock();
            let workflow = &parent.workflow;
            let node = pages.run.flow().and_then(|flow| flow.node(step)).expect("a step that began is in the plan");
            let StepSpec::Call { workflow: name, input } = workflow.step(node) else { unreachable!("only such a step has a child") };
            let scope = seen(&pages.run, workflow, Some(step), &input.exprs()).scope();
            (name.clone(), input.render_json(&scope), allowed(workflow, &pages.run, node), pages.run.started.clone())
        };
        let wrong = |error: String| Failure::new("expression_failed", format!("its input: {error}"));
        let input = match input.map_err(|e| e.to_string()).and_then(|text| CanonicalJson::parse(&text).map_err(|e| e.to_string())) {
            Ok(input) => input,
            Err(error) => return Ok(Err(wrong(error))),
        };
        let depth = started.parent.as_ref().map_or(0, |parent| parent.depth) + 1;
        if depth > DEPTH_MAX {
            return Ok(Err(Failure::new(
                "runs_too_deep",
                format!("it is {depth} runs deep inside others; at most {DEPTH_MAX} are allowed"),
            )));
        }
        let Some(workflow) = self.workflow(&parent.tenant, &name).await? else {
            return Ok(Err(Failure::new("unknown_workflow", format!("there is no workflow {name}"))));
        };
        Ok(Ok(NewRun {
            tenant: parent.tenant.clone(),
            caller: started.caller.clone(),
            run: Some(child),
            workflow,
            input,
            parent: Some(Parent { run: parent.id.clone(), step: step.clone(), depth }),
            tools,
            driven: true,
        }))
    }

    /// Cancels a child with the step that it is, and waits for its end.
    pub(super) async fn stop_child(&self, parent: &Book, step: &StepPath, child: RunId) -> Result<StepEnd, RunError> {
        let cancel = Cancelling { step: None, undo: false, by: format!("the run {}", parent.id), why: "it is not wanted any more".into() };
        match self.cancel_run(&parent.tenant, &child, cancel.clone()).await {
            Ok(_) | Err(RunError::WrongState { .. }) => {}
            // Not started yet: it is started cancelled, so that whoever was about to start it finds it so.
            Err(RunError::NotFound(_)) => match self.new_child(parent, step, child.clone()).await? {
                Ok(new) => {
                    self.start_run(new).await?;
                    match self.cancel_run(&parent.tenant, &child, cancel).await {
                        Ok(_) | Err(RunError::WrongState { .. }) => {}
                        Err(error) => return Err(error),
                    }
                }
                // Nobody can start it.
                Err(_) => return Ok(StepEnd::Cancelled { doubt: false }),
            },
            Err(error) => return Err(error),
        }
        self.drive_apart(&parent.tenant, &child).await?;
        let (run, _) = book::read(&self.inner, &parent.tenant, &child).await?;
        Ok(child_end(&run).unwrap_or(StepEnd::Cancelled { doubt: true }))
    }

    pub(super) async fn unwind_child(&self, tenant: &Tenant, child: &RunId, operator: &Operator) -> Result<Unwound, RunError> {
        let (run, _) = book::read(&self.inner, tenant, child).await?;
        if run.state().is_end() && !run.to_undo(None).is_empty() && run.sagas.iter().all(|saga| saga.by != operator.by || saga.is_over()) {
            match self.undo_run(tenant, child, None, operator).await {
                Ok(_) | Err(RunError::WrongState { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.drive_apart(tenant, child).await?;
        let (run, _) = book::read(&self.inner, tenant, child).await?;
        Ok(match run.state() {
            RunState::CompensationFailed => {
                let failed: Vec<&str> = run.sagas.iter().flat_map(|saga| saga.failed()).map(|(step, _)| step.as_str()).collect();
                let message = format!("in the run {child}, these could not be undone: {}", failed.join(", "));
                Unwound::Dealt(Err(Failure::new("compensation_failed", message)))
            }
            state if state.is_end() => Unwound::Dealt(Ok(Undone::Undone)),
            state => Unwound::Held { until: self.now() + CHILD_LOOK, why: format!("the run {child} is {}", state.word()) },
        })
    }
}

/// How a child's end is its step's.
fn child_end(run: &Run) -> Option<StepEnd> {
    let (_, how) = run.end.as_ref().filter(|_| run.state().is_end())?;
    let undo = !run.to_undo(None).is_empty();
    Some(match how {
        RunEnd::Completed { output } => StepEnd::Done { result: output.clone(), way: None, undo },
        RunEnd::Failed { failure } => StepEnd::Failed { failure: failure.clone(), doubt: undo },
        RunEnd::Cancelled => StepEnd::Cancelled { doubt: undo },
    })
}

/// What a step's child may use: what every scope around it allows, and the run itself.
fn allowed(workflow: &Workflow, run: &Run, node: counterfoil_core::run::plan::NodeId) -> Option<Vec<ToolName>> {
    let scopes = workflow.plan.around(node).filter_map(|around| match workflow.step(around) {
        StepSpec::Scope { tools } => tools.as_ref(),
        _ => None,
    });
    let lists: Vec<&Vec<ToolName>> = scopes.chain(&workflow.tools).chain(&run.started.tools).collect();
    let (first, rest) = lists.split_first()?;
    Some(first.iter().filter(|tool| rest.iter().all(|list| list.contains(tool))).cloned().collect())
}
