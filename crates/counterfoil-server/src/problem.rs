//! What a client is told when it gets no answer: `application/problem+json` with a stable code.
//!
//! Every refusal says that nothing was changed, or what may have been.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use counterfoil_runtime::engine::RunError;
use counterfoil_runtime::ledger::LedgerError;
use counterfoil_runtime::{LogError, OperateError};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

pub const PROBLEM_JSON: &str = "application/problem+json";

#[derive(Debug, Clone)]
pub struct Problem {
    pub status: StatusCode,
    /// Stable; each has a page in docs/errors.
    pub code: &'static str,
    pub detail: String,
    pub retry_after: Option<Duration>,
    /// Methods that the route has.
    pub allow: Option<String>,
    /// Members beside the usual ones, e.g. every mistake of a tool.
    pub more: Option<Box<(&'static str, Value)>>,
}

impl Problem {
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, detail: detail.into(), retry_after: None, allow: None, more: None }
    }
    pub fn bad(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, detail)
    }
    pub fn not_found(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, code, detail)
    }
    pub fn conflict(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, code, detail)
    }
    pub fn retry_after(self, after: Duration) -> Self {
        Self { retry_after: Some(after), ..self }
    }
    pub fn with(self, name: &'static str, value: Value) -> Self {
        Self { more: Some(Box::new((name, value))), ..self }
    }
}

/// Whole seconds, at least one: what `Retry-After` can say.
pub fn seconds(after: Duration) -> u64 {
    u64::try_from(after.as_millis().div_ceil(1000)).unwrap_or(u64::MAX).max(1)
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut body = json!({
            "type": format!("urn:counterfoil:error:{}", self.code),
            "title": self.status.canonical_reason().unwrap_or("Refused"),
            "status": self.status.as_u16(),
            "code": self.code,
            "detail": self.detail,
        });
        if let Some(more) = self.more {
            body[more.0] = more.1;
        }
        if let Some(after) = self.retry_after {
            body["retry_after_ms"] = json!(u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
        }
        let mut response = (self.status, body.to_string()).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(after) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds(after)));
        }
        if let Some(allow) = self.allow.and_then(|allow| HeaderValue::try_from(allow).ok()) {
            headers.insert(ALLOW, allow);
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"counterfoil\""));
        }
        response
    }
}

impl From<LedgerError> for Problem {
    fn from(error: LedgerError) -> Self {
        let code = error.code();
        let refused = Self::new(StatusCode::SERVICE_UNAVAILABLE, code, format!("{error}; ask again with the same Idempotency-Key"));
        // A damaged ledger does not mend by waiting.
        if code == "store_unavailable" { refused.retry_after(Duration::from_secs(1)) } else { refused }
    }
}

impl From<OperateError> for Problem {
    fn from(error: OperateError) -> Self {
        let detail = format!("{error}; nothing was changed");
        match error {
            OperateError::NotFound(_) => Self::not_found("not_found", detail),
            OperateError::WrongState { state, .. } => Self::conflict("wrong_state", detail).with("state", json!(state)),
            OperateError::NoUndo(_) => Self::conflict("no_undo", detail),
            OperateError::UnknownTool(_) => Self::conflict("unknown_tool", detail),
            OperateError::Beside => in_flight(),
            OperateError::Ledger(error) => error.into(),
        }
    }
}

/// How often a server seals, about.
const SEALED_AFTER: Duration = Duration::from_secs(10);

impl From<LogError> for Problem {
    fn from(error: LogError) -> Self {
        let detail = error.to_string();
        match error {
            LogError::Ledger(error) => error.into(),
            LogError::NotSealed { .. } => Self::conflict("not_sealed", detail).retry_after(SEALED_AFTER),
            LogError::Unsound { .. } | LogError::OtherKey { .. } => Self::new(StatusCode::SERVICE_UNAVAILABLE, "ledger_corrupt", detail),
            LogError::NoRun(_) | LogError::NoEffect(_) | LogError::NoReceipt(_) | LogError::NoHead { .. } => {
                Self::not_found("not_found", detail)
            }
        }
    }
}

impl From<RunError> for Problem {
    fn from(error: RunError) -> Self {
        let (code, detail) = (error.code(), format!("{error}; nothing was changed"));
        match error {
            RunError::Schedule(_) => Self::bad(code, error.to_string()),
            RunError::NotFound(_)
            | RunError::Archived { .. }
            | RunError::UnknownWorkflow(_)
            | RunError::NoStep { .. }
            | RunError::NoSchedule(_) => Self::not_found(code, detail),
            RunError::Input(_) | RunError::Signal(_) | RunError::Name(_) | RunError::Lease(_) => Self::bad(code, detail),
            RunError::WrongState { state, .. } => Self::conflict(code, detail).with("state", json!(state)),
            RunError::SubjectErased => Self::conflict(code, detail),
            RunError::Exists { .. }
            | RunError::UnknownTool { .. }
            | RunError::Diverged { .. }
            | RunError::FunctionDiverged { .. }
            | RunError::CannotFork { .. }
            | RunError::NoDefinition { .. }
            | RunError::Definition { .. } => Self::conflict(code, detail),
            RunError::Ledger(LedgerError::BesideTaken { .. }) => in_flight(),
            RunError::Ledger(error) => error.into(),
        }
    }
}

/// Another request with the same key is under way.
pub fn in_flight() -> Problem {
    Problem::conflict("request_in_flight", "a request with this Idempotency-Key is under way; ask again with the same key")
        .retry_after(Duration::from_secs(1))
}
