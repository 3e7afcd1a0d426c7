//! What a later look at the world is held against: captured when the effect is done, from what it answered itself.
//!
//! Must stay true: no second request is made for it, and one that cannot be captured changes nothing about what happened.

use counterfoil_core::{Json, StateChanged};
use serde_json::Value;

use super::answer::Answer;
use super::scope::Environment;
use crate::spec::{Look, VerifySpec};
use crate::template::{Expr, Scope};
use crate::tool::Invocation;

/// Longest text that is captured: what is longer is no version and no name.
const CAPTURED_BYTES_MAX: usize = 1024;

/// Where the versions and the names of what GitHub answers are.
const VERSIONS: [&str; 5] = ["/updated_at", "/content/sha", "/object/sha", "/commit/sha", "/sha"];
const NAMES: [&str; 4] = ["/html_url", "/content/html_url", "/url", "/number"];

#[derive(Debug)]
pub(super) struct Capture {
    etag: bool,
    version: Option<Expr>,
    reference: Option<Expr>,
    members: bool,
    environment: Environment,
}

impl Capture {
    /// `None`: there is nothing to capture.
    pub(super) fn new(spec: &VerifySpec, environment: &Environment) -> Option<Self> {
        let members = !spec.same.is_empty();
        let wanted = matches!(spec.look, Look::Http(_)) || spec.version.is_some() || spec.reference.is_some();
        wanted.then(|| Self {
            etag: matches!(spec.look, Look::Http(_)),
            version: spec.version.as_ref().map(|version| version.was.clone()),
            reference: spec.reference.clone(),
            members,
            environment: environment.clone(),
        })
    }

    /// Of an attempt that was made here.
    pub(super) fn of_answer(&self, invocation: &Invocation, result: &Json, answer: &Answer) -> Option<Box<StateChanged>> {
        let etag = answer.header("etag").filter(|_| self.etag).map(str::to_owned);
        let state = self.of(&answer.scope(self.environment.scope_after(invocation, result)), result);
        StateChanged { etag: etag.and_then(short), ..state }.known()
    }

    /// Of one that was made elsewhere: only its result is known.
    pub(super) fn of_result(&self, invocation: &Invocation, result: &Json) -> Option<Box<StateChanged>> {
        self.of(&self.environment.scope_after(invocation, result), result).known()
    }

    fn of(&self, scope: &Scope, result: &Json) -> StateChanged {
        let told = |expr: &Option<Expr>| expr.as_ref().and_then(|expr| expr.eval(scope).ok()).as_ref().and_then(text);
        let (mut version, mut reference) = (told(&self.version), told(&self.reference));
        if self.members {
            let result = result.to_value();
            let first = |pointers: &[&str]| pointers.iter().find_map(|pointer| result.pointer(pointer)).and_then(text);
            version = version.or_else(|| first(&VERSIONS));
            reference = reference.or_else(|| first(&NAMES));
        }
        StateChanged { version, reference, ..StateChanged::default() }
    }
}

/// A version or a name as text. Nothing else is one.
pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => short(text.clone()),
        Value::Number(number) => short(number.to_string()),
        Value::Bool(yes) => Some(yes.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn short(text: String) -> Option<String> {
    (!text.is_empty() && text.len() <= CAPTURED_BYTES_MAX).then_some(text)
}
