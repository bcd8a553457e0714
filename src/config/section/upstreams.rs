//! `upstreams`: the services behind the proxy.

use std::time::Duration;

use super::{
    MIN_DURATION,
    balance::{balance, explain_other_names, slow_start, sticky},
    client_tls::client_tls,
    health::{health, outlier},
    other_names,
    retry::retry,
    user::IdentitySources,
};
use crate::config::{
    model::{Endpoint, HostHeader, Protocol, Retry, Timeouts, Upstream, UpstreamTls},
    reader::{Cursor, MappingCursor, NameTable},
    value::{
        Invalid, MAX_DURATION, boolean, choice, count, duration, endpoint_url, percentage, resource_name,
        server_name, size,
    },
};

/// All upstreams. `resolved` is `None` if one is invalid.
pub(super) struct Upstreams<'t> {
    pub(super) names: NameTable<'t>,
    pub(super) resolved: Option<Vec<Upstream>>,
    /// For each upstream, what its routes inherit.
    inherited: Vec<Inherited>,
}

/// What a route has of its upstream, unless it has its own.
#[derive(Clone, Default)]
pub(super) struct Inherited {
    pub(super) policies: Vec<usize>,
    pub(super) timeouts: Timeouts,
    pub(super) retry: Retry,
}

impl Upstreams<'_> {
    /// The name of the first upstream that names this policy.
    pub(super) fn first_with(&self, policy: usize) -> Option<&str> {
        let index = self.inherited.iter().position(|inherited| inherited.policies.contains(&policy))?;
        self.names.name(index)
    }

    /// What every route to this upstream inherits.
    pub(super) fn inherited(&self, upstream: Option<usize>) -> Inherited {
        upstream.and_then(|upstream| self.inherited.get(upstream)).cloned().unwrap_or_default()
    }
}

pub(super) fn upstreams<'t>(
    value: Option<Cursor<'t>>,
    policies: &NameTable<'_>,
    identity: IdentitySources,
) -> Upstreams<'t> {
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
        let (policies, upstream) = match value
            .mapping_such_as("{ endpoints: [VALUE] }")
            .map(|mapping| mapping.knowing(other_names::UPSTREAM))
        {
            Some(mut mapping) => {
                let own =
                    mapping.take("policies").map(|list| list.unique_items(|item| policies.resolve(item)));
                (own.unwrap_or_default(), upstream(name, mapping, identity))
            }
            None => (Vec::new(), None),
        };
        inherited.push(match &upstream {
            Some(Upstream { timeouts, retry, .. }) => {
                Inherited { policies, timeouts: *timeouts, retry: retry.clone() }
            }
            None => Inherited { policies, ..Inherited::default() },
        });
        all.push(upstream);
    }
    Upstreams { names: NameTable::new("upstream", names), inherited, resolved: all.into_iter().collect() }
}

fn upstream(name: &str, mut mapping: MappingCursor<'_>, identity: IdentitySources) -> Option<Upstream> {
    let endpoints =
        mapping.require("endpoints", "such as `endpoints: [http://127.0.0.1:3000]`").map(endpoints);
    explain_other_names(&mut mapping);
    let balance = balance(mapping.take("balance"), identity);
    let sticky = mapping.take("sticky").and_then(sticky);
    let slow_start = slow_start(&mut mapping);
    let tls = tls(&mut mapping, endpoints.as_deref());
    let protocol = choice(&[("h1", Protocol::H1), ("h2", Protocol::H2), ("auto", Protocol::Auto)]);
    let protocol = mapping.parse_or("protocol", Protocol::H1, protocol);
    let timeouts = timeouts(mapping.take("timeouts"), Timeouts::default());
    let retry = retry(mapping.take("retry"), Retry::default());
    let health = health(mapping.take("health"), protocol, endpoints.as_deref());
    let outlier = outlier(mapping.take("outlier"));
    let max_connections = mapping.parse_or("max_connections", 1024, count(1..=1_000_000));
    let max_connections_per_address =
        mapping.parse_or("max_connections_per_address", 0.25, share_of_connections);
    let request_buffering = mapping.parse_or("request_buffering", 16 << 10, size(0..=1 << 20));
    let idle_connections = mapping.parse_or("idle_connections", 64, count(0..=1_000_000));
    let host = choice(&[("preserve", HostHeader::Preserve), ("rewrite", HostHeader::Rewrite)]);
    let host = mapping.parse_or("host", HostHeader::Preserve, host);
    mapping.finish();
    Some(Upstream {
        name: name.to_owned(),
        endpoints: endpoints?,
        balance,
        sticky,
        slow_start,
        tls,
        protocol,
        timeouts,
        retry,
        health,
        outlier,
        max_connections,
        max_connections_per_address,
        request_buffering,
        idle_connections,
        host,
    })
}

/// TLS to the `https` endpoints; `None` where there are none.
fn tls(mapping: &mut MappingCursor<'_>, endpoints: Option<&[Endpoint]>) -> Option<UpstreamTls> {
    let location = mapping.key_location("tls");
    let tls = mapping.take("tls").and_then(|value| {
        let mut mapping = value.mapping_such_as("tls: { ca: FILE }")?.knowing(other_names::UPSTREAM_TLS);
        let client = client_tls(&mut mapping);
        let server_name = mapping.take("server_name").and_then(|value| value.parse(server_name));
        mapping.finish();
        Some(UpstreamTls { client, server_name })
    });
    // Endpoints that are wrong were reported.
    let endpoints = endpoints.filter(|endpoints| !endpoints.is_empty())?;
    if endpoints.iter().any(Endpoint::is_https) {
        return Some(tls.unwrap_or_default());
    }
    if let Some(location) = location {
        let help = "write https:// in `endpoints` to use TLS, or remove `tls`".to_owned();
        mapping.report_at(location, "`tls` works only with https:// endpoints", help);
    }
    None
}

fn share_of_connections(text: &str) -> Result<f64, Invalid> {
    match percentage(text)? {
        share if share > 0.0 => Ok(share),
        _ => {
            Err(Invalid::new("leaves no connection to anybody").expected("more than 0%; 100% sets no bound"))
        }
    }
}

fn endpoints(value: Cursor<'_>) -> Vec<Endpoint> {
    if value.is_empty_list() {
        value.report("an upstream needs an endpoint", "such as [http://127.0.0.1:3000]".to_owned());
    }
    let endpoints = value.items(|item| {
        if item.scalar().is_some() {
            return item.parse(endpoint_url);
        }
        let mut mapping = item.mapping()?.knowing(other_names::ENDPOINT);
        let url = mapping.require("url", "such as `url: http://127.0.0.1:3000`");
        let weight = mapping.parse_or("weight", 1, |text| {
            let weight = count(1..=1000)(text)?;
            u32::try_from(weight).map_err(|_| Invalid::new("is too large"))
        });
        let drain = mapping.parse_or("drain", false, boolean);
        mapping.finish();
        Some(Endpoint { weight, drain, ..url?.parse(endpoint_url)? })
    });
    if !endpoints.is_empty() && endpoints.iter().all(|endpoint| endpoint.drain) {
        let message = "every endpoint is drained, so each request to this upstream gets 503";
        value.warn(message, "remove `drain: true` from an endpoint".to_owned());
    }
    endpoints
}

/// The configured timeouts, with `default` for the others.
pub(super) fn timeouts(value: Option<Cursor<'_>>, default: Timeouts) -> Timeouts {
    let Some(mapping) = value.and_then(|value| value.mapping_such_as("timeouts: { response: VALUE }")) else {
        return default;
    };
    let mut mapping = mapping.knowing(other_names::TIMEOUTS);
    let time = || duration(MIN_DURATION..=MAX_DURATION);
    let timeouts = Timeouts {
        connect: mapping.parse_or("connect", default.connect, time()),
        response: mapping.parse_or("response", default.response, time()),
        idle: mapping.parse_or("idle", default.idle, time()),
        total: mapping.parse_or("total", default.total, duration(Duration::ZERO..=MAX_DURATION)),
    };
    mapping.finish();
    timeouts
}
