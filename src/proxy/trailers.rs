//! Trailers: fields behind a body. An origin that merges them into the head must not find there what was removed from it,
//! or what limits did not see.

use std::sync::Arc;

use http::{HeaderMap, header};

use super::{
    claims::{ClaimFields, has_prefix, is_spelling},
    header_edits::replaces,
    headers::{hop_by_hop, is_token, remove_where},
};
use crate::config::model::{HeaderEdits, Trailers};

/// Which trailers of a body pass.
#[derive(Debug, Clone)]
pub struct TrailerFilter {
    /// `None`: no trailer passes.
    claims: Option<Arc<ClaimFields>>,
    /// What a setting changes in the head.
    edits: Option<Arc<HeaderEdits>>,
}

impl TrailerFilter {
    /// For a body of known length, which has no trailers.
    pub(super) const NONE: Self = Self { claims: None, edits: None };

    /// For the body behind a head with these `headers`, which then announces no trailers that do not pass.
    pub(super) fn new(
        trailers: Trailers,
        claims: &Arc<ClaimFields>,
        edits: Option<&Arc<HeaderEdits>>,
        headers: &mut HeaderMap,
    ) -> Self {
        match trailers {
            Trailers::Pass => Self { claims: Some(Arc::clone(claims)), edits: edits.cloned() },
            Trailers::Drop => {
                headers.remove(header::TRAILER);
                Self::NONE
            }
        }
    }

    /// Removes what does not pass: all, or what only a head may say (RFC 9110, 6.5.1), no matter who sent it. hyper leaves
    /// out what was not announced.
    pub(super) fn apply(&self, trailers: &mut HeaderMap) {
        let Some(claims) = &self.claims else {
            trailers.clear();
            return;
        };
        remove_where(trailers, |field| {
            let name = field.as_str();
            hop_by_hop(field).is_some()
                || !is_token(field)
                || HEAD_ONLY.iter().any(|of| is_spelling(name, of))
                || HEAD_ONLY_PREFIXES.iter().any(|prefix| has_prefix(name, prefix))
                || claims.mentions(name)
                || self.edits.as_ref().is_some_and(|edits| replaces(edits, field))
        });
    }
}

/// Who asks, with which credentials, what for, and how the message is to be read or cached.
const HEAD_ONLY: [&str; 27] = [
    "age",
    "authorization",
    "cache-control",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "cookie",
    "date",
    "expect",
    "expires",
    "host",
    "location",
    "max-forwards",
    "origin",
    "pragma",
    "range",
    "ratelimit",
    "ratelimit-policy",
    "retry-after",
    "set-cookie",
    "strict-transport-security",
    "traceparent",
    "tracestate",
    "trailer",
    "via",
    "www-authenticate",
];

const HEAD_ONLY_PREFIXES: [&str; 4] = ["access-control-", "if-", "sec-", "x-ratelimit-"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        proxy::headers::testing::{headers, names},
        telemetry::testing::config,
    };

    #[test]
    fn trailers_say_nothing_that_a_setting_names() {
        let claims = Arc::new(ClaimFields::new(&config()));
        let mut map = headers(&[
            ("x-sum", "1"),
            ("content-digest", "sha-256=:AA==:"),
            ("server-timing", "db;dur=1"),
            ("x-request-id", "mine"),
            ("x_request_id", "mine"),
            ("authorization", "Bearer x"),
            ("cookie", "a=b"),
            ("x-forwarded-for", "1.1.1.1"),
            ("x-http-method-override", "PUT"),
            ("connection", "close"),
            ("if-match", "x"),
        ]);
        let mut head = headers(&[("trailer", "x-sum")]);
        TrailerFilter::new(Trailers::Pass, &claims, None, &mut head).apply(&mut map);
        assert_eq!(names(&map), ["content-digest", "server-timing", "x-sum"]);
        assert_eq!(names(&head), ["trailer"]);
        TrailerFilter::new(Trailers::Drop, &claims, None, &mut head).apply(&mut map);
        assert!(map.is_empty() && head.is_empty(), "{map:?} {head:?}");
    }
}
