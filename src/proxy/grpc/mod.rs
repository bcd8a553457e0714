//! gRPC: tells a call in gRPC's own terms why it fails, and ends it when its client no longer waits.
//!
//! A gRPC client reads the outcome of a call in `grpc-status`, not in the HTTP status. The proxy's own reply has it
//! in its head, without a body (`Trailers-Only`). Clients of gRPC-Web, which have no trailers, read it there, too.

mod status;
mod timeout;

use std::{
    borrow::Cow,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header, request};
use http_body::Body;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

pub(super) use self::status::GrpcStatus;
use self::status::details;
use super::reply::Reply;
use crate::limit::{GrpcOutcome, ResponseStatus};

static GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
static GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
static GRPC_STATUS_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
/// How long the client has to wait before it repeats the call; negative: it must not
/// (<https://github.com/grpc/proposal/blob/master/A6-client-retries.md#pushback>).
static GRPC_RETRY_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// The fields of a response that a page's script may read (Fetch, 3.2.3).
static EXPOSED: HeaderValue =
    HeaderValue::from_static("grpc-status, grpc-message, grpc-status-details-bin, grpc-retry-pushback-ms");

/// ASCII characters that are encoded in `grpc-message`.
const ENCODED: &AsciiSet = &CONTROLS.add(b'%');

const DEADLINE_EXCEEDED: &str = "The deadline of the call has passed.";

/// A call.
#[derive(Debug)]
pub(super) struct GrpcCall {
    /// The request's, which is also the response's.
    content_type: HeaderValue,
    /// Whether a page's script has sent it.
    is_cross_origin: bool,
    /// When the client stops waiting, if it has sent `grpc-timeout`.
    deadline: Option<Instant>,
    /// `grpc-status` of the response, once it is known.
    status: Option<u32>,
}

impl GrpcCall {
    /// The call that a request, received at `now`, makes. Boxed: most requests make none.
    pub(super) fn new(request: &request::Parts, now: Instant) -> Option<Box<Self>> {
        if request.method != Method::POST {
            return None;
        }
        let content_type = content_type(&request.headers)?;
        let timeout = request.headers.get(&timeout::GRPC_TIMEOUT).and_then(timeout::parse);
        Some(Box::new(Self {
            content_type: content_type.clone(),
            is_cross_origin: request.headers.contains_key(header::ORIGIN),
            deadline: timeout.and_then(|timeout| now.checked_add(timeout)),
            status: None,
        }))
    }

    /// When the client stops waiting, if it has sent `grpc-timeout`.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// `grpc-status` of the response, once it is known.
    pub(super) fn status(&self) -> Option<u32> {
        self.status
    }

    /// Notes the status in these fields of the upstream's head, or in its trailers.
    pub(super) fn note_status(&mut self, fields: &HeaderMap) {
        self.status = status_of(fields).or(self.status);
    }

    /// `reply` in the form for gRPC clients. `denied_by`: the policy that denied the call.
    pub(super) fn convert(&mut self, mut reply: Reply, denied_by: Option<&str>, now: Instant) -> Reply {
        let http = reply.status;
        let is_late = self.deadline.is_some_and(|deadline| now >= deadline);
        let (status, message) = match (denied_by, GrpcStatus::from_http(http)) {
            (Some(policy), _) => {
                let message = format!("{}: {policy}", reply.detail.trim_end_matches('.'));
                (GrpcStatus::ResourceExhausted, message.into())
            }
            // Whichever step was too late, the deadline is the reason.
            (None, status)
                if is_late && (status == GrpcStatus::Unavailable || http == StatusCode::REQUEST_TIMEOUT) =>
            {
                reply.retry_after = None;
                (GrpcStatus::DeadlineExceeded, Cow::Borrowed(DEADLINE_EXCEEDED))
            }
            (None, status) => (status, std::mem::take(&mut reply.detail)),
        };
        self.status = Some(status as u32);
        reply.status = StatusCode::OK;
        reply.body = Bytes::new();
        let headers = &mut reply.headers;
        headers.insert(header::CONTENT_TYPE, self.content_type.clone());
        set_status(headers, status, &message);
        if let Some(micros) = reply.retry_after {
            let retry_after = Duration::from_micros(micros.max(1).unsigned_abs());
            // Rounded up: a client that came back earlier would be denied again.
            let millis = micros.max(1).unsigned_abs().div_ceil(1_000);
            headers.insert(&GRPC_RETRY_PUSHBACK, HeaderValue::from(millis));
            if let Ok(details) = HeaderValue::try_from(details(status, &message, retry_after)) {
                headers.insert(&GRPC_STATUS_DETAILS, details);
            }
        } else if denied_by.is_some() {
            // The policy never admits this call.
            headers.insert(&GRPC_RETRY_PUSHBACK, HeaderValue::from_static("-1"));
        }
        if self.is_cross_origin {
            headers.append(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED.clone());
        }
        reply
    }

    /// The trailers that end a response amid its body, because its client no longer waits. `None`: it still does, or
    /// does not read trailers.
    pub(super) fn late_trailers(&mut self, now: Instant) -> Option<HeaderMap> {
        let is_late = self.deadline.is_some_and(|deadline| now >= deadline);
        is_late.then(|| self.early_trailers(GrpcStatus::DeadlineExceeded, DEADLINE_EXCEEDED))?
    }

    /// The trailers that end a response amid its body, because its client was banned. `None`: it does not read
    /// trailers.
    pub(super) fn banned_trailers(&mut self) -> Option<HeaderMap> {
        self.early_trailers(GrpcStatus::PermissionDenied, "The client is banned.")
    }

    /// The trailers that end a response amid its body with this status. `None`: its client does not read trailers.
    fn early_trailers(&mut self, status: GrpcStatus, message: &str) -> Option<HeaderMap> {
        if is_web(self.content_type.as_bytes()) {
            return None;
        }
        self.status = Some(status as u32);
        let mut trailers = HeaderMap::with_capacity(2);
        set_status(&mut trailers, status, message);
        Some(trailers)
    }
}

/// `grpc-status` in the fields of a head, or in trailers.
pub(super) fn status_of(fields: &HeaderMap) -> Option<u32> {
    fields.get(&GRPC_STATUS)?.to_str().ok()?.parse().ok()
}

/// The status of a response, as far as its head has it. Only a gRPC response may have more: the upstream's content
/// type decides, not the request's.
pub(super) fn response_status<B: Body>(response: &Response<B>) -> ResponseStatus {
    let status = status_of(response.headers());
    let grpc = match status {
        None if !response.body().is_end_stream() && is_grpc(response.headers()) => GrpcOutcome::Pending,
        known => GrpcOutcome::Known(known),
    };
    ResponseStatus { http: response.status(), grpc }
}

/// The trailers of a call that has succeeded.
pub(super) fn success() -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(&GRPC_STATUS, HeaderValue::from_static("0"));
    trailers
}

/// Puts the outcome of a call into these fields.
pub(super) fn set_status(fields: &mut HeaderMap, status: GrpcStatus, message: &str) {
    fields.insert(&GRPC_STATUS, HeaderValue::from(status as u32));
    let message = utf8_percent_encode(message, ENCODED).to_string();
    if let Ok(message) = HeaderValue::try_from(message) {
        fields.insert(&GRPC_MESSAGE, message);
    }
}

const MEDIA_TYPE: &[u8] = b"application/grpc";

/// Whether a message with these `headers` is gRPC's or gRPC-Web's.
pub(super) fn is_grpc(headers: &HeaderMap) -> bool {
    content_type(headers).is_some()
}

/// `Content-Type` of gRPC or gRPC-Web in any form, such as `application/grpc-web-text+proto`.
fn content_type(headers: &HeaderMap) -> Option<&HeaderValue> {
    let content_type = headers.get(header::CONTENT_TYPE)?;
    let (media_type, rest) = content_type.as_bytes().split_at_checked(MEDIA_TYPE.len())?;
    let is_one = matches!(rest.first(), None | Some(b'+' | b';' | b' ')) || is_web(content_type.as_bytes());
    (media_type.eq_ignore_ascii_case(MEDIA_TYPE) && is_one).then_some(content_type)
}

fn is_web(content_type: &[u8]) -> bool {
    content_type
        .get(MEDIA_TYPE.len()..MEDIA_TYPE.len() + 4)
        .is_some_and(|form| form.eq_ignore_ascii_case(b"-web"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_told_by_their_content_type() {
        let is_one = |content_type: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
            is_grpc(&headers)
        };
        for of in
            ["", "+proto", "+json", ";charset=utf-8", "-web", "-web+proto", "-web-text", "-web-text+proto"]
        {
            assert!(is_one(&*format!("application/grpc{of}").leak()), "{of}");
        }
        assert!(is_one("Application/gRPC-Web"));
        for other in
            ["application/grpcio", "application/grp", "application/json", "text/grpc", "application/grpc/x"]
        {
            assert!(!is_one(other), "{other}");
        }
    }

    #[test]
    fn a_message_is_percent_encoded() {
        let mut fields = HeaderMap::new();
        set_status(&mut fields, GrpcStatus::Unknown, "100 %\n of übung~");
        assert_eq!(fields[&GRPC_MESSAGE], "100 %25%0A of %C3%BCbung~");
    }
}
