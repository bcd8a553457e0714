//! `GET /v1/policies`

use std::sync::Arc;

use axum::{Json, extract::State};

use super::super::{
    openapi::Refusals,
    params::{Nothing, Params},
    shapes::{Policies, Policy},
    state::Shared,
};

/// The policies in the configuration's order, and what they said.
#[utoipa::path(
    get,
    path = "/v1/policies",
    operation_id = "policies",
    tag = "in force",
    responses((status = 200, body = Policies, description = "the policies, with what they counted since the start"), Refusals)
)]
pub(in super::super) async fn policies(
    State(shared): State<Arc<Shared>>,
    _: Params<Nothing>,
) -> Json<Policies> {
    Json(told(&shared))
}

pub(in super::super) fn told(shared: &Shared) -> Policies {
    let configured = shared.state.in_force.now();
    let (rules, counted) = (&configured.rules, shared.state.metrics.totals());
    let policies = rules.policies().iter().enumerate().map(|(index, policy)| {
        let totals = counted.policy(&policy.name);
        let routes = rules.config().routes.iter().filter(|route| route.policies.contains(&index));
        Policy {
            name: policy.name.clone(),
            algorithm: policy.algorithm().to_owned(),
            keys: policy.keys.iter().map(ToString::to_string).collect(),
            limits: policy.rates().map(|rate| rate.to_string()).collect(),
            mode: if policy.is_shadow { "shadow" } else { "enforce" }.to_owned(),
            overrides: policy.overrides.len(),
            routes: routes.map(|route| route.name.clone()).collect(),
            allowed: totals.allowed,
            denied: totals.denied,
            shadow_denied: totals.shadow_denied,
            errors: totals.errors,
        }
    });
    Policies { policies: policies.collect() }
}
