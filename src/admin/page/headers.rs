//! What every page tells browsers of itself.

use axum::response::Response;
use http::{
    HeaderValue,
    header::{CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_FRAME_OPTIONS},
};

/// Nothing from elsewhere, nothing written into the page itself, and in nobody's frame: what clients call themselves
/// is shown here.
pub(super) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

pub(super) async fn secure(response: Response) -> Response {
    marked(response)
}

pub(super) fn marked(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    // Addresses of pages name clients.
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    response
}
