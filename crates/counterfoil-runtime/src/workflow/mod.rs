//! Workflow files as values: the shape is a [`Plan`], what each step does stands beside it, by the step's number.
//!
//! A workflow without a mistake is all there is: it was read whole, every expression in it is parsed and sees only what exists when it is evaluated. It
//! is known by the digest of its text, so that a run keeps the one it began with.

mod act;
mod around;
mod check;
mod ended;
mod inside;
mod mention;
mod read;
mod steps;

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::ToolName;
use counterfoil_core::ids::{Digest32, WorkflowName};
use counterfoil_core::policy::RetryPolicy;
use counterfoil_core::run::confirm::Confirm;
use counterfoil_core::run::plan::{NodeId, Plan};

use crate::template::{Expr, TextTemplate, ValueTemplate};

/// How long a run and what it did can be looked at and undone after it ended.
pub const RETAIN: Duration = Duration::from_secs(30 * 24 * 3600);

/// One workflow file.
#[derive(Debug, Clone)]
pub struct Workflow {
    pub name: WorkflowName,
    pub description: Option<String>,
    /// JSON Schema of the input.
    pub input: Option<serde_json::Value>,
    pub plan: Arc<Plan>,
    /// By [`NodeId`].
    pub steps: Vec<StepSpec>,
    /// What a run that completes gives. Sees `input`, `run` and `steps`. `None`: null.
    pub output: Option<ValueTemplate>,
    /// How long a run may take.
    pub timeout: Option<Duration>,
    /// How many effects a run may do. (`budget: { effects: N }`)
    pub effects_max: Option<u64>,
    /// Tools that its steps, and those of the workflows it calls, may use. `None`: all.
    pub tools: Option<Vec<ToolName>>,
    pub retain: Duration,
    /// For steps that do not say.
    pub confirm: Confirm,
    /// Whose personal data a run holds. Sees `input`.
    pub subject: Option<Expr>,
    /// The file, byte for byte.
    pub text: Arc<str>,
    /// Of the file.
    pub digest: Digest32,
}

impl Workflow {
    /// What a run has that goes by no plan.
    pub fn without_plan(name: &WorkflowName) -> Self {
        Self {
            name: name.clone(),
            description: None,
            input: None,
            plan: Arc::new(Plan::new(Vec::new()).expect("nothing is wrong with no steps")),
            steps: Vec::new(),
            output: None,
            timeout: None,
            effects_max: None,
            tools: None,
            retain: RETAIN,
            confirm: Confirm::default(),
            subject: None,
            text: Arc::from(""),
            digest: Digest32::of(b""),
        }
    }

    pub fn step(&self, node: NodeId) -> &StepSpec {
        &self.steps[node.0 as usize]
    }
}

/// What a step does. Its place, its timeout and what its failure means are the plan's.
///
/// Templates see `input`, `run` (`{id}`), `steps` (of those that have certainly ended before: `{result, status, error}`), and inside a `map` what it
/// calls its item and `index`.
#[derive(Debug, Clone)]
pub enum StepSpec {
    Tool(Box<ToolStep>),
    /// Ends at once, by the first way whose condition holds. The last may have none: `else`. None that holds is a failure.
    Decision {
        when: Vec<Option<Expr>>,
    },
    Parallel,
    Map {
        /// A list.
        over: ValueTemplate,
        /// The name of the item inside.
        item: String,
    },
    Scope {
        /// Tools that the steps inside may use. `None`: what is around decides.
        tools: Option<Vec<ToolName>>,
    },
    Sleep(Nap),
    /// Ends by its first way when what it waits for came, by its second when it did not (too late, or a person said no). With one way or none, that is
    /// a failure.
    Wait(Wait),
    /// A run of another workflow, which is this run's child.
    Call {
        workflow: WorkflowName,
        input: ValueTemplate,
    },
}

#[derive(Debug, Clone)]
pub struct ToolStep {
    pub tool: ToolName,
    pub args: ValueTemplate,
    /// Instead of the tool's own.
    pub retry: Option<RetryPolicy>,
    /// Instead of the tool's own.
    pub undo: Option<UndoStep>,
    /// What it does not say, the workflow does, and then the tool.
    pub confirm: Confirm,
}

/// Its templates see what the step's do, and `args` and `result`, which are the step's own.
#[derive(Debug, Clone)]
pub struct UndoStep {
    pub tool: ToolName,
    pub args: ValueTemplate,
    /// For what must not be left undone: more attempts than the tool's own.
    pub retry: Option<RetryPolicy>,
}

#[derive(Debug, Clone)]
pub enum Nap {
    For(Duration),
    /// An expression that gives a text like `90s`, or a number of seconds.
    Until(Expr),
}

#[derive(Debug, Clone)]
pub struct Wait {
    pub on: WaitFor,
    /// Then it has not come.
    pub timeout: Option<Duration>,
}

#[derive(Debug, Clone)]
pub enum WaitFor {
    /// A signal of this name; when `correlation` is given, only one that carries it.
    Signal { name: String, correlation: Option<TextTemplate> },
    /// A person's yes to this text.
    Approval { message: TextTemplate },
}

#[cfg(test)]
mod tests;
