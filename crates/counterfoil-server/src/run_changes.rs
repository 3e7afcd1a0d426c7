//! What is done to a run: cancel, signal, approve, deny, resume, compensate, skip, fork.
//!
//! Each is recorded in one append with the request that asks for it, and answered with the run as it is right after that: what follows is done in the
//! background, and `GET /v1/runs/{run}?wait=30s` tells how it went.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use counterfoil_core::ids::{Kind, Name};
use counterfoil_core::request::Stored;
use counterfoil_core::run::Run;
use counterfoil_core::token::Right;
use counterfoil_core::{Json, RunId, StepPath};
use counterfoil_runtime::engine::operate::{Cancelling, Fork, Heard, Signal, Skipping, StepAnswer, Undoing};
use counterfoil_runtime::engine::{After, RunBeside, RunError, RunView};
use counterfoil_runtime::ledger::LedgerError;
use counterfoil_runtime::workflow::Workflow;
use http::StatusCode;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::app::{App, undropped};
use crate::ask::{Ask, Second, Segment};
use crate::problem::{Problem, in_flight};
use crate::requests::{Asked, Turn, json_stored, respond};
use crate::runs::location;

impl App {
    /// Does something to a run: it, the record of the request and its answer hold or fall together. Then the run acts on it, in the background. `made`
    /// is the status where it was new; what was so already is 200.
    pub async fn tell_run<F>(self: &Arc<Self>, ask: &Ask, made: StatusCode, act: impl Fn(RunBeside) -> F) -> Result<Response, Problem>
    where
        F: Future<Output = Result<After, RunError>>,
    {
        let asked = ask.asked();
        let _active = asked.as_ref().map(|asked| self.requests.begin(asked).ok_or_else(in_flight)).transpose()?;
        loop {
            let asked = match &asked {
                None => None,
                Some(asked) => match self.requests.look(asked.clone()).await? {
                    Turn::Replay(stored) => return Ok(respond(stored, true)),
                    Turn::Go(asked) | Turn::GoOn(asked) => Some(asked),
                },
            };
            let beside = asked.clone().map_or_else(RunBeside::default, |asked| {
                let app = self.clone();
                RunBeside::new(move |run, workflow| vec![app.requests.answered(&asked, &shown(made, run, workflow))])
            });
            match act(beside).await {
                Ok(after @ After { heard: Heard::Now, .. }) => {
                    let answer = respond(shown(made, &after.run, &after.workflow), false);
                    self.runtime.spawn_after(after);
                    return Ok(answer);
                }
                Ok(After { heard: Heard::Before, run, workflow }) => {
                    let stored = shown(StatusCode::OK, &run, &workflow);
                    if self.nothing_changed(asked.as_ref(), &stored).await? {
                        return Ok(respond(stored, false));
                    }
                }
                // A request with the same key was faster.
                Err(RunError::Ledger(LedgerError::BesideTaken { .. })) => {}
                Err(error) => return self.unless_answered(ask, error).await,
            }
        }
    }

    /// What was asked for was so already: only the request is recorded. `false`: another one with the same key was faster.
    pub async fn nothing_changed(&self, asked: Option<&Asked>, stored: &Stored) -> Result<bool, LedgerError> {
        let Some(asked) = asked else { return Ok(true) };
        match self.runtime.ledger().append(vec![self.requests.answered(asked, stored)]).await {
            Ok(()) => Ok(true),
            Err(LedgerError::Conflict) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn shown(status: StatusCode, run: &Run, workflow: &Workflow) -> Stored {
    Stored { location: Some(location(&run.started.run)), ..json_stored(status, &RunView::of(run, workflow)) }
}

pub fn name<K: Kind>(field: &str, text: &str) -> Result<Name<K>, Problem> {
    Name::new(text).map_err(|error| Problem::bad("invalid_name", format!("`{field}`: {error}; nothing was changed")))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CancelBody {
    step: Option<String>,
    #[serde(default)]
    undo: bool,
    why: Option<String>,
}

pub async fn cancel(State(app): State<Arc<App>>, segment: Segment, ask: Ask) -> Result<Response, Problem> {
    ask.who.must(Right::Operate)?;
    let run: RunId = segment.name()?;
    let body: CancelBody = ask.json()?;
    let step = body.step.as_deref().map(|step| name("step", step)).transpose()?;
    let cancel = Cancelling { step, undo: body.undo, by: ask.who.caller.to_string(), why: body.why.unwrap_or_default() };
    undropped(async move {
        let act = |beside| {
            let (app, tenant, run, cancel) = (app.clone(), ask.who.tenant.clone(), run.clone(), cancel.clone());
            async move { app.runtime.cancel_run_beside(&tenant, &run, cancel, &beside).await }
        };
        app.tell_run(&ask, StatusCode::OK, act).await
    })
    .await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SignalBody {
    /// The sender's: the same signal sent twice is one. Without it, the `Idempotency-Key`.
    id: Option<String>,
    correlation: Option<String>,
    payload: Option<Box<RawValue>>,
}

/// Needs no more than the right to start runs: a signal is what a workflow asked for, and mostly sent by a program.
pub async fn signal(State(app): State<Arc<App>>, segment: Segment, second: Second, ask: Ask) -> Result<Response, Problem> {
    ask.who.must(Right::Call)?;
    let run: RunId = segment.name()?;
    let body: SignalBody = ask.json()?;
    let id = match body.id {
        Some(id) => id,
        None => ask.required_key()?.to_string(),
    };
    let payload = match &body.payload {
        Some(payload) => Json::parse(payload.get()).map_err(|error| Problem::bad("invalid_json", error.to_string()))?,
        None => Json::null(),
    };
    let signal = Signal { id, name: second.0, correlation: body.correlation, payload, by: ask.who.caller.to_string() };
    undropped(async move {
        let act = |beside| {
            let (app, tenant, run, signal) = (app.clone(), ask.who.tenant.clone(), run.clone(), signal.clone());
            async move { app.runtime.signal_run_beside(&tenant, &run, signal, &beside).await }
        };
        app.tell_run(&ask, StatusCode::OK, act).await
    })
    .await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerBody {
    step: String,
    why: Option<String>,
}

pub async fn approve(State(app): State<Arc<App>>, segment: Segment, ask: Ask) -> Result<Response, Problem> {
    answer(app, segment, ask, true).await
}

pub async fn deny(State(app): State<Arc<App>>, segment: Segment, ask: Ask) -> Result<Response, Problem> {
    answer(app, segment, ask, false).await
}

async fn answer(app: Arc<App>, segment: Segment, ask: Ask, approved: bool) -> Result<Response, Problem> {
    ask.who.must(Right::Operate)?;
    let run: RunId = segment.name()?;
    let body: AnswerBody = ask.json()?;
    let (by, why) = (ask.who.caller.to_string(), body.why.unwrap_or_default());
    let answer = StepAnswer { step: name("step", &body.step)?, approved, by, why };
    undropped(async move {
        let act = |beside| {
            let (app, tenant, run, answer) = (app.clone(), ask.who.tenant.clone(), run.clone(), answer.clone());
            async move { app.runtime.answer_step_beside(&tenant, &run, &answer, &beside).await }
        };
        app.tell_run(&ask, StatusCode::OK, act).await
    })
    .await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Empty {}

pub async fn resume(State(app): State<Arc<App>>, segment: Segment, ask: Ask) -> Result<Response, Problem> {
    ask.who.must(Right::Operate)?;
    let run: RunId = segment.name()?;
    let Empty {} = ask.json()?;
    undropped(async move {
        let act = |beside| {
            let (app, tenant, run) = (app.clone(), ask.who.tenant.clone(), run.clone());
            async move { app.runtime.resume_run_beside(&tenant, &run, &beside).await }
        };
        app.tell_run(&ask, StatusCode::OK, act).await
    })
    .await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CompensateBody {
    from: Option<String>,
    why: Option<String>,
}

/// Needs a key, as every undo does: what could not be undone is tried again by a new request, and not by one that is sent again.
pub async fn compensate(State(app): State<Arc<App>>, segment: Segment, ask: Ask) -> Result<Response, Problem> {
    ask.who.must(Right::Operate)?;
    ask.required_key()?;
    let run: RunId = segment.name()?;
    let body: CompensateBody = ask.json()?;
    let from = body.from.as_deref().map(|step| name("from", step)).transpose()?;
    let undoing = Undoing { from, by: ask.who.caller.to_string(), why: body.why.unwrap_or_default() };
    undropped(async move {
        let act = |beside| {
            let (app, tenant, run, undoing) = (app.clone(), ask.who.tenant.clone(), run.clone(), undoing.clone());
            async move { app.runtime.undo_run_beside(&tenant, &run, &undoing, &beside).await }
        };
        app.tell_run(&ask, StatusCode::OK, act).await
    })
    .await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SkipBody {
    step: String,
    why: Option<String>,
}

pub async fn skip(State(app): State<Arc<App>>, segment: Segment, ask: Ask) -> Result<Response, Problem> {
    ask.who.must(Right::Operate)?;
    let run: RunId = segment.name()?;
    let body: SkipBody = ask.json()?;
    let (by, why) = (ask.who.caller.to_string(), body.why.unwrap_or_default());
    let skip = Skipping { step: name("step", &body.step)?, by, why };
    undropped(async move {
        let act = |beside| {
            let (app, tenant, run, skip) = (app.clone(), ask.who.tenant.clone(), run.clone(), skip.clone());
            async move { app.runtime.skip_undo_beside(&tenant, &run, &skip, &beside).await }
        };
        app.tell_run(&ask, StatusCode::OK, act).await
    })
    .await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ForkBody {
    at: String,
    /// The new run's id.
    run: Option<String>,
    why: Option<String>,
}

pub async fn fork(State(app): State<Arc<App>>, segment: Segment, ask: Ask) -> Result<Response, Problem> {
    ask.who.must(Right::Operate)?;
    ask.required_key()?;
    let run: RunId = segment.name()?;
    let body: ForkBody = ask.json()?;
    let at: StepPath = name("at", &body.at)?;
    let (by, why) = (ask.who.caller.to_string(), body.why.unwrap_or_default());
    let new: RunId = name("run", &body.run.unwrap_or_else(|| app.runtime.execution_id()))?;
    let fork = Fork { at, new, by, why };
    undropped(async move {
        let act = |beside| {
            let (app, tenant, run, fork) = (app.clone(), ask.who.tenant.clone(), run.clone(), fork.clone());
            async move { app.runtime.fork_run_beside(&tenant, &run, fork, &beside).await }
        };
        app.tell_run(&ask, StatusCode::CREATED, act).await
    })
    .await
}
