//! Runs: workflows that survive their process.
//!
//! The core says what may start next; here it is done. One loop (`live`) drives a run, whether it was just started, taken over or woken: it reads the
//! run's entries, advances as far as no one else is needed (`advance`), records that as one record, calls tools through the same loop as any call
//! (`crate::drive`), and goes on with what they said. What must stay true: a step is recorded as begun before or with its claim, as ended with or after
//! its outcome; so whoever takes over finds every effect that may exist.
//!
//! Reading order: [`start`], `book` (a run as its driver knows it), `advance`, `sight` (what expressions see), `step` (a tool as a step calls it), `ahead`, `follow` (what a call tells its run), `drivers` (which runs this process drives), `confirm` (whether the world still agrees), `live` (the loop), `stop`,
//! `child` (a run that is a step), `unwind` (undoing), [`durable`] and `function` (Rust functions as runs), [`client`] (runs that clients drive), [`operate`] (what people do), [`beside`] (what is written with it), [`schedules`], [`cron`], `tick` (workflows that run again and again), [`view`], [`replay`] (a run held against the world, dry) and [`diverge`] (against another definition).

mod advance;
mod ahead;
pub mod beside;
mod book;
mod child;
pub mod client;
mod confirm;
pub mod cron;
mod definitions;
pub mod diverge;
mod drivers;
pub mod durable;
mod follow;
mod function;
mod live;
pub mod operate;
pub mod replay;
pub mod schedules;
mod sight;
pub mod start;
mod step;
mod stop;
pub mod tick;
mod unwind;
pub mod view;

use counterfoil_core::ids::{Digest32, NameError, ScheduleName};
use counterfoil_core::{RunId, StepPath};
use thiserror::Error;

use crate::config::ConfigErrors;
use crate::ledger::LedgerError;

pub use beside::{After, RunBeside};
pub(crate) use definitions::Definitions;
pub(crate) use drivers::Lives;
pub use drivers::Rest;
pub(crate) use durable::Functions;
pub(crate) use follow::Follow;
pub use replay::{ReplayStep, ReplayView};
pub use start::NewRun;
pub use view::{RunView, StepView};

#[derive(Debug, Error)]
pub enum RunError {
    #[error("there is no run {0}")]
    NotFound(RunId),
    #[error(
        "the run {run} was moved to the archive {file} (digest {digest}); `counterfoil archive restore {file} --into sqlite:NEW.db` brings it into a ledger of its own"
    )]
    Archived { run: RunId, file: String, digest: Digest32 },
    #[error("there is a run {run} already, of {what}: choose another id, or none")]
    Exists { run: RunId, what: &'static str },
    #[error("the input does not fit the workflow's input schema: {0}")]
    Input(String),
    #[error("the subject of this run was erased; nothing was recorded")]
    SubjectErased,
    #[error("the workflow calls the tool {tool}, and there is none; {hint}")]
    UnknownTool { tool: String, hint: String },
    #[error("there is no workflow {0}")]
    UnknownWorkflow(String),
    /// Nothing was done for it: the run goes on when the function asks again for what it asked before.
    #[error("the function of the run {run} is not what it was: {message}")]
    FunctionDiverged { run: RunId, message: String },
    /// The run keeps the definition it began with.
    #[error("the run {run} was started with another definition: expected {expected}, and this is {actual}")]
    Diverged { run: RunId, expected: Digest32, actual: Digest32 },
    #[error("the definition {digest} of the run {run} is not in the ledger")]
    NoDefinition { run: RunId, digest: Digest32 },
    #[error("the definition {digest} cannot be read by this version: {source}")]
    Definition { digest: Digest32, source: Box<ConfigErrors> },
    #[error("the run {run} is {state}: {hint}")]
    WrongState { run: RunId, state: &'static str, hint: &'static str },
    #[error("the run {run} has no step {step}; {hint}")]
    NoStep { run: RunId, step: StepPath, hint: String },
    #[error("{0}")]
    Signal(String),
    #[error("the run {run} cannot be forked at {at}: {why}")]
    CannotFork { run: RunId, at: StepPath, why: String },
    #[error("{0}")]
    Lease(String),
    #[error("{0}; nothing was changed")]
    Schedule(String),
    #[error("there is no schedule {0}")]
    NoSchedule(ScheduleName),
    #[error("{0}")]
    Name(#[from] NameError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl RunError {
    /// Stable; each has a page in docs/errors.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "run_not_found",
            Self::Archived { .. } => "run_archived",
            Self::Exists { .. } => "run_exists",
            Self::Input(_) => "invalid_input",
            Self::SubjectErased => crate::drive::SUBJECT_ERASED,
            Self::UnknownTool { .. } => "unknown_tool",
            Self::UnknownWorkflow(_) => "unknown_workflow",
            Self::Diverged { .. } => "definition_diverged",
            Self::FunctionDiverged { .. } => "function_diverged",
            Self::NoDefinition { .. } => "definition_missing",
            Self::Definition { .. } => "definition_unreadable",
            Self::WrongState { .. } => "wrong_state",
            Self::NoStep { .. } => "step_not_found",
            Self::Signal(_) => "invalid_signal",
            Self::CannotFork { .. } => "cannot_fork",
            Self::Lease(_) => "invalid_lease",
            Self::Schedule(_) => "invalid_schedule",
            Self::NoSchedule(_) => "schedule_not_found",
            Self::Name(_) => "invalid_name",
            Self::Ledger(error) => error.code(),
        }
    }
}
