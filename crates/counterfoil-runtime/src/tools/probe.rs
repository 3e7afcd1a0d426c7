//! Asking the world whether an effect happened.
//!
//! Must stay true: only a clear answer counts. A question that could not be asked, an answer that means trouble, an expression that does
//! not fit the answer: all `CannotTell`, with the reason. "Did not happen" lets the effect run again, so it is never a default for trouble.

use counterfoil_core::{Policy, Success};

use super::answer::Answer;
use super::asker::Asker;
use super::output::capped;
use super::scope::Environment;
use super::{BuildError, exprs};
use crate::spec::{Ask, ProbeSpec};
use crate::template::Scope;
use crate::tool::{Invocation, ProbeAnswer};

/// Says that the thing asked for is not there, or that the path is wrong, or that the server is just being deployed: by itself no answer.
const NOT_FOUND: i32 = 404;

#[derive(Debug)]
pub(super) struct Probe {
    spec: ProbeSpec,
    asker: Asker,
    environment: Environment,
}

impl Probe {
    pub(super) fn new(spec: &ProbeSpec, policy: &Policy) -> Result<Self, BuildError> {
        let environment = Environment::read(exprs::of_probe(spec))?;
        let timeout = spec.timeout.min(policy.timeout);
        let asker = match &spec.ask {
            Ask::Http(http) => Asker::http(http, timeout, environment.clone())?,
            Ask::Command(command) => Asker::command(command, timeout, environment.clone())?,
        };
        Ok(Self { spec: spec.clone(), asker, environment })
    }

    pub(super) async fn ask(&self, invocation: &Invocation) -> ProbeAnswer {
        let answer = self.asker.ask(invocation, &self.environment.scope(invocation)).await;
        let told = answer.and_then(|(answer, success)| self.judge(invocation, &answer, success));
        told.unwrap_or_else(ProbeAnswer::CannotTell)
    }

    /// `success`: the answer itself says that the question was understood.
    fn judge(&self, invocation: &Invocation, answer: &Answer, success: bool) -> Result<ProbeAnswer, String> {
        let scope = answer.scope(self.environment.scope(invocation));
        if self.spec.happened.eval_bool(&scope).map_err(|e| e.to_string())? {
            return Ok(ProbeAnswer::Happened(self.result(invocation, answer, &scope)?));
        }
        match &self.spec.did_not_happen {
            Some(expr) if expr.eval_bool(&scope).map_err(|e| e.to_string())? => Ok(ProbeAnswer::DidNotHappen),
            Some(_) => Err("neither `happened` nor `did_not_happen` holds for the answer".into()),
            None if success => Ok(ProbeAnswer::DidNotHappen),
            None if answer.code() == NOT_FOUND => Err("the question was answered 404, which a wrong path answers too; if it means that \
                it did not happen, write `did_not_happen: \"response.status == 404\"`"
                .into()),
            None => Err(format!("the question was answered {}", answer.code())),
        }
    }

    fn result(&self, invocation: &Invocation, answer: &Answer, scope: &Scope) -> Result<Success, String> {
        let json = match &self.spec.result {
            Some(expr) => expr.eval_json(scope).map_err(|e| e.to_string())?,
            None => answer.output().value(),
        };
        Ok(capped(json, invocation.result_bytes_max))
    }
}
