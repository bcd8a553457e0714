//! `POST /v1/reload`: reads the configuration again.

use std::sync::Arc;

use axum::{Json, extract::State};
use http::StatusCode;

use super::{
    context::HandlerContext,
    dto::Reloaded,
    extract::{NoParams, Operator, Query},
    openapi::{ConfigErrors, UnavailableError, WriteErrors},
    problem::Problem,
};

/// Reloads the configuration and lists the changes. If it has errors, they are listed with their places, and the
/// running configuration is kept.
#[utoipa::path(
    post,
    path = "/v1/reload",
    operation_id = "reload",
    tag = "in force",
    responses((status = 200, body = Reloaded, description = "what was changed"), WriteErrors, UnavailableError, ConfigErrors)
)]
pub(super) async fn reload(
    State(context): State<Arc<HandlerContext>>,
    by: Operator,
    _: Query<NoParams>,
) -> Result<Json<Reloaded>, Problem> {
    match context.state.reloads.request(by.0).await {
        Some(Ok(reloaded)) => Ok(Json(reloaded)),
        Some(Err(errors)) => Err(Problem::misconfigured(errors)),
        None => Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "Tollgate is shutting down")),
    }
}
