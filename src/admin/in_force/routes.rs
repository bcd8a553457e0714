//! `GET /v1/routes`

use std::sync::Arc;

use axum::{Json, extract::State};

use super::{
    super::{
        openapi::Refusals,
        params::{Nothing, Params},
        shapes::{Latency, Route, Routes},
        state::Shared,
    },
    named,
};

/// The routes in the order in which they are tried, and what came of their requests.
#[utoipa::path(
    get,
    path = "/v1/routes",
    operation_id = "routes",
    tag = "in force",
    responses((status = 200, body = Routes, description = "the routes, with what they counted since the start"), Refusals)
)]
pub(in super::super) async fn routes(State(shared): State<Arc<Shared>>, _: Params<Nothing>) -> Json<Routes> {
    Json(told(&shared))
}

pub(in super::super) fn told(shared: &Shared) -> Routes {
    let configured = shared.state.in_force.now();
    let (config, counted) = (configured.rules.config(), shared.state.metrics.totals());
    let routes = config.routes.iter().map(|route| {
        let totals = counted.route(&route.name);
        Route {
            name: route.name.clone(),
            hosts: route.hosts.iter().map(ToString::to_string).collect(),
            path: route.path.to_string(),
            methods: route.methods.iter().map(ToString::to_string).collect(),
            upstream: config.upstreams.get(route.upstream).map_or_else(String::new, |of| of.name.clone()),
            policies: named(config, &route.policies),
            requests: totals.statuses.iter().sum(),
            denied: totals.denied,
            statuses: totals.statuses,
            latency: totals.latency.map(|[p50, p90, p99]| Latency { p50, p90, p99 }),
        }
    });
    Routes { routes: routes.collect() }
}
