//! A tool as a step calls it: with the step's own arguments, retries and undo, and through the same loop as any call.

use std::sync::Arc;

use counterfoil_core::effect::State;
use counterfoil_core::policy::RetryPolicy;
use counterfoil_core::run::Run;
use counterfoil_core::run::confirm::Finding;
use counterfoil_core::{Call, CanonicalJson, Effect, EffectKey, Failure, Json, Outcome, StateChanged, StepPath, ToolName};

use super::sight::{Seen, seen};
use super::{RunError, book};
use crate::ledger::LedgerError;
use crate::registry::Registered;
use crate::runtime::{Runtime, Task, fits};
use crate::tool::{Invocation, ProbeAnswer, Recorded, Runs, Tool, ToolFuture, UndoPlan};
use crate::workflow::{StepSpec, ToolStep, UndoStep, Workflow};

/// A call that a step makes, ready to go.
pub(crate) struct Prepared {
    pub step: StepPath,
    pub task: Box<Task>,
}

/// Why a step makes no call.
pub(crate) enum NotNow {
    /// It fails with this.
    Failed(Failure),
    /// Its tool is not known here: another worker may know it, and so may this one later.
    NotHere(ToolName),
}

impl From<Failure> for NotNow {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Runtime {
    pub(crate) fn prepare(&self, run: &Run, workflow: &Workflow, step: &StepPath, spec: &ToolStep) -> Result<Prepared, NotNow> {
        let mut used = std::iter::once(&spec.tool).chain(spec.undo.as_ref().map(|undo| &undo.tool));
        if let Some(allowed) = &run.started.tools
            && let Some(other) = used.find(|tool| !allowed.contains(tool))
        {
            let message = format!("the tool {other} is not among those that the runs around this one allow");
            return Err(Failure::new("tool_not_allowed", message).into());
        }
        let args = spec.args.render_json(&seen(run, workflow, Some(step), &spec.args.exprs()).scope());
        let args = args.map_err(|error| Failure::new("expression_failed", format!("its arguments: {error}")))?;
        let args = CanonicalJson::parse(&args).map_err(|error| Failure::new("invalid_arguments", error.to_string()))?;
        let tool = self.step_tool(run, workflow, step, spec).ok_or_else(|| NotNow::NotHere(spec.tool.clone()))?;
        let call = Call {
            tenant: run.started.tenant.clone(),
            caller: run.started.caller.clone(),
            tool: spec.tool.clone(),
            args,
            key: None,
            run: Some(run.started.run.clone()),
            step: Some(step.clone()),
            ordinal: 0,
        };
        let refused = |answer: Box<crate::Answer>| match answer.error {
            Some(error) => Failure::new(error.code, error.message),
            None => Failure::new("refused", "the call was refused"),
        };
        fits(&tool, &call, Runs::Here).map_err(refused)?;
        let mut task = self.fixed_task(Arc::new(tool), call).map_err(refused)?;
        task.veil = run.veil.clone();
        Ok(Prepared { step: step.clone(), task })
    }

    /// The tool with what the step says in place of the tool's own. `None`: it is not known here.
    pub(crate) fn step_tool(&self, run: &Run, workflow: &Workflow, step: &StepPath, spec: &ToolStep) -> Option<Registered> {
        let mut tool = (*self.inner.tools.get(&run.started.tenant, &spec.tool)?).clone();
        if let Some(retry) = spec.retry {
            tool.policy.retry = retry;
        }
        tool.policy.retain = tool.policy.retain.max(workflow.retain);
        if let Some(undo) = &spec.undo {
            let seen = seen(run, workflow, Some(step), &undo.args.exprs());
            tool.tool = Arc::new(StepTool { tool: tool.tool, undo: Undo::Written(undo.clone(), seen) });
        }
        Some(tool)
    }

    /// The tool as the step calls it whose effect this is, and whether the step still wants it done. `None`: no run's step did it.
    pub(crate) async fn tool_of_step(&self, effect: &Effect) -> Result<Option<(Option<Registered>, bool)>, LedgerError> {
        let found = self.step_of(effect).await?;
        Ok(found.map(|(run, workflow, step)| {
            let tool = spec_of(&run, &workflow, &step).and_then(|spec| self.step_tool(&run, &workflow, &step, spec));
            let wanted =
                run.running.contains(&step) && run.cancel.is_none() && run.end.is_none() && !self.to_confirm_first(&run, &workflow, effect);
            (tool, wanted)
        }))
    }

    /// How often the undo of an effect is tried, where its step says so.
    pub(crate) async fn undo_retry(&self, effect: &Effect) -> Result<Option<RetryPolicy>, LedgerError> {
        let found = self.step_of(effect).await?;
        Ok(found.and_then(|(run, workflow, step)| spec_of(&run, &workflow, &step)?.undo.as_ref()?.retry))
    }

    /// How many attempts the undo of an effect has.
    pub(crate) async fn undo_attempts(&self, effect: &Effect) -> Result<u32, LedgerError> {
        if let Some(retry) = self.undo_retry(effect).await? {
            return Ok(retry.attempts);
        }
        let plan = if let State::Undoing { done, .. } = &effect.state { done.undo.as_ref() } else { None };
        let tool = plan.zip(effect.opened.as_ref()).and_then(|(plan, opened)| self.inner.tools.get(&opened.tenant, &plan.tool));
        Ok(tool.map_or(1, |tool| tool.policy.retry.attempts))
    }

    async fn step_of(&self, effect: &Effect) -> Result<Option<(Run, Arc<Workflow>, StepPath)>, LedgerError> {
        let Some(opened) = &effect.opened else { return Ok(None) };
        let (Some(run), Some(step)) = (&opened.run, &opened.step) else { return Ok(None) };
        match book::read(&self.inner, &opened.tenant, run).await {
            Ok((facts, workflow)) if facts.effect(step) == Some(effect.key) => Ok(Some((facts, workflow, step.clone()))),
            Err(RunError::Ledger(error)) => Err(error),
            // A client's own run, or one that is not the engine's to read.
            Ok(_) | Err(_) => Ok(None),
        }
    }

    /// The effect changed: the run whose step it is looks again.
    pub(crate) async fn stir_run_of(&self, effect: &Effect) -> Result<(), LedgerError> {
        let Some(opened) = &effect.opened else { return Ok(()) };
        let (Some(run), Some(_)) = (&opened.run, &opened.step) else { return Ok(()) };
        match self.stir_run(&opened.tenant, run).await {
            Err(RunError::Ledger(error)) => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

pub(super) fn spec_of<'a>(run: &Run, workflow: &'a Workflow, step: &StepPath) -> Option<&'a ToolStep> {
    match workflow.step(run.flow()?.node(step)?) {
        StepSpec::Tool(spec) => Some(spec),
        _ => None,
    }
}

/// What undoes a call that a Rust function makes.
#[derive(Clone)]
pub(crate) struct UndoWith {
    pub tool: String,
    /// Its arguments, from the result.
    pub args: Arc<dyn Fn(&serde_json::Value) -> serde_json::Value + Send + Sync>,
}

pub(crate) fn with_undo(tool: Arc<dyn Tool>, undo: UndoWith) -> Arc<dyn Tool> {
    Arc::new(StepTool { tool, undo: Undo::With(undo) })
}

/// A tool whose undo is the step's.
struct StepTool {
    tool: Arc<dyn Tool>,
    undo: Undo,
}

enum Undo {
    /// What the step's expressions saw when it began is there still.
    Written(UndoStep, Seen),
    With(UndoWith),
}

impl Tool for StepTool {
    fn runs(&self) -> Runs {
        self.tool.runs()
    }

    fn invoke(&self, invocation: Invocation) -> ToolFuture<'_, Outcome> {
        self.tool.invoke(invocation)
    }

    fn can_probe(&self) -> bool {
        self.tool.can_probe()
    }

    fn probe(&self, invocation: Invocation) -> ToolFuture<'_, ProbeAnswer> {
        self.tool.probe(invocation)
    }

    fn can_verify(&self) -> bool {
        self.tool.can_verify()
    }

    fn verify(&self, invocation: Invocation, recorded: Recorded) -> ToolFuture<'_, Finding> {
        self.tool.verify(invocation, recorded)
    }

    fn captured(&self, invocation: &Invocation, result: &Json) -> Option<Box<StateChanged>> {
        self.tool.captured(invocation, result)
    }

    fn kept(&self) -> ToolFuture<'_, Result<Vec<EffectKey>, String>> {
        self.tool.kept()
    }

    fn forget(&self, gone: Vec<EffectKey>) -> ToolFuture<'_, Result<(), String>> {
        self.tool.forget(gone)
    }

    fn undo_plan(&self, invocation: &Invocation, result: &Json) -> Result<Option<UndoPlan>, String> {
        let (tool, args) = match &self.undo {
            Undo::Written(undo, seen) => {
                let scope = seen.scope().with_args(&invocation.args).with_json("result", result);
                (undo.tool.clone(), undo.args.render_json(&scope).map_err(|error| error.to_string())?)
            }
            Undo::With(undo) => {
                let tool = ToolName::new(&undo.tool).map_err(|error| error.to_string())?;
                (tool, (undo.args)(&result.to_value()).to_string())
            }
        };
        let args = CanonicalJson::parse(&args).map_err(|error| error.to_string())?;
        Ok(Some(UndoPlan { tool, args }))
    }
}
