//! `GET /v1/upstreams`: the upstreams, and the state of each of their endpoints.

use std::{collections::BTreeSet, sync::Arc};

use axum::{Json, extract::State};

use super::{
    configuration::named,
    context::HandlerContext,
    drains::drains_dto,
    dto::{Connections, Endpoint, EndpointAddress, Resolution, Upstream, Upstreams},
    extract::{NoParams, Query},
    openapi::ReadErrors,
};
use crate::{
    config::model,
    telemetry::{
        metrics::{AddressFacts, EndpointFacts, EndpointState, ResolutionFacts, StateChange},
        time::{rfc3339, unix_micros},
    },
};

/// Lists the upstreams, the state of their endpoints and of each address of these, and the outcomes of requests to
/// them.
#[utoipa::path(
    get,
    path = "/v1/upstreams",
    operation_id = "upstreams",
    tag = "upstreams",
    responses((status = 200, body = Upstreams, description = "the upstreams, with their counters since the start"), ReadErrors)
)]
pub(super) async fn upstreams(
    State(context): State<Arc<HandlerContext>>,
    _: Query<NoParams>,
) -> Json<Upstreams> {
    Json(upstreams_dto(&context))
}

pub(super) fn upstreams_dto(context: &HandlerContext) -> Upstreams {
    let configured = context.state.active_config.snapshot();
    let (config, counted) = (configured.rules.config(), context.state.metrics.totals());
    let upstreams = configured.upstreams.iter().enumerate().map(|(index, upstream)| {
        let totals = counted.upstream(&upstream.config.name);
        // All that apply to any request to it.
        let routes = config
            .routes
            .iter()
            .flat_map(model::Route::variants)
            .filter(|route| route.action.upstream() == Some(index));
        let policies: BTreeSet<usize> =
            routes.flat_map(|route| &route.policies).map(|of| of.policy).collect();
        Upstream {
            name: upstream.config.name.clone(),
            policies: named(config, &policies.into_iter().collect::<Vec<_>>()),
            endpoints: upstream.endpoint_facts().into_iter().map(Endpoint::from).collect(),
            attempts: totals.attempts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
            retries: totals.retries,
            connections: Connections { active: totals.active, idle: totals.idle },
        }
    });
    let other_drains = drains_dto(context).drains.into_iter().filter(|drain| !drain.configured).collect();
    Upstreams { upstreams: upstreams.collect(), other_drains }
}

impl From<EndpointFacts> for Endpoint {
    fn from(facts: EndpointFacts) -> Self {
        let (state, error) = (facts.state(), facts.error().map(str::to_owned));
        let change = ShownChange::new(facts.change());
        let sum = |count: fn(&AddressFacts) -> u64| facts.sum(count);
        Self {
            state: state.name().to_owned(),
            healthy: facts.is_healthy(),
            reason: change
                .reason
                .or_else(|| (state == EndpointState::Unresolved).then(|| error.clone()).flatten()),
            changed: change.time,
            by: change.by,
            error,
            active: sum(|address| address.in_flight),
            requests: sum(|address| address.requests),
            errors: sum(|address| address.errors),
            ejections: sum(|address| address.ejections),
            probe_failures: sum(|address| address.probe_failures),
            resolution: facts.resolution.as_ref().map(Resolution::from),
            addresses: facts
                .addresses
                .iter()
                .map(|address| address_dto(address, facts.drain.as_ref()))
                .collect(),
            url: facts.url,
            weight: facts.weight,
        }
    }
}

/// `drain`: the drain of the endpoint, if any.
fn address_dto(facts: &AddressFacts, drain: Option<&StateChange>) -> EndpointAddress {
    let state = if drain.is_some() { EndpointState::Drained } else { facts.state };
    let change = ShownChange::new(drain.or(facts.change.as_ref()));
    EndpointAddress {
        address: facts.address.clone(),
        state: state.name().to_owned(),
        reason: change.reason,
        changed: change.time,
        by: change.by,
        active: facts.in_flight,
        requests: facts.requests,
        errors: facts.errors,
        ejections: facts.ejections,
    }
}

/// A change of state in wire form.
#[derive(Default)]
struct ShownChange {
    time: Option<String>,
    reason: Option<String>,
    by: Option<String>,
}

impl ShownChange {
    fn new(change: Option<&StateChange>) -> Self {
        change.map_or_else(Self::default, |StateChange { time, reason, by }| Self {
            time: time.map(|time| rfc3339(unix_micros(time))),
            reason: Some(reason.clone()),
            by: Some(by.clone()),
        })
    }
}

impl From<&ResolutionFacts> for Resolution {
    fn from(facts: &ResolutionFacts) -> Self {
        let time = |time: Option<std::time::SystemTime>| time.map(|time| rfc3339(unix_micros(time)));
        Self { resolved: time(facts.resolved), next: time(facts.next), error: facts.error.clone() }
    }
}
