//! Every route of the API, in one table.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};

use crate::app::App;
use crate::guard::{Guard, guard};
use crate::problem::Problem;
use crate::{admin, breakers, call, effects, events, health, lend, metrics, tools};

pub fn router(app: Arc<App>, keeper: Arc<Guard>) -> Router {
    Router::new()
        .route("/healthz", only("GET, HEAD", get(health::healthz)))
        .route("/readyz", only("GET, HEAD", get(health::readyz)))
        .route("/v1/tools", only("GET, HEAD", get(tools::list)))
        .route("/v1/tools/{tool}", only("GET, HEAD, PUT, DELETE", get(tools::get).put(tools::put).delete(tools::delete)))
        .route("/v1/tools/{tool}/call", only("POST", post(call::call)))
        .route("/v1/effects", only("GET, HEAD", get(effects::list)))
        .route("/v1/effects/acquire", only("POST", post(lend::acquire)))
        .route("/v1/effects/{key}", only("GET, HEAD", get(effects::get)))
        .route("/v1/effects/{key}/resolve", only("POST", post(effects::resolve)))
        .route("/v1/effects/{key}/cancel", only("POST", post(effects::cancel)))
        .route("/v1/effects/{key}/undo", only("POST", post(effects::undo)))
        .route("/v1/effects/{key}/retry", only("POST", post(effects::retry)))
        .route("/v1/effects/{key}/heartbeat", only("POST", post(lend::heartbeat)))
        .route("/v1/effects/{key}/commit", only("POST", post(lend::commit)))
        .route("/v1/effects/{key}/fail", only("POST", post(lend::fail)))
        .route("/v1/approvals", only("GET, HEAD", get(effects::approvals)))
        .route("/v1/approvals/{key}/approve", only("POST", post(effects::approve)))
        .route("/v1/approvals/{key}/deny", only("POST", post(effects::deny)))
        .route("/v1/breakers", only("GET, HEAD", get(breakers::list)))
        .route("/v1/breakers/{tool}/reset", only("POST", post(breakers::reset)))
        .route("/v1/breakers/{tool}/open", only("POST", post(breakers::open)))
        .route("/v1/admin/flush", only("POST", post(admin::flush)))
        .route("/v1/admin/prune", only("POST", post(admin::prune)))
        .route("/v1/admin/backup", only("POST", post(admin::backup)))
        .route("/v1/admin/mode", only("GET, HEAD, PUT, DELETE", get(admin::modes).put(admin::set_mode).delete(admin::reset_mode)))
        .route("/metrics", only("GET, HEAD", get(metrics::metrics)))
        .route("/v1/events", only("GET, HEAD", get(events::events)))
        .fallback(no_route)
        .with_state(app)
        .layer(from_fn_with_state(keeper, guard))
}

/// Other methods are refused like everything else: as a problem, with what is allowed.
fn only(allow: &'static str, methods: MethodRouter<Arc<App>>) -> MethodRouter<Arc<App>> {
    methods.fallback(move |request: Request| async move {
        let detail = format!("{} is not a method of {}; allowed: {allow}", request.method(), request.uri().path());
        Problem { allow: Some(allow), ..Problem::new(http::StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail) }
    })
}

async fn no_route(request: Request) -> Response {
    Problem::not_found("no_such_route", format!("there is nothing at {}; GET /openapi.json shows what there is", request.uri().path()))
        .into_response()
}
