//! `upstreams`: the services behind the proxy.

use std::time::Duration;

use tollgate_derive::Settings;

use super::{
    balance::{BalanceSettings, balance, explain_other_names},
    policies::ReadPolicies,
    route_policies::{RoutePolicySettings, route_policies},
    user::IdentitySources,
};
use crate::config::{
    checks,
    model::{
        Balance, Endpoint, EndpointSettings, Endpoints, EndpointsFileSettings, HealthCheck, HostHeader,
        OutlierDetection, Protocol, Retry, RoutePolicy, Sticky, Timeouts, Upstream, UpstreamTls,
    },
    reader::{Cursor, NameTable},
    settings::{Read, opened},
    value::{Invalid, percentage, resource_name},
};

/// All upstreams. `resolved` is `None` if one is invalid.
pub(super) struct ReadUpstreams<'t> {
    pub(super) names: NameTable<'t>,
    pub(super) resolved: Option<Vec<Upstream>>,
    /// For each upstream, what its routes inherit.
    inherited: Vec<Inherited>,
}

/// What a route has of its upstream, unless it has its own.
#[derive(Clone, Default)]
pub(super) struct Inherited {
    pub(super) policies: Vec<RoutePolicy>,
    pub(super) timeouts: Timeouts,
    pub(super) retry: Retry,
}

impl ReadUpstreams<'_> {
    /// The name of the first upstream that names this policy.
    pub(super) fn first_with(&self, policy: usize) -> Option<&str> {
        let names = |inherited: &Inherited| inherited.policies.iter().any(|of| of.policy == policy);
        let index = self.inherited.iter().position(names)?;
        self.names.name(index)
    }

    /// What every route to this upstream inherits.
    pub(super) fn inherited(&self, upstream: Option<usize>) -> Inherited {
        upstream.and_then(|upstream| self.inherited.get(upstream)).cloned().unwrap_or_default()
    }
}

/// A service behind Tollgate: one or more endpoints that serve the same content.
#[derive(Settings)]
#[settings(written, page = "upstreams.md", foreign = "upstreams.*", such_as = "{ endpoints: [VALUE] }")]
#[settings(sample = "endpoints: [\"http://127.0.0.1:3001\"]", check = checks::endpoint_schemes::check)]
pub(in crate::config) struct UpstreamSettings<'t> {
    /// The endpoints, or a file that lists them and is read again when it changes. Host names are resolved again when
    /// the TTL of their DNS records ends.
    #[setting(either(
        list(either(text = ENDPOINT, mapping(EndpointSettings)), SomeUnique),
        mapping(EndpointsFileSettings)
    ))]
    #[setting(read = Endpoints::read, missing = "such as `endpoints: [http://127.0.0.1:3000]`")]
    #[setting(example = "[\"http://127.0.0.1:3001\", { url: \"http://127.0.0.1:3002\", weight: 2 }]")]
    #[setting(see = ["resolver.servers"])]
    pub(in crate::config) endpoints: Option<Endpoints>,
    /// The policies that apply to every route to this upstream: names, or names with the cost of their requests.
    #[setting(list(either(text = RESOURCE, mapping(RoutePolicySettings)), Unique), unset = "none", example = "[per-ip]", see = ["routes[].policies"])]
    policies: Option<Cursor<'t>>,
    /// Which endpoint gets a request. `least_request`: the one with the fewest requests in progress. `round_robin`:
    /// each in turn. `{ hash: KEY }`: always the same one for the same key.
    #[setting(
        either(word("least_request", "round_robin"), mapping(BalanceSettings)),
        default = "least_request"
    )]
    #[setting(example = "{ hash: ip }")]
    balance: Option<Cursor<'t>>,
    /// A cookie that sends a client to the endpoint that served it first.
    #[setting(mapping, unset = "no cookie", example = "{ cookie: tg_endpoint }")]
    sticky: Option<Sticky>,
    /// How long a new or recovered endpoint takes to reach its full share of the requests.
    #[setting(duration = "0..=1h", default = "0s", example = "30s")]
    slow_start: Duration,
    /// TLS to the endpoints. It applies to `https://` endpoints.
    #[setting(mapping, unset = "the authorities of the system, and the endpoint's host name")]
    #[setting(example = "{ ca: tls/ca.pem }", beside = "endpoints: [\"https://orders.internal:8443\"]")]
    tls: Option<UpstreamTls>,
    /// The HTTP version of requests to endpoints: `h1` is HTTP/1.1, `h2` is HTTP/2, `auto` is what an `https://`
    /// endpoint chooses by ALPN.
    #[setting(default = "h1", example = "h2")]
    pub(in crate::config) protocol: Protocol,
    /// How long an endpoint may take.
    #[setting(mapping, unset = "the defaults of its settings", example = "{ response: 10s }")]
    #[setting(see = ["routes[].timeouts"])]
    timeouts: Timeouts,
    /// When a failed request is sent again, to another endpoint if there is one.
    #[setting(mapping, example = "{ max: 2 }", see = ["routes[].retry"])]
    #[setting(
        unset = "once, if the endpoint could not be reached, or ended the connection before it responded"
    )]
    retry: Retry,
    /// Active health checks.
    #[setting(mapping, unset = "endpoints are not checked", example = "{ path: /healthz }")]
    #[setting(see = ["upstreams.*.outlier"])]
    pub(in crate::config) health: Option<HealthCheck>,
    /// Ejects an endpoint for a while after several failed requests in a row.
    #[setting(either(word("off"), mapping(OutlierDetection)))]
    #[setting(unset = "an endpoint is ejected for 30s after 5 failures in a row", example = "off")]
    #[setting(see = ["upstreams.*.health"])]
    outlier: Option<Cursor<'t>>,
    /// The most connections of the process to the upstream. When all are in use, up to the same number of requests wait
    /// for one; further requests get 503.
    #[setting(count = "1..=1000000", default = "1024", example = "256")]
    max_connections: usize,
    /// The share of `max_connections` that one client address may use while requests of others wait.
    #[setting(share = "0<..=100", parse = share_of_connections, default = "25%", example = "10%")]
    #[setting(see = ["upstreams.*.max_connections"])]
    max_connections_per_address: f64,
    /// A request body of up to this length is received in full before the request takes a connection to an endpoint.
    /// `0` buffers none.
    #[setting(size = "0..=1MiB", default = "16KiB", example = "64KiB")]
    request_buffering: usize,
    /// The most idle connections to the upstream that each worker keeps.
    #[setting(count = "0..=1000000", default = "64", example = "16")]
    #[setting(see = ["workers", "upstreams.*.timeouts.idle"])]
    idle_connections: usize,
    /// The `Host` that endpoints get: `preserve` sends the client's, `rewrite` the endpoint's own.
    #[setting(default = "preserve", example = "rewrite")]
    host: HostHeader,
}

pub(super) fn upstreams<'t>(
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

fn share_of_connections(text: &str) -> Result<f64, Invalid> {
    match percentage(text)? {
        share if share > 0.0 => Ok(share),
        _ => {
            Err(Invalid::new("leaves no connection to anybody").expected("more than 0%; 100% sets no bound"))
        }
    }
}
