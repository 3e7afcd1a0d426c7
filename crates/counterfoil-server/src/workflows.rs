//! `/v1/workflows`: what runs can be started of. A workflow is kept as the very text that was sent; a run keeps the text it began with, whatever is put later.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use counterfoil_core::CanonicalJson;
use counterfoil_core::ids::WorkflowName;
use counterfoil_core::summary::StreamKind;
use counterfoil_core::token::Right;
use counterfoil_runtime::engine::RunError;
use counterfoil_runtime::engine::operate::Heard;
use counterfoil_runtime::ledger::LedgerError;
use counterfoil_runtime::shown::time;
use counterfoil_runtime::workflow::Workflow;
use counterfoil_store::{Query, Version};
use http::StatusCode;
use serde_json::{Value, json};

use crate::app::{App, undropped};
use crate::ask::{Ask, Look, NoQuery, Segment, invalid_json};
use crate::problem::{Problem, in_flight};
use crate::requests::{Turn, json_stored, respond};
use crate::tools::ABSENT_SURELY_AFTER;
use crate::who::Who;

pub async fn list(State(app): State<Arc<App>>, look: Look<NoQuery>) -> Result<Json<Value>, Problem> {
    look.who.must(Right::Call)?;
    let query = Query { kind: StreamKind::Workflow, states: vec!["registered"], limit: 1000, ..Query::effects(look.who.tenant) };
    let found = app.runtime.ledger().all_of(query).await?;
    let workflows: Vec<Value> =
        found.iter().map(|f| json!({ "workflow": f.summary.tool, "version": f.version.0, "at": time(f.at) })).collect();
    Ok(Json(json!({ "workflows": workflows })))
}

pub async fn get(State(app): State<Arc<App>>, segment: Segment, look: Look<NoQuery>) -> Result<Json<Value>, Problem> {
    look.who.must(Right::Call)?;
    let workflow = app.workflow(&look.who, &segment.name()?).await?;
    let (description, text) = (&workflow.description, &*workflow.text);
    Ok(Json(json!({ "workflow": workflow.name, "definition": workflow.digest, "description": description, "text": text })))
}

pub async fn put(State(app): State<Arc<App>>, segment: Segment, ask: Ask) -> Result<Response, Problem> {
    ask.who.must(Right::Admin)?;
    let name: WorkflowName = segment.name()?;
    let workflow = Arc::new(sent(&name, ask.body())?);
    undropped(async move {
        let asked = ask.asked();
        let _active = asked.as_ref().map(|asked| app.requests.begin(asked).ok_or_else(in_flight)).transpose()?;
        loop {
            let asked = match &asked {
                None => None,
                Some(asked) => match app.requests.look(asked.clone()).await? {
                    Turn::Replay(stored) => return Ok(respond(stored, true)),
                    Turn::Go(asked) | Turn::GoOn(asked) => Some(asked),
                },
            };
            let stored = |version: Version, changed: bool| {
                let status = if changed && version == Version(1) { StatusCode::CREATED } else { StatusCode::OK };
                let mut stored = json_stored(
                    status,
                    &json!({ "workflow": name, "definition": workflow.digest, "version": version.0, "changed": changed }),
                );
                stored.location = Some(format!("/v1/workflows/{}", name.as_str().replace('/', "%2F")));
                stored
            };
            let beside = |version: Version| asked.iter().map(|asked| app.requests.answered(asked, &stored(version, true))).collect();
            match app.runtime.put_workflow_beside(&ask.who.tenant, &workflow, ask.who.caller.as_str(), beside).await {
                Ok((Heard::Now, version)) => return Ok(respond(stored(version, true), false)),
                Ok((Heard::Before, version)) => {
                    let stored = stored(version, false);
                    if app.nothing_changed(asked.as_ref(), &stored).await? {
                        return Ok(respond(stored, false));
                    }
                }
                // A request with the same key was faster.
                Err(RunError::Ledger(LedgerError::BesideTaken { .. })) => continue,
                Err(error) => return Err(error.into()),
            }
        }
    })
    .await
}

/// The body is the workflow, since JSON is YAML; or an object whose only member `text` is a workflow file.
fn sent(name: &WorkflowName, body: &str) -> Result<Workflow, Problem> {
    let value = CanonicalJson::parse(body).map_err(|error| invalid_json(&error))?.to_value();
    let text = match &value {
        Value::Object(members) if members.len() == 1 => members.get("text").and_then(Value::as_str),
        _ => None,
    };
    let wrong = |mistakes: Value| {
        let detail = format!("{name} is not a workflow: `mistakes` lists what is wrong with it; nothing was changed");
        Problem::bad("workflow_invalid", detail).with("mistakes", mistakes)
    };
    let read = Workflow::parse(text.unwrap_or(body), format!("{name}.yaml"));
    let workflow = read.map_err(|errors| wrong(serde_json::to_value(errors.mistakes()).expect("mistakes are plain data")))?;
    if workflow.name != *name {
        let message = format!("the workflow is called {:?}, and the path says {:?}", workflow.name.as_str(), name.as_str());
        return Err(wrong(json!([{ "path": "workflow", "message": message }])));
    }
    Ok(workflow)
}

impl App {
    /// As the ledger has it now, whichever process put it.
    pub async fn workflow(&self, who: &Who, name: &WorkflowName) -> Result<Arc<Workflow>, RunError> {
        if let Some(found) = self.runtime.workflow(&who.tenant, name).await? {
            return Ok(found);
        }
        // Another process may just have put it, and an absent stream is known to be absent as of a moment ago.
        tokio::time::sleep(ABSENT_SURELY_AFTER).await;
        self.runtime.workflow(&who.tenant, name).await?.ok_or_else(|| RunError::UnknownWorkflow(name.to_string()))
    }
}
