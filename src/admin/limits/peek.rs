//! `GET /v1/limits`: how limits stand, consuming nothing.

use std::sync::Arc;

use axum::{Json, extract::State};

use super::{
    super::{
        openapi::{Away, LookUps},
        params::Params,
        problem::Problem,
        shapes,
        state::Shared,
    },
    Wanted, read,
};
use crate::telemetry::time::duration;

/// How the limits of a key stand: of each policy, by each of its limits that counts apart.
#[utoipa::path(
    get,
    path = "/v1/limits",
    operation_id = "peek",
    tag = "limits",
    params(Wanted),
    responses((status = 200, body = shapes::Limits, description = "how they stand"), LookUps, Away)
)]
pub(in super::super) async fn peek(
    State(shared): State<Arc<Shared>>,
    Params(wanted): Params<Wanted>,
) -> Result<Json<shapes::Limits>, Problem> {
    limits(&shared, &wanted).await.map(Json)
}

async fn limits(shared: &Shared, wanted: &Wanted) -> Result<shapes::Limits, Problem> {
    let configured = shared.state.in_force.now();
    let (key, policies, is_named) = read(&configured, wanted)?;
    let mut limits = Vec::new();
    for index in policies {
        let Some(policy) = configured.policies().get(index) else { continue };
        for (nth, variant) in key.variants(policy).into_iter().enumerate() {
            let peek = shared.desk.peek(configured.policies(), index, variant, &key.text).await?;
            // Whether anybody has other limits, or lacks what the policy goes by, shows by what was used of them.
            if peek.used == 0 && (nth > 0 || !is_named && !key.is_keyed(policy)) {
                continue;
            }
            limits.push(shapes::Limit {
                policy: policy.name.clone(),
                key: key.text.clone(),
                used: peek.used,
                limit: peek.verdict.limit,
                remaining: peek.verdict.remaining,
                // To the second, rounded up, as clients are told.
                reset: duration(peek.verdict.reset.saturating_add(999_999) / 1_000_000 * 1_000_000),
            });
        }
    }
    Ok(shapes::Limits { limits })
}
