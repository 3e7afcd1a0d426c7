//! One HTTP request as a tool.
//!
//! Must stay true: `NotDone` only where nothing was sent or the server said so, by a status that means it; `Unknown` for whatever
//! broke after the request may have left, also in the middle of a successful answer's body. The effect's key goes with every attempt.

mod address;
mod classify;
mod egress;
mod exchange;
mod tls;

pub use self::tls::config as tls_config;

use std::time::Duration;

use bytes::Bytes;
use counterfoil_core::outcome::Flag;
use counterfoil_core::{Failure, Outcome, Policy, Success};
use http::Method;
use reqwest::Response;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use url::Url;

use self::classify::{Class, status_failure};
use self::exchange::{Clients, Connections, Exchange, Request, read_body};
use super::answer::{Answer, AnswerHead};
use super::capture::Capture;
use super::output::{DETAIL_BYTES_MAX, EXPRESSION_BYTES_MAX, Output, capped};
use super::scope::Environment;
use super::{Broken, BuildError, template_failed};
use crate::spec::{HttpBody, HttpSpec};
use crate::template::{EvalError, Scope};
use crate::tool::Invocation;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Longest wait for the body of an error answer: what it says is already certain without it.
const DETAIL_WAIT: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct HttpAction {
    spec: HttpSpec,
    method: Method,
    key_header: Option<HeaderName>,
    headers: Vec<HeaderName>,
    environment: Environment,
    origin: Option<Url>,
    clients: Clients,
}

impl HttpAction {
    pub(super) fn new(spec: &HttpSpec, policy: &Policy, environment: Environment) -> Result<Self, BuildError> {
        let connections = if policy.repeatable() { Connections::Pooled } else { Connections::Fresh };
        Self::with_clients(spec, Clients::new(connections, policy.timeout), environment)
    }

    /// For questions: they change nothing, and must not carry the effect's key, which would ask for the effect itself.
    pub(super) fn asking(spec: &HttpSpec, timeout: Duration, environment: Environment) -> Result<Self, BuildError> {
        let spec = HttpSpec { key_header: None, ..spec.clone() };
        Self::with_clients(&spec, Clients::new(Connections::Pooled, timeout), environment)
    }

    fn with_clients(spec: &HttpSpec, clients: Clients, environment: Environment) -> Result<Self, BuildError> {
        let invalid = |what: &str, shown: &str| BuildError::Http(format!("{shown:?} is not {what}"));
        let method = match Method::from_bytes(spec.method.to_ascii_uppercase().as_bytes()) {
            Ok(Method::CONNECT | Method::TRACE) | Err(_) => return Err(invalid("a method for a tool", &spec.method)),
            Ok(method) => method,
        };
        let header = |name: &str| HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid("the name of a header", name));
        Ok(Self {
            method,
            key_header: spec.key_header.as_deref().map(header).transpose()?,
            headers: spec.headers.iter().map(|(name, _)| header(name)).collect::<Result<_, _>>()?,
            origin: address::configured_origin(&spec.url, &environment.only()),
            spec: spec.clone(),
            environment,
            clients,
        })
    }

    pub(super) async fn invoke(&self, invocation: &Invocation, capture: Option<&Capture>) -> Outcome {
        let scope = self.environment.scope(invocation);
        Broken::outcome(self.attempt(invocation, &scope, capture).await)
    }

    async fn attempt(&self, invocation: &Invocation, scope: &Scope, capture: Option<&Capture>) -> Result<Success, Broken> {
        let request = self.request(invocation, scope).map_err(Broken::Before)?;
        let mut response = self.exchange().send(request).await?;
        let class = self.class(&response);
        if class != Class::Success {
            let failure = self.failure(class, response).await;
            return Err(if class == Class::Unknown { Broken::After(failure) } else { Broken::Before(failure) });
        }
        let max = invocation.result_bytes_max;
        let looked_at = self.spec.result.is_some() || capture.is_some();
        let mut body = Output::new(if looked_at { max.max(EXPRESSION_BYTES_MAX) } else { max });
        read_body(&mut response, &mut body).await?;
        if !looked_at {
            return Ok(body.into_success(max));
        }
        let answer = Answer::new(head(&response), body);
        let picked = self.spec.result.as_ref().filter(|_| answer.output().whole().is_some());
        let picked = picked.map(|result| result.eval_json(&answer.scope(self.environment.scope(invocation))));
        let result = if let Some(Ok(picked)) = &picked { picked.clone() } else { answer.output().value() };
        let state_changed = capture.and_then(|capture| capture.of_answer(invocation, &result, &answer));
        let success = match picked {
            Some(Ok(json)) => capped(json, max),
            Some(Err(error)) => not_picked(answer, &error, max),
            None => answer.into_output().into_success(max),
        };
        Ok(Success { state_changed, ..success })
    }

    /// The answer to a question. `Err` says why there is none.
    pub(super) async fn ask(&self, invocation: &Invocation, scope: &Scope) -> Result<(Answer, bool), String> {
        let reason = |broken: Broken| broken.into_failure().message;
        let request = self.request(invocation, scope).map_err(|failure| failure.message)?;
        let mut response = self.exchange().send(request).await.map_err(reason)?;
        let class = self.class(&response);
        let status = response.status().as_u16();
        if status >= 500 || matches!(class, Class::Retriable | Class::Unknown) {
            return Err(format!("the question was answered {status}"));
        }
        let mut body = Output::new(EXPRESSION_BYTES_MAX);
        read_body(&mut response, &mut body).await.map_err(reason)?;
        if body.whole().is_none() {
            return Err(format!("the answer is {} bytes long; at most {EXPRESSION_BYTES_MAX} are read", body.bytes()));
        }
        Ok((Answer::new(head(&response), body), class == Class::Success))
    }

    fn class(&self, response: &Response) -> Class {
        self.spec.classes.class(response.status().as_u16(), &self.method)
    }

    fn exchange(&self) -> Exchange<'_> {
        Exchange {
            clients: &self.clients,
            egress: &self.spec.egress,
            classes: &self.spec.classes,
            origin: self.origin.as_ref(),
            redirects_max: self.spec.redirects_max,
        }
    }

    fn request(&self, invocation: &Invocation, scope: &Scope) -> Result<Request, Failure> {
        let url = address::render(&self.spec.url, scope)?;
        let mut headers = HeaderMap::new();
        if let Some(name) = &self.key_header {
            headers.insert(name.clone(), header_value(name, &invocation.key.to_string())?);
        }
        if let Some(trace) = &invocation.trace {
            headers.insert(TRACEPARENT, plain(&trace.to_string()));
            headers.extend(trace.state().map(|state| (TRACESTATE, plain(state))));
        }
        let (body, content_type) = match &self.spec.body {
            HttpBody::None => (None, None),
            HttpBody::Json(template) => (Some(template.render_json(scope)), Some("application/json")),
            HttpBody::Text(template) => (Some(template.render(scope)), Some("text/plain; charset=utf-8")),
        };
        if let Some(content_type) = content_type {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        // The operator's own headers win, one by one; the same name twice is sent twice.
        for name in &self.headers {
            headers.remove(name);
        }
        for (name, (_, template)) in self.headers.iter().zip(&self.spec.headers) {
            let value = template.render(scope).map_err(|e| template_failed(&e))?;
            headers.append(name.clone(), header_value(name, &value)?);
        }
        let body = body.transpose().map_err(|e| template_failed(&e))?.map(Bytes::from);
        Ok(Request { method: self.method.clone(), url, headers, body })
    }

    async fn failure(&self, class: Class, mut response: Response) -> Failure {
        let failure = status_failure(class, response.status().as_u16(), response.headers(), &self.method);
        let mut body = Output::new(DETAIL_BYTES_MAX);
        // However the reading ends, the status stands: what was read by then is the evidence.
        let reading = async {
            while let Ok(Some(chunk)) = response.chunk().await {
                body.push(&chunk);
                if body.bytes() > DETAIL_BYTES_MAX as u64 {
                    break;
                }
            }
        };
        let _ = tokio::time::timeout(DETAIL_WAIT, reading).await;
        Failure { detail: body.detail(), ..failure }
    }
}

/// The tool's expression failed on the answer. That cannot undo what happened: all of the answer is kept instead, and flagged.
fn not_picked(answer: Answer, error: &EvalError, max: usize) -> Success {
    let mut success = answer.into_output().into_success(max);
    success.flags.push(Flag::OutputSchemaViolated(format!("the result could not be picked out of the answer: {error}")));
    success
}

fn head(response: &Response) -> AnswerHead {
    let headers = response.headers();
    let value = |name| headers.get_all(name).iter().map(|v| String::from_utf8_lossy(v.as_bytes())).collect::<Vec<_>>().join(", ");
    AnswerHead::Http {
        status: response.status().as_u16(),
        headers: headers.keys().map(|name| (name.as_str().to_owned(), value(name))).collect(),
    }
}

fn plain(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("a trace context is printable ASCII")
}

fn header_value(name: &HeaderName, text: &str) -> Result<HeaderValue, Failure> {
    let mut value = HeaderValue::from_str(text)
        .map_err(|_| Failure::new("header_invalid", format!("the value of the header {name} holds a character that no header may hold")))?;
    // Keeps it out of debug output: most templated headers are credentials.
    value.set_sensitive(true);
    Ok(value)
}
