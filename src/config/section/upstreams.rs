//! `upstreams`: the services behind the proxy.

use std::time::Duration;

use super::{
    MIN_DURATION,
    balance::{balance, explain_other_names, slow_start, sticky},
    endpoints::{Endpoints, endpoints},
    health::{health, outlier},
    retry::retry,
    user::IdentitySources,
};
use crate::config::{
    model::{ClientTls, Endpoint, HostHeader, Protocol, Retry, Timeouts, Upstream, UpstreamTls},
    reader::{Cursor, MappingCursor, NameTable},
    settings::{self, Read},
    value::{Invalid, MAX_DURATION, choice, count, duration, percentage, resource_name, server_name, size},
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
            .map(|mapping| mapping.of(&settings::UPSTREAM).knowing("upstreams.*"))
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
    let configured =
        mapping.require("endpoints", "such as `endpoints: [http://127.0.0.1:3000]`").and_then(endpoints);
    let (endpoints, endpoints_file) = match configured {
        Some(Endpoints::Listed(endpoints)) => (Some(endpoints), None),
        Some(Endpoints::File(file)) => (None, Some(file)),
        None => (None, None),
    };
    explain_other_names(&mut mapping);
    let balance = balance(mapping.take("balance"), identity);
    let sticky = mapping.take("sticky").and_then(sticky);
    let slow_start = slow_start(&mut mapping);
    let tls = tls(&mut mapping, endpoints.as_deref(), endpoints_file.is_some());
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
        endpoints: if endpoints_file.is_some() { Vec::new() } else { endpoints? },
        endpoints_file,
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

/// TLS to the `https` endpoints; `None` where there are none, and a file can't bring any.
fn tls(
    mapping: &mut MappingCursor<'_>,
    endpoints: Option<&[Endpoint]>,
    has_file: bool,
) -> Option<UpstreamTls> {
    let location = mapping.key_location("tls");
    let tls = mapping.take("tls").and_then(|value| {
        let mut mapping = value
            .mapping_such_as("tls: { ca: FILE }")?
            .of(&settings::TLS_TO_UPSTREAM)
            .knowing("upstreams.*.tls");
        let client = ClientTls::fields(&mut mapping).unwrap_or_default();
        let server_name = mapping.take("server_name").and_then(|value| value.parse(server_name));
        mapping.finish();
        Some(UpstreamTls { client, server_name })
    });
    if has_file {
        return Some(tls.unwrap_or_default());
    }
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

/// The configured timeouts, with `default` for the others.
pub(super) fn timeouts(value: Option<Cursor<'_>>, default: Timeouts) -> Timeouts {
    let Some(mapping) = value.and_then(|value| value.mapping_such_as("timeouts: { response: VALUE }")) else {
        return default;
    };
    let mut mapping = mapping.of(&settings::TIMEOUTS).knowing("routes[].timeouts");
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
