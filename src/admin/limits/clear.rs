//! `DELETE /v1/limits`: what was used of a limit was not.

use std::sync::Arc;

use axum::{Json, extract::State};

use super::{
    super::{openapi::Changes, params::Params, problem::Problem, shapes, state::Shared},
    Wanted, read,
};

/// Clears the limits of exactly this key, on every instance, and says which there were. Composites that begin with it
/// stay; an address stays listed.
#[utoipa::path(
    delete,
    path = "/v1/limits",
    params(Wanted),
    responses((status = 200, body = shapes::ResetLimits), Changes)
)]
pub(in super::super) async fn clear(
    State(shared): State<Arc<Shared>>,
    Params(wanted): Params<Wanted>,
) -> Result<Json<shapes::ResetLimits>, Problem> {
    let (key, policies, _) = read(&shared, &wanted)?;
    let cleared = shared.desk.clear(policies, &key.text).await?;
    tracing::info!(key = %key.text, cleared = cleared.len(), "limits were cleared");
    let cleared =
        cleared.into_iter().map(|limit| shapes::ClearedLimit { policy: limit.policy, key: limit.identifier });
    Ok(Json(shapes::ResetLimits { cleared: cleared.collect() }))
}
