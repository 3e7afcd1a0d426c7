//! What one attempt said. The three cases are never folded: `NotDone` may be tried again, `Unknown` may not.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

use crate::canonical::Json;
use crate::ids::Digest32;

/// The answer of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It happened, and this is what the world said.
    Done(Success),
    /// It certainly did not happen.
    NotDone(Failure),
    /// It may have happened. Nobody runs it again on a guess.
    Unknown(Failure),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Success {
    /// The result, byte for byte as it will be replayed.
    pub result: Json,
    /// Set when the result is not all of what the world said, or not what was promised: it is kept all the same, since it happened.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<Flag>,
    /// What a later look at the world is held against.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_changed: Option<Box<StateChanged>>,
}

impl Success {
    pub fn new(result: Json) -> Self {
        Self { result, flags: Vec::new(), state_changed: None }
    }
}

/// How the thing that an effect made or changed can be known again: captured when the effect is done, from what it answered. No secrets: it is
/// shown wherever the effect is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateChanged {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// As the other side sent it, quotes and all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// SHA-256 of what a file holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest32>,
    /// What the thing is called out there.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

impl StateChanged {
    /// `None`: nothing was captured.
    pub fn known(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Flag {
    /// The output did not match the tool's `output` schema.
    OutputSchemaViolated(String),
    /// The output was larger than the cap; `result` is a preview, the digest covers all of it.
    Truncated { bytes: u64, sha256: Digest32 },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// A stable word, e.g. `http_503`, `timeout`, `connection_refused`, `rejected`.
    pub code: String,
    pub message: String,
    /// Whether trying again can help. Says nothing about whether it is allowed: that is the ledger's to decide.
    #[serde(default, skip_serializing_if = "is_false")]
    pub retriable: bool,
    /// What the other side asked for (`Retry-After`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Whether the dependency is to blame: such failures count for the breaker; rejections and mistakes of the caller do not.
    #[serde(default, skip_serializing_if = "is_false")]
    pub dependency: bool,
    /// What the other side said beside it, e.g. the body of a 400: evidence, shown to the caller.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub detail: Option<Json>,
}

/// A detail that is there is there, also when it is `null`.
fn present<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(d).map(Some)
}

fn is_false(b: &bool) -> bool {
    !b
}

impl Failure {
    /// A failure that trying again cannot mend, and for which the dependency is not to blame.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), retriable: false, retry_after_ms: None, dependency: false, detail: None }
    }
    /// The dependency failed: counts for the breaker, and may be tried again where that is safe.
    pub fn of_dependency(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { retriable: true, dependency: true, ..Self::new(code, message) }
    }
    pub fn retry_after(mut self, wait: Option<Duration>) -> Self {
        self.retry_after_ms = wait.map(|w| u64::try_from(w.as_millis()).unwrap_or(u64::MAX));
        self
    }
    pub fn with_detail(mut self, detail: Json) -> Self {
        self.detail = Some(detail);
        self
    }
}
