//! Outages: failing routes, unreachable endpoints, an unavailable store.

use std::collections::BTreeMap;

use super::{
    finding::{Finding, Subject},
    route_errors::LatestOutcomes,
};
use crate::telemetry::metrics::{
    EndpointFacts, EndpointState, NodeState, RouteOutcomes, StoreFacts, StoreTopology, unavailable_node,
};

/// Minimum number of errors for a failing route, if they are half of its latest requests.
const MIN_FAILED: u64 = 3;
/// Minimum number of errors for a failing route, if they are one in `MIN_ERROR_SHARE` of its requests and continue.
const MIN_ERRORS: u64 = 5;
const MIN_ERROR_SHARE: u64 = 20;

/// All current outages.
pub(super) fn outages(
    routes: &[LatestOutcomes],
    endpoints: &[EndpointFacts],
    store: Option<&StoreFacts>,
) -> Vec<Finding> {
    let routes = routes.iter().filter_map(failing_route);
    let upstreams = unusable_upstreams(endpoints);
    let endpoints = endpoints.iter().filter(|endpoint| endpoint.is_failing()).map(unreachable);
    routes.chain(upstreams).chain(endpoints).chain(store.map(unavailable_store).unwrap_or_default()).collect()
}

/// A route fails if half of its latest requests fail, or a smaller share over a longer time. One or two errors do not
/// count.
fn failing_route(latest: &LatestOutcomes) -> Option<Finding> {
    let errors = |outcomes: &RouteOutcomes| outcomes.errors.total();
    let LatestOutcomes { route, short, long } = latest;
    let most_fail = errors(short) >= MIN_FAILED && errors(short) * 2 >= short.served;
    let some_fail =
        errors(short) > 0 && errors(long) >= MIN_ERRORS && errors(long) * MIN_ERROR_SHARE >= long.served;
    let outcomes = match (most_fail, some_fail) {
        (true, _) => short,
        (false, true) => long,
        (false, false) => return None,
    };
    let (failed, served) = (errors(outcomes), outcomes.served);
    let text = format!(
        "route {route} fails: {failed} of its last {served} requests got 5xx, {}",
        given_by(outcomes)
    );
    Some(Finding { subject: Subject::FailingRoute(route.clone()), text })
}

/// `all from the origin`; `3 from the origin and 40 from Tollgate itself (38 × 502, 2 × 504)`
fn given_by(outcomes: &RouteOutcomes) -> String {
    let errors = &outcomes.errors;
    let statuses: Vec<_> =
        errors.proxy_by_status().map(|(status, count)| format!("{count} × {status}")).collect();
    match (errors.origin(), errors.proxy()) {
        (_, 0) => "all from the origin".to_owned(),
        (0, _) => format!("all from Tollgate itself ({})", statuses.join(", ")),
        (origin, proxy) => {
            format!("{origin} from the origin and {proxy} from Tollgate itself ({})", statuses.join(", "))
        }
    }
}

fn unreachable(endpoint: &EndpointFacts) -> Finding {
    let EndpointFacts { upstream, url, .. } = endpoint;
    let state = endpoint.state();
    let why = endpoint.error().unwrap_or(match state {
        EndpointState::Unresolved => "its name has no address",
        _ => "the last attempt to use it has failed",
    });
    let text = format!("endpoint {url} of upstream {upstream} is {}: {why}", state.name());
    Finding { subject: Subject::UnreachableEndpoint { upstream: upstream.clone(), url: url.clone() }, text }
}

/// Upstreams of which no endpoint, or fewer than half of the endpoints, take requests.
fn unusable_upstreams(endpoints: &[EndpointFacts]) -> Vec<Finding> {
    let mut upstreams: BTreeMap<&str, Vec<EndpointState>> = BTreeMap::new();
    for endpoint in endpoints {
        upstreams.entry(&endpoint.upstream).or_default().push(endpoint.state());
    }
    let finding = |(upstream, states): (&str, Vec<EndpointState>)| {
        let counted = |state| states.iter().filter(|other| **other == state).count();
        let (all, usable) = (states.len(), counted(EndpointState::Healthy));
        // A single endpoint has its own warning.
        if usable * 2 >= all || all == 1 && states[0] != EndpointState::Drained {
            return None;
        }
        let others = [
            EndpointState::Unreachable,
            EndpointState::Unhealthy,
            EndpointState::Ejected,
            EndpointState::Drained,
            EndpointState::Unresolved,
        ];
        let others = others.map(|state| (counted(state), state.name()));
        let others = others.iter().filter(|(count, _)| *count > 0);
        let others = others.map(|(count, name)| format!("{count} {name}")).collect::<Vec<_>>().join(", ");
        let name = upstream.to_owned();
        Some(match usable {
            0 => Finding {
                subject: Subject::UnusableUpstream(name),
                text: format!("no endpoint of upstream {upstream} takes requests ({others})"),
            },
            _ => Finding {
                subject: Subject::FewEndpoints(name),
                text: format!(
                    "only {usable} of {all} endpoints of upstream {upstream} take requests ({others})"
                ),
            },
        })
    };
    upstreams.into_iter().filter_map(finding).collect()
}

/// The unavailable Redis servers that should make decisions.
fn unavailable_store(store: &StoreFacts) -> Vec<Finding> {
    let is_away = |state| matches!(state, NodeState::Down | NodeState::BreakerOpen);
    let unknown = |source| {
        let text = format!(
            "no Redis server is known, because {source} does not answer: policies follow their on_store_error"
        );
        vec![Finding { subject: Subject::UnavailableStore(store.topology.name().to_owned()), text }]
    };
    // A lost server was replaced: after a failover, the new primary makes the decisions.
    let mut known = store.nodes.iter().filter(|node| !node.is_lost).peekable();
    match store.topology {
        StoreTopology::Sentinel if known.peek().is_none() => return unknown("Sentinel"),
        StoreTopology::Cluster if known.peek().is_none() => return unknown("Redis Cluster"),
        _ => {}
    }
    // Replicas make no decisions.
    let away = known.filter(|node| node.primary.is_none() && is_away(node.state));
    let shares = match store.sharing {
        0 | 1 => String::new(),
        count => format!("; with `local`, each of the {count} instances admits 1/{count} of a limit"),
    };
    let found = away.map(|node| {
        let why = node.failure.as_deref().unwrap_or("it fails too often");
        let text = unavailable_node(&node.address, why, store.topology == StoreTopology::Cluster) + &shares;
        Finding { subject: Subject::UnavailableStore(node.address.clone()), text }
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::super::finding::OutageKind;
    use super::*;
    use crate::telemetry::{
        metrics::{AddressFacts, NodeFacts, ServerErrorCounts, StateChange},
        testing::cluster,
    };

    fn latest(short: (u64, [u64; 5]), long: (u64, [u64; 5])) -> LatestOutcomes {
        let outcomes =
            |(served, errors)| RouteOutcomes { served, errors: ServerErrorCounts::from_counts(errors) };
        LatestOutcomes { route: "api".into(), short: outcomes(short), long: outcomes(long) }
    }

    #[track_caller]
    fn assert_found(found: &[Finding], parts: &[&str]) {
        let texts: Vec<_> = found.iter().map(|finding| &finding.text).collect();
        assert!(
            texts.len() == parts.len() && texts.iter().zip(parts).all(|(text, part)| text.contains(part)),
            "{texts:#?}"
        );
    }

    #[test]
    fn a_route_fails_if_half_of_its_latest_requests_do() {
        let all = (3, [0, 3, 0, 0, 0]);
        assert_found(
            &outages(&[latest(all, all)], &[], None),
            &["route api fails: 3 of its last 3 requests got 5xx, all from Tollgate itself (3 × 502)"],
        );
        let half = (90, [3, 40, 0, 2, 0]);
        assert_found(
            &outages(&[latest(half, half)], &[], None),
            &[
                "45 of its last 90 requests got 5xx, 3 from the origin and 42 from Tollgate itself (40 × 502, 2 × 504)",
            ],
        );
    }

    #[test]
    fn a_stray_error_or_two_are_no_outage() {
        for served in [1, 2, 1_000] {
            let errors = (served, [served.min(2), 0, 0, 0, 0]);
            assert_found(&outages(&[latest(errors, errors)], &[], None), &[]);
        }
        let few = (1_000, [49, 0, 0, 0, 0]);
        assert_found(&outages(&[latest(few, few)], &[], None), &[]);
    }

    #[test]
    fn a_route_fails_if_one_in_twenty_requests_does_and_they_go_on() {
        let some = (1_000, [50, 0, 0, 0, 0]);
        let text = "route api fails: 50 of its last 1000 requests got 5xx, all from the origin";
        assert_found(&outages(&[latest((100, [1, 0, 0, 0, 0]), some)], &[], None), &[text]);
        assert_found(&outages(&[latest((100, [0; 5]), some)], &[], None), &[]);
    }

    fn endpoint(url: &str, state: EndpointState) -> EndpointFacts {
        let is_drained = state == EndpointState::Drained;
        let drain = StateChange { time: None, reason: String::new(), by: "configuration".into() };
        let error = (state != EndpointState::Healthy).then(|| "nobody listens".to_owned());
        EndpointFacts {
            upstream: "api".into(),
            url: url.into(),
            drain: is_drained.then_some(drain),
            addresses: vec![AddressFacts { state, error, ..AddressFacts::default() }],
            ..EndpointFacts::default()
        }
    }

    #[test]
    fn endpoints_are_named_by_their_urls() {
        let endpoints = [
            endpoint("http://10.0.0.5:3000", EndpointState::Healthy),
            endpoint("http://10.0.0.6:3000", EndpointState::Unreachable),
        ];
        assert_found(
            &outages(&[], &endpoints, None),
            &["endpoint http://10.0.0.6:3000 of upstream api is unreachable: nobody listens"],
        );
    }

    #[test]
    fn upstreams_with_no_endpoint_or_few_are_found_and_a_drained_endpoint_is_no_outage() {
        use EndpointState::{Drained, Ejected, Healthy};
        let of = |states: &[EndpointState]| {
            let endpoints: Vec<_> = states.iter().map(|state| endpoint("http://a", *state)).collect();
            unusable_upstreams(&endpoints)
        };
        assert_found(&of(&[Healthy, Drained]), &[]);
        assert_found(&of(&[Ejected]), &[]);
        assert_found(&of(&[Drained]), &["no endpoint of upstream api takes requests (1 drained)"]);
        assert_found(
            &outages(&[], &[endpoint("http://a", Drained), endpoint("http://b", Healthy)], None),
            &[],
        );
        assert_found(
            &of(&[Healthy, Drained, Ejected]),
            &["only 1 of 3 endpoints of upstream api take requests (1 ejected, 1 drained)"],
        );
        let none = of(&[Drained, Drained]);
        assert_found(&none, &["no endpoint of upstream api takes requests (2 drained)"]);
        assert_eq!(none[0].subject.outage(), Some((OutageKind::Upstream, "api")));
    }

    #[test]
    fn of_a_store_the_primaries_that_fail_are_found() {
        assert_found(
            &outages(&[], &[], Some(&cluster())),
            &["Redis at 10.0.0.2:6379 is unavailable (Connection refused): decisions about its keys follow"],
        );
        let single = |state| StoreFacts {
            nodes: vec![NodeFacts { address: "10.0.0.1:6379".into(), state, ..NodeFacts::default() }],
            ..StoreFacts::default()
        };
        assert_found(&outages(&[], &[], Some(&single(NodeState::Unknown))), &[]);
        assert_found(
            &outages(&[], &[], Some(&single(NodeState::BreakerOpen))),
            &[
                "Redis at 10.0.0.1:6379 is unavailable (it fails too often): policies follow their on_store_error",
            ],
        );
        let lost = || NodeFacts {
            address: "10.0.0.2:6379".into(),
            state: NodeState::Down,
            is_lost: true,
            ..NodeFacts::default()
        };
        let mut replaced = single(NodeState::Up);
        replaced.nodes.push(lost());
        assert_found(&outages(&[], &[], Some(&replaced)), &[]);
        let all_lost =
            StoreFacts { topology: StoreTopology::Cluster, nodes: vec![lost()], ..StoreFacts::default() };
        assert_found(
            &outages(&[], &[], Some(&all_lost)),
            &["no Redis server is known, because Redis Cluster does not"],
        );
        let unknown = StoreFacts { topology: StoreTopology::Sentinel, ..StoreFacts::default() };
        assert_found(
            &outages(&[], &[], Some(&unknown)),
            &["no Redis server is known, because Sentinel does not"],
        );
    }
}
