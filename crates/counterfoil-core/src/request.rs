//! One mutating HTTP request: what its `Idempotency-Key` remembers, and what a repeat of it may do.
//!
//! The record is written in the same append as the change it asked for, so that there is never one without the other. A request whose work takes
//! longer than one append is `Pending` until its answer is stored; whoever finds it pending and nobody at it goes on with the same work, which the
//! effects' own keys keep from being done twice.

use serde::{Deserialize, Serialize};

use crate::ids::{Digest32, WorkerId};
use crate::time::Timestamp;

/// The newest record of a request's stream is its whole state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    pub at: Timestamp,
    /// Of the path, the query and the body: the same key with another payload is refused.
    pub fingerprint: Digest32,
    pub state: RequestState,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestState {
    /// The change it asked for has begun.
    Pending {
        worker: WorkerId,
        until: Timestamp,
    },
    Answered(Stored),
}

/// A response, byte for byte as it was given the first time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    pub status: u16,
    pub content_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    pub body: String,
}

/// What a request that carries a known key meets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    New,
    Answered(Stored),
    /// The key was used for something else.
    Mismatch,
    /// Someone is at it.
    InFlight,
    /// Begun, and nobody is at it any more: go on with it.
    Abandoned,
    /// Answered longer ago than answers are kept.
    Expired,
}

/// `retain`: how long an answer is kept. `at_it`: whether the worker that began it is still at it.
pub fn seen(
    request: Option<&Request>,
    fingerprint: &Digest32,
    now: Timestamp,
    retain: std::time::Duration,
    at_it: impl FnOnce(&WorkerId) -> bool,
) -> Seen {
    let Some(request) = request else { return Seen::New };
    if request.fingerprint != *fingerprint {
        return Seen::Mismatch;
    }
    match &request.state {
        RequestState::Answered(_) if request.at + retain <= now => Seen::Expired,
        RequestState::Answered(stored) => Seen::Answered(stored.clone()),
        RequestState::Pending { worker, until } if now < *until && at_it(worker) => Seen::InFlight,
        RequestState::Pending { .. } => Seen::Abandoned,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000_000);
    const HOUR: Duration = Duration::from_secs(3600);

    fn request(state: RequestState) -> Request {
        Request { at: NOW, fingerprint: Digest32::of(b"payload"), state }
    }

    fn stored() -> Stored {
        Stored { status: 201, content_type: "application/json".into(), location: None, body: "{}".into() }
    }

    #[test]
    fn what_a_known_key_meets() {
        let worker = WorkerId::new("w").unwrap();
        let pending = request(RequestState::Pending { worker, until: NOW + HOUR });
        let answered = request(RequestState::Answered(stored()));
        let (same, other) = (Digest32::of(b"payload"), Digest32::of(b"other"));
        let look = |r: Option<&Request>, f: &Digest32, now, alive: bool| seen(r, f, now, HOUR, |_| alive);
        assert_eq!(look(None, &same, NOW, true), Seen::New);
        assert_eq!(look(Some(&answered), &same, NOW, true), Seen::Answered(stored()));
        assert_eq!(look(Some(&answered), &other, NOW, true), Seen::Mismatch);
        assert_eq!(look(Some(&answered), &same, NOW + HOUR, true), Seen::Expired);
        assert_eq!(look(Some(&pending), &same, NOW, true), Seen::InFlight);
        assert_eq!(look(Some(&pending), &other, NOW, true), Seen::Mismatch);
        assert_eq!(look(Some(&pending), &same, NOW, false), Seen::Abandoned);
        assert_eq!(look(Some(&pending), &same, NOW + HOUR, true), Seen::Abandoned, "its worker has had its time");
    }
}
