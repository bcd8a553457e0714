//! `retry`, of an upstream or a route: when a request is tried again.

use crate::config::{
    model::{Retry, RetryReason},
    reader::Cursor,
    settings,
    value::{count, named_choice, percentage},
};

/// What `when` is called elsewhere (nginx, Envoy, HAProxy), and what to write here.
const OTHER_REASONS: [(&str, &str); 19] = [
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

/// When a request is tried again; what is left out is as in `default`.
pub(super) fn retry(value: Option<Cursor<'_>>, default: Retry) -> Retry {
    let Some(value) = value else { return default };
    if let Some("off" | "false" | "no" | "none" | "never") = value.scalar() {
        value.report("expected a mapping, not a single value", "write `retry: { max: 0 }`".to_owned());
        return default;
    }
    let Some(mapping) = value.mapping_such_as("retry: { max: VALUE }") else { return default };
    let mut mapping = mapping.of(&settings::RETRY).knowing("routes[].retry");
    let max = mapping.parse_or("max", default.max, count(0..=10));
    let when = mapping.take("when").map(|list| {
        if list.is_empty_list() {
            list.report("an empty list retries nothing", "write `max: 0` instead of it".to_owned());
        }
        let words = RetryReason::ALL.map(|(reason, word)| (word, reason));
        let reason = named_choice("reason to retry", &words, &OTHER_REASONS);
        list.unique_items(|item| item.parse(&reason))
    });
    let budget = mapping.parse_or("budget", default.budget, percentage);
    mapping.finish();
    Retry { max, when: when.unwrap_or(default.when), budget }
}
