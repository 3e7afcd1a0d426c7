//! `GET /v1/runs/{run}/events`: the records of one run, as they are written, from its first on. Resumed by `Last-Event-ID`: an event's id is the record's
//! number. Ends when the run has ended, with an event that says so.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use counterfoil_core::run::{Run, RunState};
use counterfoil_core::token::Right;
use counterfoil_core::{RunId, StreamId, codec};
use counterfoil_runtime::ledger::LedgerError;
use counterfoil_runtime::shown;
use counterfoil_store::{Record, Version};
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::ask::{Look, Segment};
use crate::problem::Problem;

/// What other processes write is seen this often at least.
const LOOK_EVERY: Duration = Duration::from_millis(250);
const ALIVE_EVERY: Duration = Duration::from_secs(15);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventsQuery {
    /// Start after this event; the `Last-Event-ID` header says the same and goes before it. Without either: from the beginning.
    after: Option<String>,
}

struct Feed {
    app: Arc<App>,
    id: RunId,
    stream: StreamId,
    after: u64,
    /// The run as its records up to now tell of it. Its plan is not needed for what is told here.
    run: Option<Run>,
    waiting: std::vec::IntoIter<Event>,
    told_end: bool,
}

pub async fn events(State(app): State<Arc<App>>, segment: Segment, look: Look<EventsQuery>) -> Result<Response, Problem> {
    look.who.must(Right::Call)?;
    let id: RunId = segment.name()?;
    let header = look.headers.get("last-event-id").map(|id| id.to_str().unwrap_or("?"));
    // Both are read, so that a mistake in the one that is not used is not overlooked.
    let (header, query) = (header.map(number).transpose()?, look.query.after.as_deref().map(number).transpose()?);
    app.run_of(&look.who, &id).await?;
    let stream = StreamId::run(&look.who.tenant, &id);
    let after = header.or(query).unwrap_or(0);
    let feed = Feed { app, id, stream, after, run: None, waiting: Vec::new().into_iter(), told_end: false };
    let mut stopping = feed.app.stopping.clone();
    let events = stream::unfold(feed, |mut feed| async move { Some((Ok::<_, Infallible>(feed.next().await?), feed)) });
    let events = events.take_until(Box::pin(async move { drop(stopping.wait_for(|stopping| *stopping).await) }));
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(ALIVE_EVERY).text("alive")).into_response())
}

fn number(text: &str) -> Result<u64, Problem> {
    let wrong = || Problem::bad("invalid_query", format!("{text:?} is not the id of an event"));
    text.parse::<u64>().ok().filter(|id| i64::try_from(*id).is_ok()).ok_or_else(wrong)
}

impl Feed {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.waiting.next() {
                return Some(event);
            }
            let app = self.app.clone();
            let waiter = app.runtime.ledger().wakeups().register(self.stream);
            // Before the look, so that a record between the look and the wait still wakes.
            let woken = waiter.notify.notified();
            match self.look().await {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => tracing::warn!(run = %self.id, %error, "the run cannot be read; it is tried again"),
            }
            if let Some(state) = self.run.as_ref().map(Run::state).filter(|state| state.is_end()) {
                return self.end(state);
            }
            drop(tokio::time::timeout(LOOK_EVERY, woken).await);
        }
    }

    fn end(&mut self, state: RunState) -> Option<Event> {
        if std::mem::replace(&mut self.told_end, true) {
            return None;
        }
        Some(Event::default().event("end").data(json!({ "run": self.id, "state": state.word() }).to_string()))
    }

    /// Reads what is new. `false`: nothing is.
    async fn look(&mut self) -> Result<bool, LedgerError> {
        let known = Version(self.run.as_ref().map_or(0, |run| run.version));
        let mut events = Vec::new();
        for record in &self.app.runtime.ledger().records_beyond(self.stream, known).await? {
            let state = self.applied(record)?;
            if record.version.0 > self.after {
                self.after = record.version.0;
                events.push(event(&self.id, state, record));
            }
        }
        let any = !events.is_empty();
        self.waiting = events.into_iter();
        Ok(any)
    }

    fn applied(&mut self, record: &Record) -> Result<RunState, LedgerError> {
        let unreadable = |source| LedgerError::Run { run: self.id.to_string(), source };
        match &mut self.run {
            Some(run) => run.apply_body(&record.body).map_err(unreadable)?,
            none => {
                let (started, entries) = Run::begun(&record.body).map_err(unreadable)?;
                none.insert(Run::new(started, None)).apply(&entries).map_err(unreadable)?;
            }
        }
        Ok(self.run.as_ref().expect("it has begun").state())
    }
}

fn event(run: &RunId, state: RunState, record: &Record) -> Event {
    let entries: Vec<Value> = codec::decode(&record.body).unwrap_or_default();
    let data = json!({ "run": run, "version": record.version.0, "at": shown::time(record.at), "state": state.word(), "entries": entries });
    Event::default().id(record.version.0.to_string()).event("run").data(data.to_string())
}
