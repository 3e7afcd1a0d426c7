//! Every route of the API, in one table. The document (`/openapi.json`) is checked against it.
//!
//! A request goes from the guard to its handler without a detour: its future is the only thing made for it on the way. Handlers and what they take
//! are axum's; its router is not used, for it copies a request from layer to layer, which costs as much as reading it.

use std::pin::Pin;
use std::sync::Arc;

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::handler::Handler;
use axum::response::{IntoResponse, Response};
use http::Method;
use http::header::CONTENT_LENGTH;
use percent_encoding::percent_decode_str;

use crate::app::App;
use crate::ask::Came;
use crate::guard::Guard;
use crate::problem::Problem;
use crate::who::Who;
use crate::{
    admin, breakers, call, confirm, docs, effects, events, health, lend, metrics, openapi, receipts, run_changes, run_clients, run_events,
    runs, schedules, tools, workflows,
};

/// A route cannot be served without standing here. Those of one path stand together.
fn routes() -> Vec<Route> {
    vec![
        get("/healthz", health::healthz),
        get("/readyz", health::readyz),
        get("/openapi.json", openapi::openapi),
        get("/docs", docs::docs),
        get("/v1/tools", tools::list),
        get("/v1/tools/{tool}", tools::get),
        put("/v1/tools/{tool}", tools::put),
        delete("/v1/tools/{tool}", tools::delete),
        post("/v1/tools/{tool}/call", call::call),
        get("/v1/effects", effects::list),
        post("/v1/effects/acquire", lend::acquire),
        get("/v1/effects/{key}", effects::get),
        post("/v1/effects/{key}/resolve", effects::resolve),
        post("/v1/effects/{key}/cancel", effects::cancel),
        post("/v1/effects/{key}/undo", effects::undo),
        post("/v1/effects/{key}/retry", effects::retry),
        post("/v1/effects/{key}/verify", confirm::verify),
        post("/v1/effects/{key}/heartbeat", lend::heartbeat),
        post("/v1/effects/{key}/commit", lend::commit),
        post("/v1/effects/{key}/fail", lend::fail),
        get("/v1/workflows", workflows::list),
        get("/v1/workflows/{workflow}", workflows::get),
        put("/v1/workflows/{workflow}", workflows::put),
        get("/v1/schedules", schedules::list),
        get("/v1/schedules/{schedule}", schedules::get),
        put("/v1/schedules/{schedule}", schedules::put),
        delete("/v1/schedules/{schedule}", schedules::delete),
        post("/v1/schedules/{schedule}/pause", schedules::pause),
        post("/v1/schedules/{schedule}/resume", schedules::resume),
        get("/v1/runs", runs::list),
        post("/v1/runs", runs::start),
        get("/v1/runs/{run}", runs::get),
        get("/v1/runs/{run}/entries", runs::entries),
        get("/v1/runs/{run}/receipts", runs::receipts),
        get("/v1/runs/{run}/events", run_events::events),
        post("/v1/runs/{run}/cancel", run_changes::cancel),
        post("/v1/runs/{run}/signals/{signal}", run_changes::signal),
        post("/v1/runs/{run}/approve", run_changes::approve),
        post("/v1/runs/{run}/deny", run_changes::deny),
        post("/v1/runs/{run}/resume", run_changes::resume),
        post("/v1/runs/{run}/compensate", run_changes::compensate),
        post("/v1/runs/{run}/skip", run_changes::skip),
        post("/v1/runs/{run}/fork", run_changes::fork),
        post("/v1/runs/{run}/replay", confirm::replay),
        post("/v1/runs/{run}/confirm", confirm::confirm),
        post("/v1/runs/{run}/heartbeat", run_clients::heartbeat),
        post("/v1/runs/{run}/finish", run_clients::finish),
        get("/v1/receipts", receipts::list),
        get("/v1/receipts/{id}", receipts::get),
        get("/v1/receipts/{id}/proof", receipts::proof),
        get("/v1/log/head", receipts::head),
        get("/v1/approvals", effects::approvals),
        post("/v1/approvals/{key}/approve", effects::approve),
        post("/v1/approvals/{key}/deny", effects::deny),
        get("/v1/breakers", breakers::list),
        post("/v1/breakers/{tool}/reset", breakers::reset),
        post("/v1/breakers/{tool}/open", breakers::open),
        post("/v1/admin/flush", admin::flush),
        post("/v1/admin/prune", admin::prune),
        post("/v1/admin/backup", admin::backup),
        get("/v1/admin/mode", admin::modes),
        put("/v1/admin/mode", admin::set_mode),
        delete("/v1/admin/mode", admin::reset_mode),
        get("/v1/events", events::events),
        get("/metrics", metrics::metrics),
    ]
}

/// The whole API.
pub struct Api {
    app: Arc<App>,
    guard: Guard,
    paths: matchit::Router<OfPath>,
}

struct OfPath {
    path: &'static str,
    handlers: Vec<(Method, Handled)>,
}

type Answering = Pin<Box<dyn Future<Output = Response> + Send>>;
type Handled = Box<dyn Fn(Request, Arc<App>) -> Answering + Send + Sync>;

impl Api {
    pub fn new(app: Arc<App>, guard: Guard) -> Self {
        let mut of_paths: Vec<OfPath> = Vec::new();
        for Route { method, path, handled } in routes() {
            match of_paths.last_mut().filter(|last| last.path == path) {
                Some(last) => last.handlers.push((method, handled)),
                None => of_paths.push(OfPath { path, handlers: vec![(method, handled)] }),
            }
        }
        let mut paths = matchit::Router::new();
        for of_path in of_paths {
            paths.insert(of_path.path, of_path).expect("routes of one path stand together, and no two paths mean the same");
        }
        Self { app, guard, paths }
    }

    pub async fn answer(&self, request: Request) -> Response {
        let head = request.method() == Method::HEAD;
        let answering = match self.guard.admit(request.headers(), request.uri()).await {
            Ok(who) => self.handle(request, who),
            Err(problem) => Err(problem),
        };
        let mut response = match answering {
            Ok(answering) => answering.await,
            Err(problem) => problem.into_response(),
        };
        if head {
            // As long as the answer to GET would be, without it.
            if let Some(length) = response.body().size_hint().exact() {
                response.headers_mut().entry(CONTENT_LENGTH).or_insert(length.into());
            }
            *response.body_mut() = Body::empty();
        }
        response
    }

    fn handle(&self, mut request: Request, who: Option<Who>) -> Result<Answering, Problem> {
        let Ok(matched) = self.paths.at(request.uri().path()) else { return Err(no_route(&request)) };
        let (route, mut varying) = (matched.value, matched.params.iter());
        // Decoded after it was matched: a `%2F` in an id is part of the id.
        let mut next = || varying.next().and_then(|(_, text)| percent_decode_str(text).decode_utf8().ok()).map(Into::into);
        let (segment, second) = (next(), next());
        let Some(handled) = route.handler(request.method()) else { return Err(route.refused(&request)) };
        request.extensions_mut().insert(Came { who, route: route.path, segment, second });
        Ok(handled(request, self.app.clone()))
    }
}

impl OfPath {
    /// GET answers HEAD too.
    fn handler(&self, method: &Method) -> Option<&Handled> {
        let method = if method == Method::HEAD { &Method::GET } else { method };
        self.handlers.iter().find(|(of, _)| of == method).map(|(_, handled)| handled)
    }

    /// Other methods are refused like everything else: as a problem, with what is allowed.
    fn refused(&self, request: &Request) -> Problem {
        let words = self.handlers.iter().map(|(method, _)| if method == Method::GET { "GET, HEAD" } else { method.as_str() });
        // As the header `Allow` says it.
        let allow = words.collect::<Vec<_>>().join(", ");
        let detail = format!("{} is not a method of {}; allowed: {allow}", request.method(), request.uri().path());
        Problem { allow: Some(allow), ..Problem::new(http::StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail) }
    }
}

struct Route {
    method: Method,
    path: &'static str,
    handled: Handled,
}

/// Answers HEAD too.
fn get<T: 'static>(path: &'static str, handler: impl Handler<T, Arc<App>, Future = Answering>) -> Route {
    route(Method::GET, path, handler)
}

fn post<T: 'static>(path: &'static str, handler: impl Handler<T, Arc<App>, Future = Answering>) -> Route {
    route(Method::POST, path, handler)
}

fn put<T: 'static>(path: &'static str, handler: impl Handler<T, Arc<App>, Future = Answering>) -> Route {
    route(Method::PUT, path, handler)
}

fn delete<T: 'static>(path: &'static str, handler: impl Handler<T, Arc<App>, Future = Answering>) -> Route {
    route(Method::DELETE, path, handler)
}

fn route<T: 'static>(method: Method, path: &'static str, handler: impl Handler<T, Arc<App>, Future = Answering>) -> Route {
    Route { method, path, handled: Box::new(move |request, app| handler.clone().call(request, app)) }
}

fn no_route(request: &Request) -> Problem {
    Problem::not_found("no_such_route", format!("there is nothing at {}; GET /openapi.json shows what there is", request.uri().path()))
}

#[cfg(test)]
pub mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Method and path of every route.
    pub fn table() -> BTreeSet<(String, String)> {
        routes().iter().map(|route| (route.method.to_string(), route.path.to_owned())).collect()
    }

    #[test]
    fn routes_of_one_path_stand_together_and_once() {
        let routes = routes();
        let paths: BTreeSet<&str> = routes.iter().map(|route| route.path).collect();
        assert_eq!(routes.chunk_by(|one, next| one.path == next.path).count(), paths.len());
        assert_eq!(table().len(), routes.len());
    }
}
