//! How often a request may be forwarded (`Max-Forwards`): of TRACE and OPTIONS alone (RFC 9110, 7.6.2).

use http::{HeaderMap, HeaderValue, Method, StatusCode, header::MAX_FORWARDS, request};

use super::reply::Reply;
use crate::identity::single_value;

/// Whether the field counts for this method.
pub(super) fn applies(method: &Method) -> bool {
    matches!(*method, Method::OPTIONS | Method::TRACE)
}

/// The reply to a request that may not be forwarded any more. A TRACE is refused in place of being sent back, since it
/// may have come with credentials that a front has added.
pub(super) fn reply_if_spent(request: &request::Parts) -> Option<Reply> {
    if !applies(&request.method) || left(&request.headers) != Some(0) {
        return None;
    }
    Some(match request.method {
        Method::OPTIONS => Reply::no_content(),
        _ => Reply::problem(StatusCode::METHOD_NOT_ALLOWED, "TRACE is not supported here."),
    })
}

/// Counts that a request to whose method the field [`applies`] is forwarded once more.
#[cold]
pub(super) fn count_down(headers: &mut HeaderMap) {
    if let Some(left) = left(headers) {
        headers.insert(MAX_FORWARDS, HeaderValue::from(left.saturating_sub(1)));
    }
}

/// How often it may be forwarded. `None`: the request does not say, or says something else than a number.
fn left(headers: &HeaderMap) -> Option<u64> {
    let value = std::str::from_utf8(single_value(headers, &MAX_FORWARDS)?).ok()?;
    let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| value.parse().unwrap_or(u64::MAX))
}
