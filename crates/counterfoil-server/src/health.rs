//! `/healthz`: the process is alive. `/readyz`: it can do its work, that is, read and write its ledger.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use counterfoil_core::StreamId;
use counterfoil_core::ids::Digest32;
use http::StatusCode;
use serde_json::{Value, json};

use crate::app::App;

pub async fn healthz() -> Json<Value> {
    Json(json!({ "status": "ok" }))
}

pub async fn readyz(State(app): State<Arc<App>>) -> (StatusCode, Json<Value>) {
    match ready(&app).await {
        Ok(()) => {
            let risks = (app.store_risks)();
            let ready = if risks.is_empty() { json!({ "status": "ready" }) } else { json!({ "status": "ready", "at_risk": risks }) };
            (StatusCode::OK, Json(ready))
        }
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "status": "not_ready", "why": why }))),
    }
}

async fn ready(app: &App) -> Result<(), String> {
    (app.store_present)()?;
    app.runtime.ledger().newest::<Digest32>(StreamId::salt()).await.map_err(|error| error.to_string())?;
    app.runtime.ledger().writable().await.map_err(|error| error.to_string())
}
