//! Alive, ready, and how much of what.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{StatusCode, header::CONTENT_TYPE};

use super::{
    openapi::Refusals,
    problem::Problem,
    shapes::{Health, ProblemDetails},
    state::{Phase, Shared},
};
use crate::telemetry::metrics::Metrics;

/// The process lives.
#[utoipa::path(
    get,
    path = "/healthz",
    operation_id = "healthz",
    tag = "health",
    security(()),
    responses((status = 200, body = Health, description = "it lives"))
)]
pub(super) async fn alive() -> Json<Health> {
    Json(Health { status: "alive".to_owned() })
}

/// The configuration is loaded, listeners are bound, and it is not draining.
#[utoipa::path(
    get,
    path = "/readyz",
    operation_id = "readyz",
    tag = "health",
    security(()),
    responses(
        (status = 200, body = Health, description = "it takes requests"),
        (status = 503, body = ProblemDetails, content_type = "application/problem+json", description = "starting, or draining"),
    )
)]
pub(super) async fn ready(State(shared): State<Arc<Shared>>) -> Result<Json<Health>, Problem> {
    let not = |why| Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, why));
    match shared.state.readiness.phase() {
        Phase::Ready => Ok(Json(Health { status: "ready".to_owned() })),
        Phase::Starting => not("starting"),
        Phase::Draining => not("draining"),
    }
}

/// Everything that is counted, for Prometheus.
#[utoipa::path(
    get,
    path = "/metrics",
    operation_id = "metrics",
    tag = "health",
    responses(
        (
            status = 200,
            body = String,
            content_type = "application/openmetrics-text",
            description = "OpenMetrics 1.0",
            example = "# TYPE tollgate_requests counter\ntollgate_requests_total{route=\"/*\",status=\"2xx\"} 1\n# EOF\n"
        ),
        Refusals
    )
)]
pub(super) async fn metrics(State(shared): State<Arc<Shared>>) -> Result<Response, Problem> {
    let page = shared.state.metrics.expose();
    let page = page.map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(([(CONTENT_TYPE, Metrics::CONTENT_TYPE)], page).into_response())
}
