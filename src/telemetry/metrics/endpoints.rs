//! The endpoints of upstreams: state, its cause, and the counts of requests.

use std::{fmt, time::SystemTime};

use prometheus_client::encoding::DescriptorEncoder;

use super::families::{count, counter, gauge};
use crate::telemetry::time::format_duration;

/// Whether requests are sent to an endpoint, or to one of its addresses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EndpointState {
    #[default]
    Healthy,
    /// The last connection attempt failed.
    Unreachable,
    /// It fails its health checks.
    Unhealthy,
    /// It gets no requests for a while because some have failed.
    Ejected,
    /// An operator or the configuration drains it: it gets no new requests.
    Drained,
    /// Its name has no address.
    Unresolved,
}

impl EndpointState {
    /// `healthy`
    pub fn name(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Unreachable => "unreachable",
            Self::Unhealthy => "unhealthy",
            Self::Ejected => "ejected",
            Self::Drained => "drained",
            Self::Unresolved => "unresolved",
        }
    }
}

/// When, why and by whom a state began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateChange {
    /// `None`: the configuration in force set it.
    pub time: Option<SystemTime>,
    pub reason: String,
    /// `operator at 127.0.0.1`, `connection`, `probe`, `outlier`, `configuration`
    pub by: String,
}

/// An endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndpointFacts {
    pub upstream: String,
    /// `http://127.0.0.1:3000`
    pub url: String,
    pub weight: u32,
    /// The file that lists it. `None`: the configuration lists it.
    pub file: Option<String>,
    /// Set while it is drained.
    pub drain: Option<StateChange>,
    /// Empty until its name is resolved.
    pub addresses: Vec<AddressFacts>,
    /// The counts of addresses that it no longer has.
    pub past: AddressFacts,
    /// `None`: its URL contains an address, not a name.
    pub resolution: Option<ResolutionFacts>,
}

/// An address of an endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressFacts {
    /// `10.0.0.5:3000`; the host of the URL where names are resolved only when a connection is opened.
    pub address: String,
    /// Never `Drained`: only whole endpoints are drained.
    pub state: EndpointState,
    /// The last time it was taken out of use or returned. `None`: never.
    pub change: Option<StateChange>,
    /// The last error. `None`: the last attempt succeeded.
    pub error: Option<String>,
    pub in_flight: u64,
    /// Requests since the start.
    pub requests: u64,
    /// Failed requests since the start.
    pub errors: u64,
    /// Times it was taken out of use.
    pub ejections: u64,
    /// Failed probes.
    pub probe_failures: u64,
}

/// The DNS resolution of an endpoint's name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResolutionFacts {
    /// The last successful resolution. `None`: never.
    pub resolved: Option<SystemTime>,
    /// The next resolution.
    pub next: Option<SystemTime>,
    /// The error of the last attempt. `None`: it succeeded.
    pub error: Option<String>,
}

impl EndpointFacts {
    /// The state of the whole endpoint: the best state of its addresses.
    pub fn state(&self) -> EndpointState {
        if self.drain.is_some() {
            return EndpointState::Drained;
        }
        let Some(first) = self.addresses.first() else { return EndpointState::Unresolved };
        let is_healthy = |address: &AddressFacts| address.state == EndpointState::Healthy;
        if self.addresses.iter().any(is_healthy) { EndpointState::Healthy } else { first.state }
    }

    /// When and why this state began.
    pub fn change(&self) -> Option<&StateChange> {
        let state = self.state();
        let changes = self.addresses.iter().filter(|address| address.state == state);
        let newest = changes.filter_map(|address| address.change.as_ref()).max_by_key(|change| change.time);
        self.drain.as_ref().or(newest)
    }

    /// Whether any address is healthy; drained or not.
    pub fn is_healthy(&self) -> bool {
        self.addresses.iter().any(|address| address.state == EndpointState::Healthy)
    }

    /// Whether it is unusable although it is not drained.
    pub fn is_failing(&self) -> bool {
        !matches!(self.state(), EndpointState::Healthy | EndpointState::Drained)
    }

    /// Why it is unusable. `None`: unknown, or it is usable.
    pub fn error(&self) -> Option<&str> {
        let unresolved = self.resolution.as_ref().and_then(|resolution| resolution.error.as_deref());
        match self.state() {
            EndpointState::Unresolved => unresolved,
            _ if self.is_healthy() => None,
            _ => self.addresses.iter().find_map(|address| address.error.as_deref()),
        }
    }

    /// Set while resolution fails and old addresses are used: the end of a sentence that begins with the endpoint.
    pub fn stale_addresses(&self, now: SystemTime) -> Option<String> {
        let ResolutionFacts { resolved, error, .. } = self.resolution.as_ref()?;
        let (resolved, error) = (resolved.as_ref()?, error.as_ref()?);
        let seconds = now.duration_since(*resolved).map_or(0, |age| age.as_secs());
        let seconds = if seconds < 120 { seconds } else { seconds - seconds % 60 };
        let age = format_duration(i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1_000_000));
        Some(format!("was last resolved {age} ago; the resolver fails: {error}"))
    }

    /// Its problems as text; empty if there are none.
    pub fn problems(&self, now: SystemTime) -> Vec<String> {
        let state = self.state();
        let why = match &self.drain {
            Some(drain) if drain.reason.is_empty() => Some(format!("by {}", drain.by)),
            Some(drain) => Some(format!("by {}: {}", drain.by, drain.reason)),
            None => self.error().map(|error| format!(": {error}")),
        };
        let why = why.unwrap_or_default();
        let failing = self.addresses.iter().filter(|address| address.state != EndpointState::Healthy);
        let problem = match state {
            EndpointState::Healthy => failing.clone().next().map(|first| {
                let error = first.error.as_deref().unwrap_or_default();
                let (failing, all) = (failing.count(), self.addresses.len());
                let (address, state) = (&first.address, first.state.name());
                format!("{failing} of its {all} addresses fail: {address} is {state}: {error}")
            }),
            EndpointState::Drained => Some(format!("is drained {why}")),
            state => Some(format!("is {}{why}", state.name())),
        };
        problem.into_iter().chain(self.stale_addresses(now)).collect()
    }

    /// Sums a count over all addresses, including past ones.
    pub fn sum(&self, count: impl Fn(&AddressFacts) -> u64) -> u64 {
        self.addresses.iter().chain([&self.past]).map(count).sum()
    }
}

pub(super) fn expose(endpoints: &[EndpointFacts], out: &mut DescriptorEncoder<'_>) -> fmt::Result {
    type Value = fn(&EndpointFacts) -> u64;
    let gauges: [(&str, &str, Value); 4] = [
        (
            "tollgate_upstream_endpoint_healthy",
            "Whether the endpoint, or one of its addresses, can be reached, passes its health checks and is not ejected",
            |endpoint| u64::from(endpoint.is_healthy()),
        ),
        (
            "tollgate_upstream_endpoint_drained",
            "Whether the endpoint takes no new requests, because an operator or the configuration drains it",
            |endpoint| u64::from(endpoint.drain.is_some()),
        ),
        ("tollgate_upstream_endpoint_addresses", "Addresses that the endpoint's name has", |endpoint| {
            endpoint.addresses.len() as u64
        }),
        ("tollgate_upstream_endpoint_requests_in_flight", "Requests in flight, by endpoint", |endpoint| {
            endpoint.sum(|address| address.in_flight)
        }),
    ];
    let counters: [(&str, &str, Value); 4] = [
        ("tollgate_upstream_endpoint_requests", "Requests sent to the endpoint", |endpoint| {
            endpoint.sum(|address| address.requests)
        }),
        (
            "tollgate_upstream_endpoint_errors",
            "Requests that the endpoint did not answer, or answered with a 5xx status",
            |endpoint| endpoint.sum(|address| address.errors),
        ),
        (
            "tollgate_upstream_endpoint_probe_failures",
            "Health checks that the endpoint has failed",
            |endpoint| endpoint.sum(|address| address.probe_failures),
        ),
        (
            "tollgate_upstream_ejections",
            "Times an endpoint was taken out of rotation because it could not be reached or failed requests",
            |endpoint| endpoint.sum(|address| address.ejections),
        ),
    ];
    let labels = |of: &EndpointFacts| [("upstream", of.upstream.clone()), ("endpoint", of.url.clone())];
    for (name, help, value) in gauges {
        let mut family = gauge(out, name, help)?;
        for endpoint in endpoints {
            family.encode_family(&labels(endpoint))?.encode_gauge(&value(endpoint))?;
        }
    }
    for (name, help, value) in counters {
        let mut family = counter(out, name, help)?;
        for endpoint in endpoints {
            let labels = labels(endpoint);
            count(
                &mut family,
                labels.each_ref().map(|(name, value)| (*name, value.as_str())),
                value(endpoint),
            )?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_endpoint_stands_as_the_best_of_its_addresses_unless_it_is_drained() {
        let change = |second: u64, reason: &str| StateChange {
            time: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(second)),
            reason: reason.into(),
            by: "outlier".into(),
        };
        let address = |state, second| AddressFacts {
            state,
            change: Some(change(second, state.name())),
            error: Some("nobody listens".into()).filter(|_| state != EndpointState::Healthy),
            requests: second,
            ..AddressFacts::default()
        };
        let mut endpoint = EndpointFacts {
            resolution: Some(ResolutionFacts { error: Some("no such name".into()), ..Default::default() }),
            ..EndpointFacts::default()
        };
        assert_eq!((endpoint.state(), endpoint.error()), (EndpointState::Unresolved, Some("no such name")));
        endpoint.addresses = vec![address(EndpointState::Ejected, 1), address(EndpointState::Unhealthy, 2)];
        assert_eq!((endpoint.state(), endpoint.error()), (EndpointState::Ejected, Some("nobody listens")));
        assert!(endpoint.is_failing() && !endpoint.is_healthy());
        endpoint.addresses.extend([address(EndpointState::Healthy, 4), address(EndpointState::Healthy, 3)]);
        assert_eq!((endpoint.state(), endpoint.error()), (EndpointState::Healthy, None));
        assert_eq!(endpoint.change(), Some(&change(4, "healthy")));
        endpoint.addresses[0].address = "10.0.0.5:80".into();
        let resolved = SystemTime::UNIX_EPOCH;
        endpoint.resolution.as_mut().unwrap().resolved = Some(resolved);
        assert_eq!(
            endpoint.problems(resolved + Duration::from_secs(180)),
            [
                "2 of its 4 addresses fail: 10.0.0.5:80 is ejected: nobody listens",
                "was last resolved 3m ago; the resolver fails: no such name"
            ]
        );
        endpoint.resolution = None;
        assert_eq!(endpoint.sum(|address| address.requests), 10);
        endpoint.addresses.truncate(2);
        endpoint.drain = Some(change(9, "a new disk"));
        assert_eq!(endpoint.state(), EndpointState::Drained);
        assert_eq!(endpoint.change(), endpoint.drain.as_ref());
        assert_eq!(endpoint.problems(SystemTime::UNIX_EPOCH), ["is drained by outlier: a new disk"]);
        assert!(!endpoint.is_failing() && !endpoint.is_healthy());
    }
}
