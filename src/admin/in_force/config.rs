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
#[utoipa::path(get, path = "/v1/config", responses((status = 200, body = InForce), Refusals))]
pub(in super::super) async fn config(State(shared): State<Arc<Shared>>, _: Params<Nothing>) -> Json<InForce> {
    let (facts, source) = (&shared.state.facts, &shared.state.rules.config().source);
    Json(InForce {
        hash: facts.configuration_hash.clone(),
        loaded: rfc3339(facts.configuration_loaded),
        path: source.path.clone(),
        yaml: source.shown.clone(),
    })
}
