//! What was answered, as the variable `response` of an expression.
//!
//! http: `status`, `headers` (names in lower case, repeated ones joined by ", "), `json`, `text`. Command: `exit`, `json`, `text`.
//! `json` is null when the answer is not JSON.

use std::collections::BTreeMap;

use counterfoil_core::Json;
use serde_json::json;

use super::output::Output;
use crate::template::Scope;

#[derive(Debug)]
pub(super) enum AnswerHead {
    Http { status: u16, headers: BTreeMap<String, String> },
    Command { exit: i32 },
}

#[derive(Debug)]
pub(super) struct Answer {
    head: AnswerHead,
    output: Output,
}

impl Answer {
    pub(super) fn new(head: AnswerHead, output: Output) -> Self {
        Self { head, output }
    }

    pub(super) fn output(&self) -> &Output {
        &self.output
    }

    pub(super) fn into_output(self) -> Output {
        self.output
    }

    /// A header of an HTTP answer, by its name in lower case.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        match &self.head {
            AnswerHead::Http { headers, .. } => headers.get(name).map(String::as_str),
            AnswerHead::Command { .. } => None,
        }
    }

    /// The HTTP status, or the exit code.
    pub(super) fn code(&self) -> i32 {
        match self.head {
            AnswerHead::Http { status, .. } => i32::from(status),
            AnswerHead::Command { exit } => exit,
        }
    }

    pub(super) fn scope(&self, scope: Scope) -> Scope {
        let json = self.output.json();
        let json = json.as_ref().map_or("null", Json::as_str);
        let text = json!(self.output.text());
        // As text, so that the numbers of the answer keep their digits.
        let response = match &self.head {
            AnswerHead::Http { status, headers } => {
                format!(r#"{{"status":{status},"headers":{},"json":{json},"text":{text}}}"#, json!(headers))
            }
            AnswerHead::Command { exit } => format!(r#"{{"exit":{exit},"json":{json},"text":{text}}}"#),
        };
        match Json::parse(&response) {
            Ok(response) => scope.with_json("response", &response),
            Err(_) => scope,
        }
    }
}
