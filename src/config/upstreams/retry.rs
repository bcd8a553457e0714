//! When a request to an upstream is tried again.

use http::StatusCode;
use tollgate_derive::{Settings, Word};

use crate::config::{reader::Cursor, value::named_choice};

/// Retries. A request is sent again only if that is safe: it is idempotent, or the endpoint has processed nothing of
/// it. A route may set some of these; the others are as its upstream has them.
#[derive(Debug, Clone, PartialEq, Settings)]
#[settings(page = "upstreams.md", foreign = "upstreams.*.retry", such_as = such_as)]
pub struct Retry {
    /// How often a request is sent again. `0` turns retries off.
    #[setting(count = "0..=10", default = "1", example = "2")]
    pub max: usize,
    /// The failures after which a request is sent again. `connect`: no connection could be opened. `refused`: the
    /// connection ended before the response, or the endpoint says that it has not processed the request. `502`, `503`,
    /// `504`: the response has this status. `timeout`: there was no response within `timeouts.response`.
    #[setting(list(of(RetryReason), SomeUnique), read = reasons, default = "[connect, refused]")]
    #[setting(value = vec![RetryReason::Connect, RetryReason::Refused], example = "[connect, refused, 503]")]
    pub when: Vec<RetryReason>,
    /// The share of the requests to the upstream that may be retries, so that retries do not overload an upstream that
    /// fails.
    #[setting(share = "0..=100", default = "20%", example = "10%")]
    pub budget: f64,
}

fn such_as(word: &str) -> &'static str {
    match word {
        "off" | "false" | "no" | "none" | "never" => "retry: { max: 0 }",
        _ => "retry: { max: VALUE }",
    }
}

/// Why a try is followed by another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Word)]
pub enum RetryReason {
    /// There is no connection to the endpoint.
    Connect,
    /// The endpoint closed the connection before it responded, or says that it has not processed the request.
    Refused,
    #[word("502")]
    BadGateway,
    #[word("503")]
    ServiceUnavailable,
    #[word("504")]
    GatewayTimeout,
    /// The endpoint did not respond in time.
    Timeout,
}

impl RetryReason {
    /// The reason that a response of this status is.
    pub fn of_status(status: StatusCode) -> Option<Self> {
        match status {
            StatusCode::BAD_GATEWAY => Some(Self::BadGateway),
            StatusCode::SERVICE_UNAVAILABLE => Some(Self::ServiceUnavailable),
            StatusCode::GATEWAY_TIMEOUT => Some(Self::GatewayTimeout),
            _ => None,
        }
    }
}

/// Values of `when` in nginx, Envoy and HAProxy, each with the help.
const FOREIGN_REASONS: [(&str, &str); 19] = [
    ("error", "did you mean `connect, refused`?"),
    ("connect_failure", "did you mean `connect`?"),
    ("conn_failure", "did you mean `connect`?"),
    ("reset", "did you mean `refused`?"),
    ("reset_before_request", "did you mean `refused`?"),
    ("refused_stream", "did you mean `refused`?"),
    ("empty_response", "did you mean `refused`?"),
    ("response_timeout", "did you mean `timeout`?"),
    ("http_502", "did you mean `502`?"),
    ("http_503", "did you mean `503`?"),
    ("http_504", "did you mean `504`?"),
    ("5xx", "write `502, 503, 504`: these may come from one endpoint alone"),
    ("gateway_error", "did you mean `502, 503, 504`?"),
    ("all_retryable_errors", "did you mean `connect, refused, 502, 503, 504, timeout`?"),
    ("500", NOT_ELSEWHERE),
    ("501", NOT_ELSEWHERE),
    ("http_500", NOT_ELSEWHERE),
    ("invalid_header", NOT_ELSEWHERE),
    (
        "non_idempotent",
        "remove it: a request that may not be repeated is sent again only if nothing of it was processed",
    ),
];
const NOT_ELSEWHERE: &str =
    "remove it: the next endpoint would answer the same; one of connect, refused, 502, 503, 504, timeout";

fn reasons(list: Cursor<'_>) -> Option<Vec<RetryReason>> {
    if list.is_empty_list() {
        list.report("an empty list retries nothing", "write `max: 0` instead of it".to_owned());
    }
    let words = RetryReason::ALL.map(|reason| (reason.name(), reason));
    let reason = named_choice("reason to retry", &words, &FOREIGN_REASONS);
    Some(list.unique_items(|item| item.parse(&reason)))
}
