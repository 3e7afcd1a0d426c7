//! `GET /v1/events`: what is committed, as it is committed. Resumed by `Last-Event-ID`: an event's id is its place in the ledger.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use counterfoil_core::ids::Digest32;
use counterfoil_core::summary::StreamKind;
use counterfoil_core::token::Right;
use counterfoil_core::{Tenant, codec};
use counterfoil_runtime::ledger::LedgerError;
use counterfoil_runtime::shown;
use counterfoil_store::{Position, Query, Recorded};
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::ask::Look;
use crate::problem::Problem;

/// Records looked at at a time.
const PAGE: usize = 256;
/// What other processes commit is seen this often at least.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const ALIVE_EVERY: Duration = Duration::from_secs(15);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventsQuery {
    /// Start after this event; the `Last-Event-ID` header says the same and goes before it. Without either: from now on.
    after: Option<String>,
}

struct Feed {
    app: Arc<App>,
    tenant: Tenant,
    after: Position,
    waiting: std::vec::IntoIter<Recorded>,
}

pub async fn events(State(app): State<Arc<App>>, look: Look<EventsQuery>) -> Result<Response, Problem> {
    look.who.must(Right::Call)?;
    let header = look.headers.get("last-event-id").map(|id| id.to_str().unwrap_or("?"));
    // Both are read, so that a mistake in the one that is not used is not overlooked.
    let (header, query) = (header.map(position).transpose()?, look.query.after.as_deref().map(position).transpose()?);
    let after = match header.or(query) {
        Some(after) => after,
        None => newest(&app, &look.who.tenant).await?,
    };
    let feed = Feed { app, tenant: look.who.tenant, after, waiting: Vec::new().into_iter() };
    let mut stopping = feed.app.stopping.clone();
    let events = stream::unfold(feed, |mut feed| async move { Some((feed.next().await, feed)) });
    let events = events.take_until(Box::pin(async move { drop(stopping.wait_for(|stopping| *stopping).await) }));
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(ALIVE_EVERY).text("alive")).into_response())
}

fn position(text: &str) -> Result<Position, Problem> {
    let wrong = || Problem::bad("invalid_query", format!("{text:?} is not the id of an event"));
    Ok(Position(text.parse::<u64>().ok().filter(|id| i64::try_from(*id).is_ok()).ok_or_else(wrong)?))
}

/// Where the tenant's newest change stands.
async fn newest(app: &App, tenant: &Tenant) -> Result<Position, LedgerError> {
    let page = app.runtime.ledger().search(Query { limit: 1, ..Query::effects(tenant.clone()) }).await?;
    Ok(page.found.first().map_or(Position(0), |found| found.position))
}

impl Feed {
    async fn next(&mut self) -> Result<Event, Infallible> {
        loop {
            for recorded in self.waiting.by_ref() {
                self.after = recorded.record.position;
                if recorded.summary.tenant == self.tenant && recorded.summary.kind == StreamKind::Effect {
                    return Ok(event(&recorded));
                }
            }
            let app = self.app.clone();
            let committed = app.runtime.ledger().committed();
            tokio::pin!(committed);
            // Registered before the look, so that a commit between the look and the wait still wakes.
            committed.as_mut().enable();
            match app.runtime.ledger().tail(self.after, PAGE).await {
                Ok(page) if !page.is_empty() => {
                    self.waiting = page.into_iter();
                    continue;
                }
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "the feed cannot be read; it is tried again"),
            }
            drop(tokio::time::timeout(LOOK_EVERY, committed).await);
        }
    }
}

fn event(recorded: &Recorded) -> Event {
    let summary = &recorded.summary;
    let entries: Vec<Value> = codec::decode(&recorded.record.body).unwrap_or_default();
    let data = json!({
        "position": recorded.record.position.0, "at": shown::time(recorded.record.at), "effect": Digest32(recorded.stream.0), "tool": summary.tool,
        "run": summary.run, "state": summary.state, "version": recorded.record.version.0, "entries": entries,
    });
    Event::default().id(recorded.record.position.0.to_string()).event("effect").data(data.to_string())
}
