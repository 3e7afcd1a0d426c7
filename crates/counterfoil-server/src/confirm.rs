//! Whether the world still agrees: `/v1/runs/{run}/replay` and `/v1/effects/{key}/verify` ask it, dry; `/v1/runs/{run}/confirm` is a person's word on a run
//! that waits since it does not.
//!
//! The first two record nothing, so a request that is sent again is asked again: an `Idempotency-Key` need not be there, and means nothing.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use counterfoil_core::RunId;
use counterfoil_core::ids::WorkflowName;
use counterfoil_core::token::Right;
use counterfoil_runtime::engine::ReplayView;
use counterfoil_runtime::engine::operate::Deciding;
use counterfoil_runtime::shown;
use http::StatusCode;
use serde::Deserialize;
use serde_json::Value;

use crate::app::{App, undropped};
use crate::ask::{Ask, Segment};
use crate::problem::Problem;
use crate::run_changes::name;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplayBody {
    /// Also held against the workflow of this name, as it is now.
    workflow: Option<String>,
}

pub async fn replay(State(app): State<Arc<App>>, segment: Segment, ask: Ask) -> Result<Json<ReplayView>, Problem> {
    ask.who.must(Right::Call)?;
    let run: RunId = segment.name()?;
    let body: ReplayBody = ask.json()?;
    let workflow: Option<WorkflowName> = body.workflow.as_deref().map(|workflow| name("workflow", workflow)).transpose()?;
    app.run_of(&ask.who, &run).await?;
    let workflow = match workflow {
        Some(workflow) => Some(app.workflow(&ask.who, &workflow).await?),
        None => None,
    };
    Ok(Json(app.runtime.replay_run(&ask.who.tenant, &run, workflow.as_deref()).await?))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Empty {}

pub async fn verify(State(app): State<Arc<App>>, segment: Segment, ask: Ask) -> Result<Json<Value>, Problem> {
    ask.who.must(Right::Call)?;
    let key = segment.effect()?;
    let Empty {} = ask.json()?;
    app.effect(&ask.who, key).await?;
    let (effect, finding) = app.runtime.verify(key).await?;
    Ok(Json(shown::finding(&effect, &finding)))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfirmBody {
    /// It goes on as recorded; if not, it fails.
    accept: bool,
    why: Option<String>,
}

pub async fn confirm(State(app): State<Arc<App>>, segment: Segment, ask: Ask) -> Result<Response, Problem> {
    ask.who.must(Right::Operate)?;
    let run: RunId = segment.name()?;
    let body: ConfirmBody = ask.json()?;
    let decision = Deciding { accepted: body.accept, by: ask.who.caller.to_string(), why: body.why.unwrap_or_default() };
    undropped(async move {
        let act = |beside| {
            let (app, tenant, run, decision) = (app.clone(), ask.who.tenant.clone(), run.clone(), decision.clone());
            async move { app.runtime.decide_confirm_beside(&tenant, &run, &decision, &beside).await }
        };
        app.tell_run(&ask, StatusCode::OK, act).await
    })
    .await
}
