//! The services behind the proxy.

use std::{net::SocketAddr, time::Duration};

use serde::Serialize;
use tollgate_derive::{Settings, Word};

use super::{
    Balance, ClientTls, Endpoint, EndpointsFile, HealthCheck, OutlierDetection, Retry, Sticky, serialize,
};
use crate::config::value::{dns_server, server_name};

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

/// TLS to `https://` endpoints. The files are read again when they change.
#[derive(Debug, Clone, PartialEq, Eq, Settings)]
#[settings(page = "upstreams.md", foreign = "upstreams.*.tls", such_as = "tls: { ca: FILE }")]
#[settings(rules(With("cert", "key"), With("key", "cert")))]
pub struct UpstreamTls {
    #[setting(flatten, value = ClientTls::default())]
    pub client: ClientTls,
    /// The name that the endpoints' certificates must have. A host name is also sent as SNI.
    #[setting(text = SERVER_NAME, parse = server_name, unset = "the host of the endpoint")]
    #[setting(example = "orders.internal")]
    pub server_name: Option<String>,
}

/// The version of HTTP that an upstream is spoken to in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Word)]
pub enum Protocol {
    /// HTTP/1.1.
    H1,
    /// HTTP/2: over TLS as ALPN says, in clear text from the first byte on.
    H2,
    /// HTTP/2 where the endpoint chooses it in the TLS handshake, else HTTP/1.1.
    Auto,
}

/// How long an endpoint may take. A route may set some of these; the others are as its upstream has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Settings)]
#[settings(
    page = "upstreams.md",
    foreign = "upstreams.*.timeouts",
    such_as = "timeouts: { response: VALUE }"
)]
pub struct Timeouts {
    /// Time for opening a connection, with the TLS handshake.
    #[setting(duration = "1ms..=366d", default = "1s", example = "500ms")]
    pub connect: Duration,
    /// Time from the end of the request to the end of the response's head. After that, the client gets 504.
    #[setting(duration = "1ms..=366d", default = "30s", example = "10s")]
    pub response: Duration,
    /// Time that may pass without a byte of the response, or of a WebSocket. Also how long an idle connection is kept.
    #[setting(duration = "1ms..=366d", default = "60s", example = "5m")]
    pub idle: Duration,
    /// Time for all tries together, up to the end of the response's head. `0s` sets no limit.
    #[setting(duration = "0..=366d", default = "0s", example = "20s")]
    pub total: Duration,
}

/// The `Host` that an upstream receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Word)]
pub enum HostHeader {
    /// The client's.
    Preserve,
    /// The endpoint's own.
    Rewrite,
}

/// The DNS servers that resolve the names of endpoints.
#[derive(Debug, Clone, PartialEq, Eq, Settings)]
#[settings(page = "upstreams.md", foreign = "resolver", such_as = "resolver: { servers: [10.0.0.2] }")]
pub struct Resolver {
    /// The DNS servers, by IP address. With this setting, search domains are not used.
    #[setting(list(text = DNS_SERVER, Unique), parse = dns_server)]
    #[setting(unset = "those in `/etc/resolv.conf`, which is read again when it changes")]
    #[setting(example = "[10.0.0.2, \"127.0.0.1:5353\"]")]
    pub servers: Vec<SocketAddr>,
    /// How long it may take to resolve a name.
    #[setting(duration = "100ms..=1m", default = "5s", example = "2s")]
    pub timeout: Duration,
}
