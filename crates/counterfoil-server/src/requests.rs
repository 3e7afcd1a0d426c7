//! `Idempotency-Key`: a request that is sent again gets the answer it got, and changes nothing.
//!
//! The record of a request and the change it asks for are one append: that append is the linearization point. What is refused before it is not
//! remembered; what comes after it is, whatever it says. A key means something to one tenant, one method and one route; its fingerprint covers
//! the path, the query and the body.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use counterfoil_core::ids::{CallKey, Digest32};
use counterfoil_core::request::{Request, RequestState, Seen, Stored, seen};
use counterfoil_core::summary::StreamKind;
use counterfoil_core::{StreamId, Summary, Tenant, Timestamp};
use counterfoil_runtime::Runtime;
use counterfoil_runtime::ledger::{LedgerError, plain_summary};
use counterfoil_store::{Version, Write};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, LOCATION};
use http::{HeaderName, HeaderValue, Method, StatusCode};

use crate::problem::{Problem, in_flight};

pub const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

const JSON: &str = "application/json";

/// Most answers are smaller: room for them is taken at once.
const BODY_BYTES_USUAL: usize = 1024;

/// How long work that outlasts its first append is believed to be under way. Its effects have leases of their own.
const PENDING_FOR: Duration = Duration::from_secs(60);

/// A mutating request as its key knows it.
#[derive(Debug, Clone)]
pub struct Asked {
    tenant: Tenant,
    stream: StreamId,
    fingerprint: Digest32,
    /// How many records its stream has: what the next write expects.
    version: Version,
}

impl Asked {
    pub fn new(tenant: &Tenant, method: &Method, route: &str, key: &CallKey, target: &str, body: &str) -> Self {
        let fingerprint = Digest32::of_fields("counterfoil/request-payload/1", &[target.as_bytes(), body.as_bytes()]);
        let stream = StreamId::request(tenant, method.as_str(), route, key);
        Self { tenant: tenant.clone(), stream, fingerprint, version: Version::NONE }
    }
}

pub struct Requests {
    runtime: Runtime,
    retain: Duration,
    /// How many requests may be remembered at a time. More are refused: none is ever forgotten to make room.
    max: usize,
    /// When those that this process let through are forgotten, oldest first.
    remembered: Mutex<VecDeque<Timestamp>>,
    /// Requests that this process is at.
    active: Mutex<HashSet<StreamId>>,
}

/// A request is under way in this process as long as this lives.
pub struct Active<'a> {
    requests: &'a Requests,
    stream: StreamId,
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.requests.lock().remove(&self.stream);
    }
}

/// What to do with a request.
pub enum Turn {
    /// Do it, and write this beside the change.
    Go(Asked),
    /// It was begun and abandoned: go on with it.
    GoOn(Asked),
    Replay(Stored),
}

impl Requests {
    pub fn new(runtime: Runtime, retain: Duration, max: usize) -> Self {
        Self { runtime, retain, max, remembered: Mutex::default(), active: Mutex::default() }
    }

    /// Counts one more, or says when there is room again.
    fn admit(&self) -> Result<(), Problem> {
        let now = self.runtime.now();
        let mut remembered = self.remembered.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        while remembered.front().is_some_and(|until| *until <= now) {
            remembered.pop_front();
        }
        match remembered.front() {
            Some(until) if remembered.len() >= self.max => {
                let detail = format!("{} requests are remembered, which is all that may be; nothing was run", self.max);
                Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "capacity_reached", detail).retry_after(until.since(now)))
            }
            _ => {
                remembered.push_back(now + self.retain);
                Ok(())
            }
        }
    }

    /// `None` when this process is at it already.
    pub fn begin(&self, asked: &Asked) -> Option<Active<'_>> {
        let first = self.lock().insert(asked.stream);
        first.then(|| Active { requests: self, stream: asked.stream })
    }

    pub async fn look(&self, asked: Asked) -> Result<Turn, Problem> {
        let ledger = self.runtime.ledger();
        let (version, request, expired) = ledger.newest_or_expired::<Request>(asked.stream).await?;
        let asked = Asked { version, ..asked };
        if expired {
            return Err(key_expired());
        }
        let own = ledger.worker().clone();
        // Whoever calls holds `Active`: what this process began under this key before, it is no longer at.
        let at_it = |worker: &counterfoil_core::WorkerId| *worker != own && !self.runtime.worker_gone(worker);
        match seen(request.as_ref(), &asked.fingerprint, self.runtime.now(), self.retain, at_it) {
            Seen::New => self.admit().map(|()| Turn::Go(asked)),
            Seen::Abandoned => Ok(Turn::GoOn(asked)),
            Seen::Answered(stored) => Ok(Turn::Replay(stored)),
            Seen::InFlight => Err(in_flight()),
            Seen::Expired => Err(key_expired()),
            Seen::Mismatch => Err(Problem::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "idempotency_key_reused",
                "this Idempotency-Key was used with another path, query or body; nothing was changed: use another key for another request",
            )),
        }
    }

    /// The write that stores the answer.
    pub fn answered(&self, asked: &Asked, stored: &Stored) -> Write {
        self.write(asked, RequestState::Answered(stored.clone()))
    }

    /// The write that says that the change has begun.
    pub fn pending(&self, asked: &Asked) -> Write {
        let worker = self.runtime.ledger().worker().clone();
        self.write(asked, RequestState::Pending { worker, until: self.runtime.now() + PENDING_FOR })
    }

    /// Stores the answer to a request that was begun before. `false`: another process went on with it and was faster, so that its answer stands and no other
    /// may be given.
    pub async fn store(&self, asked: &Asked, stored: &Stored) -> Result<bool, LedgerError> {
        match self.runtime.ledger().append(vec![self.answered(asked, stored)]).await {
            Err(LedgerError::Conflict) => Ok(false),
            stored => stored.map(|()| true),
        }
    }

    fn write(&self, asked: &Asked, state: RequestState) -> Write {
        let at = self.runtime.now();
        let (word, open, expires) = match &state {
            RequestState::Pending { .. } => ("pending", true, None),
            RequestState::Answered(_) => ("answered", false, Some(at + self.retain)),
        };
        let summary = Summary { state: word, open, expires, ..plain_summary(StreamKind::Request, asked.tenant.clone()) };
        let request = Request { at, fingerprint: asked.fingerprint, state };
        self.runtime.ledger().replacing(asked.stream, asked.version, &request, summary)
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<StreamId>> {
        // A set that is whole at every moment.
        self.active.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Asked {
    /// After its first record was written.
    pub fn begun(self) -> Self {
        Self { version: self.version.next(), ..self }
    }
}

fn key_expired() -> Problem {
    let detail = "this Idempotency-Key was answered longer ago than answers are kept; it is not run again: use a new key for a new request";
    Problem::new(StatusCode::GONE, "key_expired", detail)
}

pub fn json_stored(status: StatusCode, body: &impl serde::Serialize) -> Stored {
    let mut text = Vec::with_capacity(BODY_BYTES_USUAL);
    serde_json::to_writer(&mut text, body).expect("what is shown is plain data");
    let body = String::from_utf8(text).expect("JSON is written as UTF-8");
    Stored { status: status.as_u16(), content_type: JSON.into(), location: None, body }
}

pub fn respond(stored: Stored, replayed: bool) -> Response {
    let mut response = Response::new(Body::from(stored.body));
    *response.status_mut() = StatusCode::from_u16(stored.status).unwrap_or(StatusCode::OK);
    let headers = response.headers_mut();
    if stored.content_type == JSON {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    } else if let Ok(kind) = HeaderValue::try_from(stored.content_type) {
        headers.insert(CONTENT_TYPE, kind);
    }
    if let Some(location) = stored.location.and_then(|location| HeaderValue::try_from(location).ok()) {
        headers.insert(LOCATION, location);
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if replayed {
        headers.insert(REPLAYED, HeaderValue::from_static("true"));
    }
    response
}
