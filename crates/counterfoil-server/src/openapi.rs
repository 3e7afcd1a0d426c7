//! `/openapi.json`: what a client is told of this API.
//!
//! Written by hand, a file for each resource and one each for what they share, put together once. The tests hold it against the router and against
//! itself; `scripts/schemathesis` holds a running server against it.

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use serde_json::{Value, json};

#[cfg(test)]
mod tests;

/// Together they are one object: no part says again what another says.
const PARTS: [&str; 21] = [
    include_str!("openapi/base.json"),
    include_str!("openapi/schemas.json"),
    include_str!("openapi/problems.json"),
    include_str!("openapi/tools.json"),
    include_str!("openapi/tool_spec.json"),
    include_str!("openapi/effects.json"),
    include_str!("openapi/workflows.json"),
    include_str!("openapi/schedules.json"),
    include_str!("openapi/runs.json"),
    include_str!("openapi/run_changes.json"),
    include_str!("openapi/confirm.json"),
    include_str!("openapi/run_schemas.json"),
    include_str!("openapi/run_problems.json"),
    include_str!("openapi/receipts.json"),
    include_str!("openapi/approvals.json"),
    include_str!("openapi/breakers.json"),
    include_str!("openapi/events.json"),
    include_str!("openapi/lend.json"),
    include_str!("openapi/admin.json"),
    include_str!("openapi/metrics.json"),
    include_str!("openapi/server.json"),
];

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    let mut document = put_together(&PARTS);
    document["info"]["version"] = json!(env!("CARGO_PKG_VERSION"));
    document
});

static TEXT: LazyLock<String> = LazyLock::new(|| DOCUMENT.to_string());

pub fn document() -> &'static Value {
    &DOCUMENT
}

pub async fn openapi() -> Response {
    let headers = [(CONTENT_TYPE, HeaderValue::from_static("application/json")), (CACHE_CONTROL, HeaderValue::from_static("no-cache"))];
    (headers, TEXT.as_str()).into_response()
}

fn put_together(parts: &[&str]) -> Value {
    let mut document = json!({});
    for part in parts {
        add(&mut document, serde_json::from_str(part).expect("the tests read every part"));
    }
    document
}

fn add(to: &mut Value, part: Value) {
    match (to, part) {
        (Value::Object(to), Value::Object(part)) => part.into_iter().for_each(|(name, value)| match to.get_mut(&name) {
            Some(there) => add(there, value),
            None => drop(to.insert(name, value)),
        }),
        (Value::Array(to), Value::Array(mut part)) => to.append(&mut part),
        (to, part) => *to = part,
    }
}
