//! What a caller is told. The envelope of the HTTP API, the CLI's `--json` and the library are this one value.

use std::time::Duration;

use counterfoil_core::decide::{Hold, Refusal};
use counterfoil_core::effect::{Cancel, Done, Effect, State, WorldSemantics};
use counterfoil_core::outcome::{Failure, Flag};
use counterfoil_core::receipt::ReceiptId;
use counterfoil_core::{EffectKey, Json, Timestamp};
use serde::Serialize;

use crate::lend::Lent;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Success,
    Error,
    Timeout,
    CircuitOpen,
    InDoubt,
    Pending,
    WaitingApproval,
    Cancelled,
}

impl Status {
    /// In the order of their declaration.
    pub const ALL: [Self; 8] = [
        Self::Success,
        Self::Error,
        Self::Timeout,
        Self::CircuitOpen,
        Self::InDoubt,
        Self::Pending,
        Self::WaitingApproval,
        Self::Cancelled,
    ];

    /// As in the envelope.
    pub fn word(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::CircuitOpen => "circuit_open",
            Self::InDoubt => "in_doubt",
            Self::Pending => "pending",
            Self::WaitingApproval => "waiting_approval",
            Self::Cancelled => "cancelled",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    pub status: Status,
    /// The recorded result, byte for byte; absent when there is none.
    pub data: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<AnswerError>,
    pub duration_ms: u64,
    /// The world was not touched for this answer: it is the record's.
    pub replayed: bool,
    /// `None` when nothing is recorded: pure tools, and refusals before anything was known.
    pub effect: Option<EffectKey>,
    pub attempt: u32,
    /// What the call means for the world: side_effect_committed, in_doubt, …
    pub outcome: &'static str,
    /// Names this asking, not the effect: new each time.
    pub execution_id: String,
    pub receipt: Option<ReceiptId>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<Flag>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AnswerError {
    /// Stable; each has a page in docs/errors.
    pub code: String,
    pub message: String,
    pub retriable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The code of the last failure, where `code` says how the series ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// What the other side said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<Json>,
}

impl AnswerError {
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), retriable: false, retry_after_ms: None, cause: None, detail: None }
    }
    pub fn retriable(mut self, after: Option<Duration>) -> Self {
        self.retriable = true;
        self.retry_after_ms = after.map(|d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX).max(1));
        self
    }
    /// The failure ended a series of attempts: the code says so, and the failure's own becomes the cause.
    fn exhausted(self, attempt: u32) -> Self {
        let message = format!("gave up after attempt {attempt}: {}", self.message);
        Self { cause: Some(self.code), code: "retry_exhausted".into(), message, ..self }
    }
}

impl From<&Failure> for AnswerError {
    fn from(failure: &Failure) -> Self {
        Self {
            code: failure.code.clone(),
            message: failure.message.clone(),
            retriable: failure.retriable,
            retry_after_ms: failure.retry_after_ms,
            cause: None,
            detail: failure.detail.clone(),
        }
    }
}

/// What the drive loop found, before it is dressed as an [`Answer`].
#[derive(Debug)]
pub enum Ending {
    /// The recorded state is the answer.
    Recorded,
    Held(Hold),
    /// Someone else is still at it, and the time to wait is over.
    StillRunning,
    Refused(Refusal),
    /// It may run now, but not here: its client must ask for the permit.
    Elsewhere,
    /// A client has the permit.
    Lent(Lent),
    /// Refused before any dispatch: nothing is recorded of it, the same key may be used again.
    NotAdmitted(Status, AnswerError),
}

impl Answer {
    /// Nothing is recorded: the call was refused, or the tool is pure.
    pub fn unrecorded(status: Status, error: AnswerError) -> Self {
        Self {
            status,
            data: None,
            error: Some(error),
            duration_ms: 0,
            replayed: false,
            effect: None,
            attempt: 0,
            outcome: WorldSemantics::Undecided.word(),
            execution_id: String::new(),
            receipt: None,
            flags: Vec::new(),
        }
    }

    pub fn refused(code: &str, message: impl Into<String>) -> Self {
        Self::unrecorded(Status::Error, AnswerError::new(code, message))
    }

    /// To the owner of a series that ends here without a receipt of its own: its time was up before the next attempt was due.
    pub(crate) fn given_up(self) -> Self {
        let attempt = self.attempt;
        Self { error: self.error.map(|error| error.exhausted(attempt)), ..self }
    }

    /// The recorded result of an effect that is done.
    pub fn replayed(key: EffectKey, done: Done) -> Self {
        let outcome = WorldSemantics::SideEffectCommitted.word();
        successful(Self { effect: Some(key), outcome, replayed: true, ..Self::refused("", "") }, done)
    }

    pub fn from_ending(effect: &Effect, ending: Ending, now: Timestamp) -> Self {
        let blank = Self { effect: Some(effect.key), attempt: effect.attempts, outcome: effect.world().word(), ..Self::refused("", "") };
        match ending {
            Ending::Elsewhere if matches!(effect.state, State::Ready) => {
                let error = AnswerError::new("pending", "it may run now: its client acquires the permit with the same key").retriable(None);
                Self { status: Status::Pending, error: Some(error), ..blank }
            }
            Ending::Recorded | Ending::Held(_) | Ending::Elsewhere | Ending::Lent(_) => recorded(blank, effect, now),
            Ending::StillRunning => {
                let error = AnswerError::new("pending", "another call with this key is still running; ask again with the same key")
                    .retriable(Some(Duration::from_secs(1)));
                Self { status: Status::Pending, error: Some(error), ..blank }
            }
            // Not nothing: it was dispatched before the flush.
            Ending::Refused(refusal @ Refusal::Flushed) => {
                Self { error: Some(refusal_error(&refusal)), outcome: WorldSemantics::InDoubt.word(), ..blank }
            }
            Ending::Refused(refusal) => Self { error: Some(refusal_error(&refusal)), outcome: WorldSemantics::Undecided.word(), ..blank },
            Ending::NotAdmitted(status, error) => Self { status, error: Some(error), ..blank },
        }
    }
}

fn successful(blank: Answer, done: Done) -> Answer {
    Answer {
        status: Status::Success,
        data: Some(done.result),
        error: None,
        attempt: done.attempt,
        receipt: Some(done.receipt),
        flags: done.flags,
        ..blank
    }
}

fn cancelled(blank: Answer, by: &str, why: &str, receipt: ReceiptId) -> Answer {
    let error = AnswerError::new("cancelled", format!("cancelled by {by}: {why}"));
    Answer { status: Status::Cancelled, error: Some(error), receipt: Some(receipt), ..blank }
}

fn recorded(blank: Answer, effect: &Effect, now: Timestamp) -> Answer {
    match &effect.state {
        State::Done(done) | State::Undoing { done, .. } | State::Undone { done, .. } | State::UndoFailed { done, .. } => {
            match effect.cancelled.as_deref() {
                Some(Cancel { by, why, receipt }) => cancelled(blank, by, why, *receipt),
                None => successful(blank, done.clone()),
            }
        }
        State::Failed { failure, receipt, .. } => Answer { error: Some(failure.into()), receipt: Some(*receipt), ..blank },
        State::Retrying(failed) => {
            let wait = failed.not_before.since(now);
            let mut error = AnswerError::from(&failed.failure).retriable(Some(wait));
            if failed.receipt.is_some() {
                error = error.exhausted(failed.attempt);
            }
            let status = if failed.failure.code == "timeout" { Status::Timeout } else { Status::Error };
            Answer { status, error: Some(error), receipt: failed.receipt, ..blank }
        }
        State::InDoubt(doubt) => {
            let mut error = AnswerError::new(
                "in_doubt",
                format!(
                    "attempt {} may or may not have happened ({}: {}); it will not be run again on a guess. Resolve it: counterfoil effects resolve {} --happened | --did-not-happen",
                    doubt.attempt, doubt.failure.code, doubt.failure.message, effect.key
                ),
            );
            error.cause = Some(doubt.failure.code.clone());
            error.detail = doubt.failure.detail.clone();
            Answer { status: Status::InDoubt, error: Some(error), ..blank }
        }
        State::WaitingApproval { expires, .. } => {
            let message = format!("a person must approve this first: counterfoil effects approve {}", effect.key);
            let error = AnswerError::new("approval_required", message).retriable(Some(expires.since(now).min(Duration::from_secs(5))));
            Answer { status: Status::WaitingApproval, error: Some(error), ..blank }
        }
        State::Cancelled { by, why, receipt, .. } => cancelled(blank, by, why, *receipt),
        State::Absent | State::Flushed { .. } | State::Ready | State::Running(_) => {
            let error =
                AnswerError::new("pending", "not finished yet; ask again with the same key").retriable(Some(Duration::from_secs(1)));
            Answer { status: Status::Pending, error: Some(error), ..blank }
        }
    }
}

fn refusal_error(refusal: &Refusal) -> AnswerError {
    match refusal {
        Refusal::KeyReuseMismatch { recorded } => AnswerError::new(
            "key_reuse_mismatch",
            format!("this key was used with other arguments (fingerprint {recorded}); nothing was run: use another key for another call"),
        ),
        Refusal::KeyExpired => AnswerError::new(
            "key_expired",
            "this effect ended longer ago than the tool's `retain`, or its subject was erased: its result is gone, and it is not run again under the same key",
        ),
        Refusal::InFlight { retry_after } => {
            AnswerError::new("in_flight", "another call with this key is running; ask again with the same key")
                .retriable(Some(*retry_after))
        }
        Refusal::ArgumentsRedacted => AnswerError::new(
            "arguments_redacted",
            "the stored arguments hold redacted values; call it again with the same key and the full arguments",
        ),
        Refusal::Flushed => AnswerError::new(
            "flushed",
            "the effect was flushed while this call was at it; it was dispatched, and what it reported is kept in the effect's history. \
             Look there before you call again: a call with this key is a new one now",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_one_word_everywhere() {
        for (place, status) in Status::ALL.into_iter().enumerate() {
            assert_eq!(status as usize, place);
            assert_eq!(serde_json::to_value(status).expect("a word"), status.word());
        }
    }
}
