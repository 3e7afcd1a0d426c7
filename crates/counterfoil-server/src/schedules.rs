//! `/v1/schedules`: workflows that run again and again. What is said about one is one append with the request that says it; its ticks are the runtime's.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use counterfoil_core::ids::ScheduleName;
use counterfoil_core::token::Right;
use counterfoil_runtime::engine::schedules::{Proposed, Wanted, Word};
use counterfoil_runtime::{Operator, shown};
use counterfoil_store::Version;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::{App, undropped};
use crate::ask::{Ask, Look, NoQuery, Segment};
use crate::problem::Problem;
use crate::requests::json_stored;

pub async fn list(State(app): State<Arc<App>>, look: Look<NoQuery>) -> Result<Json<Value>, Problem> {
    look.who.must(Right::Call)?;
    let found = app.runtime.schedules(&look.who.tenant).await?;
    let schedules: Vec<Value> = found.iter().map(shown::schedule).collect();
    Ok(Json(json!({ "schedules": schedules })))
}

pub async fn get(State(app): State<Arc<App>>, segment: Segment, look: Look<NoQuery>) -> Result<Json<Value>, Problem> {
    look.who.must(Right::Call)?;
    let name: ScheduleName = segment.name()?;
    Ok(Json(shown::schedule(&app.runtime.schedule(&look.who.tenant, &name).await?)))
}

pub async fn put(State(app): State<Arc<App>>, segment: Segment, ask: Ask) -> Result<Response, Problem> {
    ask.who.must(Right::Admin)?;
    let name: ScheduleName = segment.name()?;
    let terms = ask.json::<Wanted>()?.terms()?;
    undropped(async move {
        let (tenant, by) = (&ask.who.tenant, ask.who.caller.as_str());
        // Another process may just have put the workflow.
        app.workflow(&ask.who, &terms.workflow).await?;
        app.propose(&ask, &name, || app.runtime.propose_schedule(tenant, &name, &terms, by)).await
    })
    .await
}

pub async fn pause(state: State<Arc<App>>, segment: Segment, ask: Ask) -> Result<Response, Problem> {
    tell(state, segment, ask, Word::Pause, Right::Operate).await
}

pub async fn resume(state: State<Arc<App>>, segment: Segment, ask: Ask) -> Result<Response, Problem> {
    tell(state, segment, ask, Word::Resume, Right::Operate).await
}

pub async fn delete(state: State<Arc<App>>, segment: Segment, ask: Ask) -> Result<Response, Problem> {
    tell(state, segment, ask, Word::Remove, Right::Admin).await
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    why: Option<String>,
}

async fn tell(State(app): State<Arc<App>>, segment: Segment, ask: Ask, word: Word, right: Right) -> Result<Response, Problem> {
    ask.who.must(right)?;
    let name: ScheduleName = segment.name()?;
    let said: Said = ask.json()?;
    undropped(async move {
        let operator = Operator::new(ask.who.caller.as_str(), said.why.unwrap_or_default());
        app.propose(&ask, &name, || app.runtime.propose_word(&ask.who.tenant, &name, word, &operator)).await
    })
    .await
}

impl App {
    async fn propose<F>(self: &Arc<Self>, ask: &Ask, name: &ScheduleName, propose: impl Fn() -> F) -> Result<Response, Problem>
    where
        F: Future<Output = Result<Proposed, counterfoil_runtime::engine::RunError>>,
    {
        self.write(ask, || async {
            let Proposed { schedule, version, write } = propose().await?;
            let created = version == Version(1) && write.is_some();
            let mut stored = json_stored(if created { StatusCode::CREATED } else { StatusCode::OK }, &shown::schedule(&schedule));
            stored.location = Some(format!("/v1/schedules/{}", name.as_str().replace('/', "%2F")));
            Ok((write.into_iter().collect(), stored))
        })
        .await
    }
}
