//! The proxy's own replies: problem details (RFC 9457) that tell the client what to do, and nothing about the inside
//! of the proxy.

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use crate::{request_values::BodyRefusal, telemetry::metrics::CutOffReason};

/// A reply of the proxy's own.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: StatusCode,
    /// The fields, including `Content-Type`.
    pub headers: HeaderMap,
    pub body: Bytes,
    /// The problem in words. Problem details have it in their body.
    pub detail: Cow<'static, str>,
    /// After how many microseconds the client may come back, if that is known.
    pub retry_after: Option<i64>,
}

static PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

impl From<BodyRefusal> for Box<Reply> {
    fn from(BodyRefusal { status, detail }: BodyRefusal) -> Self {
        Self::new(Reply::problem(status, detail))
    }
}

impl Reply {
    /// A problem without a type of its own: the status names it, `detail` explains it.
    pub fn problem(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Self {
        let detail = detail.into();
        let body = serde_json::json!({
            "type": "about:blank",
            "title": status.canonical_reason().unwrap_or("Error"),
            "status": status.as_u16(),
            "detail": detail,
        });
        Self::json(status, detail, body.to_string().into())
    }

    /// A problem with a prepared body.
    pub fn json(status: StatusCode, detail: Cow<'static, str>, body: Bytes) -> Self {
        Self::json_reusing(HeaderMap::with_capacity(8), status, detail, body)
    }

    /// A problem with a prepared body. The map `headers` is emptied and reused, so that a flood of such replies
    /// allocates no maps.
    pub(super) fn json_reusing(
        mut headers: HeaderMap,
        status: StatusCode,
        detail: Cow<'static, str>,
        body: Bytes,
    ) -> Self {
        headers.clear();
        headers.insert(header::CONTENT_TYPE, PROBLEM_JSON.clone());
        Self { status, headers, body, detail, retry_after: None }
    }

    /// Success without a body.
    pub(super) fn no_content() -> Self {
        Self {
            status: StatusCode::NO_CONTENT,
            headers: HeaderMap::with_capacity(8),
            body: Bytes::new(),
            detail: "".into(),
            retry_after: None,
        }
    }

    /// The client broke its body off, or sent an invalid one.
    pub fn broken_body() -> Self {
        Self::problem(StatusCode::BAD_REQUEST, "The request body is incomplete or malformed.").closing()
    }

    /// The requested resource is at `location`.
    pub fn redirect(status: StatusCode, location: &str, detail: &'static str) -> Self {
        let mut reply = Self::problem(status, detail);
        // Paths and hosts have only characters that a field may have.
        if let Ok(location) = HeaderValue::try_from(location) {
            reply.headers.insert(header::LOCATION, location);
        }
        reply
    }

    /// `deny` or `allow` refuses the client's address.
    pub fn forbidden_address() -> Self {
        Self::problem(StatusCode::FORBIDDEN, "Requests from this address are not accepted.")
    }

    /// The body is longer than `max_body` allows.
    pub fn body_too_large() -> Self {
        Self::problem(StatusCode::PAYLOAD_TOO_LARGE, "The request body is too large.")
    }

    /// The client took too long to send its body.
    pub fn slow_body(reason: CutOffReason) -> Self {
        let reply = match reason {
            CutOffReason::IdleTimeout => {
                Self::problem(StatusCode::REQUEST_TIMEOUT, "The request body was not received in time.")
            }
            CutOffReason::MinRate => {
                Self::problem(StatusCode::REQUEST_TIMEOUT, "The request body was sent too slowly.")
            }
            CutOffReason::MaxConnectionsPerAddress | CutOffReason::Memory => Self::at_capacity(
                "The service behind this proxy is at capacity, and the request body was sent too slowly.",
            ),
        };
        reply.closing()
    }

    /// The upstream can't be reached, or broke off before its response.
    pub fn bad_gateway() -> Self {
        Self::problem(StatusCode::BAD_GATEWAY, "The service behind this proxy did not send a valid response.")
    }

    /// The upstream can't switch to the protocol that the request asks for.
    pub fn no_upgrade() -> Self {
        let detail = "The service behind this proxy does not support WebSockets or other upgrades.";
        Self::problem(StatusCode::BAD_GATEWAY, detail)
    }

    /// All endpoints of the upstream are drained.
    pub fn no_endpoint() -> Self {
        let detail = "The service behind this proxy takes no requests at the moment.";
        Self::problem(StatusCode::SERVICE_UNAVAILABLE, detail).after_a_second()
    }

    /// All connections to the upstream are in use, and its queue is full.
    pub fn overloaded() -> Self {
        Self::at_capacity("The service behind this proxy is at capacity.")
    }

    fn at_capacity(detail: &'static str) -> Self {
        Self::problem(StatusCode::SERVICE_UNAVAILABLE, detail).after_a_second()
    }

    /// The limits could not be checked.
    pub fn undecided() -> Self {
        Self::problem(StatusCode::SERVICE_UNAVAILABLE, "Rate limits can't be checked at the moment.")
            .after_a_second()
    }

    /// The body has to be read before the decision, and there is no memory for it.
    pub fn no_body_memory() -> Self {
        let detail = "The request's body has to be read, and there is no memory for it at the moment.";
        Self::problem(StatusCode::SERVICE_UNAVAILABLE, detail).after_a_second()
    }

    /// It can't be told yet whether a credential is valid.
    pub fn credentials_unknown() -> Self {
        let detail = "API keys and tokens can't be verified at the moment.";
        Self::problem(StatusCode::SERVICE_UNAVAILABLE, detail).after_a_second()
    }

    /// Too many requests of the client ended before their response.
    pub(super) fn too_many_ended_early() -> Self {
        let detail = "Too many of the client's requests were cancelled as soon as they were sent.";
        let mut reply = Self::problem(StatusCode::TOO_MANY_REQUESTS, detail);
        reply.headers.insert(header::RETRY_AFTER, HeaderValue::from_static("60"));
        reply
    }

    /// The client may come back after a second.
    fn after_a_second(mut self) -> Self {
        self.headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        self.retry_after = Some(1_000_000);
        self
    }

    /// The upstream did not respond in time.
    pub fn gateway_timeout() -> Self {
        Self::problem(StatusCode::GATEWAY_TIMEOUT, "The service behind this proxy did not respond in time.")
    }

    /// Closes the connection after this reply.
    pub fn closing(mut self) -> Self {
        self.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        self
    }
}
