//! Trailers: fields after a body. An origin that merges them into the head must not find fields there that were
//! removed from it, or that limits did not see.

use std::sync::Arc;

use http::{HeaderMap, header};

use super::{
    claims::{ClaimFields, has_prefix, is_spelling, remove_where},
    field_survey::hop_by_hop,
    header_edits::replaces,
    headers::is_token,
};
use crate::{
    config::model::{HeaderEdits, Trailers},
    http2_frames::copy_values,
};

/// The trailers of a body that may pass.
#[derive(Debug, Clone)]
pub struct TrailerFilter {
    /// `None`: no trailer passes.
    claims: Option<Arc<ClaimFields>>,
    /// The changes that a setting makes to the head.
    edits: Option<Arc<HeaderEdits>>,
}

impl TrailerFilter {
    /// For a body of known length, which has no trailers.
    pub(super) const NONE: Self = Self { claims: None, edits: None };

    /// For the body after a head with these `headers`, where trailers that do not pass are no longer announced.
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

    /// Removes the trailers that do not pass: all, or the ones that are only allowed in a head (RFC 9110, 6.5.1),
    /// whoever sent them. hyper drops trailers that were not announced.
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
        // Most go from HTTP/2 to HTTP/2.
        copy_values(trailers);
    }
}

/// Fields about the client and its credentials, the target, and how the message is read or cached.
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
