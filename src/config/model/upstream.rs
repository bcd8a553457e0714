//! The services behind the proxy.

use std::{fmt, net::SocketAddr, path::PathBuf, time::Duration};

use http::{
    Uri,
    uri::{Authority, Scheme},
};
use serde::{Serialize, Serializer};
use url::{Origin, Url};

use super::{Balance, ClientTls, HealthCheck, OutlierDetection, Retry, Sticky, serialize};

/// A service behind the proxy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Upstream {
    pub name: String,
    /// Empty only if they are in a file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<Endpoint>,
    /// The file that lists the endpoints.
    #[serde(rename = "endpoints.file", skip_serializing_if = "Option::is_none")]
    pub endpoints_file: Option<EndpointsFile>,
    pub balance: Balance,
    /// `None`: no cookie keeps a client at an endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sticky: Option<Sticky>,
    /// How long the share of an endpoint that comes back grows until it is whole. Zero: it is whole at once.
    #[serde(serialize_with = "serialize::duration")]
    pub slow_start: Duration,
    /// `None`: no endpoint is `https`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<UpstreamTls>,
    pub protocol: Protocol,
    pub timeouts: Timeouts,
    pub retry: Retry,
    /// `None`: no probes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<HealthCheck>,
    /// `None`: it is off.
    #[serde(serialize_with = "serialize::or_off")]
    pub outlier: Option<OutlierDetection>,
    /// Connections of the whole process, at least 1.
    pub max_connections: usize,
    /// The part of `max_connections` that one client address may hold while requests of others wait for a connection,
    /// as a share of 1.
    #[serde(serialize_with = "serialize::percentage")]
    pub max_connections_per_address: f64,
    /// Idle connections that each worker keeps.
    pub idle_connections: usize,
    /// The longest request body that is received before a connection is taken, in bytes. 0: none is.
    #[serde(serialize_with = "serialize::size")]
    pub request_buffering: usize,
    pub host: HostHeader,
}

impl Upstream {
    /// Whether requests are tied to hosts, by hash or by a cookie.
    pub fn ties_requests(&self) -> bool {
        matches!(self.balance, Balance::Hash(_)) || self.sticky.is_some()
    }
}

/// One address of an upstream.
#[derive(Debug, Clone, PartialEq)]
pub struct Endpoint {
    /// Scheme `http` or `https`, an authority, no path: the same for every spelling of the same place.
    pub url: Uri,
    /// As it was written.
    pub authority: Authority,
    /// 80 by default, 443 with `https`.
    pub port: u16,
    /// At least 1.
    pub weight: u32,
    /// Whether it takes no new requests.
    pub drain: bool,
}

/// A file that lists the endpoints of an upstream.
#[derive(Clone)]
pub struct EndpointsFile {
    pub path: PathBuf,
    /// Reads what is in it, or says what is wrong with it: in the same format as the configuration.
    pub read: fn(&[u8]) -> Result<Vec<Endpoint>, String>,
}

impl PartialEq for EndpointsFile {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl fmt::Debug for EndpointsFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.fmt(f)
    }
}

impl Serialize for EndpointsFile {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.path.serialize(to)
    }
}

impl Endpoint {
    /// Whether it is asked over TLS.
    pub fn is_https(&self) -> bool {
        self.url.scheme() == Some(&Scheme::HTTPS)
    }

    /// `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        if self.is_https() { "https" } else { "http" }
    }

    /// How it is named to operators: `http://127.0.0.1:3000`.
    pub fn base_url(&self) -> String {
        self.url.to_string().trim_end_matches('/').to_owned()
    }

    /// Its host: a name, or an address without brackets.
    pub fn host(&self) -> &str {
        self.authority.host().trim_start_matches('[').trim_end_matches(']')
    }
}

/// The URL by which an endpoint is known, the same for each spelling: `http://orders` for `HTTP://Orders:80/`.
pub fn endpoint_name(url: &str) -> String {
    let origin = Url::parse(url).map(|url| url.origin()).ok().filter(Origin::is_tuple);
    origin
        .map_or_else(|| url.trim_end_matches('/').to_ascii_lowercase(), |origin| origin.ascii_serialization())
}

/// Who is asked for the addresses of endpoints that have names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Resolver {
    /// DNS servers. Empty: those of the system.
    pub servers: Vec<SocketAddr>,
    /// How long they may take for one name.
    #[serde(serialize_with = "serialize::duration")]
    pub timeout: Duration,
}

/// TLS to the `https` endpoints of an upstream.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct UpstreamTls {
    #[serde(flatten)]
    pub client: ClientTls,
    /// The name or address that certificates must have. `None`: the endpoint's host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
}

/// The version of HTTP that an upstream is spoken to in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// HTTP/1.1.
    H1,
    /// HTTP/2: over TLS as ALPN says, in clear text from the first byte on.
    H2,
    /// HTTP/2 where the endpoint chooses it in the TLS handshake, else HTTP/1.1.
    Auto,
}

/// How long an upstream may take: each try by itself, and all of them together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Timeouts {
    #[serde(serialize_with = "serialize::duration")]
    pub connect: Duration,
    /// From the end of the request to the end of the response's head.
    #[serde(serialize_with = "serialize::duration")]
    pub response: Duration,
    /// Between two bytes of the response, and how long an idle connection is kept.
    #[serde(serialize_with = "serialize::duration")]
    pub idle: Duration,
    /// All tries, and the wait for their connections, to the end of the response's head. Zero: no limit of its own.
    #[serde(serialize_with = "serialize::duration")]
    pub total: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(1),
            response: Duration::from_secs(30),
            idle: Duration::from_secs(60),
            total: Duration::ZERO,
        }
    }
}

/// The `Host` that an upstream receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HostHeader {
    /// The client's.
    Preserve,
    /// The endpoint's own.
    Rewrite,
}
