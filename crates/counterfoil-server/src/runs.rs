//! `/v1/runs`: workflows that are under way or over. The run and the record of the request that started it are one append; then it is driven here, or by
//! whichever worker is left.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use counterfoil_core::ids::{Name, WorkflowName};
use counterfoil_core::run::{Run, entry_word};
use counterfoil_core::summary::{StreamKind, state_word};
use counterfoil_core::token::Right;
use counterfoil_core::{CanonicalJson, RunId, StreamId};
use counterfoil_runtime::engine::client::NewClientRun;
use counterfoil_runtime::engine::{NewRun, RunBeside, RunError, RunView};
use counterfoil_runtime::shown;
use counterfoil_runtime::workflow::{StepSpec, Workflow};
use counterfoil_store::{Query, Reach};
use http::StatusCode;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::app::{App, undropped};
use crate::ask::{Ask, Look, NoQuery, Segment, invalid_json};
use crate::effects::{age, paged};
use crate::problem::Problem;
use crate::run_changes::name;
use crate::run_clients;
use crate::tools::ABSENT_SURELY_AFTER;
use crate::who::Who;

/// As long as proxies usually let an answer take.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// What other processes write is seen this often at least.
const LOOK_EVERY: Duration = Duration::from_millis(250);

const STATES: [&str; 9] =
    ["running", "waiting", "cancelling", "compensating", "completed", "failed", "cancelled", "compensated", "compensation_failed"];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StartBody {
    workflow: String,
    input: Option<Box<RawValue>>,
    /// The same id with the same workflow and input is the same run.
    run: Option<String>,
    /// Who drives it: the engine, by the workflow of that name; or the client that asks, which calls what it does so.
    #[serde(default)]
    driver: Driver,
    /// How long the client may be silent.
    lease_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Driver {
    #[default]
    Engine,
    Client,
}

pub async fn start(State(app): State<Arc<App>>, ask: Ask) -> Result<Response, Problem> {
    ask.who.must(Right::Call)?;
    let body: StartBody = ask.json()?;
    if body.run.is_none() {
        ask.required_key()?;
    }
    let workflow: WorkflowName = name("workflow", &body.workflow)?;
    let run: Option<RunId> = body.run.as_deref().map(|run| name("run", run)).transpose()?;
    let input = match &body.input {
        Some(input) => CanonicalJson::parse(input.get()).map_err(|error| invalid_json(&error))?,
        None => CanonicalJson::empty_object(),
    };
    if body.driver == Driver::Client {
        let run = match run {
            Some(run) => run,
            None => name("run", &app.runtime.execution_id())?,
        };
        let Who { tenant, caller, .. } = ask.who.clone();
        let lease = body.lease_ms.map(Duration::from_millis);
        return run_clients::open(app, ask, NewClientRun { tenant, caller, run, name: workflow, input, lease }).await;
    }
    if body.lease_ms.is_some() {
        return Err(Problem::bad(
            "invalid_lease",
            "`lease_ms` is for runs that a client drives: add \"driver\": \"client\"; nothing was changed",
        ));
    }
    undropped(async move {
        let act = |beside: RunBeside| {
            let (app, who, name, run, input) = (app.clone(), ask.who.clone(), workflow.clone(), run.clone(), input.clone());
            async move {
                // Here, and not before: a request that is sent again is answered from its record, whatever became of the workflow.
                let workflow = app.workflow(&who, &name).await?;
                app.know_tools(&who, &workflow).await;
                let Who { tenant, caller, .. } = who;
                app.runtime
                    .start_run_beside(NewRun { tenant, caller, run, workflow, input, parent: None, tools: None, driven: true }, &beside)
                    .await
            }
        };
        app.tell_run(&ask, StatusCode::CREATED, act).await
    })
    .await
}

impl App {
    /// Tools that another process registered since are known here before a run begins that calls them. If they cannot be read, the run is refused for
    /// want of them, or for the same reason.
    async fn know_tools(&self, who: &Who, workflow: &Workflow) {
        let everyones = |tool| self.runtime.registry().is_everyones(tool);
        let own = workflow.steps.iter().any(|step| match step {
            StepSpec::Tool(step) => !everyones(&step.tool) || step.undo.as_ref().is_some_and(|undo| !everyones(&undo.tool)),
            // What it calls is not known yet.
            StepSpec::Call { .. } => true,
            _ => false,
        });
        if own && let Err(problem) = self.renew_all(who).await {
            tracing::warn!(tenant = %who.tenant, ?problem, "registered tools cannot be read");
        }
    }

    /// A run of the asker's tenant. Another tenant's is not found, like one that never was.
    pub async fn run_of(&self, who: &Who, run: &RunId) -> Result<(Run, Arc<Workflow>), RunError> {
        match self.runtime.run_facts(&who.tenant, run).await {
            Err(RunError::NotFound(_)) => {
                // Another process may just have started it, and an absent stream is known to be absent as of a moment ago.
                tokio::time::sleep(ABSENT_SURELY_AFTER).await;
                self.runtime.run_facts(&who.tenant, run).await
            }
            found => found,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListQuery {
    /// One or more, separated by commas.
    state: Option<String>,
    workflow: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

pub async fn list(State(app): State<Arc<App>>, look: Look<ListQuery>) -> Result<Json<Value>, Problem> {
    look.who.must(Right::Call)?;
    let state = |text: &str| {
        let word = state_word(text).filter(|word| STATES.contains(word));
        word.ok_or_else(|| Problem::bad("invalid_query", format!("state: there is no state {text:?}; there are {}", STATES.join(", "))))
    };
    let states = look.query.state.as_deref().map_or(Ok(Vec::new()), |states| states.split(',').map(state).collect())?;
    let (limit, below) = paged(look.query.limit, look.query.cursor.as_deref())?;
    let named = |workflow: &str| Name::new(workflow).map_err(|error| Problem::bad("invalid_query", format!("workflow: {error}")));
    let tool = look.query.workflow.as_deref().map(named).transpose()?;
    let query = Query { kind: StreamKind::Run, states, tool, below, limit, ..Query::effects(look.who.tenant) };
    let page = app.runtime.runs(query).await?;
    let runs = page.found.iter().map(shown::run);
    Ok(Json(json!({ "runs": runs.collect::<Vec<_>>(), "next": page.next.map(|position| position.0.to_string()) })))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetQuery {
    /// `30s`: answer when it has ended, or after that time.
    wait: Option<String>,
}

pub async fn get(State(app): State<Arc<App>>, segment: Segment, look: Look<GetQuery>) -> Result<Json<RunView>, Problem> {
    look.who.must(Right::Call)?;
    let id: RunId = segment.name()?;
    let wait = look.query.wait.as_deref().map(|wait| age("wait", wait)).transpose()?.unwrap_or_default();
    if wait > WAIT_MAX {
        return Err(Problem::bad("invalid_query", format!("wait: at most {} s; ask again after that", WAIT_MAX.as_secs())));
    }
    let until = Instant::now() + wait;
    let waiter = app.runtime.ledger().wakeups().register(StreamId::run(&look.who.tenant, &id));
    let mut stopping = app.stopping.clone();
    loop {
        // Before the look, so that a record between the look and the wait still wakes.
        let woken = waiter.notify.notified();
        let (run, _) = app.run_of(&look.who, &id).await?;
        let left = until.saturating_duration_since(Instant::now());
        if run.state().is_end() || left.is_zero() || *stopping.borrow() {
            // With what only the effects of its steps know.
            return Ok(Json(app.runtime.run(&look.who.tenant, &id).await?));
        }
        tokio::select! {
            () = woken => {}
            () = tokio::time::sleep(left.min(LOOK_EVERY)) => {}
            _ = stopping.wait_for(|stopping| *stopping) => {}
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntriesQuery {
    /// Only those of this name; capitals mean the same.
    entry: Option<String>,
}

pub async fn entries(State(app): State<Arc<App>>, segment: Segment, look: Look<EntriesQuery>) -> Result<Json<Value>, Problem> {
    look.who.must(Right::Call)?;
    let run: RunId = segment.name()?;
    let named =
        |text| entry_word(text).ok_or_else(|| Problem::bad("invalid_query", format!("entry: no entry of a run is called {text:?}")));
    let only = look.query.entry.as_deref().map(named).transpose()?;
    let entries = app.runtime.run_entries(&look.who.tenant, &run, only).await?;
    Ok(Json(json!({ "run": run, "entries": entries })))
}

/// Also of a run that a client drives itself: such a run is nothing but its effects.
pub async fn receipts(State(app): State<Arc<App>>, segment: Segment, look: Look<NoQuery>) -> Result<Json<Value>, Problem> {
    look.who.must(Right::Call)?;
    let run: RunId = segment.name()?;
    let (ledger, tenant) = (app.runtime.ledger(), &look.who.tenant);
    let receipts = ledger.receipts(tenant, Some(&run)).await?;
    if receipts.is_empty() && ledger.records(StreamId::run(tenant, &run), Reach::Newest(1)).await?.records.is_empty() {
        return Err(RunError::NotFound(run).into());
    }
    Ok(Json(json!({ "run": run, "receipts": receipts })))
}

/// Characters of a path that need no escape.
const PLAIN: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Where a run is shown: its id is one segment, whatever characters it has.
pub fn location(run: &RunId) -> String {
    format!("/v1/runs/{}", utf8_percent_encode(run.as_str(), &PLAIN))
}
