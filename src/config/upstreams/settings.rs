//! `upstreams`: the settings of an upstream, and the upstream that they become.

use std::{net::SocketAddr, time::Duration};

use serde::Serialize;
use tollgate_derive::{Settings, Word};

use crate::config::{
    reader::{Cursor, MappingCursor},
    routes::policies::RoutePolicySettings,
    upstreams::{
        balance::{Balance, BalanceSettings, Sticky},
        client_tls::ClientTls,
        endpoint::{Endpoint, EndpointSettings, Endpoints, EndpointsFile, EndpointsFileSettings},
        health::{HealthCheck, OutlierDetection, Probe},
        retry::Retry,
    },
    value::{Invalid, dns_server, percentage, server_name},
    written::serialize,
};

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
    /// An upstream with the defaults.
    pub fn new(name: impl Into<String>, endpoints: Vec<Endpoint>) -> Self {
        Self {
            name: name.into(),
            endpoints,
            endpoints_file: None,
            balance: Balance::LeastRequest,
            sticky: None,
            slow_start: Duration::ZERO,
            tls: None,
            protocol: Protocol::H1,
            timeouts: Timeouts::default(),
            retry: Retry::default(),
            health: None,
            outlier: Some(OutlierDetection { failures: 5, eject: Duration::from_secs(30), at_most: 0.5 }),
            max_connections: 1_024,
            max_connections_per_address: 0.25,
            idle_connections: 64,
            request_buffering: 16 << 10,
            host: HostHeader::Preserve,
        }
    }

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

/// A service behind Tollgate: one or more endpoints that serve the same content.
#[derive(Settings)]
#[settings(written, page = "upstreams.md", foreign = "upstreams.*", such_as = "{ endpoints: [VALUE] }")]
#[settings(sample = "endpoints: [\"http://127.0.0.1:3001\"]", check = check_schemes)]
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
    pub(in crate::config) policies: Option<Cursor<'t>>,
    /// Which endpoint gets a request. `least_request`: the one with the fewest requests in progress. `round_robin`:
    /// each in turn. `{ hash: KEY }`: always the same one for the same key.
    #[setting(
        either(word("least_request", "round_robin"), mapping(BalanceSettings)),
        default = "least_request"
    )]
    #[setting(example = "{ hash: ip }")]
    pub(in crate::config) balance: Option<Cursor<'t>>,
    /// A cookie that sends a client to the endpoint that served it first.
    #[setting(mapping, unset = "no cookie", example = "{ cookie: tg_endpoint }")]
    pub(in crate::config) sticky: Option<Sticky>,
    /// How long a new or recovered endpoint takes to reach its full share of the requests.
    #[setting(duration = "0..=1h", default = "0s", example = "30s")]
    pub(in crate::config) slow_start: Duration,
    /// TLS to the endpoints. It applies to `https://` endpoints.
    #[setting(mapping, unset = "the authorities of the system, and the endpoint's host name")]
    #[setting(example = "{ ca: tls/ca.pem }", beside = "endpoints: [\"https://orders.internal:8443\"]")]
    pub(in crate::config) tls: Option<UpstreamTls>,
    /// The HTTP version of requests to endpoints: `h1` is HTTP/1.1, `h2` is HTTP/2, `auto` is what an `https://`
    /// endpoint chooses by ALPN.
    #[setting(default = "h1", example = "h2")]
    pub(in crate::config) protocol: Protocol,
    /// How long an endpoint may take.
    #[setting(mapping, unset = "the defaults of its settings", example = "{ response: 10s }")]
    #[setting(see = ["routes[].timeouts"])]
    pub(in crate::config) timeouts: Timeouts,
    /// When a failed request is sent again, to another endpoint if there is one.
    #[setting(mapping, example = "{ max: 2 }", see = ["routes[].retry"])]
    #[setting(
        unset = "once, if the endpoint could not be reached, or ended the connection before it responded"
    )]
    pub(in crate::config) retry: Retry,
    /// Active health checks.
    #[setting(mapping, unset = "endpoints are not checked", example = "{ path: /healthz }")]
    #[setting(see = ["upstreams.*.outlier"])]
    pub(in crate::config) health: Option<HealthCheck>,
    /// Ejects an endpoint for a while after several failed requests in a row.
    #[setting(either(word("off"), mapping(OutlierDetection)))]
    #[setting(unset = "an endpoint is ejected for 30s after 5 failures in a row", example = "off")]
    #[setting(see = ["upstreams.*.health"])]
    pub(in crate::config) outlier: Option<Cursor<'t>>,
    /// The most connections of the process to the upstream. When all are in use, up to the same number of requests wait
    /// for one; further requests get 503.
    #[setting(count = "1..=1000000", default = "1024", example = "256")]
    pub(in crate::config) max_connections: usize,
    /// The share of `max_connections` that one client address may use while requests of others wait.
    #[setting(share = "0<..=100", parse = share_of_connections, default = "25%", example = "10%")]
    #[setting(see = ["upstreams.*.max_connections"])]
    pub(in crate::config) max_connections_per_address: f64,
    /// A request body of up to this length is received in full before the request takes a connection to an endpoint.
    /// `0` buffers none.
    #[setting(size = "0..=1MiB", default = "16KiB", example = "64KiB")]
    pub(in crate::config) request_buffering: usize,
    /// The most idle connections to the upstream that each worker keeps.
    #[setting(count = "0..=1000000", default = "64", example = "16")]
    #[setting(see = ["workers", "upstreams.*.timeouts.idle"])]
    pub(in crate::config) idle_connections: usize,
    /// The `Host` that endpoints get: `preserve` sends the client's, `rewrite` the endpoint's own.
    #[setting(default = "preserve", example = "rewrite")]
    pub(in crate::config) host: HostHeader,
}

pub(in crate::config) fn share_of_connections(text: &str) -> Result<f64, Invalid> {
    match percentage(text)? {
        share if share > 0.0 => Ok(share),
        _ => {
            Err(Invalid::new("leaves no connection to anybody").expected("more than 0%; 100% sets no bound"))
        }
    }
}

/// Reports `tls` without an https:// endpoint, and gRPC health checks without HTTP/2.
pub(in crate::config) fn check_schemes(mapping: &MappingCursor<'_>, upstream: Option<&UpstreamSettings<'_>>) {
    let Some(upstream) = upstream else { return };
    // Of an empty list nothing is known: its endpoints are wrong.
    let listed = match &upstream.endpoints {
        Some(Endpoints::Listed(endpoints)) => Some(endpoints).filter(|endpoints| !endpoints.is_empty()),
        _ => None,
    };
    if let (Some(location), Some(endpoints)) = (mapping.key_location("tls"), listed)
        && !endpoints.iter().any(Endpoint::is_https)
    {
        let help = "write https:// in `endpoints` to use TLS, or remove `tls`".to_owned();
        mapping.report_at(location, "`tls` works only with https:// endpoints", help);
    }
    let speaks_http2 = match upstream.protocol {
        Protocol::H1 => false,
        Protocol::H2 => true,
        Protocol::Auto => listed.is_none_or(|endpoints| endpoints.iter().all(Endpoint::is_https)),
    };
    let probe = upstream.health.as_ref().map(|health| &health.probe);
    if let (Some(value), Some(Probe::Grpc { .. }), false) = (mapping.peek("health"), probe, speaks_http2) {
        let help = "set `protocol: h2` on the upstream".to_owned();
        value.report("gRPC needs HTTP/2, which this upstream does not speak", help);
    }
}
