//! `POST /v1/tools/{tool}/call`: the envelope of a call. Its `Idempotency-Key` is the effect's own key, so the effect itself is the record.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use counterfoil_core::ids::{CallKey, Kind, Name};
use counterfoil_core::request::Stored;
use counterfoil_core::token::Right;
use counterfoil_core::{Call, CanonicalJson, ToolName};
use counterfoil_runtime::{Answer, CallContext, Registered, Status};
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::app::{App, within};
use crate::ask::{Ask, Object, Segment, invalid_json, key_required, parse, whole};
use crate::problem::{Problem, seconds};
use crate::requests::{json_stored, respond};
use crate::who::Who;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallBody<'a> {
    pub key: Option<String>,
    #[serde(borrow)]
    pub args: Option<&'a RawValue>,
    pub run: Option<String>,
    pub step: Option<String>,
    #[serde(default, deserialize_with = "whole")]
    pub ordinal: u64,
    #[serde(default)]
    metadata: Object<Metadata>,
}

impl<'a> CallBody<'a> {
    pub fn of(key: Option<String>, args: Option<&'a RawValue>, run: Option<String>, step: Option<String>, ordinal: u64) -> Self {
        Self { key, args, run, step, ordinal, metadata: Object::default() }
    }
}

/// Said by the caller of itself: logged, and never part of a key. The tenant and the caller are the token's.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Metadata {
    caller: Option<String>,
    trace: Option<String>,
}

pub async fn call(State(app): State<Arc<App>>, segment: Segment, ask: Ask) -> Result<Response, Problem> {
    ask.who.must(Right::Call)?;
    let name = segment.tool()?;
    let tool = app.tool(&ask.who, &name).await?;
    let body = if ask.body().trim_ascii().is_empty() { "{}" } else { ask.body() };
    let call = asked_call(&ask.who, ask.key.as_ref(), parse(body)?, &tool)?;
    // The call goes on by itself, whatever becomes of this connection.
    let Some(answer) = within(app.limits.answer_within, app.runtime.call_in(context(&ask), call)).await else {
        let detail = format!("no answer within {:?}; the call goes on: ask again with the same key", app.limits.answer_within);
        return Err(Problem::new(StatusCode::GATEWAY_TIMEOUT, "request_timeout", detail));
    };
    dressed(&answer)
}

/// The caller's trace goes on to the world.
fn context(ask: &Ask) -> CallContext {
    let header = |name: &str| ask.headers.get(name).and_then(|value| value.to_str().ok());
    CallContext::from_w3c(header("traceparent"), header("tracestate"))
}

/// The call that a body asks for. `header` is the same as `key` in the body.
pub fn asked_call(who: &Who, header: Option<&CallKey>, body: CallBody<'_>, tool: &Registered) -> Result<Call, Problem> {
    let key = match (header, body.key) {
        (Some(header), Some(member)) if header.as_str() != member => {
            let detail =
                format!("the Idempotency-Key header is {header:?} and `key` is {member:?}: send one, or the same; nothing was run");
            return Err(Problem::bad("key_conflict", detail));
        }
        (Some(header), _) => Some(header.clone()),
        (None, Some(member)) => Some(name::<_>("key", &member)?),
        (None, None) => None,
    };
    let run = body.run.as_deref().map(|run| name("run", run)).transpose()?;
    let step = body.step.as_deref().map(|step| name("step", step)).transpose()?;
    let identified = key.is_some() || run.is_some() || tool.policy.key.is_some() || tool.policy.dedupe_window.is_some() || tool.is_pure();
    if !identified {
        return Err(key_required());
    }
    let wrong = |_| Problem::bad("invalid_body", format!("`ordinal`: {} is more than {}; nothing was run", body.ordinal, u32::MAX));
    let ordinal = u32::try_from(body.ordinal).map_err(wrong)?;
    let args = match body.args {
        Some(args) => CanonicalJson::parse(args.get()).map_err(|error| invalid_json(&error))?,
        None => CanonicalJson::empty_object(),
    };
    let Object(Metadata { caller: said, trace }) = body.metadata;
    if said.is_some() || trace.is_some() {
        tracing::debug!(tool = %tool.name, said, trace, "a call");
    }
    let Who { tenant, caller, .. } = who.clone();
    Ok(Call { tenant, caller, tool: tool.name.clone(), args, key, run, step, ordinal })
}

fn name<K: Kind>(field: &str, text: &str) -> Result<Name<K>, Problem> {
    Name::new(text).map_err(|error| {
        let code =
            if std::any::type_name::<Name<K>>() == std::any::type_name::<CallKey>() { "invalid_idempotency_key" } else { "invalid_name" };
        Problem::bad(code, format!("`{field}`: {error}; nothing was run"))
    })
}

pub fn unknown_tool(app: &App, who: &Who, name: &ToolName) -> Problem {
    let hint = match app.runtime.registry().nearest(&who.tenant, name.as_str()) {
        Some(near) => format!("did you mean {near}?"),
        None => "GET /v1/tools shows what there is".into(),
    };
    Problem::not_found("unknown_tool", format!("there is no tool {name}; {hint}"))
}

/// The response to an answer: refusals before anything was known are problems, all else is the envelope.
pub fn dressed(answer: &Answer) -> Result<Response, Problem> {
    let retry = answer.error.as_ref().and_then(|error| error.retry_after_ms).map(Duration::from_millis);
    let mut response = respond(answered(answer)?, answer.replayed);
    if let Some(after) = retry {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds(after)));
    }
    Ok(response)
}

pub fn answered(answer: &Answer) -> Result<Stored, Problem> {
    let status = status(answer)?;
    // A call that was not admitted left nothing to look at.
    let location =
        answer.effect.filter(|_| matches!(status, StatusCode::OK | StatusCode::ACCEPTED)).map(|key| format!("/v1/effects/{key}"));
    Ok(Stored { location, ..json_stored(status, answer) })
}

/// 200 for everything that is recorded of the effect, good or bad: the envelope says which. 202 while it is open.
fn status(answer: &Answer) -> Result<StatusCode, Problem> {
    let error = answer.error.as_ref();
    let code = error.map_or("", |error| error.code.as_str());
    let refused = |status, code| {
        let error = error.expect("a refusal has an error");
        let problem = Problem::new(status, code, error.message.clone());
        Err(match error.retry_after_ms {
            Some(ms) => problem.retry_after(Duration::from_millis(ms)),
            None => problem,
        })
    };
    match (answer.status, code) {
        (Status::Error, "unknown_tool") => refused(StatusCode::NOT_FOUND, "unknown_tool"),
        (Status::Error, "tool_runs_elsewhere") => refused(StatusCode::CONFLICT, "tool_runs_elsewhere"),
        (Status::Error, "tool_runs_here") => refused(StatusCode::CONFLICT, "tool_runs_here"),
        (Status::Error, "invalid_arguments") => refused(StatusCode::BAD_REQUEST, "invalid_arguments"),
        (Status::Error, "key_reuse_mismatch") => refused(StatusCode::UNPROCESSABLE_ENTITY, "key_reuse_mismatch"),
        (Status::Error, "key_expired") => refused(StatusCode::GONE, "key_expired"),
        (Status::Error, "subject_erased") => refused(StatusCode::CONFLICT, "subject_erased"),
        (Status::Error, "in_flight") => refused(StatusCode::CONFLICT, "in_flight"),
        (Status::Error, "arguments_redacted") => refused(StatusCode::CONFLICT, "arguments_redacted"),
        (Status::Error, "store_unavailable") if answer.attempt == 0 => refused(StatusCode::SERVICE_UNAVAILABLE, "store_unavailable"),
        (Status::Error, "ledger_corrupt") if answer.attempt == 0 => refused(StatusCode::SERVICE_UNAVAILABLE, "ledger_corrupt"),
        (_, "store_unavailable" | "ledger_corrupt") | (Status::CircuitOpen, _) => Ok(StatusCode::SERVICE_UNAVAILABLE),
        (Status::Error, "rate_limited" | "limit_queue_full" | "limit_timeout" | "budget_exceeded") => Ok(StatusCode::TOO_MANY_REQUESTS),
        (Status::Pending | Status::WaitingApproval, _) => Ok(StatusCode::ACCEPTED),
        _ => Ok(StatusCode::OK),
    }
}
