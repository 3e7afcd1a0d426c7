//! Runs that a client drives: opened with `POST /v1/runs` and `"driver": "client"`, kept alive, and finished by the client.
//!
//! Its steps are the permits that it acquires with `run` and `step`: see `lend`. What it did is undone when it says that it failed, is cancelled, or
//! falls silent.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use counterfoil_core::run::entry::RunEnd;
use counterfoil_core::token::Right;
use counterfoil_core::{Failure, Json, RunId};
use counterfoil_runtime::engine::client::NewClientRun;
use http::StatusCode;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::app::{App, undropped};
use crate::ask::{Ask, Segment};
use crate::problem::Problem;

pub async fn open(app: Arc<App>, ask: Ask, new: NewClientRun) -> Result<Response, Problem> {
    undropped(async move {
        let act = |beside| {
            let (app, new) = (app.clone(), new.clone());
            async move { app.runtime.open_client_run_beside(new, &beside).await }
        };
        app.tell_run(&ask, StatusCode::CREATED, act).await
    })
    .await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NoMembers {}

/// The client is alive.
pub async fn heartbeat(State(app): State<Arc<App>>, segment: Segment, ask: Ask) -> Result<Response, Problem> {
    ask.who.must(Right::Call)?;
    let run: RunId = segment.name()?;
    let NoMembers {} = ask.json()?;
    undropped(async move {
        let act = |beside| {
            let (app, tenant, run) = (app.clone(), ask.who.tenant.clone(), run.clone());
            async move { app.runtime.beat_run(&tenant, &run, &beside).await }
        };
        app.tell_run(&ask, StatusCode::OK, act).await
    })
    .await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FinishBody {
    output: Option<Box<RawValue>>,
    error: Option<FinishError>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FinishError {
    code: String,
    message: String,
}

/// The client says how its run ended: with an output, or with an error, after which what it did is undone.
pub async fn finish(State(app): State<Arc<App>>, segment: Segment, ask: Ask) -> Result<Response, Problem> {
    ask.who.must(Right::Call)?;
    let run: RunId = segment.name()?;
    let body: FinishBody = ask.json()?;
    let how = match (body.output, body.error) {
        (Some(_), Some(_)) => {
            return Err(Problem::bad("invalid_body", "a run ends with `output` or with `error`, not with both; nothing was changed"));
        }
        (output, None) => {
            let output = output.map_or_else(|| Ok(Json::null()), |output| Json::parse(output.get()));
            RunEnd::Completed { output: output.map_err(|error| Problem::bad("invalid_json", error.to_string()))? }
        }
        (None, Some(FinishError { code, message })) => RunEnd::Failed { failure: Failure::new(code, message) },
    };
    undropped(async move {
        let act = |beside| {
            let (app, tenant, run, how) = (app.clone(), ask.who.tenant.clone(), run.clone(), how.clone());
            async move { app.runtime.finish_run_beside(&tenant, &run, how, &beside).await }
        };
        app.tell_run(&ask, StatusCode::OK, act).await
    })
    .await
}
