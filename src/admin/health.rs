//! Alive, ready, and how much of what.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{
    HeaderMap, StatusCode,
    header::{ACCEPT, CONTENT_TYPE},
};

use super::{
    openapi::Refusals,
    problem::Problem,
    shapes::{Health, ProblemDetails},
    state::{Phase, Shared},
};
use crate::telemetry::metrics::Format;

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
        (status = 200, description = "OpenMetrics to whoever accepts it, else Prometheus' own text", content(
            (String = "text/plain"),
            (String = "application/openmetrics-text")
        )),
        Refusals
    )
)]
pub(super) async fn metrics(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let format = Format::accepted(&accepted.collect::<Vec<_>>().join(","));
    let page = shared.state.metrics.expose(format);
    let page = page.map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(([(CONTENT_TYPE, format.content_type())], page).into_response())
}
