//! `/v1/breakers`: what keeps calls away from dependencies that fail.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use counterfoil_core::Timestamp;
use counterfoil_core::breaker::{Breaker, Phase};
use counterfoil_core::token::Right;
use counterfoil_runtime::ledger::LedgerError;
use counterfoil_runtime::shown;
use http::StatusCode;
use serde_json::{Value, json};

use crate::app::{App, undropped};
use crate::ask::{Ask, Look, NoQuery, Segment};
use crate::call::unknown_tool;
use crate::effects::Why;
use crate::problem::{Problem, in_flight};
use crate::requests::{Turn, json_stored, respond};

pub async fn list(State(app): State<Arc<App>>, look: Look<NoQuery>) -> Result<Json<Value>, Problem> {
    look.who.must(Right::Call)?;
    let mut breakers = Vec::new();
    for tool in app.runtime.registry().all_of(&look.who.tenant).iter().filter(|tool| !tool.is_pure()) {
        let (breaker, phase) = app.runtime.breaker(&look.who.tenant, tool).await?;
        breakers.push(shown::breaker(tool, &breaker, phase));
    }
    Ok(Json(json!({ "breakers": breakers })))
}

pub async fn reset(State(app): State<Arc<App>>, segment: Segment, ask: Ask) -> Result<Response, Problem> {
    set(app, segment, ask, |breaker, _, _| breaker.reset()).await
}

pub async fn open(State(app): State<Arc<App>>, segment: Segment, ask: Ask) -> Result<Response, Problem> {
    set(app, segment, ask, |breaker, now, why| breaker.force_open(now, why.to_owned())).await
}

async fn set(app: Arc<App>, segment: Segment, ask: Ask, change: fn(&mut Breaker, Timestamp, &str)) -> Result<Response, Problem> {
    ask.who.must(Right::Operate)?;
    let name = segment.tool()?;
    let body: Why = ask.json()?;
    let why = body.why.unwrap_or_else(|| format!("by {}", ask.who.caller));
    let Some(tool) = app.runtime.registry().get(&ask.who.tenant, &name) else { return Err(unknown_tool(&app, &ask.who, &name)) };
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
            let stored = |breaker: &Breaker| {
                let phase = if breaker.open.is_some() { Phase::Open } else { Phase::Closed };
                json_stored(StatusCode::OK, &shown::breaker(&tool, breaker, phase))
            };
            let beside = |breaker: &Breaker| asked.iter().map(|asked| app.requests.answered(asked, &stored(breaker))).collect();
            let set = app.runtime.set_breaker_beside(&ask.who.tenant, &tool, |breaker, now| change(breaker, now, &why), beside).await;
            match set {
                Ok(breaker) => return Ok(respond(stored(&breaker), false)),
                // A request with the same key was faster.
                Err(LedgerError::Conflict) if asked.is_some() => continue,
                Err(error) => return Err(error.into()),
            }
        }
    })
    .await
}
