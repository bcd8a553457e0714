//! `GET /v1/config`

use std::sync::Arc;

use axum::{Json, extract::State};

use super::super::{
    openapi::Refusals,
    params::{Nothing, Params},
    shapes::InForce,
    state::Shared,
};
use crate::telemetry::time::rfc3339;

/// The configuration in force as it was written, with its secrets masked. What `${…}` inserts is not told.
#[utoipa::path(
    get,
    path = "/v1/config",
    operation_id = "config",
    tag = "in force",
    responses((status = 200, body = InForce, description = "its text, and when it was read"), Refusals)
)]
pub(in super::super) async fn config(State(shared): State<Arc<Shared>>, _: Params<Nothing>) -> Json<InForce> {
    let configured = shared.state.in_force.now();
    let source = &configured.rules.config().source;
    Json(InForce {
        hash: configured.hash.clone(),
        loaded: rfc3339(configured.loaded),
        path: source.path.clone(),
        yaml: source.shown.clone(),
    })
}
