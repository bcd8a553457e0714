//! `GET /v1/upstreams`

use std::{collections::BTreeSet, sync::Arc};

use axum::{Json, extract::State};

use super::{
    super::{
        openapi::Refusals,
        params::{Nothing, Params},
        shapes::{Connections, Endpoint, Upstream, Upstreams},
        state::Shared,
    },
    named,
};

/// The upstreams, how their endpoints are, and how the attempts at them ended.
#[utoipa::path(
    get,
    path = "/v1/upstreams",
    operation_id = "upstreams",
    tag = "in force",
    responses((status = 200, body = Upstreams, description = "the upstreams, with what they counted since the start"), Refusals)
)]
pub(in super::super) async fn upstreams(
    State(shared): State<Arc<Shared>>,
    _: Params<Nothing>,
) -> Json<Upstreams> {
    Json(told(&shared))
}

pub(in super::super) fn told(shared: &Shared) -> Upstreams {
    let configured = shared.state.in_force.now();
    let (config, counted) = (configured.rules.config(), shared.state.metrics.totals());
    let upstreams = configured.upstreams.iter().enumerate().map(|(index, upstream)| {
        let totals = counted.upstream(&upstream.config.name);
        let endpoints = upstream.config.endpoints.iter().enumerate().map(|(nth, endpoint)| Endpoint {
            url: endpoint.url.to_string(),
            weight: endpoint.weight,
            healthy: upstream.is_healthy(nth),
            active: upstream.in_flight(nth) as u64,
        });
        // All that hold for any request to it.
        let routes = config.routes.iter().filter(|route| route.upstream == index);
        let policies: BTreeSet<usize> = routes.flat_map(|route| route.policies.iter().copied()).collect();
        Upstream {
            name: upstream.config.name.clone(),
            policies: named(config, &policies.into_iter().collect::<Vec<_>>()),
            endpoints: endpoints.collect(),
            attempts: totals.attempts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
            connections: Connections { active: totals.active, idle: totals.idle },
        }
    });
    Upstreams { upstreams: upstreams.collect() }
}
