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
        &["proxy_pass", "backend", "service", "target", "to", "destination", "cluster", "forward_to"],
        "upstream: NAME",
    )
    .with(", the name of one of `upstreams`"),
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
    OtherName::new(&["timeout", "proxy_read_timeout"], "timeouts: { response: VALUE }"),
    OtherName::new(DOT_SEGMENTS, "paths: normalise").with(", pass or refuse"),
    OtherName::new(SLASHES, "paths: normalise").with(ABOUT_SLASHES),
    OtherName::new(MAX_BODY, "max_body: SIZE"),
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
    .with(" (the default) or `balance: round_robin`"),
    OtherName::new(&["timeout", "proxy_read_timeout"], "timeouts: { response: VALUE }"),
    OtherName::new(&["keepalive", "max_idle"], "idle_connections: VALUE"),
    OtherName::new(&["max_conns", "maxconn"], "max_connections: VALUE"),
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

pub(super) const ENDPOINT: &[OtherName] = &[OtherName::new(
    &["address", "host", "server", "target", "ip", "port", "uri"],
    "url: http://127.0.0.1:3000",
)];

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
