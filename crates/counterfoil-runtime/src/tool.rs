//! How to do one thing to the world, to ask whether it happened, and to undo it.
//!
//! A tool never retries, never decides and never writes to the ledger: it makes one attempt and says honestly what it
//! knows. Whatever it cannot be sure of is `Outcome::Unknown`; the runtime adds the timeout and catches panics.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use counterfoil_core::run::confirm::Finding;
use counterfoil_core::{CanonicalJson, EffectKey, Failure, Json, Outcome, RunId, StateChanged, Success, Tenant, ToolName, TraceContext};

pub type ToolFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Tells a running attempt that nobody wants its result any more. A tool that can stop, stops; one that cannot goes on, and what it did is kept.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<StopSignal>);

#[derive(Debug, Default)]
struct StopSignal {
    asked: AtomicBool,
    notify: Notify,
}

impl Stop {
    pub fn ask(&self) {
        self.0.asked.store(true, Ordering::SeqCst);
        self.0.notify.notify_waiters();
    }
    pub fn is_asked(&self) -> bool {
        self.0.asked.load(Ordering::SeqCst)
    }
    /// Resolves when the attempt is to stop.
    pub async fn asked(&self) {
        let notified = self.0.notify.notified();
        if !self.is_asked() {
            notified.await;
        }
    }
}

/// What a tool is given for one attempt.
#[derive(Debug, Clone)]
pub struct Invocation {
    pub tool: ToolName,
    pub tenant: Tenant,
    /// Goes downstream as `Idempotency-Key`, the same on every attempt.
    pub key: EffectKey,
    pub attempt: u32,
    pub run: Option<RunId>,
    pub args: CanonicalJson,
    /// The runtime gives up after this long; a tool that can stop the other side (kill a process) does it then.
    pub timeout: Duration,
    /// Largest result kept in full.
    pub result_bytes_max: usize,
    pub stop: Stop,
    /// Where this attempt stands in the caller's trace: goes downstream as `traceparent`, with a span id of its own for each attempt.
    pub trace: Option<TraceContext>,
}

/// What a probe learned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeAnswer {
    Happened(Success),
    DidNotHappen,
    /// Could not be asked, or the answer means nothing. Never folded into "did not happen".
    CannotTell(String),
}

/// What is recorded of an effect that was done: what a look at the world is held against.
#[derive(Debug, Clone)]
pub struct Recorded {
    pub result: Json,
    pub state_changed: Option<Box<StateChanged>>,
}

/// What would undo a committed effect: another call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndoPlan {
    pub tool: ToolName,
    pub args: CanonicalJson,
}

/// Who makes the attempts of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runs {
    /// This process.
    Here,
    /// The client that asks, under a permit that is lent to it.
    Elsewhere,
}

pub trait Tool: Send + Sync + 'static {
    fn runs(&self) -> Runs {
        Runs::Here
    }

    /// Makes one attempt.
    fn invoke(&self, invocation: Invocation) -> ToolFuture<'_, Outcome>;

    /// Whether `probe` can say anything.
    fn can_probe(&self) -> bool {
        false
    }

    /// Asks the world whether the invocation's effect happened. Changes nothing.
    fn probe(&self, _invocation: Invocation) -> ToolFuture<'_, ProbeAnswer> {
        Box::pin(async { ProbeAnswer::CannotTell("this tool has no probe".into()) })
    }

    /// Whether `verify` can say anything.
    fn can_verify(&self) -> bool {
        false
    }

    /// Asks whether the world still agrees with what is recorded of the invocation's effect. Changes nothing.
    fn verify(&self, _invocation: Invocation, _recorded: Recorded) -> ToolFuture<'_, Finding> {
        Box::pin(async { Finding::Unverified { why: "this tool has no verifier".into() } })
    }

    /// What a later look is held against, where the attempt was made elsewhere and only its result is known here. An attempt that is made here
    /// says so itself, with its success.
    fn captured(&self, _invocation: &Invocation, _result: &Json) -> Option<Box<StateChanged>> {
        None
    }

    /// Effects for which the tool keeps something of its own, outside the ledger.
    fn kept(&self) -> ToolFuture<'_, Result<Vec<EffectKey>, String>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// These effects are gone from the ledger, and can never be undone: what was kept for them may go.
    fn forget(&self, _gone: Vec<EffectKey>) -> ToolFuture<'_, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }

    /// Which tool undoes it, where that is known beforehand.
    fn undone_by(&self) -> Option<&ToolName> {
        None
    }

    /// The call that undoes a committed effect, resolved from its arguments and result when it commits.
    fn undo_plan(&self, _invocation: &Invocation, _result: &Json) -> Result<Option<UndoPlan>, String> {
        Ok(None)
    }
}

/// A tool that its client runs: registered so that its policy is known, never called here.
pub struct ClientTool;

impl Tool for ClientTool {
    fn runs(&self) -> Runs {
        Runs::Elsewhere
    }

    fn invoke(&self, invocation: Invocation) -> ToolFuture<'_, Outcome> {
        Box::pin(async move { Outcome::NotDone(runs_elsewhere(&invocation.tool)) })
    }
}

pub(crate) fn runs_elsewhere(tool: &ToolName) -> Failure {
    Failure::new("tool_runs_elsewhere", format!("{tool} is run by its clients: acquire a permit, run it, commit its result"))
}

/// A Rust async fn as a tool.
///
/// `Ok` is done. An error says itself whether the world may have changed: see [`ToolError`].
pub struct FnTool<F> {
    function: F,
}

/// What a Rust handler or a client may say instead of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolError {
    /// It certainly did not happen, and trying again will not help.
    Rejected(Failure),
    /// It certainly did not happen; trying again may help.
    Retry(Failure),
    /// It may have happened.
    Unknown(Failure),
}

impl From<ToolError> for Outcome {
    fn from(error: ToolError) -> Self {
        match error {
            ToolError::Rejected(failure) => Self::NotDone(Failure { retriable: false, ..failure }),
            ToolError::Retry(failure) => Self::NotDone(Failure { retriable: true, ..failure }),
            ToolError::Unknown(failure) => Self::Unknown(failure),
        }
    }
}

impl<F, Fut> FnTool<F>
where
    F: Fn(Invocation) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<serde_json::Value, ToolError>> + Send + 'static,
{
    pub fn new(function: F) -> Arc<Self> {
        Arc::new(Self { function })
    }
}

impl<F, Fut> Tool for FnTool<F>
where
    F: Fn(Invocation) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<serde_json::Value, ToolError>> + Send + 'static,
{
    fn invoke(&self, invocation: Invocation) -> ToolFuture<'_, Outcome> {
        let future = (self.function)(invocation);
        Box::pin(async move {
            match future.await {
                Ok(value) => Outcome::Done(Success::new(Json::from_value(&value))),
                Err(error) => error.into(),
            }
        })
    }
}
