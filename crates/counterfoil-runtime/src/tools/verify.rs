//! Asking the world whether it still agrees with what is recorded of an effect.
//!
//! Must stay true: only a clear answer counts. A question that could not be asked, an answer that means trouble, an expression that does not fit: all
//! `Unavailable`, with the reason, and never "verified". Nothing is changed by asking.

use counterfoil_core::Policy;
use counterfoil_core::run::confirm::Finding;
use serde_json::Value;

use super::answer::Answer;
use super::asker::Asker;
use super::capture;
use super::file::{self, Expected};
use super::scope::Environment;
use super::{BuildError, exprs};
use crate::spec::{CommandSpec, FileLook, Look, VerifySpec};
use crate::template::{Scope, ValueTemplate};
use crate::tool::{Invocation, Recorded};

/// What is not there: a thing that was removed, by us or by somebody else.
const MISSING: [i32; 2] = [404, 410];
/// Shown of an answer that is not what was expected.
const SHOWN_BYTES_MAX: usize = 200;

#[derive(Debug)]
pub(super) struct Verify {
    spec: VerifySpec,
    /// `None`: a look at a file.
    asker: Option<Asker>,
    /// What the other side says may hold what must not be kept.
    secretive: bool,
    environment: Environment,
}

impl Verify {
    pub(super) fn new(spec: &VerifySpec, policy: &Policy) -> Result<Self, BuildError> {
        let environment = Environment::read(exprs::of_verify(spec))?;
        let timeout = spec.timeout.min(policy.timeout);
        let asker = match &spec.look {
            Look::Http(http) => Some(Asker::http(http, timeout, environment.clone())?),
            Look::Command(command) => Some(Asker::command(&told_all(command), timeout, environment.clone())?),
            Look::File(_) => None,
        };
        Ok(Self { spec: spec.clone(), asker, secretive: !policy.redact.is_empty(), environment })
    }

    pub(super) fn environment(&self) -> &Environment {
        &self.environment
    }

    pub(super) async fn ask(&self, invocation: &Invocation, recorded: &Recorded) -> Finding {
        let scope = self.environment.scope_recorded(invocation, recorded);
        let found = match (&self.asker, &self.spec.look) {
            (Some(asker), _) => match asker.ask(invocation, &scope).await {
                Ok((answer, success)) => self.judge(recorded, scope, &answer, success),
                Err(why) => Err(why),
            },
            (None, Look::File(look)) => self.look(look, recorded, &scope).await,
            (None, _) => Err("there is nobody to ask".into()),
        };
        found.unwrap_or_else(|why| Finding::Unavailable { why })
    }

    async fn look(&self, look: &FileLook, recorded: &Recorded, scope: &Scope) -> Result<Finding, String> {
        let path = look.path.render(scope).map_err(|e| e.to_string())?;
        let written = look.sha256.as_ref().map(|text| text.render(scope)).transpose().map_err(|e| e.to_string())?;
        let captured = recorded.state_changed.as_ref().and_then(|state| state.digest);
        let expected = match (self.spec.gone, written) {
            (true, _) => Expected::Gone,
            (false, Some(text)) => Expected::Holds(text.parse().map_err(|_| format!("sha256 gives {text:?}, which is no SHA-256"))?),
            (false, None) => match captured {
                Some(digest) => Expected::Holds(digest),
                None => return Ok(Finding::Unverified { why: format!("no digest of {path} was captured when it was done") }),
            },
        };
        Ok(file::look(look.root.clone(), path, expected).await)
    }

    /// `success`: the answer itself says that the question was understood.
    fn judge(&self, recorded: &Recorded, scope: Scope, answer: &Answer, success: bool) -> Result<Finding, String> {
        let asked_http = matches!(self.spec.look, Look::Http(_));
        let missing = asked_http && MISSING.contains(&answer.code());
        let trouble = || format!("the question was answered {}", answer.code());
        if self.spec.gone {
            return match () {
                () if missing => Ok(Finding::Verified),
                () if success => Ok(drifted("it to be gone", format!("it is there: {}", self.shown(answer)))),
                () => Err(trouble()),
            };
        }
        match () {
            // `holds` is asked what such an answer means only where it says so itself.
            () if success || self.mentions_code() => {}
            () if missing => return Ok(drifted("it to be there", format!("it is gone: {}", self.shown(answer)))),
            () => return Err(trouble()),
        }
        let scope = answer.scope(scope);
        let holds = match &self.spec.holds {
            Some(expr) => Some(expr.eval_bool(&scope).map_err(|e| e.to_string())),
            None if asked_http => None,
            None => Some(said(answer).ok_or_else(|| "the command's answer has no member `holds` that is true or false".to_owned())),
        };
        match holds {
            Some(Ok(true)) => self.compare(recorded, &scope, answer, true),
            Some(Ok(false)) => Ok(self.not_held(answer)),
            Some(Err(why)) => Err(why),
            None => self.compare(recorded, &scope, answer, false),
        }
    }

    /// What was captured or recorded when it was done, against the answer. `held`: something else already says that it holds.
    fn compare(&self, recorded: &Recorded, scope: &Scope, answer: &Answer, held: bool) -> Result<Finding, String> {
        let state = recorded.state_changed.as_deref().cloned().unwrap_or_default();
        let mut missing = Vec::new();
        if self.spec.etag {
            match (&state.etag, answer.header("etag")) {
                (None, _) => missing.push("ETag"),
                (Some(_), None) => return Err("the answer has no ETag to compare".into()),
                (Some(was), Some(is)) if weak(was) != weak(is) => return Ok(drifted(&format!("ETag {was}"), format!("ETag {is}"))),
                (Some(_), Some(_)) => {}
            }
        }
        if let Some(version) = &self.spec.version {
            let is = version.is.eval(scope).map_err(|e| e.to_string())?;
            match (&state.version, capture::text(&is)) {
                (None, _) => missing.push("version"),
                (Some(_), None) => return Err(format!("`{}` gives no version of the answer", version.is.source())),
                (Some(was), Some(is)) if *was != is => return Ok(drifted(&format!("version {was}"), format!("version {is}"))),
                (Some(_), Some(_)) => {}
            }
        }
        let (result, answered) = (recorded.result.to_value(), answer.output().json().map_or(Value::Null, |json| json.to_value()));
        for same in &self.spec.same {
            let Some(was) = same.recorded.iter().find_map(|pointer| result.pointer(pointer)) else { continue };
            let is = answered.pointer(same.answered).unwrap_or(&Value::Null);
            if was != is {
                return Ok(drifted(&format!("{} {was}", same.name), format!("{} {is}", same.name)));
            }
        }
        match missing.first() {
            Some(what) if !held => Ok(Finding::Unverified { why: format!("no {what} was captured when it was done") }),
            _ => Ok(Finding::Verified),
        }
    }

    /// Whether `holds` judges the status or the exit code itself.
    fn mentions_code(&self) -> bool {
        self.spec.holds.as_ref().is_some_and(|expr| ["response.status", "response.exit"].iter().any(|name| expr.source().contains(name)))
    }

    fn not_held(&self, answer: &Answer) -> Finding {
        if let (None, Some(json)) = (&self.spec.holds, answer.output().json()) {
            let json = json.to_value();
            let member = |name: &str| json.get(name).map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
            if let (Some(expected), Some(found), false) = (member("expected"), member("found"), self.secretive) {
                return drifted(&expected, found);
            }
        }
        let holds = self.spec.holds.as_ref().map_or("holds", |expr| expr.source());
        drifted(&format!("`{holds}`"), self.shown(answer))
    }

    fn shown(&self, answer: &Answer) -> String {
        let text = answer.output().text();
        match self.secretive || text.is_empty() {
            true => answer.code().to_string(),
            false => {
                let cut = text.char_indices().take_while(|(at, _)| *at < SHOWN_BYTES_MAX).last().map_or(0, |(at, c)| at + c.len_utf8());
                let more = if cut < text.len() { "…" } else { "" };
                format!("{} {}{more}", answer.code(), &text[..cut])
            }
        }
    }
}

/// What a command says of itself, where the config does not say how to judge it.
fn said(answer: &Answer) -> Option<bool> {
    answer.output().json()?.to_value().get("holds")?.as_bool()
}

/// A strong and a weak tag of the same text name the same thing.
fn weak(etag: &str) -> &str {
    etag.strip_prefix("W/").unwrap_or(etag)
}

fn drifted(expected: &str, found: String) -> Finding {
    Finding::Drifted { expected: expected.to_owned(), found }
}

/// Without a `stdin` of its own, a command is told all there is to compare.
fn told_all(command: &CommandSpec) -> CommandSpec {
    let all = serde_json::json!({ "args": "${args}", "result": "${result}", "state": "${state}" });
    let all = || ValueTemplate::parse(&all).expect("three variables are a template");
    CommandSpec { stdin: Some(command.stdin.clone().unwrap_or_else(all)), ..command.clone() }
}
