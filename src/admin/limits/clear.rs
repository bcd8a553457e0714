//! `DELETE /v1/limits`: what was used of a limit was not.

use std::{collections::BTreeSet, sync::Arc};

use axum::{Json, extract::State};

use super::{
    super::{
        audit::Operator,
        openapi::{Away, Changes, Missing},
        params::Params,
        problem::Problem,
        shapes,
        state::Shared,
    },
    Wanted, read,
};

/// Clears the limits of exactly this key, on every instance, and says which there were. Composites that begin with it
/// stay; an address stays listed.
#[utoipa::path(
    delete,
    path = "/v1/limits",
    operation_id = "reset",
    tag = "limits",
    params(Wanted),
    responses(
        (status = 200, body = shapes::ResetLimits, description = "which limits there were"),
        Changes,
        Missing,
        Away
    )
)]
pub(in super::super) async fn clear(
    State(shared): State<Arc<Shared>>,
    by: Operator,
    Params(wanted): Params<Wanted>,
) -> Result<Json<shapes::ResetLimits>, Problem> {
    let configured = shared.state.in_force.now();
    let (key, policies, _) = read(&configured, &wanted)?;
    let policies =
        policies.into_iter().filter_map(|index| configured.policies().get(index)).cloned().collect();
    let cleared = shared.desk.clear(policies, &key.text).await?;
    let names: BTreeSet<&str> = cleared.iter().map(|limit| limit.policy.as_str()).collect();
    shared.audit(&by, "reset", &key.text, &names.into_iter().collect::<Vec<_>>().join(", "));
    tracing::info!(key = %key.text, cleared = cleared.len(), "limits were cleared");
    let cleared =
        cleared.into_iter().map(|limit| shapes::ClearedLimit { policy: limit.policy, key: limit.identifier });
    Ok(Json(shapes::ResetLimits { cleared: cleared.collect() }))
}
