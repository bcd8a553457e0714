//! `Max-Forwards`: how often a request may still be forwarded. It counts for TRACE and OPTIONS only (RFC 9110,
//! 7.6.2).

use http::{HeaderMap, HeaderValue, Method, StatusCode, header::MAX_FORWARDS, request};

use super::reply::Reply;
use crate::identity::single_value;

/// Whether the field counts for this method.
pub(super) fn applies(method: &Method) -> bool {
    matches!(*method, Method::OPTIONS | Method::TRACE)
}

/// The reply to a request that may not be forwarded any more. A TRACE is refused rather than sent back, since it may
/// contain credentials that a proxy in front has added.
pub(super) fn reply_if_spent(request: &request::Parts) -> Option<Reply> {
    if !applies(&request.method) || left(&request.headers) != Some(0) {
        return None;
    }
    Some(match request.method {
        Method::OPTIONS => Reply::no_content(),
        _ => Reply::problem(StatusCode::METHOD_NOT_ALLOWED, "TRACE is not supported here."),
    })
}

/// Decrements the count of a request to whose method the field [`applies`].
#[cold]
pub(super) fn count_down(headers: &mut HeaderMap) {
    if let Some(left) = left(headers) {
        headers.insert(MAX_FORWARDS, HeaderValue::from(left.saturating_sub(1)));
    }
}

/// How often the request may be forwarded. `None`: it does not say, or the value is not a number.
fn left(headers: &HeaderMap) -> Option<u64> {
    let value = std::str::from_utf8(single_value(headers, &MAX_FORWARDS)?).ok()?;
    let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| value.parse().unwrap_or(u64::MAX))
}
