//! What a request brings along: JSON, read or refused as a problem.

use std::time::Duration;

use axum::{
    body::Bytes,
    extract::{FromRequest, Request},
};
use http::StatusCode;
use http_body_util::{BodyExt, Limited};
use serde::de::DeserializeOwned;
use tokio::time;

use super::problem::Problem;

/// Bytes of a body.
const LONGEST: usize = 64 << 10;
/// For all of it to come. Whoever is slower gives his place back.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The body as `T`, which should deny unknown fields.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let body = time::timeout(TIMEOUT, Limited::new(request.into_body(), LONGEST).collect()).await;
        let too_slow = |_| Problem::new(StatusCode::REQUEST_TIMEOUT, "the body came too slowly");
        let too_long = |_| Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "the body broke off, or is too long");
        let body: Bytes = body.map_err(too_slow)?.map_err(too_long)?.to_bytes();
        serde_json::from_slice(&body)
            .map(Self)
            .map_err(|error| Problem::bad_request(format!("the body can't be read: {error}")))
    }
}
