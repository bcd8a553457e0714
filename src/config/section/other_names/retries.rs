//! What others call how often a request is tried, and how long a try may take: on routes and upstreams.

use crate::config::reader::OtherName;

/// The time for an answer: nginx, and what people write.
pub(super) const TIMEOUT: &[&str] = &["timeout", "proxy_read_timeout", "response_timeout", "read_timeout"];
/// The time for one try: Envoy, Istio, Kubernetes' Gateway API.
pub(super) const PER_TRY: &[&str] =
    &["per_try_timeout", "pertrytimeout", "per_try_idle_timeout", "backendrequest"];
pub(super) const HOLDS_PER_TRY: &str = ": it holds for each try";
/// The time for all tries: nginx, Caddy.
pub(super) const TOTAL: &[&str] = &[
    "proxy_next_upstream_timeout",
    "lb_try_duration",
    "try_duration",
    "total_timeout",
    "overall_timeout",
    "request_timeout",
    "requesttimeout",
];
/// Tries after the first: Envoy, HAProxy, Kong, Caddy.
pub(super) const RETRIES: &[&str] = &[
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
pub(super) const TRIES: &[&str] =
    &["proxy_next_upstream_tries", "attempts", "max_attempts", "maxattempts", "tries", "max_tries"];
pub(super) const WITHOUT_FIRST: &str = ", the number of tries after the first";
/// When to try again: nginx, Envoy, HAProxy, Caddy.
pub(super) const RETRY_ON: &[&str] = &[
    "proxy_next_upstream",
    "retry_on",
    "retryon",
    "lb_retry_match",
    "retry_match",
    "redispatch",
    "option_redispatch",
    "retriable_status_codes",
];
pub(super) const ALSO_STATUSES: &str = "; 502, 503, 504 and timeout are further reasons";
pub(super) const RETRY_BUDGET: &[&str] =
    &["retry_budget", "retrybudget", "budget_percent", "retry_ratio", "retryratio"];

pub(in crate::config::section) const RETRY: &[OtherName] = &[
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
            "lb_try_interval",
            "try_interval",
            "delay",
        ],
        "max: 1",
    )
    .with(" alone: another endpoint is tried at once"),
];
const BESIDE_RETRY: &str = ", beside `retry`";

pub(in crate::config::section) const TIMEOUTS: &[OtherName] = &[
    OtherName::new(TIMEOUT, "response: VALUE"),
    OtherName::new(&["read", "proxy_read", "first_byte", "per_try"], "response: VALUE"),
    OtherName::new(PER_TRY, "response: VALUE").with(HOLDS_PER_TRY),
    OtherName::new(TOTAL, "total: VALUE"),
    OtherName::new(&["request", "overall", "deadline", "retry", "retries"], "total: VALUE"),
    OtherName::new(&["proxy_connect_timeout", "connect_timeout", "dial_timeout", "dial"], "connect: VALUE"),
];
