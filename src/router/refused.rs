//! Requests that are answered before any route is taken.

use http::StatusCode;

/// Why a request takes no route, in words for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{status}: {detail}")]
pub struct Refused {
    /// 400, 404, 414 or 501.
    pub status: StatusCode,
    pub detail: &'static str,
}

impl Refused {
    pub(super) const fn bad_request(detail: &'static str) -> Self {
        Self { status: StatusCode::BAD_REQUEST, detail }
    }

    pub(super) const fn not_found(detail: &'static str) -> Self {
        Self { status: StatusCode::NOT_FOUND, detail }
    }
}
