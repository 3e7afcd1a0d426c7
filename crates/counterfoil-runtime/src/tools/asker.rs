//! A question to the world: one request or one process that changes nothing, and what it answered.

use std::time::Duration;

use super::BuildError;
use super::answer::Answer;
use super::command::CommandAction;
use super::http::HttpAction;
use super::scope::Environment;
use crate::spec::{CommandSpec, HttpSpec};
use crate::template::Scope;
use crate::tool::Invocation;

#[derive(Debug)]
pub(super) struct Asker {
    asks: Asks,
    timeout: Duration,
}

#[derive(Debug)]
enum Asks {
    Http(Box<HttpAction>),
    Command(Box<CommandAction>),
}

impl Asker {
    pub(super) fn http(spec: &HttpSpec, timeout: Duration, environment: Environment) -> Result<Self, BuildError> {
        Ok(Self { asks: Asks::Http(Box::new(HttpAction::asking(spec, timeout, environment)?)), timeout })
    }

    pub(super) fn command(spec: &CommandSpec, timeout: Duration, environment: Environment) -> Result<Self, BuildError> {
        Ok(Self { asks: Asks::Command(Box::new(CommandAction::new(spec, environment)?)), timeout })
    }

    /// The answer, and whether it says itself that the question was understood. `Err` says why there is none.
    pub(super) async fn ask(&self, invocation: &Invocation, scope: &Scope) -> Result<(Answer, bool), String> {
        let asking = async {
            match &self.asks {
                Asks::Http(http) => http.ask(invocation, scope).await,
                Asks::Command(command) => command.ask(invocation, scope).await,
            }
        };
        match tokio::time::timeout(self.timeout, asking).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("the question was not answered within {:?}", self.timeout)),
        }
    }
}
