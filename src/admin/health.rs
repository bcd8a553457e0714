//! `GET /healthz`, `/readyz` and `/metrics`.

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
    ProcessPhase,
    context::HandlerContext,
    dto::{Health, ProblemDetails},
    openapi::ReadErrors,
    problem::Problem,
};
use crate::telemetry::metrics::ExpositionFormat;

/// Succeeds while the process is alive.
#[utoipa::path(
    get,
    path = "/healthz",
    operation_id = "healthz",
    tag = "health",
    security(()),
    responses((status = 200, body = Health, description = "the process is alive"))
)]
pub(super) async fn alive() -> Json<Health> {
    Json(Health { status: "alive".to_owned() })
}

/// Succeeds once the configuration is loaded, listeners are bound and the key sets of providers of tokens were fetched,
/// until the process drains.
#[utoipa::path(
    get,
    path = "/readyz",
    operation_id = "readyz",
    tag = "health",
    security(()),
    responses(
        (status = 200, body = Health, description = "the process serves requests"),
        (status = 503, body = ProblemDetails, content_type = "application/problem+json", description = "the process is starting or draining, or a key set was not fetched yet"),
    )
)]
pub(super) async fn ready(State(context): State<Arc<HandlerContext>>) -> Result<Json<Health>, Problem> {
    let not = |why| Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, why));
    match context.state.readiness.phase() {
        ProcessPhase::Ready => match context.state.active_config.snapshot().rules.unread_key_sets() {
            unread if unread.is_empty() => Ok(Json(Health { status: "ready".to_owned() })),
            unread => Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, unread.join("; "))),
        },
        ProcessPhase::Starting => not("starting"),
        ProcessPhase::Draining => not("draining"),
    }
}

/// Exposes all metrics for Prometheus.
#[utoipa::path(
    get,
    path = "/metrics",
    operation_id = "metrics",
    tag = "health",
    responses(
        (status = 200, description = "OpenMetrics if the client accepts it, otherwise the Prometheus text format", content(
            (String = "text/plain"),
            (String = "application/openmetrics-text")
        )),
        ReadErrors
    )
)]
pub(super) async fn metrics(
    State(context): State<Arc<HandlerContext>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let format = ExpositionFormat::from_accept(&accepted.collect::<Vec<_>>().join(","));
    let page = context.state.metrics.expose(format);
    let page = page.map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(([(CONTENT_TYPE, format.content_type())], page).into_response())
}
