//! How Tollgate finds out which endpoints of an upstream work.

use std::time::Duration;

use http::uri::{Authority, PathAndQuery};
use serde::Serialize;
use tollgate_derive::{Settings, Word};

use crate::config::{
    policies::settings::Statuses,
    reader::{Cursor, MappingCursor},
    settings::{Read, ReadOver},
    upstreams::endpoint::endpoint_url,
    value::{Invalid, named_choice, percentage, status_range},
    written::serialize,
};

/// Active health checks of each address of each endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Settings)]
#[settings(page = "upstreams.md", sample = "path: /healthz", foreign = "upstreams.*.health")]
#[settings(such_as = "health: { path: VALUE }")]
#[settings(rules(
    NotWhere("path", "type", &["grpc", "tcp"]),
    RequiredWhere("path", "type", &["http", ""]),
    NotWhere("host", "type", &["tcp"]),
    NotWhere("statuses", "type", &["grpc", "tcp"]),
    Where("service", "type", &["grpc"])
))]
pub struct HealthCheck {
    #[setting(flatten)]
    pub probe: Probe,
    /// Time from the beginning of one check to that of the next.
    #[setting(duration = "100ms..=366d", default = "5s", example = "10s", beside = "path: /healthz")]
    pub interval: Duration,
    /// How long a check may take in all.
    #[setting(duration = "1ms..=366d", default = "1s", example = "2s", beside = "path: /healthz")]
    pub timeout: Duration,
    /// After this many successes in a row, an endpoint is healthy again.
    #[setting(count = "1..=1000", default = "2", example = "1", beside = "path: /healthz")]
    pub healthy: u32,
    /// After this many failures in a row, an endpoint is unhealthy.
    #[setting(count = "1..=1000", default = "3", example = "2", beside = "path: /healthz")]
    pub unhealthy: u32,
}

/// The request of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Probe {
    /// `GET`, by the upstream's version of HTTP.
    Http {
        #[serde(serialize_with = "serialize::displayed")]
        path: PathAndQuery,
        /// `None`: the endpoint's own.
        #[serde(serialize_with = "serialize::optional_displayed", skip_serializing_if = "Option::is_none")]
        host: Option<Authority>,
        /// The statuses of a healthy host.
        statuses: Statuses,
    },
    /// `grpc.health.v1.Health/Check`.
    Grpc {
        /// Empty: the server as a whole.
        service: String,
        #[serde(serialize_with = "serialize::optional_displayed", skip_serializing_if = "Option::is_none")]
        host: Option<Authority>,
    },
    /// Opens a connection, with the TLS handshake of an `https` endpoint, and sends nothing.
    Tcp,
}

/// The settings of all types of check.
#[derive(Settings)]
#[settings(written, of = Probe)]
struct ProbeSettings<'t> {
    /// What a check sends: `http` a GET request, `grpc` a call of `grpc.health.v1.Health/Check`, `tcp` nothing: it only
    /// opens a connection.
    #[setting(key = "type", of(ProbeType), default = "http", example = "tcp")]
    kind: Option<Cursor<'t>>,
    /// The path of the GET request.
    #[setting(text = PROBE_PATH, unset = "required with `type: http`, not allowed with others")]
    #[setting(example = "/healthz?full=1")]
    path: Option<Cursor<'t>>,
    /// The `Host` of the check.
    #[setting(text = AUTHORITY, unset = "the endpoint's own", example = "orders.internal")]
    #[setting(beside = "path: /healthz")]
    host: Option<Cursor<'t>>,
    /// The statuses of a healthy endpoint.
    #[setting(list(text = STATUSES, SomeUnique), default = "[2xx, 3xx]", example = "[200]")]
    #[setting(beside = "path: /healthz")]
    statuses: Option<Cursor<'t>>,
    /// The gRPC service whose health is asked for.
    #[setting(text = SERVICE, unset = "the server as a whole", example = "shop.Cart", beside = "type: grpc")]
    service: Option<Cursor<'t>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Word)]
enum ProbeType {
    Http,
    Grpc,
    Tcp,
}

impl ProbeType {
    /// The settings that not every type has.
    fn settings(self) -> &'static [&'static str] {
        match self {
            Self::Http => &["path", "host", "statuses"],
            Self::Grpc => &["service", "host"],
            Self::Tcp => &[],
        }
    }

    fn parse_named(text: &str) -> Result<Self, Invalid> {
        const FOREIGN: [(&str, &str); 5] = [
            ("https", "write `type: http`: `endpoints` say whether TLS is used"),
            ("ssl", "write `type: tcp`: `endpoints` say whether TLS is used"),
            ("tls", "write `type: tcp`: `endpoints` say whether TLS is used"),
            ("h2", "write `type: http`: the upstream's `protocol` holds for probes, too"),
            ("http2", "write `type: http`: the upstream's `protocol` holds for probes, too"),
        ];
        named_choice("type", &Self::ALL.map(|kind| (kind.name(), kind)), &FOREIGN)(text)
    }
}

impl<'t> Read<'t> for Probe {
    fn fields(mapping: &mut MappingCursor<'t>) -> Option<Self> {
        let ProbeSettings { kind, path, host, statuses, service } = ProbeSettings::fields(mapping)?;
        let kind = kind.map_or(Some(ProbeType::Http), |kind| kind.parse(ProbeType::parse_named))?;
        report_settings_of_others(kind, mapping);
        Some(match kind {
            ProbeType::Http => {
                mapping.report_if_missing("path", "such as `path: /healthz`");
                let path = path.and_then(|value| value.parse(probe_path));
                let host = host.and_then(|value| value.parse(authority));
                let statuses = statuses.map_or_else(|| vec![200..=299, 300..=399], healthy_statuses);
                Self::Http { path: path?, host, statuses: Statuses(statuses) }
            }
            ProbeType::Grpc => Self::Grpc {
                service: service.and_then(|value| value.parse(service_name)).unwrap_or_default(),
                host: host.and_then(|value| value.parse(authority)),
            },
            ProbeType::Tcp => Self::Tcp,
        })
    }
}

fn report_settings_of_others(kind: ProbeType, mapping: &MappingCursor<'_>) {
    for other in [ProbeType::Http, ProbeType::Grpc] {
        for key in other.settings().iter().filter(|key| !kind.settings().contains(key)) {
            // One without a value was reported.
            if let Some(location) = mapping.key_location(key).filter(|_| mapping.peek(key).is_some()) {
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

fn authority(text: &str) -> Result<Authority, Invalid> {
    if text.contains("://") {
        let invalid = Invalid::new("is a URL, not a host");
        return Err(match endpoint_url(text) {
            Ok(endpoint) => invalid.suggestion(format!("did you mean `{}`?", endpoint.authority)),
            Err(_) => invalid,
        });
    }
    // A URL knows what a host is.
    Ok(endpoint_url(&format!("http://{text}"))?.authority)
}

fn healthy_statuses(list: Cursor<'_>) -> Vec<std::ops::RangeInclusive<u16>> {
    if list.is_empty_list() {
        list.report("an empty list would leave no endpoint healthy", "such as [200]".to_owned());
    }
    list.unique_items(|item| item.parse(status_range))
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

/// Outlier detection: an endpoint whose requests fail is ejected for a while.
#[derive(Debug, Clone, Copy, PartialEq, Settings)]
#[settings(page = "upstreams.md", foreign = "upstreams.*.outlier")]
pub struct OutlierDetection {
    /// After this many failed requests in a row, an endpoint is ejected.
    #[setting(count = "1..=1000", default = "5", example = "10")]
    pub failures: u32,
    /// How long the first ejection lasts. Each further one in a row lasts this much longer than the one before, up to
    /// ten times as long as the first.
    #[setting(duration = "1s..=366d", default = "30s", example = "10s")]
    pub eject: Duration,
    /// The share of the endpoints that may be ejected at the same time.
    #[setting(share = "0<..=100", parse = share_of_endpoints, default = "50%", example = "20%")]
    pub at_most: f64,
}

impl OutlierDetection {
    /// Reads a mapping, or `off`: `None`.
    pub(in crate::config) fn read(value: Option<Cursor<'_>>) -> Option<Self> {
        if let Some(value) = value.filter(|value| value.scalar().is_some()) {
            return value.parse(off)?;
        }
        Some(Self::or(value, Self::default()))
    }
}

fn off(text: &str) -> Result<Option<OutlierDetection>, Invalid> {
    let forms = "write `outlier: off`, or `outlier: { failures: 5, eject: 30s, at_most: 50% }`";
    if text == "off" { Ok(None) } else { Err(Invalid::new("is not valid here").suggestion(forms)) }
}

fn share_of_endpoints(text: &str) -> Result<f64, Invalid> {
    match percentage(text)? {
        share if share > 0.0 => Ok(share),
        _ => Err(Invalid::new("ejects no endpoint").expected("more than 0%; `outlier: off` ejects none")),
    }
}
