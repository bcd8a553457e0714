//! Errors as `application/problem+json` (RFC 9457).

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header::CONTENT_TYPE};

use super::dto::{ConfigurationError, ProblemDetails};
use crate::{limit::Unavailable, upstream::EndpointId};

/// An error response: `detail` for people, status and type for programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    status: StatusCode,
    kind: ProblemKind,
    detail: String,
    /// The field of the body that is wrong.
    field: Option<&'static str>,
    /// Errors of a configuration.
    errors: Vec<ConfigurationError>,
    /// Clients that a ban would shut out.
    shuts_out: Vec<String>,
}

/// The type of a problem, by which programs distinguish problems.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProblemKind {
    /// No more specific than the status (RFC 9457, 4.2.1).
    Status,
    /// A ban would shut out more than a client, and was not forced.
    FarReachingBan,
    /// A drain would leave an upstream without an endpoint, and was not forced.
    LastEndpoint,
}

impl ProblemKind {
    /// The type, a URI.
    fn uri(self) -> &'static str {
        match self {
            Self::Status => "about:blank",
            Self::FarReachingBan => "urn:tollgate:problem:far-reaching-ban",
            Self::LastEndpoint => "urn:tollgate:problem:last-endpoint",
        }
    }

    fn title(self, status: StatusCode) -> &'static str {
        match self {
            Self::Status => status.canonical_reason().unwrap_or_default(),
            Self::FarReachingBan => "Far-reaching ban",
            Self::LastEndpoint => "Last endpoint",
        }
    }
}

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            kind: ProblemKind::Status,
            detail: detail.into(),
            field: None,
            errors: Vec::new(),
            shuts_out: Vec::new(),
        }
    }

    pub(super) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// A field of the body can't have its value.
    pub(super) fn wrong_field(field: &'static str, reason: &str) -> Self {
        Self { field: Some(field), ..Self::bad_request(format!("{field}: {reason}")) }
    }

    /// The request is valid, but the resource is not as it would have to be.
    pub(super) fn refused(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
    }

    /// The resource has not the version that `If-Match` names.
    pub(super) fn outdated(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::PRECONDITION_FAILED, detail)
    }

    /// It may be possible later.
    pub(super) fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }

    pub(super) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    /// The ban of `key` needs `force`: it would shut out `shuts_out`.
    pub(super) fn far_reaching_ban(key: &str, shuts_out: Vec<String>) -> Self {
        let detail = format!(
            "a ban of {key} would shut out {}; if that is meant, force it (tollgate ban --force; \"force\": true)",
            shuts_out.join(", ")
        );
        Self { kind: ProblemKind::FarReachingBan, shuts_out, ..Self::new(StatusCode::CONFLICT, detail) }
    }

    /// The drain of `endpoint` needs `force`: no other endpoint of its upstream takes requests.
    pub(super) fn last_endpoint(endpoint: &EndpointId) -> Self {
        let EndpointId { upstream, url } = endpoint;
        let detail = format!(
            "no endpoint of upstream {upstream} but {url} takes requests: with it drained, each request to the upstream gets \
             503; if that is meant, force it (tollgate drain --force; \"force\": true)"
        );
        Self { kind: ProblemKind::LastEndpoint, ..Self::new(StatusCode::CONFLICT, detail) }
    }

    /// Redis failed in the middle of a change. `done`: the parts that were done, and the limits that may be left.
    pub(super) fn partly_done(unavailable: &Unavailable, done: &str) -> Self {
        let detail = format!("{unavailable}: {done}; try again once Redis is back");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }

    /// A configuration has errors, so the running one is kept.
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
            kind: self.kind.uri().to_owned(),
            title: self.kind.title(self.status).to_owned(),
            status: self.status.as_u16(),
            detail: self.detail,
            field: self.field.map(str::to_owned),
            errors: self.errors,
            shuts_out: self.shuts_out,
        });
        let mut response = (self.status, body).into_response();
        let content_type = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(CONTENT_TYPE, content_type);
        response
    }
}
