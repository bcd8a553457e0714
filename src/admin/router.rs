//! Which path is answered by what.

use std::sync::Arc;

use axum::{Router, middleware, routing::get};
use http::{Method, StatusCode, Uri};

use super::{blocked, events, guard::guard, health, page, problem::Problem, state::Shared, status};

pub(super) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(health::metrics))
        .route("/v1/status", get(status::status))
        .route("/v1/blocked", get(blocked::list))
        .route("/v1/blocked/{ip}", get(blocked::evidence).delete(blocked::unblock))
        .route("/v1/events", get(events::events))
        .merge(page::routes())
        .method_not_allowed_fallback(wrong_method)
        .fallback(unknown_path)
        .layer(middleware::from_fn_with_state(Arc::clone(&shared), guard))
        .with_state(shared)
}

async fn unknown_path(uri: Uri) -> Problem {
    Problem::not_found(format!("there is nothing at {}", uri.path().escape_debug()))
}

/// The router adds Allow (RFC 9110, 15.5.6).
async fn wrong_method(method: Method) -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, format!("{method} is not for this path"))
}
