//! What others call the settings of an upstream and of its endpoints.

use super::retries::{
    ALSO_STATUSES, HOLDS_PER_TRY, PER_TRY, RETRIES, RETRY_BUDGET, RETRY_ON, TIMEOUT, TOTAL, TRIES,
    WITHOUT_FIRST,
};
use crate::config::reader::OtherName;

pub(in crate::config::section) const UPSTREAM: &[OtherName] = &[
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
        &[
            "hash",
            "hash_by",
            "hash_on",
            "hash_fallback",
            "hash_key",
            "hash_policy",
            "consistent_hash",
            "upstream_hash_by",
        ],
        "balance: { hash: KEY }",
    ),
    OtherName::new(&["hash_on_header"], "balance: { hash: \"header:VALUE\" }"),
    OtherName::new(&["hash_on_cookie"], "balance: { hash: \"cookie:VALUE\" }"),
    OtherName::new(
        &[
            "cookie",
            "sticky_cookie",
            "sticky_session",
            "sticky_sessions",
            "stickiness",
            "session_affinity",
            "session_persistence",
            "session_cookie",
            "sticky_cookie_name",
            "stick_table",
            "stick_on",
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
    OtherName::new(
        &[
            "dns_lookup_family",
            "dns_refresh_rate",
            "respect_dns_ttl",
            "dns_resolvers",
            "dns_resolution_config",
            "resolver",
            "resolvers",
            "resolve",
            "dynamic",
        ],
        "endpoints: [http://api.internal:3000]",
    )
    .with(": a name is resolved again as its TTL says, by `resolver` at the top level"),
    OtherName::new(
        &[
            "host_rewrite",
            "auto_host_rewrite",
            "preserve_host",
            "passhostheader",
            "pass_host_header",
            "host_header",
        ],
        "host: preserve",
    )
    .with(" (the default) or `host: rewrite`"),
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
    "health_port",
    "health_headers",
    "health_method",
    "health_body",
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
    "unhealthy_status",
    "unhealthy_latency",
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

pub(in crate::config::section) const HEALTH: &[OtherName] = &[
    OtherName::new(&["uri", "http_path", "httppath", "target"], "path: VALUE"),
    OtherName::new(
        &["url", "endpoint", "http", "http_get", "httpget", "http_health_check"],
        "path: /healthz",
    ),
    OtherName::new(
        &[
            "every",
            "inter",
            "fastinter",
            "period",
            "frequency",
            "check_interval",
            "unhealthy_interval",
            "unhealthyinterval",
            "no_traffic_interval",
        ],
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
    OtherName::new(&["body", "expect_body", "response_body", "receive"], "statuses: [2xx]")
        .with(": only the status counts, not the body"),
    OtherName::new(&["port", "method", "send"], "path: /healthz")
        .with(": a probe is a GET request to the endpoint's own port"),
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

pub(in crate::config::section) const OUTLIER: &[OtherName] = &[
    OtherName::new(OUTLIER_FAILURES, "failures: VALUE"),
    OtherName::new(&["fails", "count", "errors", "max_errors"], "failures: VALUE"),
    OtherName::new(EJECTION_TIME, "eject: 30s"),
    OtherName::new(&["for", "duration", "timeout", "time"], "eject: VALUE"),
    OtherName::new(EJECTED_SHARE, "at_most: VALUE%"),
    OtherName::new(&["share", "max", "max_percent", "percent"], "at_most: 50%"),
];

pub(in crate::config::section) const UPSTREAM_TLS: &[OtherName] = &[
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

pub(in crate::config::section) const ENDPOINT: &[OtherName] = &[
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

pub(in crate::config::section) const BALANCE: &[OtherName] = &[
    OtherName::new(&["hash_on_header", "header"], "hash: \"header:VALUE\""),
    OtherName::new(&["hash_on_cookie", "cookie"], "hash: \"cookie:VALUE\""),
    OtherName::new(
        &[
            "key",
            "by",
            "hash_by",
            "hash_on",
            "hash_key",
            "source_ip",
            "consistent_hash",
            "ring_hash",
            "maglev",
            "ip_hash",
        ],
        "hash: KEY",
    ),
];

pub(in crate::config::section) const STICKY: &[OtherName] = &[
    OtherName::new(&["name", "cookie_name"], "cookie: VALUE"),
    OtherName::new(&["maxage", "expires", "ttl", "max_life", "maxlife", "lifetime"], "max_age: 1h"),
    OtherName::new(&["domain", "path", "insert", "indirect", "nocache"], "cookie: NAME")
        .with(" alone: the cookie is for the host of the request, with all its paths"),
    OtherName::new(&["secure", "httponly", "http_only", "samesite", "same_site"], "cookie: NAME")
        .with(" alone: the cookie is always HttpOnly and SameSite=Lax, and Secure over HTTPS"),
];
