//! `/v1/effects/acquire` and what follows it: a client runs its own tool under our permit.
//!
//! Two keys: the `Idempotency-Key` names this very asking, `key` in the body names the effect. Were they one, two workers that race for one effect would
//! both be handed the same permit.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State as Shared;
use axum::response::Response;
use counterfoil_core::request::Stored;
use counterfoil_core::token::Right;
use counterfoil_core::{Effect, Failure, Fence, Json, State};
use counterfoil_runtime::answer::Ending;
use counterfoil_runtime::config::units;
use counterfoil_runtime::ledger::LedgerError;
use counterfoil_runtime::{Acquired, Answer, Beside, LendError, Lent, PermitId, ToolError, shown};
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::app::{App, undropped};
use crate::ask::{Ask, Segment, whole, whole_or_null};
use crate::call::{CallBody, answered, asked_call, dressed};
use crate::problem::{Problem, in_flight};
use crate::requests::{Asked, Turn, json_stored, respond};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AcquireBody {
    tool: String,
    key: Option<String>,
    args: Option<Box<RawValue>>,
    run: Option<String>,
    step: Option<String>,
    #[serde(default, deserialize_with = "whole")]
    ordinal: u64,
    /// How long the permit holds without a heartbeat, e.g. `30s`.
    lease: Option<String>,
}

pub async fn acquire(Shared(app): Shared<Arc<App>>, ask: Ask) -> Result<Response, Problem> {
    ask.who.must(Right::Call)?;
    ask.required_key()?;
    let body: AcquireBody = ask.json()?;
    let name = Segment(body.tool.clone()).tool()?;
    let tool = app.tool(&ask.who, &name).await?;
    if body.key.is_none() && body.run.is_none() && tool.policy.key.is_none() && tool.policy.dedupe_window.is_none() {
        let detail = "`key` names the effect, so that whoever asks for it again finds it: send `key`, or `run` and `step`; nothing was run";
        return Err(Problem::bad("idempotency_key_required", detail));
    }
    let lease = body.lease.as_deref().map(lease).transpose()?;
    let call = CallBody::of(body.key.clone(), body.args.as_deref(), body.run, body.step, body.ordinal);
    // The header is the request's key here, not the effect's.
    let call = asked_call(&ask.who, None, call, &tool)?;
    undropped(async move {
        let act = |beside| app.runtime.acquire(call.clone(), lease, beside);
        match app
            .lent(&ask, act, |after| lent_of(after).map_or_else(|| json_stored(StatusCode::OK, &()), |lent| lent_stored(&lent)))
            .await?
        {
            Done::Replayed(response) => Ok(response),
            Done::Now(Acquired::Lent(lent)) => Ok(respond(lent_stored(&lent), false)),
            Done::Now(Acquired::Answer(answer)) => dressed(&answer),
        }
    })
    .await
}

fn lent_of(effect: &Effect) -> Option<Lent> {
    let State::Running(claim) = &effect.state else { return None };
    Some(Lent { key: effect.key, sent_key: effect.sent_key(), attempt: claim.attempt, fence: claim.fence, lease_until: claim.lease_until })
}

fn lent_stored(lent: &Lent) -> Stored {
    let body = json!({
        "effect": lent.key, "attempt": lent.attempt, "fence": lent.fence, "lease_until": shown::time(lent.lease_until), "idempotency_key": lent.sent_key,
    });
    Stored { location: Some(format!("/v1/effects/{}", lent.key)), ..json_stored(StatusCode::CREATED, &body) }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HeartbeatBody {
    #[serde(deserialize_with = "whole")]
    fence: u64,
    lease: Option<String>,
}

/// Says that the client is alive. Safe to send again as it is: it needs no key.
pub async fn heartbeat(Shared(app): Shared<Arc<App>>, segment: Segment, ask: Ask) -> Result<Response, Problem> {
    ask.who.must(Right::Call)?;
    let body: HeartbeatBody = ask.json()?;
    let permit = permit(&ask, &segment, body.fence)?;
    let lease = body.lease.as_deref().map(lease).transpose()?;
    undropped(async move {
        let until = app.runtime.heartbeat(&permit, lease).await?;
        Ok(respond(
            json_stored(StatusCode::OK, &json!({ "effect": permit.key, "fence": permit.fence, "lease_until": shown::time(until) })),
            false,
        ))
    })
    .await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CommitBody {
    #[serde(deserialize_with = "whole")]
    fence: u64,
    result: Box<RawValue>,
}

pub async fn commit(Shared(app): Shared<Arc<App>>, segment: Segment, ask: Ask) -> Result<Response, Problem> {
    ask.who.must(Right::Call)?;
    let body: CommitBody = ask.json()?;
    let permit = permit(&ask, &segment, body.fence)?;
    let result = Json::parse(body.result.get()).map_err(|error| Problem::bad("invalid_json", error.to_string()))?;
    undropped(async move {
        let act = |beside| app.runtime.commit(&permit, result.clone(), beside);
        reported(&app, &ask, act).await
    })
    .await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FailBody {
    #[serde(deserialize_with = "whole")]
    fence: u64,
    kind: FailKind,
    code: Option<String>,
    message: Option<String>,
    #[serde(default, deserialize_with = "whole_or_null")]
    retry_after_ms: Option<u64>,
    /// The dependency is to blame: counts for the breaker.
    #[serde(default)]
    dependency: bool,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FailKind {
    /// It certainly did not happen, and trying again will not help.
    Rejected,
    /// It certainly did not happen; trying again may help.
    Retriable,
    /// It may have happened.
    Unknown,
}

pub async fn fail(Shared(app): Shared<Arc<App>>, segment: Segment, ask: Ask) -> Result<Response, Problem> {
    ask.who.must(Right::Call)?;
    let body: FailBody = ask.json()?;
    let permit = permit(&ask, &segment, body.fence)?;
    let code = body.code.as_deref().unwrap_or("client_failed");
    let failure = Failure {
        dependency: body.dependency,
        retry_after_ms: body.retry_after_ms,
        ..Failure::new(code, body.message.as_deref().unwrap_or("the client said no more"))
    };
    let error = match body.kind {
        FailKind::Rejected => ToolError::Rejected(failure),
        FailKind::Retriable => ToolError::Retry(failure),
        FailKind::Unknown => ToolError::Unknown(failure),
    };
    undropped(async move {
        let act = |beside| app.runtime.fail(&permit, error.clone(), beside);
        reported(&app, &ask, act).await
    })
    .await
}

/// The envelope of the effect as the report left it.
async fn reported<F>(app: &Arc<App>, ask: &Ask, act: impl Fn(Beside) -> F) -> Result<Response, Problem>
where
    F: Future<Output = Result<(Effect, counterfoil_runtime::CommitHow), LendError>>,
{
    // Once, since it is written before it is sent, and must be the same.
    let (now, execution_id) = (app.runtime.now(), app.runtime.execution_id());
    let envelope = move |effect: &Effect| {
        let answer = Answer { execution_id: execution_id.clone(), ..Answer::from_ending(effect, Ending::Recorded, now) };
        answered(&answer).unwrap_or_else(|_| json_stored(StatusCode::OK, &shown::effect(effect, None)))
    };
    match app.lent(ask, act, envelope.clone()).await? {
        Done::Replayed(response) => Ok(response),
        Done::Now((effect, _)) => Ok(respond(envelope(&effect), false)),
    }
}

fn permit(ask: &Ask, segment: &Segment, fence: u64) -> Result<PermitId, Problem> {
    Ok(PermitId { tenant: ask.who.tenant.clone(), key: segment.effect()?, fence: Fence(fence) })
}

fn lease(text: &str) -> Result<Duration, Problem> {
    units::duration(text).map_err(|why| Problem::bad("invalid_lease", format!("`lease` {text:?}: {}", why.why)))
}

enum Done<T> {
    Now(T),
    Replayed(Response),
}

impl App {
    /// A step of a lent permit, with the record of the request in the same append, where one is made.
    async fn lent<T, F>(
        self: &Arc<Self>,
        ask: &Ask,
        act: impl Fn(Beside) -> F,
        stored: impl Fn(&Effect) -> Stored + Clone + Send + Sync + 'static,
    ) -> Result<Done<T>, Problem>
    where
        F: Future<Output = Result<T, LendError>>,
    {
        let Some(asked) = ask.asked() else { return Ok(Done::Now(act(Beside::default()).await?)) };
        let _active = self.requests.begin(&asked).ok_or_else(in_flight)?;
        loop {
            let asked: Asked = match self.requests.look(asked.clone()).await? {
                Turn::Replay(stored) => return Ok(Done::Replayed(respond(stored, true))),
                Turn::Go(asked) | Turn::GoOn(asked) => asked,
            };
            let (app, stored) = (self.clone(), stored.clone());
            match act(Beside::new(move |after: &Effect| vec![app.requests.answered(&asked, &stored(after))])).await {
                Err(LendError::Ledger(LedgerError::BesideTaken { .. })) => continue,
                done => return Ok(Done::Now(done?)),
            }
        }
    }
}

impl From<LendError> for Problem {
    fn from(error: LendError) -> Self {
        let (code, detail) = (error.code(), error.to_string());
        match error {
            LendError::NotFound(_) => Self::not_found(code, detail),
            LendError::PermitLost { state, recorded_late, .. } => {
                Self::conflict(code, detail).with("effect_state", json!({ "state": state, "recorded_late": recorded_late }))
            }
            LendError::ReportMismatch { state, .. } => Self::conflict(code, detail).with("effect_state", json!({ "state": state })),
            LendError::UnknownTool { .. } => Self::conflict(code, detail),
            LendError::InvalidLease { .. } => Self::bad(code, detail),
            LendError::Ledger(error) => error.into(),
        }
    }
}
