//! Errors as `application/problem+json` (RFC 9457).

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header::CONTENT_TYPE};

use super::dto::{ConfigurationError, ProblemDetails};
use crate::limit::Unavailable;

/// What went wrong, for people; the status is for programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    status: StatusCode,
    detail: String,
    /// Of a configuration.
    errors: Vec<ConfigurationError>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), errors: Vec::new() }
    }

    pub(super) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    pub(super) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    /// A configuration can't be used: the one in force stays.
    pub(super) fn misconfigured(errors: Vec<ConfigurationError>) -> Self {
        let detail = "the configuration has errors, so the running one was not changed";
        Self { errors, ..Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail) }
    }
}

impl Problem {
    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    pub(super) fn detail(&self) -> &str {
        &self.detail
    }
}

impl From<Unavailable> for Problem {
    fn from(error: Unavailable) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = Json(ProblemDetails {
            // Nothing more than the status says (RFC 9457, 4.2.1).
            kind: "about:blank".to_owned(),
            title: self.status.canonical_reason().unwrap_or_default().to_owned(),
            status: self.status.as_u16(),
            detail: self.detail,
            errors: self.errors,
        });
        let mut response = (self.status, body).into_response();
        let content_type = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(CONTENT_TYPE, content_type);
        response
    }
}
