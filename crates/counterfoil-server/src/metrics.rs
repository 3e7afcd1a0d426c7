//! `GET /metrics`: what is counted, as Prometheus reads it.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use counterfoil_core::token::Right;
use counterfoil_runtime::observe;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

use crate::app::App;
use crate::ask::{Look, NoQuery};
use crate::problem::Problem;

/// Counts from now on. Must come before the runtime is built: it takes its counters once.
pub fn install() -> Result<PrometheusHandle, BuildError> {
    let mut builder = PrometheusBuilder::new();
    for (name, bounds) in observe::buckets() {
        builder = builder.set_buckets_for_metric(Matcher::Full(name.to_owned()), bounds)?;
    }
    let handle = builder.install_recorder()?;
    observe::describe();
    Ok(handle)
}

pub async fn metrics(State(app): State<Arc<App>>, look: Look<NoQuery>) -> Result<Response, Problem> {
    look.who.must(Right::Call)?;
    let Some(handle) = &app.metrics else { return Err(Problem::not_found("no_such_route", "this server does not count")) };
    observe::scrape(&app.runtime).await?;
    let mut response = handle.render().into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"));
    Ok(response)
}
