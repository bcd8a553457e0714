//! What nginx, Kong, Envoy, Traefik and people call our settings.

mod retries;
mod routes;
mod upstreams;

pub(super) use retries::{RETRY, TIMEOUTS};
pub(super) use routes::{CORS, HEADER_EDITS, REDIRECT, REWRITE, ROUTE, ROUTE_REPLY, SHARE};
pub(super) use upstreams::{BALANCE, ENDPOINT, HEALTH, OUTLIER, STICKY, UPSTREAM, UPSTREAM_TLS};

use crate::config::reader::OtherName;

/// What nginx, Envoy, Traefik and HAProxy call what they do with dot segments.
const DOT_SEGMENTS: &[&str] = &[
    "normalize_path",
    "normalise_path",
    "sanitizepath",
    "sanitize_path",
    "normalize_uri",
    "path_normalization",
    "dot_segments",
];
/// What they call what they do with other spellings of a slash.
const SLASHES: &[&str] = &[
    "merge_slashes",
    "path_with_escaped_slashes_action",
    "escaped_slashes",
    "encodedcharacters",
    "allowencodedslash",
    "allow_encoded_slashes",
];
const ABOUT_SLASHES: &str = " for dot segments; slashes need no setting: // and %2F go on as they came, if every reading leads to one route";

pub(super) const TOP: &[OtherName] = &[
    OtherName::new(
        &["listen", "port", "bind", "server", "servers", "http"],
        "listeners: [{ address: 0.0.0.0:8080 }]",
    ),
    OtherName::new(
        &["services", "backends", "clusters", "service", "backend"],
        "upstreams: { NAME: { endpoints: [URL] } }",
    ),
    OtherName::new(
        &["dns", "resolvers", "nameserver", "nameservers", "dns_resolver", "dns_servers", "dns_resolvers"],
        "resolver: { servers: [VALUE] }",
    ),
    OtherName::new(&["resolver_timeout"], "resolver: { timeout: VALUE }"),
    OtherName::new(&["locations", "rules"], "routes: [{ path: /*, upstream: NAME }]"),
    OtherName::new(
        &[
            "rate_limits",
            "rate_limit",
            "ratelimits",
            "ratelimit",
            "limits",
            "limit",
            "plugins",
            "middlewares",
            "limit_req_zone",
        ],
        "policies: { NAME: { algorithm: sliding_window, key: ip, limit: 100/1m } }",
    ),
    OtherName::new(&["redis"], "store: { redis: { url: redis://127.0.0.1:6379 } }"),
    OtherName::new(
        &["set_real_ip_from", "real_ip", "trusted_ips", "trust_proxy", "trusted"],
        "trusted_proxies: [VALUE]",
    ),
    OtherName::new(&["log_level", "level", "loglevel"], "log: { level: VALUE }"),
    OtherName::new(&["otlp", "opentelemetry", "telemetry"], "tracing: { otlp: http://127.0.0.1:4318 }"),
    OtherName::new(
        &["tls", "ssl", "certificates"],
        "listeners: [{ address: 0.0.0.0:8443, tls: { certificates: [{ cert: FILE, key: FILE }] } }]",
    ),
    OtherName::new(&["worker_processes", "threads"], "workers: VALUE"),
    OtherName::new(MAX_BODY, "client_limits: { max_body: SIZE }"),
    OtherName::new(&["max_body"], "client_limits: { max_body: SIZE }"),
    OtherName::new(
        &["worker_connections", "max_connections", "maxconn"],
        "client_limits: { connections: VALUE }",
    ),
    OtherName::new(DOT_SEGMENTS, "paths: normalise").with(", pass or refuse"),
    OtherName::new(SLASHES, "paths: normalise").with(ABOUT_SLASHES),
    OtherName::new(ALLOW, "allow: [VALUE]").with(", which denies all others"),
    OtherName::new(DENY, "deny: [VALUE]"),
    OtherName::new(&["cors"], "cors: { origins: [\"https://app.example.com\"] }")
        .with(", on each route that pages of other origins use"),
];

pub(super) const LISTENER: &[OtherName] = &[
    OtherName::new(&["port"], "address: 0.0.0.0:VALUE"),
    OtherName::new(&["listen", "bind", "host", "ip", "socket_address"], "address: VALUE"),
    OtherName::new(
        &["ssl", "https", "certificates", "certificate", "cert", "ssl_certificate"],
        "tls: { certificates: [{ cert: FILE, key: FILE }] }",
    ),
    OtherName::new(DOT_SEGMENTS, "paths: normalise").with(", pass or refuse, at the top level"),
    OtherName::new(SLASHES, "paths: normalise").with(ABOUT_SLASHES),
    OtherName::new(MAX_BODY, "max_body: SIZE"),
];

pub(super) const RESOLVER: &[OtherName] = &[
    OtherName::new(
        &["nameserver", "nameservers", "server", "address", "addresses", "resolvers", "upstreams"],
        "servers: [VALUE]",
    ),
    OtherName::new(
        &["resolver_timeout", "timeout_resolve", "query_timeout", "dial_timeout"],
        "timeout: VALUE",
    ),
    OtherName::new(
        &[
            "valid",
            "hold",
            "ttl",
            "max_ttl",
            "dns_valid_ttl",
            "dns_refresh_rate",
            "dns_min_refresh_rate",
            "respect_dns_ttl",
            "refresh",
            "cache",
            "cache_ttl",
        ],
        "servers: [10.0.0.2]",
    )
    .with(" alone: addresses hold for the TTL of their records, between 1s and 30s"),
    OtherName::new(
        &["ipv4", "ipv6", "dns_lookup_family", "versions", "resolve_prefer", "dns_order", "prefer"],
        "servers: [10.0.0.2]",
    )
    .with(" alone: all addresses of a name are used, of IPv4 and of IPv6"),
];

/// nginx, Apache, Envoy, Traefik, Caddy, and what people write.
const MAX_BODY: &[&str] = &[
    "client_max_body_size",
    "limitrequestbody",
    "max_request_bytes",
    "maxrequestbodybytes",
    "max_request_body_bytes",
    "request_body",
    "max_request_body_size",
    "max_request_size",
    "max_body_size",
    "max_body_bytes",
    "body_size",
    "body_limit",
    "max_size",
];

pub(super) const CLIENT_LIMITS: &[OtherName] = &[OtherName::new(MAX_BODY, "max_body: SIZE")];

pub(super) const ADMIN: &[OtherName] = &[
    OtherName::new(&["port"], "address: 127.0.0.1:VALUE"),
    OtherName::new(&["listen", "bind", "host"], "address: VALUE"),
    OtherName::new(
        &["password", "api_key", "secret", "auth", "auth_token"],
        "token: \"${TOLLGATE_ADMIN_TOKEN}\"",
    ),
];

/// Traefik, ingress-nginx, Kong, Envoy, and what people write.
const ALLOW: &[&str] = &[
    "ipallowlist",
    "ip_allow_list",
    "ip_allowlist",
    "ipwhitelist",
    "ip_white_list",
    "ip_whitelist",
    "whitelist",
    "allowlist",
    "whitelist_source_range",
    "allowlist_source_range",
    "sourcerange",
    "source_range",
    "allow_ips",
    "allowed_ips",
    "allow_from",
    "allow_cidrs",
    "ip_restriction",
    "remote_ip",
    "client_ip",
    "source_ip",
    "rbac",
];
const DENY: &[&str] = &[
    "denylist",
    "ip_deny_list",
    "ipdenylist",
    "ip_denylist",
    "ipblacklist",
    "ip_blacklist",
    "blacklist",
    "blocklist",
    "denylist_source_range",
    "deny_ips",
    "deny_cidrs",
    "denied_ips",
    "blocked_ips",
    "block",
    "block_ips",
];

pub(super) const POLICY: &[OtherName] = &[
    OtherName::new(&["type", "strategy", "kind", "limiter"], "algorithm: sliding_window")
        .with(", or another algorithm"),
    OtherName::new(
        &[
            "by",
            "per",
            "limit_by",
            "keys",
            "identifier",
            "group_by",
            "source",
            "zone",
            "descriptor",
            "source_criterion",
        ],
        "key: KEY",
    ),
    OtherName::new(
        &["whitelist", "allowlist", "allow", "skip", "bypass", "exclude", "except", "exemptions"],
        "exempt: [VALUE]",
    ),
    OtherName::new(
        &["dry_run", "dryrun", "shadow", "shadow_mode", "log_only", "report_only"],
        "mode: shadow",
    ),
    OtherName::new(&["enabled", "disabled", "active"], "mode: shadow")
        .with(", which counts and denies nothing, or remove the policy from its routes"),
    OtherName::new(&["fail_open", "fault_tolerant"], "on_store_error: allow"),
    OtherName::new(&["failure_mode_deny", "fail_closed"], "on_store_error: deny"),
    OtherName::new(
        &["status", "status_code", "error_code", "rejected_code", "limit_req_status"],
        "reply: { status: VALUE }",
    ),
    OtherName::new(&["message", "body", "error_message", "response"], "reply: { body: VALUE }"),
    OtherName::new(&["weight", "hits_addend"], "cost: VALUE"),
    OtherName::new(&["capacity", "burst_size", "burst_limit", "max_burst"], "burst: VALUE"),
    OtherName::new(&["nodelay"], "algorithm: gcra").with(", which does not delay unless `delay` is set"),
];

/// The foreign names of the settings of a mapping.
pub(in crate::config) fn foreign_names(section: &str) -> &'static [OtherName] {
    match section {
        "upstreams.*" => UPSTREAM,
        "upstreams.*.health" => HEALTH,
        "upstreams.*.outlier" => OUTLIER,
        "upstreams.*.tls" => UPSTREAM_TLS,
        "upstreams.*.endpoints[]" => ENDPOINT,
        "upstreams.*.balance" => BALANCE,
        "upstreams.*.sticky" => STICKY,
        "routes[]" => ROUTE,
        "routes[].cors" => CORS,
        "routes[].redirect" => REDIRECT,
        "routes[].reply" => ROUTE_REPLY,
        "routes[].rewrite" => REWRITE,
        "routes[].request_headers" => HEADER_EDITS,
        "routes[].upstreams[]" => SHARE,
        "top" => TOP,
        "listeners[]" => LISTENER,
        "resolver" => RESOLVER,
        "client_limits" => CLIENT_LIMITS,
        "admin" => ADMIN,
        "policies.*" => POLICY,
        "upstreams.*.retry" => RETRY,
        "upstreams.*.timeouts" => TIMEOUTS,
        _ => &[],
    }
}
