//! Makes the upstreams of their settings.

use crate::config::{
    identity::settings::IdentitySources,
    policies::settings::ReadPolicies,
    reader::{Cursor, NameTable},
    routes::policies::{RoutePolicy, route_policies},
    settings::{Read, opened},
    upstreams::{
        balance::{Balance, balance, explain_other_names},
        endpoint::{Endpoint, Endpoints},
        health::OutlierDetection,
        retry::Retry,
        settings::{Timeouts, Upstream, UpstreamSettings},
    },
    value::resource_name,
};

/// All upstreams. `resolved` is `None` if one is invalid.
pub(in crate::config) struct ReadUpstreams<'t> {
    pub(in crate::config) names: NameTable<'t>,
    pub(in crate::config) resolved: Option<Vec<Upstream>>,
    /// For each upstream, the settings that its routes inherit.
    inherited: Vec<Inherited>,
}

/// The settings that a route inherits from its upstream, unless it has its own.
#[derive(Clone, Default)]
pub(in crate::config) struct Inherited {
    pub(in crate::config) policies: Vec<RoutePolicy>,
    pub(in crate::config) timeouts: Timeouts,
    pub(in crate::config) retry: Retry,
}

impl ReadUpstreams<'_> {
    /// The name of the first upstream that names this policy.
    pub(in crate::config) fn first_with(&self, policy: usize) -> Option<&str> {
        let names = |inherited: &Inherited| inherited.policies.iter().any(|of| of.policy == policy);
        let index = self.inherited.iter().position(names)?;
        self.names.name(index)
    }

    /// The settings that every route to this upstream inherits.
    pub(in crate::config) fn inherited(&self, upstream: Option<usize>) -> Inherited {
        upstream.and_then(|upstream| self.inherited.get(upstream)).cloned().unwrap_or_default()
    }
}

pub(in crate::config) fn upstreams<'t>(
    value: Option<Cursor<'t>>,
    policies: &ReadPolicies<'_>,
    identity: IdentitySources,
) -> ReadUpstreams<'t> {
    let entries = value.and_then(|value| {
        let entries = value.named_entries()?;
        if entries.is_empty() {
            value.report("no upstream is configured, so nothing could be forwarded", None);
        }
        Some(entries)
    });
    let entries = entries.unwrap_or_default();
    let names = entries.iter().map(|(_, name, _)| *name).collect();
    let (mut inherited, mut all) = (Vec::new(), Vec::new());
    for (location, name, value) in entries {
        if let Err(invalid) = resource_name(name) {
            value.report_at(location, format!("`{name}` {}", invalid.reason), invalid.help(false));
        }
        let written = read(value);
        let of_routes = |written: &UpstreamSettings<'_>| Inherited {
            policies: written.policies.map(|list| route_policies(list, policies)).unwrap_or_default(),
            timeouts: written.timeouts,
            retry: written.retry.clone(),
        };
        inherited.push(written.as_ref().map(of_routes).unwrap_or_default());
        all.push(written.and_then(|written| upstream(name, written, identity)));
    }
    ReadUpstreams { names: NameTable::new("upstream", names), inherited, resolved: all.into_iter().collect() }
}

fn read(value: Cursor<'_>) -> Option<UpstreamSettings<'_>> {
    let mut mapping = opened::<UpstreamSettings<'_>>(value)?;
    explain_other_names(&mut mapping);
    let written = UpstreamSettings::fields(&mut mapping);
    UpstreamSettings::check(&mapping, written.as_ref());
    mapping.finish();
    written
}

fn upstream(name: &str, written: UpstreamSettings<'_>, identity: IdentitySources) -> Option<Upstream> {
    let balance = written.balance.and_then(|value| balance(value, identity));
    let outlier = OutlierDetection::read(written.outlier);
    let (endpoints, endpoints_file) = match written.endpoints? {
        Endpoints::Listed(endpoints) => (endpoints, None),
        Endpoints::File(file) => (Vec::new(), Some(file)),
    };
    // A file can bring `https` endpoints at any time.
    let has_tls = endpoints_file.is_some() || endpoints.iter().any(Endpoint::is_https);
    Some(Upstream {
        name: name.to_owned(),
        endpoints,
        endpoints_file,
        balance: balance.unwrap_or(Balance::LeastRequest),
        sticky: written.sticky,
        slow_start: written.slow_start,
        tls: has_tls.then(|| written.tls.unwrap_or_default()),
        protocol: written.protocol,
        timeouts: written.timeouts,
        retry: written.retry,
        health: written.health,
        outlier,
        max_connections: written.max_connections,
        max_connections_per_address: written.max_connections_per_address,
        request_buffering: written.request_buffering,
        idle_connections: written.idle_connections,
        host: written.host,
    })
}
