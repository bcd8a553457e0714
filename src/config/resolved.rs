//! The whole configuration, and the settings that belong to no topic.

use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

use http::HeaderName;
use serde::Serialize;
use tollgate_derive::Settings;

use crate::{
    config::{
        abuse::settings::{Abuse, BanRule, BansSettings},
        history::{alerts::Alert, settings::History},
        identity::{
            access::Access,
            settings::{UserSource, UserSourceSettings},
        },
        keys::settings::ApiKeySettings,
        listeners::{
            clients::{
                ClientAddress, ClientLimits, ForwardClientCertificate, Forwarded, ReplyHeaders, TrustedProxy,
            },
            settings::{Admin, AdminSettings, Listener, ListenerSettings, Secret},
        },
        policies::settings::{Policy, PolicySettings},
        request_values::settings::{Plan, RequestValueSettings, ValueSourceSettings},
        routes::settings::{Route, RouteDefaults, RouteSettings},
        settings::{Kind, Settings, Value},
        store::settings::{RedisTopology, StoreSettings},
        telemetry::settings::{AccessLog, Log, Tracing},
        upstreams::settings::{Resolver, Upstream, UpstreamSettings},
        value::{Invalid, count},
        written::serialize,
    },
    request_values::RequestValue,
};

/// The sections of the file. `routes` is required, and `upstreams` wherever a route forwards requests.
///
/// Its values are checked, and names are resolved.
#[derive(Debug, Clone, PartialEq, Serialize, Settings)]
#[settings(unread, foreign = "top level", last = ForAnchors)]
pub struct Config {
    /// The sockets on which clients are served.
    #[setting(
        list(mapping(ListenerSettings), Some),
        unset = "one listener on 127.0.0.1:8080, in clear text"
    )]
    #[setting(example = "[{ address: 0.0.0.0:8080 }]")]
    #[setting(flags(of_the_instance))]
    pub listeners: Vec<Listener>,
    /// The admin port: API, page and metrics.
    #[setting(mapping(AdminSettings), unset = "127.0.0.1:9900, without a token")]
    #[setting(example = "{ address: 127.0.0.1:9900 }")]
    #[setting(restart, flags(of_the_instance))]
    pub admin: Admin,
    /// The number of threads that serve requests. `auto` takes the CPUs that affinity and the cgroup's quota allow.
    #[setting(default = "auto", example = "4")]
    #[setting(restart, flags(of_the_instance))]
    pub workers: Workers,
    /// The proxies in front of Tollgate. Tollgate takes the client's address, a user header, a cost or a PROXY header
    /// only from them. `unix` means every process that connects through a Unix socket.
    #[setting(list(text = PROXY, Unique), unset = "no proxy is trusted", example = "[10.0.0.0/8]")]
    #[setting(see = ["client_address.header", "trusted_headers", "user[].from", "listeners[].proxy_protocol", "forwarded"])]
    pub trusted_proxies: Vec<TrustedProxy>,
    /// Headers that only trusted proxies may send. Tollgate removes them from all other requests.
    #[setting(list(text = FIELD, Unique), unset = "none", example = "[x-plan]")]
    #[setting(see = ["trusted_proxies", "policies.*.overrides[].header:*"])]
    #[serde(serialize_with = "serialize::displayed_each")]
    pub trusted_headers: Vec<HeaderName>,
    /// How Tollgate finds a client's address behind trusted proxies, and how many bits of it identify the client.
    #[setting(mapping, unset = "`x-forwarded-for`, and the first 64 bits of IPv6 addresses")]
    #[setting(example = "{ header: cf-connecting-ip }")]
    pub client_address: ClientAddress,
    #[setting(flatten)]
    #[serde(flatten)]
    pub access: Access,
    /// The header that holds the ID of a request. An ID from a trusted proxy is kept; otherwise Tollgate creates one.
    /// The ID is logged, and sent to the upstream and to the client.
    #[setting(text = FIELD, default = "x-request-id", example = "x-correlation-id", see = ["trusted_proxies"])]
    #[serde(serialize_with = "serialize::displayed")]
    pub request_id: HeaderName,
    /// Which part of a request names its user. The sources are tried in order; the first that gives a user is used.
    #[setting(list(either(text = BASIC, mapping(UserSourceSettings)), Unique), unset = "no request has a user; with `api_keys`, it is the customer")]
    #[setting(example = "[{ header: x-user-id }, basic]", see = ["policies.*.key", "bans.*.key", "trusted_proxies"])]
    pub user: Vec<UserSource>,
    /// API keys of customers: where requests have them, and where they are kept.
    #[setting(mapping(ApiKeySettings), unset = "no request has an API key", example = "{ file: keys.yaml }")]
    #[setting(see = ["plans", "routes[].require"])]
    pub api_keys: Option<Box<ApiKeySettings>>,
    /// Parts of a request that have names: members of its JSON, fields of its form, or parts of its path. Policies count by
    /// `value:NAME`.
    #[setting(names(
        RESOURCE,
        either(mapping(RequestValueSettings), list(mapping(ValueSourceSettings), Some)),
        Any
    ))]
    #[setting(unset = "none", example = "{ model: { json: model } }")]
    #[setting(see = ["policies.*.key", "routes[].allow_values", "body_memory"])]
    #[serde(serialize_with = "serialize::shared")]
    pub values: Vec<Arc<RequestValue>>,
    /// Names for limits of policies. Keys of a plan have its limits instead of the policies' own: a rate, several, or
    /// `unlimited`. With `allow_values`, they may send no other values,
    /// on routes whose policies read these.
    #[setting(names(RESOURCE, names(RESOURCE, either(word("unlimited"), text = QUOTA, list(text = QUOTA, SomeUnique), names(RESOURCE, list(text = ANY, SomeUnique), Some)), Any), Any))]
    #[setting(unset = "no plans", example = "{ pro: { per-ip: 600/1m } }", see = ["api_keys"])]
    pub plans: Vec<Plan>,
    /// Where limits are counted: in the memory of this process, or in Redis, for several instances together.
    #[setting(either(word("memory"), mapping(StoreSettings)), default = "memory")]
    #[setting(example = "{ redis: { url: \"redis://127.0.0.1:6379\" } }", see = ["policies.*.on_store_error"])]
    #[setting(restart)]
    pub store: StoreSettings,
    /// The limits, each under a name that upstreams and routes refer to.
    #[setting(names(RESOURCE, mapping(PolicySettings), Any), unset = "no limits")]
    #[setting(example = "{ per-ip: { algorithm: sliding_log, key: ip, limit: 100/1s } }")]
    #[setting(see = ["upstreams.*.policies", "routes[].policies"])]
    #[serde(serialize_with = "serialize::shared")]
    pub policies: Vec<Arc<Policy>>,
    /// Rules that ban clients whose requests are denied again and again, each under a name.
    #[setting(mapping(BansSettings), unset = "nobody is banned automatically")]
    #[setting(example = "{ hammering: { key: ip, after: 20/1m, for: 5m } }")]
    #[serde(serialize_with = "serialize::shared")]
    pub bans: Vec<Arc<BanRule>>,
    /// Whether a ban closes the tunnels and the streamed responses of its client, too.
    #[setting(skip)]
    #[serde(rename = "bans.close_tunnels")]
    pub close_banned_tunnels: bool,
    /// What is recorded about limited clients, and for how long.
    #[setting(mapping, unset = "24 hours, with user IDs in plain text", example = "{ retain: 7d }")]
    pub abuse: Abuse,
    /// What was used, by whom, and who was refused: kept in SQLite or PostgreSQL, to be asked later.
    #[setting(mapping, unset = "nothing is kept longer than its limit")]
    #[setting(example = "{ store: { file: /var/lib/tollgate/history.db } }", restart)]
    pub history: Option<History>,
    /// Webhooks that are told that somebody has used a share of a policy's limit. They need `history`.
    #[setting(list(mapping(Alert), Any), unset = "nobody is told")]
    #[setting(example = "[{ when: usage, policy: monthly, at: [80%, 100%], to: \"${HOOK_URL}\" }]")]
    #[setting(see = ["history", "policies"])]
    #[serde(serialize_with = "serialize::shared")]
    pub alerts: Vec<Arc<Alert>>,
    /// The services that requests are forwarded to, each under a name that routes refer to.
    #[setting(
        names(RESOURCE, mapping(UpstreamSettings), Some),
        unset = "none; valid if no route has an `upstream`"
    )]
    #[setting(example = "{ api: { endpoints: [\"http://127.0.0.1:3000\"] } }", see = ["routes[].upstream"])]
    pub upstreams: Vec<Upstream>,
    /// The DNS servers that resolve the names of endpoints.
    #[setting(mapping, unset = "the servers of the system, with a timeout of 5s")]
    #[setting(example = "{ servers: [10.0.0.2] }")]
    #[setting(flags(of_the_instance))]
    pub resolver: Resolver,
    /// What happens to which requests. Routes are tried in order, and the first that matches is used. A request that
    /// matches none gets 404.
    #[setting(list(mapping(RouteSettings), Some), example = "[{ path: /api/*, upstream: api }]")]
    #[setting(before = RouteDefaults)]
    #[serde(skip)]
    pub routes: Vec<Route>,
    /// How large requests may be, how slowly clients may send them, and how many connections clients may have.
    #[setting(mapping, unset = "the defaults of its settings", example = "{ header_timeout: 5s }")]
    pub client_limits: ClientLimits,
    /// The memory of the process for request bodies that are read before a decision. A client gets at most half of it. A body for
    /// which there is none waits for a moment; then its request gets 503.
    #[setting(size = "1MiB..=16TiB", default = "128MiB", example = "512MiB", see = ["policies.*.cost.max_request"])]
    #[serde(serialize_with = "serialize::size")]
    pub body_memory: usize,
    /// The headers that Tollgate adds to responses.
    #[setting(mapping, unset = "`RateLimit`, `RateLimit-Policy`, and `Via` with the name tollgate")]
    #[setting(example = "{ ratelimit: both }")]
    pub reply_headers: ReplyHeaders,
    /// The headers that tell upstreams the client's address, scheme and host: `X-Forwarded-For`, `-Proto` and `-Host`,
    /// or `Forwarded` (RFC 7239). Tollgate appends to values from trusted proxies, and replaces all others.
    #[setting(default = "x-forwarded", example = "both")]
    #[setting(see = ["trusted_proxies"])]
    pub forwarded: Forwarded,
    /// The header that tells upstreams the client's verified certificate: `X-Forwarded-Client-Cert` as Envoy writes it,
    /// with or without the certificate itself, or `Client-Cert` (RFC 9440).
    #[setting(default = "off")]
    #[setting(example = "client-cert", see = ["listeners[].tls.client_ca"])]
    pub forward_client_certificate: ForwardClientCertificate,
    /// The log of requests: only its format, or a mapping with all its settings.
    #[setting(
        either(word("json", "combined", "off"), mapping(AccessLog)),
        default = "json",
        example = "combined"
    )]
    #[setting(flags(of_the_instance))]
    pub access_log: AccessLog,
    /// Tollgate's own messages, on stderr.
    #[setting(mapping, unset = "text, from the level `info`", example = "{ level: debug }")]
    #[setting(restart, flags(of_the_instance))]
    pub log: Log,
    /// Traces, sent to an OpenTelemetry collector.
    #[setting(mapping, unset = "no traces", example = "{ otlp: \"http://127.0.0.1:4318\" }")]
    #[setting(restart, flags(of_the_instance))]
    pub tracing: Option<Tracing>,
    /// How Tollgate shuts down.
    #[setting(mapping, unset = "running requests have 30s to finish", example = "{ drain: 60s }")]
    #[setting(flags(of_the_instance))]
    pub shutdown: Shutdown,
    #[setting(skip)]
    #[serde(skip)]
    pub source: ConfigSource,
}

/// Keys of the top level that Tollgate does not read.
#[derive(Settings)]
#[settings(unread)]
struct ForAnchors {
    /// Tollgate ignores keys that begin with `x-`. Use them for YAML anchors.
    #[setting(key = "x-*", any, unset = "nothing", example = "[1, 2]")]
    #[expect(dead_code, reason = "it is only described")]
    x: (),
}

impl Config {
    /// Takes from `old` the values of the settings that take effect only when Tollgate starts: all but the addresses of
    /// listeners.
    pub fn keep_until_restart(&mut self, old: &Self) {
        Settings::keep_until_restart(self, old);
    }

    /// The names of the plans.
    pub fn plan_names(&self) -> Vec<String> {
        self.plans.iter().map(|plan| plan.name.clone()).collect()
    }

    /// The limit on a request's body on `route` of the listener with this index, in bytes. The route's own limit
    /// precedes the listener's, and both precede `client_limits`. `None`: no limit.
    pub fn max_body(&self, route: &Route, listener: usize) -> Option<u64> {
        let of_listener = || self.listeners.get(listener)?.max_body;
        let bytes = route.max_body.or_else(of_listener).unwrap_or(self.client_limits.max_body);
        (bytes > 0).then_some(bytes as u64)
    }

    /// For each policy the most units that a request takes, over all routes that it applies to. `None`: it applies to none.
    pub fn max_costs(&self) -> Vec<Option<u64>> {
        let mut most = vec![None; self.policies.len()];
        for of in self.routes.iter().flat_map(Route::variants).flat_map(|route| &route.policies) {
            if let (Some(most), Some(policy)) = (most.get_mut(of.policy), self.policies.get(of.policy)) {
                *most = (*most).max(Some(of.price.unwrap_or(policy.cost.max())));
            }
        }
        most
    }

    /// All secrets, each with the path of its setting, for a reload to report which have changed.
    pub fn secrets(&self) -> impl Iterator<Item = (&'static str, &Secret)> {
        let redis = self.store.redis.iter().flat_map(|redis| {
            let (path, urls) = redis.urls();
            let sentinel = match &redis.topology {
                RedisTopology::Sentinel(sentinel) => sentinel.password.as_ref(),
                _ => None,
            };
            let passwords = [
                ("store.redis.sentinel.password", sentinel),
                ("store.redis.password", redis.password.as_ref()),
            ];
            let passwords = passwords.into_iter().filter_map(|(path, secret)| Some((path, secret?)));
            urls.iter().map(move |url| (path, url)).chain(passwords)
        });
        let others = [
            ("admin.token", self.admin.token.as_ref()),
            ("abuse.secret", self.abuse.secret.as_ref()),
            ("history.store.postgres", self.history.as_ref().and_then(|of| of.store.postgres.as_ref())),
        ];
        let alerts = self.alerts.iter().flat_map(|alert| {
            let secrets = alert.secret.iter().map(|secret| ("alerts[].secret", secret));
            secrets.chain([("alerts[].to", &alert.to)])
        });
        redis.chain(others.into_iter().filter_map(|(path, secret)| Some((path, secret?)))).chain(alerts)
    }
}

/// The origin of a configuration, and its text. All sources are equal, so that configurations are compared by their
/// settings alone.
#[derive(Clone, Default)]
pub struct ConfigSource {
    /// The path as it was given.
    pub path: String,
    /// The text with its secrets masked.
    pub redacted_text: String,
    /// The settings that came from the environment or from files, and so must not be shown: their paths in
    /// [`Config::values`]. Items of lists are named.
    pub inserted: BTreeSet<String>,
}

impl PartialEq for ConfigSource {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for ConfigSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
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

impl Value for Workers {
    const KIND: Kind = Kind::Either(&[Kind::Word(&["auto"]), Kind::Count(1, 1024)]);

    fn parse(text: &str) -> Result<Self, Invalid> {
        match text {
            "auto" => Ok(Self::Auto),
            _ => count(1..=1024)(text)
                .map(Self::Count)
                .map_err(|invalid| invalid.expected("auto, or 1 to 1024")),
        }
    }
}

/// What happens on SIGTERM and SIGINT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Settings)]
#[settings(page = "reload.md")]
pub struct Shutdown {
    /// How long requests in progress may take to finish. After that, Tollgate closes the remaining connections.
    #[setting(duration = "0..=366d", default = "30s", example = "60s")]
    pub drain: Duration,
}
