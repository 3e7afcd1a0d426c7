//! Spans as OTLP has them in JSON: ids in hex, 64-bit numbers as text, enums as numbers.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value as Json, json};

/// SPAN_KIND_INTERNAL and SPAN_KIND_CLIENT.
const INTERNAL: u8 = 1;
const CLIENT: u8 = 3;
/// STATUS_CODE_ERROR.
const ERROR: u8 = 2;

/// A span that ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    pub trace_id: String,
    pub span_id: String,
    pub parent_span_id: Option<String>,
    pub name: &'static str,
    pub started: SystemTime,
    pub ended: SystemTime,
    pub attributes: Vec<(&'static str, Value)>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Text(String),
    Bool(bool),
    Number(i64),
}

/// Whose spans they are.
pub struct Resource {
    pub service_name: String,
}

/// The body of one export.
pub fn request(resource: &Resource, spans: &[Span]) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let attributes = [("service.name", resource.service_name.as_str()), ("service.version", version)];
    let attributes = attributes.map(|(key, value)| json!({ "key": key, "value": { "stringValue": value } }));
    let scope = json!({ "name": "counterfoil", "version": version });
    let spans: Vec<Json> = spans.iter().map(span).collect();
    let scoped = json!([{ "scope": scope, "spans": spans }]);
    json!({ "resourceSpans": [{ "resource": { "attributes": attributes }, "scopeSpans": scoped }] }).to_string()
}

fn span(span: &Span) -> Json {
    let mut body = json!({
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "name": span.name,
        // What asks somebody else is a client's span.
        "kind": if matches!(span.name, "attempt" | "probe") { CLIENT } else { INTERNAL },
        "startTimeUnixNano": nanos(span.started),
        "endTimeUnixNano": nanos(span.ended),
        "attributes": span.attributes.iter().map(attribute).collect::<Vec<_>>(),
        "status": {},
    });
    if let Some(parent) = &span.parent_span_id {
        body["parentSpanId"] = json!(parent);
    }
    if let Some(why) = failed(span) {
        body["status"] = json!({ "code": ERROR, "message": why });
    }
    body
}

/// Why the span counts as failed: its status or its outcome, where that is no success.
fn failed(span: &Span) -> Option<&str> {
    let word = span.attributes.iter().find_map(|(name, value)| match value {
        Value::Text(word) if matches!(*name, "status" | "outcome") => Some(word.as_str()),
        _ => None,
    });
    word.filter(|word| matches!(*word, "error" | "timeout" | "circuit_open" | "in_doubt" | "not_done" | "unknown" | "cannot_tell"))
}

fn attribute((name, value): &(&'static str, Value)) -> Json {
    let value = match value {
        Value::Text(text) => json!({ "stringValue": text }),
        Value::Bool(bool) => json!({ "boolValue": bool }),
        Value::Number(number) => json!({ "intValue": number.to_string() }),
    };
    json!({ "key": format!("counterfoil.{name}"), "value": value })
}

fn nanos(time: SystemTime) -> String {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos()).to_string()
}
