//! The resolved configuration: immutable, swapped whole. Whatever it holds is valid.
//!
//! Names refer to things by index (`Route::upstream`, `Route::policies`), so that nothing on the way
//! of a request looks a name up.

use std::{fmt, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use http::{HeaderName, HeaderValue, Method, StatusCode, Uri, uri::Authority};
use ipnet::IpNet;

/// Everything `proxy.yaml` says, checked and resolved.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Never empty.
    pub listeners: Vec<Listener>,
    pub admin: Admin,
    pub workers: Workers,
    /// Peers whose forwarding fields count.
    pub trusted_proxies: Vec<IpNet>,
    pub client_address: ClientAddress,
    pub request_id: HeaderName,
    /// Tried in order; the first that answers is the user.
    pub user: Vec<UserSource>,
    pub store: Store,
    pub policies: Vec<Arc<Policy>>,
    pub abuse: Abuse,
    pub upstreams: Vec<Upstream>,
    /// Tried in order; the first that matches is taken.
    pub routes: Vec<Route>,
    pub client_limits: ClientLimits,
    pub reply_headers: ReplyHeaders,
    pub forwarded: Forwarded,
    pub access_log: AccessLog,
    pub log: Log,
    pub shutdown: Shutdown,
}

/// A socket on which clients are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    pub address: SocketAddr,
}

/// The admin port. Another address than loopback always has a token.
#[derive(Debug, Clone, PartialEq, Eq)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workers {
    /// The CPUs that affinity and cgroup quota allow.
    Auto,
    /// At least 1.
    Count(usize),
}

/// How the client's address is told behind trusted proxies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientAddress {
    pub header: AddressHeader,
    /// How much of an IPv6 address identifies a client, 1 to 128.
    pub ipv6_prefix: u8,
}

/// The field in which trusted proxies tell the client's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddressHeader {
    XForwardedFor,
    /// RFC 7239.
    Forwarded,
    /// A field that holds one address, such as `cf-connecting-ip`.
    Single(HeaderName),
}

/// One place in which a user ID may be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserSource {
    Header {
        name: HeaderName,
        from: HeaderFrom,
    },
    /// The value of the cookie of this name.
    Cookie(String),
    /// The name of HTTP Basic credentials.
    Basic,
    /// A claim of a verified token.
    Jwt(Jwt),
}

/// A token in a field, and by what it is verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Jwt {
    /// With `Bearer` before the token where it is `authorization`.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    EdDsa,
}

/// Whose header is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderFrom {
    TrustedProxies,
    Anyone,
}

/// Where the state of the limits lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    /// With Redis, what holds while Redis is away.
    pub memory: MemoryStore,
    /// `None`: limits are kept in memory alone.
    pub redis: Option<Redis>,
}

/// Redis, in which instances share their limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redis {
    /// `redis://`, `rediss://` or `unix://`, with user, password and database, if any.
    pub url: Secret,
    /// For `rediss://`.
    pub tls: RedisTls,
    /// For a whole decision, waiting for a connection included.
    pub timeout: Duration,
    /// A worker, at least 1.
    pub connections: u32,
    /// First part of every key.
    pub prefix: String,
    pub breaker: Breaker,
}

/// Whom to trust, and who we are. Files in PEM.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RedisTls {
    /// The certificate authorities that are trusted, and no others. `None`: Mozilla's, which are built in.
    pub ca: Option<PathBuf>,
    /// Certificate and key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// When to stop asking a store that fails, and when to try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Breaker {
    /// In a row, at least 1.
    pub failures: u32,
    pub retry_after: Duration,
}

/// What a policy does while the store is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnStoreError {
    /// Each instance enforces its share in memory.
    Local,
    Allow,
    /// 503.
    Deny,
}

/// The store inside the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryStore {
    /// At least 1.
    pub max_keys: usize,
}

/// What holds requests back.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    pub name: String,
    pub algorithm: Algorithm,
    /// Never empty; each is limited on its own.
    pub keys: Vec<KeyRecipe>,
    pub missing: Missing,
    /// Of `distinct`, and of no other: different values of what.
    pub value: Option<KeyRecipe>,
    /// Never empty; exactly one where the algorithm has no tiers. Windows differ from one another. Of
    /// `concurrency` the window is the lease.
    pub tiers: Vec<Rate>,
    /// The answers that count, where requests do not.
    pub count: Option<Statuses>,
    pub on_store_error: OnStoreError,
    pub record: Record,
    pub cost: Cost,
    pub mode: Mode,
    /// Whether requests that the policy denies are counted as well.
    pub count_denied: bool,
    /// Whether CORS preflights are counted.
    pub preflight: bool,
    /// The share of a window's quota that an instance may take at once, 0 to 1. Not 0: `fixed_window` with one
    /// tier.
    pub slice: f64,
    /// Whom it does not hold for.
    pub exempt: Vec<Condition>,
    /// Other limits for some; the first that matches.
    pub overrides: Vec<Override>,
    /// What a denied client is told; `None`: 429 and problem details.
    pub reply: Option<DenialReply>,
}

impl Policy {
    /// A policy with every default.
    pub fn new(
        name: impl Into<String>,
        algorithm: Algorithm,
        keys: Vec<KeyRecipe>,
        tiers: Vec<Rate>,
    ) -> Self {
        Self {
            name: name.into(),
            algorithm,
            keys,
            missing: Missing::Skip,
            value: None,
            tiers,
            count: None,
            on_store_error: OnStoreError::Local,
            record: Record { keep: 50, retain: Duration::from_secs(60 * 60) },
            cost: Cost::Fixed(1),
            mode: Mode::Enforce,
            count_denied: false,
            preflight: false,
            slice: 0.0,
            exempt: Vec::new(),
            overrides: Vec::new(),
            reply: None,
        }
    }
}

/// The units that a request takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cost {
    /// At least 1.
    Fixed(u64),
    /// What a trusted proxy says, at least 1 and at most `max`; else `default`.
    Header { name: HeaderName, default: u64, max: u64 },
}

/// Whether a policy's denials are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Enforce,
    /// Counted and reported, never denies.
    Shadow,
}

/// The answers that count: those of the upstream with one of these statuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statuses(pub Vec<std::ops::RangeInclusive<u16>>);

impl Statuses {
    /// Whether this status is one of them.
    pub fn contains(&self, status: u16) -> bool {
        self.0.iter().any(|range| range.contains(&status))
    }
}

/// Of whom something holds. All but the address counts only if it is verified, or said by a trusted proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    Address(IpNet),
    User(String),
    /// A claim of a verified token has this value.
    Jwt {
        claim: String,
        value: String,
    },
    /// A trusted proxy sent this field with this value.
    Header {
        name: HeaderName,
        value: HeaderValue,
    },
}

/// Other limits than the policy's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    pub condition: Condition,
    /// As [`Policy::tiers`].
    pub tiers: Vec<Rate>,
    /// With what the override itself says.
    pub algorithm: Algorithm,
}

/// What a denied client is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DenialReply {
    pub status: StatusCode,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// `None` without a body: problem details stand in.
    pub body: Option<DenialBody>,
}

/// A body with `{{retry_after}}`, `{{policy}}` and `{{limit}}` in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DenialBody {
    pub content_type: HeaderValue,
    pub template: Vec<TemplatePart>,
}

/// A piece of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TemplatePart {
    Text(String),
    /// Whole seconds, rounded up; `null` where no time will do.
    RetryAfter,
    /// The policy's name.
    Policy,
    /// The limit that was reached, in units.
    Limit,
}

/// See `limits.md`, "The algorithms".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    SingleCounter,
    FixedWindow,
    MetadataList,
    /// Into how many each window is cut, 4 to 100.
    SlidingWindow {
        buckets: u32,
    },
    SlidingLog,
    SlidingCounter,
    /// Units that pass at once, at least 1, and for how long more may wait.
    Gcra {
        burst: u64,
        delay: Duration,
    },
    Concurrency,
    Distinct,
}

/// The parts of one key; more than one make a composite (`ip+path`), in which the address comes first.
/// Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecipe(pub Vec<KeyPart>);

/// One part of a key: what of a request identifies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyPart {
    Ip,
    User,
    Header(HeaderName),
    Cookie(String),
    Query(String),
    /// A claim of a verified token.
    Jwt(String),
    /// The normalised path without query.
    Path,
    Route,
    Host,
    Method,
    /// One budget for all.
    Global,
}

/// What an identifier does that a request lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    Skip,
    /// Limit by address instead.
    Ip,
    Deny,
}

/// So many in so long: `100/1s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// 1 to 10⁹.
    pub limit: u64,
    /// 1 ms to 366 days.
    pub window: Duration,
}

/// The evidence kept of limited clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Records kept an address.
    pub keep: usize,
    /// How long each is kept. YAML: `for`.
    pub retain: Duration,
}

/// What is kept of limited clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Abuse {
    /// How long a limited client stays listed.
    pub retain: Duration,
}

/// A service behind the proxy.
#[derive(Debug, Clone, PartialEq)]
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Balance {
    LeastRequest,
    RoundRobin,
}

/// What an upstream may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    pub connect: Duration,
    /// From the end of the request to the first byte of the answer.
    pub response: Duration,
    /// Between two bytes of the answer, and how long an idle connection is kept.
    pub idle: Duration,
}

/// The Host that an upstream sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostHeader {
    /// The client's.
    Preserve,
    /// The endpoint's own.
    Rewrite,
}

/// Where requests of a kind go, and what holds them back.
#[derive(Debug, Clone, PartialEq)]
pub struct Route {
    pub name: String,
    /// Empty: any.
    pub hosts: Vec<HostPattern>,
    pub path: PathPattern,
    /// Empty: any.
    pub methods: Vec<Method>,
    /// All must be there with exactly this value.
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientLimits {
    /// Bytes of a request's head.
    pub header_size: usize,
    /// Header fields of a request.
    pub headers: usize,
    pub header_timeout: Duration,
    pub idle_timeout: Duration,
    /// Connections of the process.
    pub connections: usize,
}

/// What clients are told in every answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyHeaders {
    pub ratelimit: RateLimitFields,
    /// The pseudonym in `Via` (RFC 9110, 7.6.3).
    pub via: String,
}

/// Which fields tell clients how their limits stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateLimitFields {
    /// draft-ietf-httpapi-ratelimit-headers-11.
    Draft,
    /// X-RateLimit-Limit, -Remaining, -Reset.
    Legacy,
    Both,
    Off,
}

/// Which fields tell the upstream about the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forwarded {
    /// X-Forwarded-For, -Proto, -Host.
    XForwarded,
    /// RFC 7239.
    Forwarded,
    Both,
    Off,
}

#[derive(Debug, Clone, PartialEq)]
pub struct AccessLog {
    pub format: AccessLogFormat,
    pub to: Destination,
    /// The share of requests that is logged, 0 to 1.
    pub sample: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessLogFormat {
    Json,
    Combined,
    Off,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    Stdout,
    /// Appended to, and reopened on SIGUSR1.
    File(PathBuf),
}

/// The process' own messages, on stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Log {
    pub level: LogLevel,
    pub format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shutdown {
    /// How long requests under way may take to finish.
    pub drain: Duration,
}
