//! Alive, ready, and how much of what.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{StatusCode, header::CONTENT_TYPE};
use serde_json::{Value, json};

use super::{
    problem::Problem,
    state::{Phase, Shared},
};
use crate::telemetry::metrics::Metrics;

/// The process lives.
pub(super) async fn alive() -> Json<Value> {
    Json(json!({"status": "alive"}))
}

/// The configuration is loaded, listeners are bound, and it is not draining.
pub(super) async fn ready(State(shared): State<Arc<Shared>>) -> Result<Json<Value>, Problem> {
    let not = |why| Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, why));
    match shared.state.readiness.phase() {
        Phase::Ready => Ok(Json(json!({"status": "ready"}))),
        Phase::Starting => not("starting"),
        Phase::Draining => not("draining"),
    }
}

pub(super) async fn metrics(State(shared): State<Arc<Shared>>) -> Result<Response, Problem> {
    let page = shared.state.metrics.expose();
    let page = page.map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(([(CONTENT_TYPE, Metrics::CONTENT_TYPE)], page).into_response())
}
