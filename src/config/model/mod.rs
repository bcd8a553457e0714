//! The resolved configuration: immutable, swapped whole. Whatever it holds is valid.
//!
//! Names refer to things by index (`Route::upstream`, `Route::policies`), so that nothing on the way
//! of a request looks a name up.

use std::{fmt, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use http::{HeaderName, HeaderValue, Method, Uri, uri::Authority};
use ipnet::IpNet;
use serde::Serialize;

mod ban;
mod display;
mod policy;
mod serialize;

pub use ban::*;
pub use display::{format_duration, format_size};
pub use policy::*;

/// Everything `proxy.yaml` says, checked and resolved.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Config {
    /// Never empty.
    pub listeners: Vec<Listener>,
    pub admin: Admin,
    pub workers: Workers,
    /// Peers whose forwarding fields count.
    #[serde(serialize_with = "serialize::displayed_each")]
    pub trusted_proxies: Vec<IpNet>,
    pub client_address: ClientAddress,
    #[serde(serialize_with = "serialize::displayed")]
    pub request_id: HeaderName,
    /// Tried in order; the first that answers is the user.
    pub user: Vec<UserSource>,
    pub store: Store,
    #[serde(serialize_with = "serialize::shared")]
    pub policies: Vec<Arc<Policy>>,
    #[serde(serialize_with = "serialize::shared")]
    pub bans: Vec<Arc<BanRule>>,
    pub abuse: Abuse,
    pub upstreams: Vec<Upstream>,
    /// Tried in order; the first that matches is taken.
    pub routes: Vec<Route>,
    pub client_limits: ClientLimits,
    pub reply_headers: ReplyHeaders,
    pub forwarded: Forwarded,
    pub access_log: AccessLog,
    pub log: Log,
    /// `None`: nothing is traced.
    pub tracing: Option<Tracing>,
    pub shutdown: Shutdown,
    #[serde(skip)]
    pub source: Source,
}

/// Where a configuration was read, and what was written there. What it says is told without: two that say the same are
/// the same.
#[derive(Clone, Default)]
pub struct Source {
    /// As it was given.
    pub path: String,
    /// The text with its secrets masked.
    pub shown: String,
}

impl PartialEq for Source {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl Config {
    /// What must not be shown, each with its path among the settings.
    pub fn secrets(&self) -> impl Iterator<Item = (&'static str, &Secret)> {
        let redis = self.store.redis.as_ref().map(|redis| &redis.url);
        let secrets = [
            ("admin.token", self.admin.token.as_ref()),
            ("store.redis.url", redis),
            ("abuse.secret", self.abuse.secret.as_ref()),
        ];
        secrets.into_iter().filter_map(|(path, secret)| Some((path, secret?)))
    }
}

/// A socket on which clients are served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Listener {
    pub address: SocketAddr,
}

/// The admin port. Another address than loopback always has a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Admin {
    pub address: SocketAddr,
    pub token: Option<Secret>,
}

/// A value that never reaches a log or a page.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps `value`.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself, for the one place that compares or sends it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// How many workers serve requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Workers {
    /// The CPUs that affinity and cgroup quota allow.
    Auto,
    /// At least 1.
    #[serde(untagged)]
    Count(usize),
}

/// How the client's address is told behind trusted proxies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClientAddress {
    pub header: AddressHeader,
    /// How much of an IPv6 address identifies a client, 1 to 128.
    pub ipv6_prefix: u8,
}

/// The field in which trusted proxies tell the client's address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AddressHeader {
    XForwardedFor,
    /// RFC 7239.
    Forwarded,
    /// A field that holds one address, such as `cf-connecting-ip`.
    #[serde(untagged, serialize_with = "serialize::displayed")]
    Single(HeaderName),
}

/// One place in which a user ID may be found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UserSource {
    /// The value of the cookie of this name.
    Cookie(String),
    /// The name of HTTP Basic credentials.
    Basic,
    /// A claim of a verified token.
    Jwt(Jwt),
    #[serde(untagged)]
    Header {
        #[serde(rename = "header", serialize_with = "serialize::displayed")]
        name: HeaderName,
        from: HeaderFrom,
    },
}

/// A token in a field, and by what it is verified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Jwt {
    /// With `Bearer` before the token where it is `authorization`.
    #[serde(serialize_with = "serialize::displayed")]
    pub header: HeaderName,
    /// The claim that is the user ID.
    pub claim: String,
    /// PEM, a JSON Web Key set, or the secret of HS. Read again when it changes.
    pub key: PathBuf,
    /// `None` with a key set whose keys name theirs.
    pub algorithm: Option<JwtAlgorithm>,
    /// Where given, the token must name it.
    pub issuer: Option<String>,
    /// Where given, the token must be meant for it.
    pub audience: Option<String>,
}

/// RFC 7518, 3.1, and RFC 8037.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum JwtAlgorithm {
    Hs256,
    Hs384,
    Hs512,
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    #[serde(rename = "EdDSA")]
    EdDsa,
}

/// Whose header is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HeaderFrom {
    TrustedProxies,
    Anyone,
}

/// Where the state of the limits lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Store {
    /// With Redis, what holds while Redis is away.
    pub memory: MemoryStore,
    /// `None`: limits are kept in memory alone.
    pub redis: Option<Redis>,
}

/// Redis, in which instances share their limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Redis {
    /// `redis://`, `rediss://` or `unix://`, with user, password and database, if any.
    #[serde(serialize_with = "serialize::url_without_credentials")]
    pub url: Secret,
    /// For `rediss://`.
    pub tls: RedisTls,
    /// For a whole decision, waiting for a connection included.
    #[serde(serialize_with = "serialize::duration")]
    pub timeout: Duration,
    /// A worker, at least 1.
    pub connections: u32,
    /// First part of every key.
    pub prefix: String,
    pub breaker: Breaker,
}

/// Whom to trust, and who we are. Files in PEM.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct RedisTls {
    /// The certificate authorities that are trusted, and no others. `None`: Mozilla's, which are built in.
    pub ca: Option<PathBuf>,
    /// Certificate and key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// When to stop asking a store that fails, and when to try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Breaker {
    /// In a row, at least 1.
    pub failures: u32,
    #[serde(serialize_with = "serialize::duration")]
    pub retry_after: Duration,
}

/// The store inside the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemoryStore {
    /// At least 1.
    pub max_keys: usize,
}

/// What is kept of limited clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Abuse {
    /// How long a limited client stays listed.
    #[serde(serialize_with = "serialize::duration")]
    pub retain: Duration,
    pub users: Users,
    /// By which users are hashed. [`Users::Hashed`] always has one.
    pub secret: Option<Secret>,
}

/// How users are written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Users {
    /// By their names.
    Plain,
    /// By a keyed hash of their names.
    Hashed,
    /// Not at all.
    Off,
}

/// A service behind the proxy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Upstream {
    pub name: String,
    /// Never empty.
    pub endpoints: Vec<Endpoint>,
    pub balance: Balance,
    pub timeouts: Timeouts,
    /// Connections of the process, at least 1.
    pub max_connections: usize,
    /// Idle connections kept a worker.
    pub idle_connections: usize,
    pub host: HostHeader,
}

/// One address of an upstream.
#[derive(Debug, Clone, PartialEq)]
pub struct Endpoint {
    /// Scheme `http`, an authority, no path.
    pub url: Uri,
    pub authority: Authority,
    /// With the scheme's default filled in.
    pub port: u16,
    /// At least 1.
    pub weight: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Balance {
    LeastRequest,
    RoundRobin,
}

/// What an upstream may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Timeouts {
    #[serde(serialize_with = "serialize::duration")]
    pub connect: Duration,
    /// From the end of the request to the first byte of the answer.
    #[serde(serialize_with = "serialize::duration")]
    pub response: Duration,
    /// Between two bytes of the answer, and how long an idle connection is kept.
    #[serde(serialize_with = "serialize::duration")]
    pub idle: Duration,
}

/// The Host that an upstream sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HostHeader {
    /// The client's.
    Preserve,
    /// The endpoint's own.
    Rewrite,
}

/// Where requests of a kind go, and what holds them back.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Route {
    pub name: String,
    /// Empty: any.
    pub hosts: Vec<HostPattern>,
    pub path: PathPattern,
    /// Empty: any.
    #[serde(serialize_with = "serialize::displayed_each")]
    pub methods: Vec<Method>,
    /// All must be there with exactly this value.
    #[serde(serialize_with = "serialize::headers")]
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Index into [`Config::upstreams`].
    pub upstream: usize,
    /// Indexes into [`Config::policies`]: the upstream's first, then the route's own, each once.
    pub policies: Vec<usize>,
    /// The upstream's, with what the route itself says.
    pub timeouts: Timeouts,
}

/// A host in lower case, without port and trailing dot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostPattern {
    Exact(String),
    /// `*.example.org` as `.example.org`: any host that ends so and has more before it.
    Suffix(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathPattern {
    Exact(String),
    /// `/prefix/*` as `/prefix/`: whatever begins so. `/*` is `/`: everything.
    Prefix(String),
    /// `/users/{id}/posts`: as many segments, each equal or a parameter.
    Template(Vec<Segment>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    Literal(String),
    /// `{id}`: any one segment that is not empty.
    Parameter(String),
}

/// What a client may ask of the proxy itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClientLimits {
    /// Bytes of a request's head.
    #[serde(serialize_with = "serialize::size")]
    pub header_size: usize,
    /// Header fields of a request.
    pub headers: usize,
    #[serde(serialize_with = "serialize::duration")]
    pub header_timeout: Duration,
    #[serde(serialize_with = "serialize::duration")]
    pub idle_timeout: Duration,
    /// Connections of the process.
    pub connections: usize,
}

/// What clients are told in every answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReplyHeaders {
    pub ratelimit: RateLimitFields,
    /// The pseudonym in `Via` (RFC 9110, 7.6.3).
    pub via: String,
}

/// Which fields tell clients how their limits stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RateLimitFields {
    /// draft-ietf-httpapi-ratelimit-headers-11.
    Draft,
    /// X-RateLimit-Limit, -Remaining, -Reset.
    Legacy,
    Both,
    Off,
}

/// Which fields tell the upstream about the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Forwarded {
    /// X-Forwarded-For, -Proto, -Host.
    XForwarded,
    /// RFC 7239.
    Forwarded,
    Both,
    Off,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AccessLog {
    pub format: AccessLogFormat,
    pub to: Destination,
    /// The share of requests that is logged, 0 to 1.
    #[serde(serialize_with = "serialize::percentage")]
    pub sample: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AccessLogFormat {
    Json,
    Combined,
    Off,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Destination {
    Stdout,
    /// Appended to, and reopened on SIGUSR1.
    #[serde(untagged)]
    File(PathBuf),
}

/// The process' own messages, on stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Log {
    pub level: LogLevel,
    pub format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    Text,
    Json,
}

/// Where traces go, and of how many requests.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tracing {
    /// Scheme `http`, an authority, and the path that takes spans: `/v1/traces`.
    #[serde(serialize_with = "serialize::displayed")]
    pub otlp: Uri,
    /// The share of requests that is traced where nobody before us has decided it, 0 to 1.
    #[serde(serialize_with = "serialize::percentage")]
    pub sample: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Shutdown {
    /// How long requests under way may take to finish.
    #[serde(serialize_with = "serialize::duration")]
    pub drain: Duration,
}
