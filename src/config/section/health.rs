//! `health` and `outlier` of an upstream: which of its endpoints get requests.

use std::time::Duration;

use http::uri::{Authority, PathAndQuery};

use super::MIN_DURATION;
use crate::config::{
    model::{Endpoint, HealthCheck, OutlierDetection, Probe, Protocol, Statuses},
    reader::{Cursor, MappingCursor},
    settings,
    value::{Invalid, MAX_DURATION, count, duration, endpoint_url, named_choice, percentage, status_range},
};

/// More often than this, probes are a load of their own.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
const INTERVAL: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(1);

/// What is asked, before the settings for it are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ProbeType {
    Http,
    Grpc,
    Tcp,
}

impl ProbeType {
    /// The settings that another type does not have.
    fn settings(self) -> &'static [&'static str] {
        match self {
            Self::Http => &["path", "host", "statuses"],
            Self::Grpc => &["service", "host"],
            Self::Tcp => &[],
        }
    }
}

/// Reads `health`. `endpoints`: those that are valid.
pub(super) fn health(
    value: Option<Cursor<'_>>,
    protocol: Protocol,
    endpoints: Option<&[Endpoint]>,
) -> Option<HealthCheck> {
    let value = value?;
    let mut mapping =
        value.mapping_such_as("health: { path: VALUE }")?.of(&settings::HEALTH).knowing("upstreams.*.health");
    let kind = mapping.take("type");
    let kind = match kind {
        None => Some(ProbeType::Http),
        Some(kind) => kind.parse(probe_type),
    };
    let interval = mapping.parse_or("interval", INTERVAL, duration(MIN_INTERVAL..=MAX_DURATION));
    let timeout = mapping.parse_or("timeout", TIMEOUT, duration(MIN_DURATION..=MAX_DURATION));
    let healthy = mapping.parse_or("healthy", 2, in_a_row);
    let unhealthy = mapping.parse_or("unhealthy", 3, in_a_row);
    let probe = match kind {
        // It was reported.
        None => None,
        Some(kind) => probe(kind, &mut mapping),
    };
    if kind == Some(ProbeType::Grpc) && !speaks_http2(protocol, endpoints) {
        let help = "set `protocol: h2` on the upstream".to_owned();
        mapping.report("gRPC needs HTTP/2, which this upstream does not speak", help);
    }
    mapping.finish();
    Some(HealthCheck { probe: probe?, interval, timeout, healthy, unhealthy })
}

fn probe(kind: ProbeType, mapping: &mut MappingCursor<'_>) -> Option<Probe> {
    for other in [ProbeType::Http, ProbeType::Grpc] {
        for key in other.settings().iter().filter(|key| !kind.settings().contains(key)) {
            if let Some(location) = mapping.key_location(key) {
                let (message, help) = match (*key, kind) {
                    ("service", ProbeType::Http) => {
                        ("`service` works only with `type: grpc`", "add `type: grpc`")
                    }
                    _ if kind == ProbeType::Tcp => {
                        ("`type: tcp` opens a connection and sends nothing", "remove this line")
                    }
                    _ => ("`type: grpc` calls grpc.health.v1.Health/Check", "remove this line"),
                };
                mapping.report_at(location, message, help.to_owned());
            }
        }
    }
    Some(match kind {
        ProbeType::Http => {
            let path = mapping.require("path", "such as `path: /healthz`");
            let host = host(mapping);
            let statuses = mapping.take("statuses");
            if let Some(empty) = statuses.filter(|list| list.is_empty_list()) {
                empty.report("an empty list would leave no endpoint healthy", "such as [200]".to_owned());
            }
            let statuses = statuses.map(|list| list.unique_items(|item| item.parse(status_range)));
            let statuses = Statuses(statuses.unwrap_or_else(|| vec![200..=299, 300..=399]));
            Probe::Http { path: path?.parse(probe_path)?, host, statuses }
        }
        ProbeType::Grpc => {
            let service = mapping.parse_or("service", String::new(), service_name);
            Probe::Grpc { service, host: host(mapping) }
        }
        ProbeType::Tcp => Probe::Tcp,
    })
}

fn host(mapping: &mut MappingCursor<'_>) -> Option<Authority> {
    mapping.take("host")?.parse(|text| {
        if text.contains("://") {
            return Err(match endpoint_url(text) {
                Ok(endpoint) => {
                    let host = format!("did you mean `{}`?", endpoint.authority);
                    Invalid::new("is a URL, not a host").suggestion(host)
                }
                Err(_) => Invalid::new("is a URL, not a host"),
            });
        }
        // A URL knows what a host is.
        Ok(endpoint_url(&format!("http://{text}"))?.authority)
    })
}

/// Whether all of `endpoints` may be asked by HTTP/2.
fn speaks_http2(protocol: Protocol, endpoints: Option<&[Endpoint]>) -> bool {
    match protocol {
        Protocol::H1 => false,
        Protocol::H2 => true,
        Protocol::Auto => endpoints.is_none_or(|endpoints| endpoints.iter().all(Endpoint::is_https)),
    }
}

fn probe_type(text: &str) -> Result<ProbeType, Invalid> {
    named_choice(
        "type",
        &[("http", ProbeType::Http), ("grpc", ProbeType::Grpc), ("tcp", ProbeType::Tcp)],
        &[
            ("https", "write `type: http`: `endpoints` say whether TLS is used"),
            ("ssl", "write `type: tcp`: `endpoints` say whether TLS is used"),
            ("tls", "write `type: tcp`: `endpoints` say whether TLS is used"),
            ("h2", "write `type: http`: the upstream's `protocol` holds for probes, too"),
            ("http2", "write `type: http`: the upstream's `protocol` holds for probes, too"),
        ],
    )(text)
}

fn in_a_row(text: &str) -> Result<u32, Invalid> {
    u32::try_from(count(1..=1_000)(text)?).map_err(|_| Invalid::new("is too large"))
}

/// Reads `/healthz` or `/healthz?full=1`.
fn probe_path(text: &str) -> Result<PathAndQuery, Invalid> {
    let invalid = |reason: &'static str| Invalid::new(reason).expected("write a path such as /healthz");
    if let Some((_, rest)) = text.split_once("://") {
        let path = rest.find('/').and_then(|at| rest.get(at..)).unwrap_or("/");
        let help = format!("did you mean `path: {path}`? Each endpoint is asked at its own address");
        return Err(invalid("is a URL, not a path").suggestion(help));
    }
    if !text.starts_with('/') {
        return Err(invalid("does not begin with /").suggestion(format!("did you mean `/{text}`?")));
    }
    if text.contains('#') || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(invalid("has characters that must be percent-encoded in a path, such as %20"));
    }
    PathAndQuery::try_from(text).map_err(|_| invalid("is not a path"))
}

/// Reads the name of a gRPC service: `shop.Cart`, or nothing for the server as a whole.
fn service_name(text: &str) -> Result<String, Invalid> {
    let invalid = |reason: &'static str| Invalid::new(reason).expected("write a name such as shop.Cart");
    if let Some(name) = text.strip_prefix('/') {
        let name = name.split('/').next().unwrap_or_default();
        return Err(
            invalid("is the path of a method, not a service").suggestion(format!("did you mean `{name}`?"))
        );
    }
    match text.len() <= 1_000 && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(text.to_owned()),
        false => Err(invalid("is not the name of a service")),
    }
}

const OUTLIER: OutlierDetection =
    OutlierDetection { failures: 5, eject: Duration::from_secs(30), at_most: 0.5 };

/// Reads `outlier`. `None`: it is off.
pub(super) fn outlier(value: Option<Cursor<'_>>) -> Option<OutlierDetection> {
    let Some(value) = value else { return Some(OUTLIER) };
    if value.scalar().is_some() {
        value.parse(|word| match word {
            "off" => Ok(()),
            _ => Err(Invalid::new("is not valid here")
                .suggestion("write `outlier: off`, or `outlier: { failures: 5, eject: 30s, at_most: 50% }`")),
        });
        return None;
    }
    let mut mapping = value.mapping()?.of(&settings::OUTLIER).knowing("upstreams.*.outlier");
    let time = duration(Duration::from_secs(1)..=MAX_DURATION);
    let outlier = OutlierDetection {
        failures: mapping.parse_or("failures", OUTLIER.failures, in_a_row),
        eject: mapping.parse_or("eject", OUTLIER.eject, time),
        at_most: mapping.parse_or("at_most", OUTLIER.at_most, share_of_hosts),
    };
    mapping.finish();
    Some(outlier)
}

fn share_of_hosts(text: &str) -> Result<f64, Invalid> {
    match percentage(text)? {
        share if share > 0.0 => Ok(share),
        _ => Err(Invalid::new("ejects no endpoint").expected("more than 0%; `outlier: off` ejects none")),
    }
}
