//! The configuration in force: `/v1/routes` and `/v1/policies` with their counters, and the text at `/v1/config`.

use std::sync::Arc;

use axum::{Json, extract::State};

use super::{
    context::HandlerContext,
    dto::{
        ActiveConfiguration, CalendarWindow, Latency, Policies, Policy, ResponseCostUnits, Route, RoutePrice,
        Routes, ServerErrors, UpstreamShare,
    },
    extract::{NoParams, Query},
    openapi::ReadErrors,
};
use crate::{
    config::model::{self, ATTEMPTS_POLICY, AddressList, Config, RouteAction},
    telemetry::time::rfc3339,
};

/// Lists the routes in the order in which they are tried, and the outcomes of their requests.
#[utoipa::path(
    get,
    path = "/v1/routes",
    operation_id = "routes",
    tag = "in force",
    responses((status = 200, body = Routes, description = "the routes, with their counters since the start"), ReadErrors)
)]
pub(super) async fn routes(State(context): State<Arc<HandlerContext>>, _: Query<NoParams>) -> Json<Routes> {
    Json(routes_dto(&context))
}

pub(super) fn routes_dto(context: &HandlerContext) -> Routes {
    let configured = context.state.active_config.snapshot();
    let (config, counted) = (configured.rules.config(), context.state.metrics.totals());
    let routes = config.routes.iter().map(|route| {
        let totals = counted.route(&route.name);
        Route {
            name: route.name.clone(),
            listeners: route.listeners.clone(),
            hosts: route.hosts.iter().map(ToString::to_string).collect(),
            path: route.shown_path(),
            methods: route.methods.iter().map(ToString::to_string).collect(),
            upstream: route
                .action
                .upstream()
                .and_then(|index| Some(config.upstreams.get(index)?.name.clone())),
            upstreams: shares(config, route),
            reply: match &route.action {
                RouteAction::Upstream(_) | RouteAction::Decision => None,
                RouteAction::Usage => Some(200),
                RouteAction::Reply(reply) => Some(reply.status.as_u16()),
                RouteAction::Redirect(redirect) => Some(redirect.status.as_u16()),
            },
            redirect: match &route.action {
                RouteAction::Redirect(redirect) => Some(redirect.shown()),
                _ => None,
            },
            policies: named(config, &route.all_policies()),
            max_body: route.max_body.map(|bytes| bytes as u64),
            deny: route.access.deny.len(),
            allow: route.access.allow.as_ref().map(AddressList::len),
            cors: route.cors.as_ref().map(|cors| cors.origins.names()).unwrap_or_default(),
            requests: totals.statuses.iter().sum(),
            denied: totals.denied,
            statuses: totals.statuses,
            server_errors: ServerErrors {
                origin: totals.server_errors.origin(),
                proxy: totals.server_errors.proxy(),
            },
            latency: totals.latency.map(|[p50, p90, p99]| Latency { p50, p90, p99 }),
            tunnels: totals.tunnels,
        }
    });
    Routes { routes: routes.collect() }
}

/// The upstreams among which the requests of `route` are split; empty if it has one.
fn shares(config: &Config, route: &model::Route) -> Vec<UpstreamShare> {
    let Some(split) = &route.split else { return Vec::new() };
    let share = |(route, &weight): (&model::Route, &u32)| {
        let upstream = config.upstreams.get(route.action.upstream()?)?;
        Some(UpstreamShare { name: upstream.name.clone(), weight })
    };
    split.routes.iter().zip(&split.weights).filter_map(share).collect()
}

/// Lists the policies in the configuration's order, and their decisions.
#[utoipa::path(
    get,
    path = "/v1/policies",
    operation_id = "policies",
    tag = "in force",
    responses((status = 200, body = Policies, description = "the policies, with their counters since the start"), ReadErrors)
)]
pub(super) async fn policies(
    State(context): State<Arc<HandlerContext>>,
    _: Query<NoParams>,
) -> Json<Policies> {
    Json(policies_dto(&context))
}

pub(super) fn policies_dto(context: &HandlerContext) -> Policies {
    let configured = context.state.active_config.snapshot();
    let (rules, counted) = (&configured.rules, context.state.metrics.totals());
    let now = context.state.clock.now();
    let policies = rules.policies().iter().enumerate().map(|(index, policy)| {
        let totals = counted.policy(&policy.name);
        let is_limited =
            |route: &&model::Route| route.variants().iter().any(|route| route.policy(index).is_some());
        let limited: Vec<&model::Route> = rules.config().routes.iter().filter(is_limited).collect();
        let routes: Vec<String> = limited.iter().map(|route| route.name.clone()).collect();
        Policy {
            name: policy.name.clone(),
            algorithm: policy.algorithm().to_owned(),
            keys: policy.keys.iter().map(ToString::to_string).collect(),
            limits: policy.limits().collect(),
            calendar_windows: policy
                .limits()
                .zip(&policy.calendars)
                .filter_map(|(limit, calendar)| {
                    Some(CalendarWindow { limit, ends: calendar.as_ref()?.end(now) })
                })
                .collect(),
            mode: if policy.is_shadow { "shadow" } else { "enforce" }.to_owned(),
            overrides: policy.overrides.len(),
            implicit: policy.name == ATTEMPTS_POLICY,
            used: !routes.is_empty() || policy.name == ATTEMPTS_POLICY,
            routes,
            prices: limited.into_iter().flat_map(|route| prices(route, index)).collect(),
            allowed: totals.allowed,
            denied: totals.denied,
            shadow_denied: totals.shadow_denied,
            errors: totals.errors,
            response_cost: policy
                .cost
                .of_response()
                .map(|_| ResponseCostUnits { reserved: totals.reserved, charged: totals.charged }),
        }
    });
    Policies { policies: policies.collect() }
}

/// The prices of `route` under the policy at this index: none, or several if its upstreams have different ones.
fn prices(route: &model::Route, policy: usize) -> Vec<RoutePrice> {
    let mut costs: Vec<u64> = Vec::new();
    for cost in route.variants().iter().filter_map(|route| route.policy(policy)?.price) {
        if !costs.contains(&cost) {
            costs.push(cost);
        }
    }
    costs.into_iter().map(|cost| RoutePrice { route: route.name.clone(), cost }).collect()
}

/// Shows the running configuration as it was written. Secrets are masked, and `${…}` is not expanded.
#[utoipa::path(
    get,
    path = "/v1/config",
    operation_id = "config",
    tag = "in force",
    responses((status = 200, body = ActiveConfiguration, description = "its text, and when it was loaded"), ReadErrors)
)]
pub(super) async fn config(
    State(context): State<Arc<HandlerContext>>,
    _: Query<NoParams>,
) -> Json<ActiveConfiguration> {
    let configured = context.state.active_config.snapshot();
    let source = &configured.rules.config().source;
    Json(ActiveConfiguration {
        hash: configured.hash.clone(),
        loaded: rfc3339(configured.loaded),
        path: source.path.clone(),
        yaml: source.redacted_text.clone(),
    })
}

/// The names of the policies with these indexes.
pub(super) fn named(config: &Config, policies: &[usize]) -> Vec<String> {
    policies
        .iter()
        .filter_map(|&index| config.policies.get(index))
        .map(|policy| policy.name.clone())
        .collect()
}
