//! `/v1/tools`: what can be called. A tenant's own tools are streams of the ledger; those of the config are everyone's and are changed there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use counterfoil_core::summary::StreamKind;
use counterfoil_core::token::Right;
use counterfoil_core::{CanonicalJson, StreamId, Summary, Tenant, Timestamp, ToolName};
use counterfoil_runtime::ledger::{LedgerError, plain_summary};
use counterfoil_runtime::{Registered, Runtime, shown};
use counterfoil_store::{Query, Version};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::app::{App, undropped};
use crate::ask::{Ask, Look, NoQuery, Segment, invalid_json};
use crate::call::unknown_tool;
use crate::problem::Problem;
use crate::requests::json_stored;
use crate::who::Who;

/// The tenant under which the registered tools of all tenants are listed: a search is always of one tenant.
const LISTED_UNDER: &str = "counterfoil";

/// Longer than a store's view of an absent stream may be old.
pub const ABSENT_SURELY_AFTER: Duration = Duration::from_millis(30);

/// What makes a tool from what was sent; all its mistakes otherwise.
pub type Maker = Arc<dyn Fn(&ToolName, &str) -> Result<Vec<Registered>, Value> + Send + Sync>;

/// The newest record of a registered tool's stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolRecord {
    pub at: Timestamp,
    pub by: String,
    pub tenant: Tenant,
    pub tool: ToolName,
    /// As a tool is written in the config. `None`: removed.
    pub spec: Option<CanonicalJson>,
}

pub struct Registrar {
    make: Maker,
    /// Which record of a tenant's tool the registry holds.
    held: Mutex<HashMap<(Tenant, ToolName), Version>>,
}

impl Registrar {
    pub fn new(make: Maker) -> Self {
        Self { make, held: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, HashMap<(Tenant, ToolName), Version>> {
        // Whole at every moment.
        self.held.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Takes every registered tool of the ledger into the registry. One that can no longer be made is left out, and said so.
    pub async fn load(&self, runtime: &Runtime) -> Result<usize, LedgerError> {
        let mut count = 0;
        for found in runtime.ledger().all_of(registered(vec!["registered"])).await? {
            let (_, record) = runtime.ledger().newest::<ToolRecord>(found.stream).await?;
            let Some(ToolRecord { tenant, tool, spec: Some(spec), .. }) = record else { continue };
            match (self.make)(&tool, spec.as_str()) {
                Ok(tools) => {
                    tools.into_iter().for_each(|tool| runtime.registry().put_own(&tenant, tool));
                    count += 1;
                }
                Err(mistakes) => tracing::error!(%tenant, %tool, %mistakes, "a registered tool cannot be made any more"),
            }
        }
        Ok(count)
    }
}

pub async fn list(State(app): State<Arc<App>>, look: Look<NoQuery>) -> Result<Json<Value>, Problem> {
    look.who.must(Right::Call)?;
    app.renew_all(&look.who).await?;
    let tools: Vec<Value> = app.runtime.registry().all_of(&look.who.tenant).iter().map(|tool| shown(&app, tool)).collect();
    Ok(Json(json!({ "tools": tools })))
}

fn shown(app: &App, tool: &Registered) -> Value {
    let mut shown = shown::tool(tool);
    shown["source"] = json!(if app.runtime.registry().is_everyones(&tool.name) { "config" } else { "registered" });
    shown
}

/// From the ledger itself, so that what was acknowledged is seen by whoever asks next.
pub async fn get(State(app): State<Arc<App>>, segment: Segment, look: Look<NoQuery>) -> Result<Json<Value>, Problem> {
    look.who.must(Right::Call)?;
    let name = segment.tool()?;
    if let Some(tool) = app.runtime.registry().get(&look.who.tenant, &name).filter(|_| app.runtime.registry().is_everyones(&name)) {
        return Ok(Json(shown(&app, &tool)));
    }
    let (version, record) = current_surely(&app, &look.who, &name).await?;
    let Some(spec) = record.and_then(|record| record.spec) else { return Err(unknown_tool(&app, &look.who, &name)) };
    let made = make(&app, &name, spec.as_str())?;
    let mut shown = made.first().map_or(Value::Null, |tool| shown(&app, tool));
    shown["spec"] = spec.to_value();
    shown["version"] = json!(version.0);
    Ok(Json(shown))
}

pub async fn put(State(app): State<Arc<App>>, segment: Segment, ask: Ask) -> Result<Response, Problem> {
    ask.who.must(Right::Admin)?;
    let name = segment.tool()?;
    not_everyones(&app, &name)?;
    let spec = CanonicalJson::parse(ask.body()).map_err(|error| invalid_json(&error))?;
    make(&app, &name, spec.as_str())?;
    undropped(async move {
        let (who, change_app) = (&ask.who, &app);
        let response = app
            .write(&ask, || {
                let (name, spec) = (name.clone(), spec.clone());
                async move {
                    let (version, record) = current(change_app, who, &name).await?;
                    let created = record.is_none_or(|record| record.spec.is_none());
                    let write = change_app.tool_write(who, &name, version, Some(spec.clone()));
                    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
                    let mut stored = json_stored(status, &json!({ "name": name, "version": version.0 + 1, "spec": spec }));
                    stored.location = Some(format!("/v1/tools/{}", encoded(&name)));
                    Ok((vec![write], stored))
                }
            })
            .await?;
        app.renew(&ask.who, &name).await?;
        Ok(response)
    })
    .await
}

pub async fn delete(State(app): State<Arc<App>>, segment: Segment, ask: Ask) -> Result<Response, Problem> {
    ask.who.must(Right::Admin)?;
    let name = segment.tool()?;
    not_everyones(&app, &name)?;
    undropped(async move {
        let (who, change_app) = (&ask.who, &app);
        let response = app
            .write(&ask, || {
                let name = name.clone();
                async move {
                    let (version, record) = current(change_app, who, &name).await?;
                    if record.is_none_or(|record| record.spec.is_none()) {
                        return Err(unknown_tool(change_app, who, &name));
                    }
                    let write = change_app.tool_write(who, &name, version, None);
                    Ok((vec![write], json_stored(StatusCode::OK, &json!({ "name": name, "version": version.0 + 1, "removed": true }))))
                }
            })
            .await?;
        app.renew(&ask.who, &name).await?;
        Ok(response)
    })
    .await
}

impl App {
    fn tool_write(&self, who: &Who, name: &ToolName, version: Version, spec: Option<CanonicalJson>) -> counterfoil_store::Write {
        let listed = Tenant::new(LISTED_UNDER).expect("a plain word");
        let state = if spec.is_some() { "registered" } else { "removed" };
        // Open, so that it is always read as it is now: of a stream at rest, what another process wrote may be missed for a moment.
        let summary = Summary { state, open: true, tool: Some(name.clone()), ..plain_summary(StreamKind::Tool, listed) };
        let (at, by) = (self.runtime.now(), who.caller.to_string());
        let record = ToolRecord { at, by, tenant: who.tenant.clone(), tool: name.clone(), spec };
        self.runtime.ledger().replacing(StreamId::tool(&who.tenant, name), version, &record, summary)
    }

    /// Brings the registry to what the ledger has, never back: whoever read an older record comes too late.
    pub async fn renew(&self, who: &Who, name: &ToolName) -> Result<(), Problem> {
        let (version, record) = current_surely(self, who, name).await?;
        let id = (who.tenant.clone(), name.clone());
        if version == Version::NONE || self.registrar.held().get(&id).is_some_and(|held| *held >= version) {
            return Ok(());
        }
        let made = record.and_then(|record| record.spec).map(|spec| make(self, name, spec.as_str())).transpose()?;
        let mut held = self.registrar.held();
        if held.get(&id).is_some_and(|held| *held >= version) {
            return Ok(());
        }
        held.insert(id, version);
        match made {
            // Replaces: there is no moment without it.
            Some(tools) => tools.into_iter().for_each(|tool| self.runtime.registry().put_own(&who.tenant, tool)),
            None => self.runtime.registry().remove_own(&who.tenant, name),
        }
        Ok(())
    }

    /// Brings the registry to what the ledger has of all tools of the tenant, whichever worker wrote it.
    pub async fn renew_all(&self, who: &Who) -> Result<(), Problem> {
        let changed = |tenant: &Tenant, name: &ToolName, version: Version| {
            self.registrar.held().get(&(tenant.clone(), name.clone())).is_none_or(|held| *held < version)
        };
        for found in self.runtime.ledger().all_of(registered(vec!["registered", "removed"])).await? {
            let Some(name) = found.summary.tool else { continue };
            // Listed together, named apart: the stream says whose it is.
            if StreamId::tool(&who.tenant, &name) != found.stream || !changed(&who.tenant, &name, found.version) {
                continue;
            }
            if let Err(problem) = self.renew(who, &name).await {
                if problem.status.is_server_error() {
                    return Err(problem);
                }
                tracing::error!(tenant = %who.tenant, tool = %name, ?problem, "a registered tool cannot be made any more");
            }
        }
        Ok(())
    }

    /// What a call would run: as the ledger has it now, so that a call and a look never contradict each other.
    pub async fn tool(&self, who: &Who, name: &ToolName) -> Result<Arc<Registered>, Problem> {
        if !self.runtime.registry().is_everyones(name) {
            self.renew(who, name).await?;
        }
        self.runtime.registry().get(&who.tenant, name).ok_or_else(|| unknown_tool(self, who, name))
    }
}

/// The registered tools of all tenants, by what became of them.
fn registered(states: Vec<&'static str>) -> Query {
    let listed = Tenant::new(LISTED_UNDER).expect("a plain word");
    Query { kind: StreamKind::Tool, states, limit: 1000, ..Query::effects(listed) }
}

async fn current(app: &App, who: &Who, name: &ToolName) -> Result<(Version, Option<ToolRecord>), Problem> {
    Ok(app.runtime.ledger().newest::<ToolRecord>(StreamId::tool(&who.tenant, name)).await?)
}

/// The same where "none" would be the answer: another process may just have made it, and an absent stream is known to be absent as of a moment ago.
async fn current_surely(app: &App, who: &Who, name: &ToolName) -> Result<(Version, Option<ToolRecord>), Problem> {
    match current(app, who, name).await? {
        (Version::NONE, _) => {
            tokio::time::sleep(ABSENT_SURELY_AFTER).await;
            current(app, who, name).await
        }
        found => Ok(found),
    }
}

fn make(app: &App, name: &ToolName, spec: &str) -> Result<Vec<Registered>, Problem> {
    (app.registrar.make)(name, spec)
        .map_err(|mistakes| Problem::bad("invalid_tool", format!("{name} is not a tool; nothing was changed")).with("mistakes", mistakes))
}

fn not_everyones(app: &App, name: &ToolName) -> Result<(), Problem> {
    if !app.runtime.registry().is_everyones(name) {
        return Ok(());
    }
    let detail = format!("{name} is a tool of the config: change it there and restart; nothing was changed");
    Err(Problem::conflict("tool_in_config", detail))
}

/// A name as one segment of a path: only `/` of its characters has a meaning there.
fn encoded(name: &ToolName) -> String {
    name.as_str().replace('/', "%2F")
}
