//! Requests that are rejected before a route is found.

use http::StatusCode;

/// Why a request has no route, with a message for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{status}: {detail}")]
pub struct Rejection {
    /// 400, 404, 414, 417 or 501.
    pub status: StatusCode,
    pub detail: &'static str,
}

impl Rejection {
    pub(crate) const fn bad_request(detail: &'static str) -> Self {
        Self { status: StatusCode::BAD_REQUEST, detail }
    }

    pub(super) const fn not_found(detail: &'static str) -> Self {
        Self { status: StatusCode::NOT_FOUND, detail }
    }
}
