//! Every route of the API, in one table. The document (`/openapi.json`) is checked against it.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::handler::Handler;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use http::Method;

use crate::app::App;
use crate::guard::{Guard, guard};
use crate::problem::Problem;
use crate::{admin, breakers, call, docs, effects, events, health, lend, metrics, openapi, tools};

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
        post("/v1/effects/{key}/heartbeat", lend::heartbeat),
        post("/v1/effects/{key}/commit", lend::commit),
        post("/v1/effects/{key}/fail", lend::fail),
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

pub fn router(app: Arc<App>, keeper: Arc<Guard>) -> Router {
    let served = routes().chunk_by(|one, next| one.path == next.path).fold(Router::new(), |served, of_path| {
        let methods = of_path.iter().fold(MethodRouter::new(), |all, route| all.merge(route.handled.clone()));
        served.route(of_path[0].path, only(allowed(of_path), methods))
    });
    served.fallback(no_route).with_state(app).layer(from_fn_with_state(keeper, guard))
}

struct Route {
    method: Method,
    path: &'static str,
    handled: MethodRouter<Arc<App>>,
}

/// Answers HEAD too.
fn get<T: 'static>(path: &'static str, handler: impl Handler<T, Arc<App>>) -> Route {
    Route { method: Method::GET, path, handled: on(MethodFilter::GET, handler) }
}

fn post<T: 'static>(path: &'static str, handler: impl Handler<T, Arc<App>>) -> Route {
    Route { method: Method::POST, path, handled: on(MethodFilter::POST, handler) }
}

fn put<T: 'static>(path: &'static str, handler: impl Handler<T, Arc<App>>) -> Route {
    Route { method: Method::PUT, path, handled: on(MethodFilter::PUT, handler) }
}

fn delete<T: 'static>(path: &'static str, handler: impl Handler<T, Arc<App>>) -> Route {
    Route { method: Method::DELETE, path, handled: on(MethodFilter::DELETE, handler) }
}

/// As the header `Allow` says it.
fn allowed(of_path: &[Route]) -> String {
    let words = of_path.iter().map(|route| if route.method == Method::GET { "GET, HEAD" } else { route.method.as_str() });
    words.collect::<Vec<_>>().join(", ")
}

/// Other methods are refused like everything else: as a problem, with what is allowed.
fn only(allow: String, methods: MethodRouter<Arc<App>>) -> MethodRouter<Arc<App>> {
    methods.fallback(move |request: Request| async move {
        let detail = format!("{} is not a method of {}; allowed: {allow}", request.method(), request.uri().path());
        Problem { allow: Some(allow), ..Problem::new(http::StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail) }
    })
}

async fn no_route(request: Request) -> Response {
    Problem::not_found("no_such_route", format!("there is nothing at {}; GET /openapi.json shows what there is", request.uri().path()))
        .into_response()
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
