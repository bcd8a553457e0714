//! What nginx, Kong, Envoy, Traefik and people call our settings.

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
    OtherName::new(&["resolver_timeout", "timeout_resolve", "query_timeout"], "timeout: VALUE"),
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

pub(super) const ROUTE: &[OtherName] = &[
    OtherName::new(&["location", "prefix", "path_prefix", "url", "uri", "pattern"], "path: PATH"),
    OtherName::new(&["host", "hostname", "server_name", "domain", "domains"], "hosts: [VALUE]"),
    OtherName::new(&["method"], "methods: [VALUE]"),
    OtherName::new(&["header"], "headers: { NAME: VALUE }"),
    OtherName::new(
        &["path_regex", "path_regexp", "regex", "safe_regex", "safe_regex_match", "regexp"],
        "path: '~REGEX'",
    ),
    OtherName::new(&["rule", "rules", "match_rule"], "path: PATH"),
    OtherName::new(
        &["query_parameters", "query_params", "queryparams", "params", "parameters", "query_string", "args"],
        "query: { NAME: \"1\" }",
    ),
    OtherName::new(&["cookies"], "cookie: { NAME: VALUE }"),
    OtherName::new(
        &["proxy_pass", "backend", "service", "target", "to", "destination", "cluster", "forward_to"],
        "upstream: NAME",
    )
    .with(", the name of one of `upstreams`"),
    OtherName::new(
        &[
            "weighted_clusters",
            "weighted",
            "weights",
            "services",
            "backendrefs",
            "backends",
            "clusters",
            "split_clients",
            "split",
            "traffic_split",
            "canary",
        ],
        "upstreams: [{ name: NAME, weight: 95 }, { name: NAME, weight: 5 }]",
    ),
    OtherName::new(
        &["runtime_fraction", "weight", "runtime_key_prefix"],
        "upstreams: [{ name: NAME, weight: 95 }, { name: NAME, weight: 5 }]",
    ),
    OtherName::new(
        &[
            "policy",
            "limit",
            "limits",
            "rate_limit",
            "ratelimit",
            "limit_req",
            "plugins",
            "middlewares",
            "filters",
        ],
        "policies: [NAME]",
    )
    .with(", and the limit under this name in `policies` at the top level"),
    OtherName::new(&["http2", "h2c", "http_version", "proxy_http_version", "grpc", "proto"], "protocol: h2"),
    OtherName::new(TIMEOUT, "timeouts: { response: VALUE }"),
    OtherName::new(PER_TRY, "timeouts: { response: VALUE }").with(HOLDS_PER_TRY),
    OtherName::new(TOTAL, "timeouts: { total: VALUE }"),
    OtherName::new(RETRIES, "retry: { max: VALUE }"),
    OtherName::new(TRIES, "retry: { max: 1 }").with(WITHOUT_FIRST),
    OtherName::new(RETRY_ON, "retry: { when: [connect, refused] }").with(ALSO_STATUSES),
    OtherName::new(RETRY_BUDGET, "retry: { budget: 20% }"),
    OtherName::new(DOT_SEGMENTS, "paths: normalise").with(", pass or refuse"),
    OtherName::new(SLASHES, "paths: normalise").with(ABOUT_SLASHES),
    OtherName::new(MAX_BODY, "max_body: SIZE"),
    OtherName::new(REDIRECTS, "redirect: { to: URL }")
        .with(", or `redirect: { path: /new }` on the same host"),
    OtherName::new(
        &[
            "redirect_scheme",
            "redirectscheme",
            "redirect_https",
            "https_redirect",
            "force_ssl",
            "ssl_redirect",
            "force_ssl_redirect",
        ],
        "redirect: { scheme: https }",
    ),
    OtherName::new(REPLIES, "reply: { status: 200, body: TEXT }"),
    OtherName::new(ALLOW, "allow: [VALUE]").with(", which denies all others"),
    OtherName::new(DENY, "deny: [VALUE]"),
    OtherName::new(CORS_OF_ROUTE, "cors: { origins: [\"https://app.example.com\"] }"),
    OtherName::new(
        &[
            "accesscontrolalloworiginlist",
            "access_control_allow_origin_list",
            "access_control_allow_origin",
            "allow_origin",
            "allow_origins",
            "allowed_origins",
        ],
        "cors: { origins: [VALUE] }",
    ),
    OtherName::new(
        &[
            "strip_prefix",
            "stripprefix",
            "strip_path_prefix",
            "stripprefixregex",
            "uri_strip_prefix",
            "handle_path",
        ],
        "rewrite: { strip_prefix: VALUE }",
    ),
    OtherName::new(&["strip_path", "trim_prefix"], "rewrite: { strip_prefix: /api }"),
    OtherName::new(
        &[
            "prefix_rewrite",
            "regex_rewrite",
            "path_rewrite",
            "rewrite_path",
            "rewrites",
            "uri_rewrite",
            "urlrewrite",
            "replacepath",
            "replacepathregex",
            "replace_path",
            "addprefix",
            "add_prefix",
            "rewrite_rule",
            "set_path",
        ],
        "rewrite: { path: \"/new/{rest}\" }",
    )
    .with(", where {rest} is what the * of `path: /old/*` matches"),
    OtherName::new(REQUEST_HEADERS, "request_headers: { set: { FIELD } }"),
    OtherName::new(RESPONSE_HEADERS, "response_headers: { set: { FIELD } }"),
    OtherName::new(
        &["request_headers_to_remove", "remove_request_headers", "requestheadersremove"],
        "request_headers: { remove: [NAME] }",
    ),
    OtherName::new(
        &["proxy_hide_header", "hide_header", "response_headers_to_remove", "remove_response_headers"],
        "response_headers: { remove: [VALUE] }",
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
    "remote_ip",
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
    "denied_ips",
    "blocked_ips",
    "block",
    "block_ips",
];
const CORS_OF_ROUTE: &[&str] = &["cors_policy", "corspolicy", "enable_cors", "cross_origin", "crossorigin"];

/// Traefik, Envoy, Kong, Spring, Express, ingress-nginx, and the headers themselves.
pub(super) const CORS: &[OtherName] = &[
    OtherName::new(
        &[
            "origin",
            "allow_origin",
            "allow_origins",
            "alloworigins",
            "allowed_origins",
            "allowedorigins",
            "allow_origin_string_match",
            "accesscontrolalloworiginlist",
            "access_control_allow_origin",
        ],
        "origins: [VALUE]",
    ),
    OtherName::new(
        &[
            "method",
            "allow_methods",
            "allowmethods",
            "allowed_methods",
            "allowedmethods",
            "accesscontrolallowmethods",
            "access_control_allow_methods",
        ],
        "methods: [VALUE]",
    ),
    OtherName::new(
        &[
            "header",
            "allow_headers",
            "allowheaders",
            "allowed_headers",
            "allowedheaders",
            "accesscontrolallowheaders",
            "access_control_allow_headers",
        ],
        "headers: [VALUE]",
    ),
    OtherName::new(
        &[
            "allow_credentials",
            "allowcredentials",
            "accesscontrolallowcredentials",
            "access_control_allow_credentials",
        ],
        "credentials: VALUE",
    ),
    OtherName::new(
        &["maxage", "accesscontrolmaxage", "access_control_max_age", "preflight_max_age"],
        "max_age: 10m",
    ),
    OtherName::new(
        &[
            "expose_headers",
            "exposeheaders",
            "exposed_headers",
            "exposedheaders",
            "accesscontrolexposeheaders",
            "access_control_expose_headers",
        ],
        "expose: [VALUE]",
    ),
];

/// nginx, Caddy, Envoy, HAProxy, AWS, Kong, and what people write.
const REPLIES: &[&str] = &[
    "return",
    "respond",
    "direct_response",
    "directresponse",
    "http_request_return",
    "fixed_response",
    "static_response",
    "request_termination",
    "response",
    "static",
    "mock",
];

/// Caddy, Traefik, HAProxy, ingress-nginx, AWS, and what people write.
const REDIRECTS: &[&str] = &[
    "redir",
    "redirects",
    "redirect_regex",
    "redirectregex",
    "redirect_to",
    "redirect_url",
    "request_redirect",
    "requestredirect",
    "http_request_redirect",
    "permanent_redirect",
    "temporal_redirect",
    "fixed_redirect",
    "location_redirect",
];

/// What Caddy, Envoy, Traefik, HAProxy, the Gateway API and nginx call the settings of a redirect.
pub(super) const REDIRECT: &[OtherName] = &[
    OtherName::new(&["url", "uri", "location", "target", "destination", "replacement"], "to: VALUE"),
    OtherName::new(
        &["path_redirect", "prefix_rewrite", "replace_path", "replacepath", "replacefullpath", "prefix"],
        "path: VALUE",
    ),
    OtherName::new(&["hostname", "host_redirect", "domain"], "host: VALUE"),
    OtherName::new(&["port_redirect"], "port: VALUE"),
    OtherName::new(&["https_redirect", "scheme_redirect", "protocol", "https"], "scheme: https"),
    OtherName::new(&["code", "status_code", "statuscode", "response_code"], "status: VALUE"),
    OtherName::new(&["permanent"], "status: 308").with(" (the default), or `status: 307` for now"),
    OtherName::new(&["strip_query", "drop_query"], "query: drop"),
    OtherName::new(&["regex", "from"], "to: \"https://new.example.com/{rest}\"")
        .with(": what the `*` of the route's path matches is {rest}, and what \"/{id}\" matches {id}"),
];

/// What nginx, Caddy, Envoy, Traefik, HAProxy and Kong call a reply of the proxy's own.
pub(super) const ROUTE_REPLY: &[OtherName] = &[
    OtherName::new(&["code", "status_code", "statuscode", "response_code"], "status: VALUE"),
    OtherName::new(&["text", "message", "content", "string", "inline_string", "lf_string"], "body: VALUE"),
    OtherName::new(&["type", "default_type", "mime", "mime_type", "contenttype"], "content_type: VALUE"),
    OtherName::new(&["header", "hdr", "add_header"], "headers: { NAME: VALUE }"),
];

/// What nginx, Caddy, Envoy, Traefik, Kong and HAProxy call changes of a request's header.
const REQUEST_HEADERS: &[&str] = &[
    "proxy_set_header",
    "grpc_set_header",
    "header_up",
    "request_header",
    "requestheader",
    "request_headers_to_add",
    "request_header_modifier",
    "requestheadermodifier",
    "customrequestheaders",
    "custom_request_headers",
    "set_request_headers",
    "add_request_headers",
    "request_transformer",
];
/// And of a response's.
const RESPONSE_HEADERS: &[&str] = &[
    "add_header",
    "more_set_headers",
    "header_down",
    "response_header",
    "response_headers_to_add",
    "response_header_modifier",
    "responseheadermodifier",
    "customresponseheaders",
    "custom_response_headers",
    "set_response_headers",
    "add_response_headers",
    "response_transformer",
];

pub(super) const REWRITE: &[OtherName] = &[
    OtherName::new(
        &[
            "prefix",
            "strip",
            "strip_path",
            "stripprefix",
            "strip_path_prefix",
            "remove_prefix",
            "uri_strip_prefix",
        ],
        "strip_prefix: VALUE",
    ),
    OtherName::new(
        &[
            "to",
            "uri",
            "url",
            "replacement",
            "replace",
            "target",
            "substitution",
            "prefix_rewrite",
            "replace_path",
        ],
        "path: VALUE",
    ),
];

pub(super) const HEADER_EDITS: &[OtherName] = &[
    OtherName::new(&["replace", "override", "overwrite", "update"], "set: { NAME: VALUE }"),
    OtherName::new(&["append", "insert"], "add: { NAME: VALUE }"),
    OtherName::new(&["delete", "del", "unset", "hide", "drop", "strip"], "remove: [VALUE]"),
];

pub(super) const SHARE: &[OtherName] = &[
    OtherName::new(
        &["upstream", "service", "cluster", "backend", "backendrefs", "target", "host"],
        "name: VALUE",
    ),
    OtherName::new(&["percent", "percentage", "share", "ratio", "traffic"], "weight: VALUE"),
];

/// The time for an answer: nginx, and what people write.
const TIMEOUT: &[&str] = &["timeout", "proxy_read_timeout", "response_timeout", "read_timeout"];
/// The time for one try: Envoy, Istio, Kubernetes' Gateway API.
const PER_TRY: &[&str] = &["per_try_timeout", "pertrytimeout", "per_try_idle_timeout", "backendrequest"];
const HOLDS_PER_TRY: &str = ": it holds for each try";
/// The time for all tries: nginx, Caddy.
const TOTAL: &[&str] = &[
    "proxy_next_upstream_timeout",
    "lb_try_duration",
    "try_duration",
    "total_timeout",
    "overall_timeout",
    "request_timeout",
    "requesttimeout",
];
/// Tries after the first: Envoy, HAProxy, Kong, Caddy.
const RETRIES: &[&str] = &[
    "retries",
    "num_retries",
    "numretries",
    "max_retries",
    "maxretries",
    "retry_count",
    "lb_retries",
    "retry_policy",
    "retrypolicy",
];
/// Tries with the first: nginx, Traefik.
const TRIES: &[&str] =
    &["proxy_next_upstream_tries", "attempts", "max_attempts", "maxattempts", "tries", "max_tries"];
const WITHOUT_FIRST: &str = ", the number of tries after the first";
/// When to try again: nginx, Envoy, HAProxy, Caddy.
const RETRY_ON: &[&str] =
    &["proxy_next_upstream", "retry_on", "retryon", "lb_retry_match", "retry_match", "redispatch"];
const ALSO_STATUSES: &str = "; 502, 503, 504 and timeout are further reasons";
const RETRY_BUDGET: &[&str] = &["retry_budget", "retrybudget", "budget_percent", "retry_ratio", "retryratio"];

pub(super) const RETRY: &[OtherName] = &[
    OtherName::new(RETRIES, "max: VALUE"),
    OtherName::new(&["count", "number", "times", "limit"], "max: VALUE"),
    OtherName::new(TRIES, "max: 1").with(WITHOUT_FIRST),
    OtherName::new(RETRY_ON, "when: [connect, refused]").with(ALSO_STATUSES),
    OtherName::new(
        &[
            "on",
            "if",
            "reasons",
            "conditions",
            "status",
            "statuses",
            "status_codes",
            "codes",
            "retriable_status_codes",
        ],
        "when: [connect, refused]",
    )
    .with(ALSO_STATUSES),
    OtherName::new(RETRY_BUDGET, "budget: 20%"),
    OtherName::new(&["percent", "ratio", "percentage"], "budget: 20%"),
    OtherName::new(PER_TRY, "timeouts: { response: VALUE }").with(BESIDE_RETRY),
    OtherName::new(TIMEOUT, "timeouts: { response: VALUE }").with(BESIDE_RETRY),
    OtherName::new(TOTAL, "timeouts: { total: VALUE }").with(BESIDE_RETRY),
    OtherName::new(
        &[
            "backoff",
            "back_off",
            "retry_back_off",
            "initialinterval",
            "initial_interval",
            "interval",
            "delay",
        ],
        "max: 1",
    )
    .with(" alone: another endpoint is tried at once"),
];
const BESIDE_RETRY: &str = ", beside `retry`";

pub(super) const TIMEOUTS: &[OtherName] = &[
    OtherName::new(TIMEOUT, "response: VALUE"),
    OtherName::new(&["read", "proxy_read", "first_byte", "per_try"], "response: VALUE"),
    OtherName::new(PER_TRY, "response: VALUE").with(HOLDS_PER_TRY),
    OtherName::new(TOTAL, "total: VALUE"),
    OtherName::new(&["request", "overall", "deadline", "retry", "retries"], "total: VALUE"),
    OtherName::new(&["proxy_connect_timeout", "connect_timeout", "dial_timeout", "dial"], "connect: VALUE"),
];

pub(super) const UPSTREAM: &[OtherName] = &[
    OtherName::new(
        &[
            "server",
            "servers",
            "target",
            "targets",
            "url",
            "urls",
            "address",
            "addresses",
            "hosts",
            "nodes",
            "backends",
            "endpoint",
        ],
        "endpoints: [http://127.0.0.1:3000]",
    ),
    OtherName::new(
        &["lb_policy", "load_balancing", "algorithm", "strategy", "load_balancer"],
        "balance: least_request",
    )
    .with(" (the default), `balance: round_robin` or `balance: { hash: ip }`"),
    OtherName::new(
        &["least_conn", "leastconn", "least_connections", "random", "p2c"],
        "balance: least_request",
    ),
    OtherName::new(&["roundrobin", "round_robin"], "balance: round_robin"),
    OtherName::new(&["ip_hash", "source_hash", "client_ip_hash"], "balance: { hash: ip }"),
    OtherName::new(
        &["hash", "hash_by", "hash_on", "hash_key", "hash_policy", "consistent_hash", "upstream_hash_by"],
        "balance: { hash: KEY }",
    ),
    OtherName::new(
        &[
            "cookie",
            "sticky_cookie",
            "sticky_session",
            "sticky_sessions",
            "stickiness",
            "session_affinity",
            "session_persistence",
            "affinity",
            "persistence",
            "stateful_session",
        ],
        "sticky: { cookie: tg_endpoint }",
    ),
    OtherName::new(
        &["slowstart", "slow_start_window", "slow_start_config", "warmup", "warm_up"],
        "slow_start: 30s",
    ),
    OtherName::new(TIMEOUT, "timeouts: { response: VALUE }"),
    OtherName::new(PER_TRY, "timeouts: { response: VALUE }").with(HOLDS_PER_TRY),
    OtherName::new(TOTAL, "timeouts: { total: VALUE }"),
    OtherName::new(RETRIES, "retry: { max: VALUE }"),
    OtherName::new(TRIES, "retry: { max: 1 }").with(WITHOUT_FIRST),
    OtherName::new(RETRY_ON, "retry: { when: [connect, refused] }").with(ALSO_STATUSES),
    OtherName::new(RETRY_BUDGET, "retry: { budget: 20% }"),
    OtherName::new(&["keepalive", "max_idle"], "idle_connections: VALUE"),
    OtherName::new(&["max_conns", "maxconn"], "max_connections: VALUE"),
    OtherName::new(HEALTH_CHECK, "health: { path: /healthz }"),
    OtherName::new(HEALTH_PATH, "health: { path: VALUE }"),
    OtherName::new(&["health_interval"], "health: { path: /healthz, interval: VALUE }"),
    OtherName::new(&["health_timeout"], "health: { path: /healthz, timeout: VALUE }"),
    OtherName::new(&["health_status"], "health: { path: /healthz, statuses: [VALUE] }"),
    OtherName::new(&["health_passes", "rise"], "health: { path: /healthz, healthy: VALUE }"),
    OtherName::new(&["health_fails", "fall"], "health: { path: /healthz, unhealthy: VALUE }"),
    OtherName::new(OUTLIERS, "outlier: { failures: 5, eject: 30s, at_most: 50% }"),
    OtherName::new(OUTLIER_FAILURES, "outlier: { failures: VALUE }"),
    OtherName::new(EJECTION_TIME, "outlier: { eject: VALUE }"),
    OtherName::new(EJECTED_SHARE, "outlier: { at_most: VALUE% }"),
    OtherName::new(&["policy"], "policies: [VALUE]"),
    OtherName::new(
        &["proxy_ssl_trusted_certificate", "ca", "ca_file", "cafile", "rootcas", "root_cas"],
        "tls: { ca: VALUE }",
    ),
    OtherName::new(&["proxy_ssl_certificate", "cert", "certificate"], "tls: { cert: VALUE, key: FILE }"),
    OtherName::new(&["proxy_ssl_certificate_key", "key"], "tls: { cert: FILE, key: VALUE }"),
    OtherName::new(
        &["proxy_ssl_name", "server_name", "servername", "sni", "tls_server_name"],
        "tls: { server_name: VALUE }",
    ),
    OtherName::new(UNVERIFIED, "tls: { ca: FILE }").with(ALWAYS_VERIFIED),
    OtherName::new(
        &["https", "ssl", "serverstransport", "servers_transport", "transport", "transport_socket"],
        "tls: { ca: FILE }",
    )
    .with(", and https:// in `endpoints`"),
];

/// nginx, nginx Plus, Caddy, Traefik, Kong, Envoy, HAProxy and Kubernetes.
const HEALTH_CHECK: &[&str] = &[
    "health_check",
    "health_checks",
    "healthcheck",
    "healthchecks",
    "health_checker",
    "healthz",
    "check",
    "checks",
    "active",
    "active_health_check",
    "active_health_checks",
    "httpchk",
    "option_httpchk",
    "probe",
    "livenessprobe",
    "readinessprobe",
    "liveness_probe",
    "readiness_probe",
];
const HEALTH_PATH: &[&str] = &["health_uri", "health_path", "health_check_path", "healthcheck_path"];
const OUTLIERS: &[&str] = &[
    "outlier_detection",
    "outliers",
    "passive",
    "passive_health_check",
    "passive_health_checks",
    "circuit_breaker",
    "circuitbreaker",
    "circuit_breakers",
];
const OUTLIER_FAILURES: &[&str] = &[
    "max_fails",
    "maxfails",
    "unhealthy_request_count",
    "consecutive_5xx",
    "consecutive_5xx_errors",
    "consecutive5xxerrors",
    "consecutive_errors",
    "consecutive_gateway_failure",
    "consecutive_gateway_errors",
    "consecutivegatewayerrors",
    "consecutive_local_origin_failure",
    "error_limit",
    "error_threshold",
    "threshold",
    "http_failures",
    "tcp_failures",
    "max_failures",
];
const EJECTION_TIME: &[&str] = &[
    "fail_timeout",
    "failtimeout",
    "fail_duration",
    "base_ejection_time",
    "baseejectiontime",
    "ejection_time",
    "max_ejection_time",
    "recovery_duration",
    "slowtime",
];
const EJECTED_SHARE: &[&str] = &["max_ejection_percent", "maxejectionpercent", "max_ejected"];

pub(super) const HEALTH: &[OtherName] = &[
    OtherName::new(&["uri", "http_path", "httppath", "target"], "path: VALUE"),
    OtherName::new(
        &["url", "endpoint", "http", "http_get", "httpget", "http_health_check"],
        "path: /healthz",
    ),
    OtherName::new(
        &["every", "inter", "fastinter", "period", "frequency", "check_interval"],
        "interval: VALUE",
    ),
    OtherName::new(&["periodseconds", "period_seconds"], "interval: VALUEs"),
    OtherName::new(&["timeoutseconds", "timeout_seconds"], "timeout: VALUEs"),
    OtherName::new(
        &[
            "passes",
            "rise",
            "success",
            "successes",
            "healthy_threshold",
            "healthythreshold",
            "success_threshold",
            "successthreshold",
            "health_passes",
        ],
        "healthy: VALUE",
    ),
    OtherName::new(
        &[
            "fails",
            "fall",
            "failures",
            "max_fails",
            "unhealthy_threshold",
            "unhealthythreshold",
            "failure_threshold",
            "failurethreshold",
            "retries",
            "health_fails",
        ],
        "unhealthy: VALUE",
    ),
    OtherName::new(&["status", "expect_status", "expected_status", "health_status"], "statuses: [VALUE]"),
    OtherName::new(&["match", "expect", "expected_statuses", "http_statuses", "codes"], "statuses: [2xx]"),
    OtherName::new(&["hostname", "authority"], "host: VALUE"),
    OtherName::new(&["headers"], "host: NAME").with(", the only header that can be set"),
    OtherName::new(&["mode", "protocol", "kind"], "type: VALUE").with("; the types are http, grpc and tcp"),
    OtherName::new(
        &["grpc", "grpc_service", "grpcservice", "grpc_health_check", "service_name"],
        "type: grpc, service: NAME",
    ),
    OtherName::new(&["tcp", "tcpsocket", "tcp_health_check"], "type: tcp"),
    OtherName::new(&["active"], "path: /healthz").with(", beside the other settings of `health`"),
    OtherName::new(&["passive"], "outlier: { failures: 5, eject: 30s, at_most: 50% }")
        .with(", beside `health`"),
];

pub(super) const OUTLIER: &[OtherName] = &[
    OtherName::new(OUTLIER_FAILURES, "failures: VALUE"),
    OtherName::new(&["fails", "count", "errors", "max_errors"], "failures: VALUE"),
    OtherName::new(EJECTION_TIME, "eject: 30s"),
    OtherName::new(&["for", "duration", "timeout", "time"], "eject: VALUE"),
    OtherName::new(EJECTED_SHARE, "at_most: VALUE%"),
    OtherName::new(&["share", "max", "max_percent", "percent"], "at_most: 50%"),
];

pub(super) const UPSTREAM_TLS: &[OtherName] = &[
    OtherName::new(
        &[
            "proxy_ssl_trusted_certificate",
            "ca_file",
            "cafile",
            "ca_cert",
            "cacert",
            "ca_certificates",
            "rootcas",
            "root_cas",
            "root_ca",
            "client_ca",
            "tls_trusted_ca_certs",
            "trusted_ca",
            "trusted_ca_certs",
            "trust_pool",
            "tls_trust_pool",
            "trusted_certificate",
            "validation_context",
        ],
        "ca: VALUE",
    ),
    OtherName::new(
        &[
            "proxy_ssl_certificate",
            "certificate",
            "certificates",
            "certificate_chain",
            "cert_file",
            "certfile",
            "client_cert",
            "client_certificate",
            "client_auth",
            "tls_client_auth",
            "tls_certificates",
        ],
        "cert: VALUE",
    ),
    OtherName::new(
        &["proxy_ssl_certificate_key", "private_key", "key_file", "keyfile", "client_key"],
        "key: VALUE",
    ),
    OtherName::new(
        &[
            "proxy_ssl_name",
            "proxy_ssl_server_name",
            "servername",
            "sni",
            "name",
            "host",
            "hostname",
            "tls_server_name",
        ],
        "server_name: VALUE",
    ),
    OtherName::new(UNVERIFIED, "ca: FILE").with(ALWAYS_VERIFIED),
];

/// What turns the verification of certificates off elsewhere.
const UNVERIFIED: &[&str] = &[
    "proxy_ssl_verify",
    "ssl_verify",
    "tls_verify",
    "verify",
    "insecure",
    "insecureskipverify",
    "insecure_skip_verify",
    "tls_insecure_skip_verify",
    "skip_verify",
    "trust_chain_verification",
];
const ALWAYS_VERIFIED: &str = ", the authority that issued the certificate: certificates are always verified";

pub(super) const ENDPOINT: &[OtherName] = &[
    OtherName::new(
        &["address", "host", "server", "target", "ip", "port", "uri"],
        "url: http://127.0.0.1:3000",
    ),
    OtherName::new(HEALTH_CHECK, "health: { path: /healthz }").with(OF_THE_UPSTREAM),
    OtherName::new(OUTLIER_FAILURES, "outlier: { failures: VALUE }").with(OF_THE_UPSTREAM),
    OtherName::new(EJECTION_TIME, "outlier: { eject: VALUE }").with(OF_THE_UPSTREAM),
    OtherName::new(&["slow_start", "slowstart"], "slow_start: VALUE").with(OF_THE_UPSTREAM),
    OtherName::new(
        &["down", "disabled", "disable", "enabled", "drained", "draining", "maintenance", "maint"],
        "drain: true",
    ),
];
const OF_THE_UPSTREAM: &str = " on the upstream, beside `endpoints`";

pub(super) const BALANCE: &[OtherName] = &[OtherName::new(
    &["key", "by", "hash_by", "hash_on", "hash_key", "consistent_hash", "ring_hash", "maglev", "ip_hash"],
    "hash: KEY",
)];

pub(super) const STICKY: &[OtherName] = &[
    OtherName::new(&["name", "cookie_name"], "cookie: VALUE"),
    OtherName::new(&["maxage", "expires", "ttl", "max_life", "maxlife", "lifetime"], "max_age: 1h"),
    OtherName::new(&["secure", "httponly", "http_only", "samesite", "same_site"], "cookie: NAME")
        .with(" alone: the cookie is always HttpOnly and SameSite=Lax, and Secure over HTTPS"),
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
