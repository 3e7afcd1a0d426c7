//! `/v1/effects`: what was done, what is in doubt, and what a person does about it.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State as Shared;
use axum::response::Response;
use counterfoil_core::request::Stored;
use counterfoil_core::summary::{StreamKind, state_word};
use counterfoil_core::token::Right;
use counterfoil_core::{Effect, RunId, State, ToolName};
use counterfoil_runtime::{OperateError, Operator, Resolution, shown};
use counterfoil_store::{Position, Query};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::{App, undropped};
use crate::ask::{Ask, Look, NoQuery, Segment};
use crate::problem::Problem;
use crate::requests::json_stored;

const LIMIT_DEFAULT: usize = 50;
const LIMIT_MAX: usize = 1000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListQuery {
    /// One or more, separated by commas.
    state: Option<String>,
    tool: Option<String>,
    run: Option<String>,
    /// `30s`, `10m`, `2h`, `7d`.
    older_than: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

pub async fn list(Shared(app): Shared<Arc<App>>, look: Look<ListQuery>) -> Result<Json<Value>, Problem> {
    look.who.must(Right::Call)?;
    let query = look.query;
    let wrong = |field: &str, why: String| Problem::bad("invalid_query", format!("{field}: {why}"));
    let states = query.state.as_deref().map_or(Ok(Vec::new()), |states| states.split(',').map(state).collect())?;
    let tool = query.tool.as_deref().map(ToolName::new).transpose().map_err(|e| wrong("tool", e.to_string()))?;
    let run = query.run.as_deref().map(RunId::new).transpose().map_err(|e| wrong("run", e.to_string()))?;
    let age = query.older_than.as_deref().map(|text| age("older_than", text)).transpose()?;
    let (limit, below) = paged(query.limit, query.cursor.as_deref())?;
    let now = app.runtime.now();
    let query = Query { states, tool, run, before: age.map(|age| now - age), below, limit, ..Query::effects(look.who.tenant) };
    let page = app.runtime.ledger().search(query).await?;
    let effects: Vec<Value> = page.found.iter().map(|found| shown::found(found, now)).collect();
    Ok(Json(json!({ "effects": effects, "next": page.next.map(|position| position.0.to_string()) })))
}

/// How much of a list, and from where on.
pub fn paged(limit: Option<usize>, cursor: Option<&str>) -> Result<(usize, Option<Position>), Problem> {
    let wrong = |field: &str, why: String| Problem::bad("invalid_query", format!("{field}: {why}"));
    let limit = match limit.unwrap_or(LIMIT_DEFAULT) {
        limit @ 1..=LIMIT_MAX => limit,
        other => return Err(wrong("limit", format!("{other} is not between 1 and {LIMIT_MAX}"))),
    };
    let position = |cursor: &str| cursor.parse().map_err(|_| wrong("cursor", format!("{cursor:?} is not the `next` of a page")));
    Ok((limit, cursor.map(position).transpose()?.map(Position)))
}

fn state(text: &str) -> Result<&'static str, Problem> {
    let known =
        ["waiting_approval", "ready", "running", "done", "retrying", "failed", "in_doubt", "cancelled", "undoing", "undone", "undo_failed"];
    let word = state_word(text).filter(|word| known.contains(word));
    word.ok_or_else(|| Problem::bad("invalid_query", format!("state: there is no state {text:?}; there are {}", known.join(", "))))
}

/// A number and a unit.
pub fn age(field: &str, text: &str) -> Result<Duration, Problem> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit = match &text[split..] {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => 0,
    };
    // No longer ago than the year 1970 lies back.
    let seconds = text[..split].parse::<u64>().ok().and_then(|n| n.checked_mul(unit)).filter(|s| unit > 0 && *s < 1 << 30);
    let wrong = || Problem::bad("invalid_query", format!("{field}: {text:?}: write a number and a unit: 30s, 10m, 2h, 7d"));
    seconds.map(Duration::from_secs).ok_or_else(wrong)
}

pub async fn get(Shared(app): Shared<Arc<App>>, segment: Segment, look: Look<NoQuery>) -> Result<Json<Value>, Problem> {
    look.who.must(Right::Call)?;
    let key = segment.effect()?;
    let effect = app.effect(&look.who, key).await?;
    let history = app.runtime.history(key).await?;
    Ok(Json(shown::effect(&effect, Some(&history))))
}

/// What an operator says beside what is done.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Why {
    pub why: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ResolveBody {
    verdict: Verdict,
    result: Option<Box<serde_json::value::RawValue>>,
    why: Option<String>,
    attempt: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Happened,
    DidNotHappen,
    GiveUp,
    /// It happened, and shall not have: recorded as done, then undone.
    Undo,
}

pub async fn resolve(Shared(app): Shared<Arc<App>>, segment: Segment, ask: Ask) -> Result<Response, Problem> {
    ask.who.must(Right::Operate)?;
    let key = segment.effect()?;
    let body: ResolveBody = ask.json()?;
    let result = match (&body.result, body.verdict) {
        (Some(_), Verdict::DidNotHappen | Verdict::GiveUp) => {
            return Err(Problem::bad("invalid_body", "`result` goes with the verdicts happened and undo; nothing was changed"));
        }
        (Some(result), _) => counterfoil_core::Json::parse(result.get()).map_err(|e| Problem::bad("invalid_json", e.to_string()))?,
        (None, _) => counterfoil_core::Json::null(),
    };
    let operator = app.operator(&ask.who, body.why).about(body.attempt);
    undropped(async move {
        let resolution = match body.verdict {
            Verdict::Happened | Verdict::Undo => Resolution::Happened { result },
            Verdict::DidNotHappen => Resolution::DidNotHappen,
            Verdict::GiveUp => Resolution::GiveUp,
        };
        if body.verdict != Verdict::Undo {
            let act = |operator| {
                let (app, who, resolution) = (app.clone(), ask.who.clone(), resolution.clone());
                async move {
                    app.effect(&who, key).await?;
                    app.runtime.resolve(key, resolution, &operator).await
                }
            };
            return app.change(&ask, operator, act, changed).await;
        }
        let act = |operator: Operator| {
            let (app, who, resolution) = (app.clone(), ask.who.clone(), resolution.clone());
            async move {
                app.effect(&who, key).await?;
                if let Resolution::Happened { result } = &resolution
                    && !app.runtime.could_undo(key, result).await?
                {
                    return Err(OperateError::NoUndo(key));
                }
                app.runtime.resolve(key, resolution, &operator).await?;
                app.runtime.undo(key, &Operator::new(&operator.by, &operator.why)).await
            }
        };
        let go_on = || {
            let (app, alone) = (app.clone(), Operator::new(&operator.by, &operator.why));
            async move {
                match app.runtime.effect(key).await?.state {
                    State::Done(_) => app.runtime.undo(key, &alone).await,
                    _ => app.undo_resumed(key).await,
                }
            }
        };
        app.run(&ask, operator.clone(), act, go_on).await
    })
    .await
}

pub fn changed(effect: &Effect) -> Stored {
    json_stored(StatusCode::OK, &shown::effect(effect, None))
}

/// The handlers of changes that differ only in the runtime's method.
macro_rules! operations {
    ($($name:ident => $kind:ident $($go_on:ident)?;)*) => {$(
        pub async fn $name(Shared(app): Shared<Arc<App>>, segment: Segment, ask: Ask) -> Result<Response, Problem> {
            ask.who.must(Right::Operate)?;
            let key = segment.effect()?;
            let body: Why = ask.json()?;
            let operator = app.operator(&ask.who, body.why);
            undropped(async move {
                let act = |operator| {
                    let (app, who) = (app.clone(), ask.who.clone());
                    async move {
                        // Here, and not before: a request that is sent again is answered from its record, whatever became of the effect.
                        app.effect(&who, key).await?;
                        app.runtime.$name(key, &operator).await
                    }
                };
                operations!(@$kind app, ask, key, operator, act $(, $go_on)?)
            })
            .await
        }
    )*};
    (@change $app:ident, $ask:ident, $key:ident, $operator:ident, $act:ident) => { $app.change(&$ask, $operator, $act, changed).await };
    (@run $app:ident, $ask:ident, $key:ident, $operator:ident, $act:ident, $go_on:ident) => {
        $app.run(&$ask, $operator, $act, || $app.$go_on($key)).await
    };
}

operations! {
    cancel => change;
    deny => change;
    approve => run resumed;
    retry => run resumed;
    undo => run undo_resumed;
}

/// `GET /v1/approvals`: calls that wait for a person.
pub async fn approvals(Shared(app): Shared<Arc<App>>, look: Look<NoQuery>) -> Result<Json<Value>, Problem> {
    look.who.must(Right::Call)?;
    let now = app.runtime.now();
    let query = Query { states: vec!["waiting_approval"], limit: LIMIT_MAX, kind: StreamKind::Effect, ..Query::effects(look.who.tenant) };
    let page = app.runtime.ledger().search(query).await?;
    let mut waiting = Vec::new();
    for found in &page.found {
        let effect = app.runtime.effect(shown::key_of(found)).await?;
        if let State::WaitingApproval { asked, expires } = &effect.state {
            let opened = effect.opened.as_ref();
            waiting.push(json!({
                "effect": effect.key, "tool": opened.map(|o| &o.tool), "args": opened.map(|o| &o.args), "fingerprint": opened.map(|o| o.fingerprint),
                "caller": opened.map(|o| &o.caller), "asked": shown::time(*asked), "expires": shown::time(*expires),
                "age_ms": u64::try_from(now.since(*asked).as_millis()).unwrap_or(u64::MAX),
            }));
        }
    }
    Ok(Json(json!({ "approvals": waiting })))
}
