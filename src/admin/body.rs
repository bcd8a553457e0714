//! What a request brings in its body: read, or refused as a problem.

use axum::{
    Json,
    extract::{FromRequest, Request, rejection::JsonRejection},
};
use http::StatusCode;
use serde::de::DeserializeOwned;

use super::problem::Problem;

/// The body as `T`, which should deny unknown fields.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let body: Result<Json<T>, JsonRejection> = Json::from_request(request, state).await;
        body.map(|Json(body)| Self(body)).map_err(|rejection| match rejection.status() {
            StatusCode::UNSUPPORTED_MEDIA_TYPE => {
                Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "this takes application/json only")
            }
            StatusCode::PAYLOAD_TOO_LARGE => {
                Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "the body is too long")
            }
            _ => Problem::bad_request(rejection.body_text()),
        })
    }
}
