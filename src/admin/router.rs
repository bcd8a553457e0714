//! Routes of the admin port.

use std::sync::Arc;

use axum::{
    Router, middleware,
    response::{IntoResponse, Response},
    routing::get,
};
use bytes::Bytes;
use http::{
    HeaderMap, Method, StatusCode, Uri,
    header::{ACCEPT, CONTENT_TYPE},
};
use utoipa::OpenApi;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    alerts, audit, auth, bans, blocked, configuration, context::HandlerContext, customers, drains, events,
    evidence, explain, health, history, incidents, keys, limits, openapi::ApiDoc, page, peaks,
    problem::Problem, reload, status, unblock, upstreams, users,
};

pub(super) fn router(context: Arc<HandlerContext>) -> Router {
    let (router, described) = OpenApiRouter::with_openapi(ApiDoc::openapi())
        .routes(routes!(health::alive))
        .routes(routes!(health::ready))
        .routes(routes!(health::metrics))
        .routes(routes!(status::status))
        .routes(routes!(blocked::list))
        .routes(routes!(evidence::evidence, unblock::unblock))
        .routes(routes!(reload::reload))
        .routes(routes!(users::user))
        .routes(routes!(explain::explain))
        .routes(routes!(limits::peek, limits::clear))
        .routes(routes!(configuration::routes))
        .routes(routes!(upstreams::upstreams))
        .routes(routes!(configuration::policies))
        .routes(routes!(peaks::peaks))
        .routes(routes!(configuration::config))
        .routes(routes!(events::events))
        .routes(routes!(bans::list, bans::create, bans::lift))
        .routes(routes!(drains::list, drains::create, drains::remove))
        .routes(routes!(keys::list, keys::create))
        .routes(routes!(keys::import))
        .routes(routes!(keys::show, keys::change, keys::delete))
        .routes(routes!(keys::rotate))
        .routes(routes!(keys::revoke))
        .routes(routes!(audit::list))
        .routes(routes!(customers::list))
        .routes(routes!(customers::set_plan))
        .routes(routes!(history::usage))
        .routes(routes!(history::close))
        .routes(routes!(history::denials))
        .routes(routes!(history::why))
        .routes(routes!(alerts::list))
        .routes(routes!(alerts::test))
        .routes(routes!(incidents::list))
        .routes(routes!(incidents::show))
        .routes(routes!(incidents::members))
        .routes(routes!(incidents::ban))
        .routes(routes!(incidents::unblock))
        .routes(routes!(incidents::acknowledge))
        .routes(routes!(incidents::mute))
        .split_for_parts();
    // Serialized once: the router is copied for each connection.
    let described = described.to_json().map(Bytes::from).map_err(|error| {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, format!("can't write the response: {error}"))
    });
    let description = async move || described.map(|json| ([(CONTENT_TYPE, "application/json")], json));
    router
        .route("/v1/openapi.json", get(description))
        .merge(page::routes())
        .method_not_allowed_fallback(wrong_method)
        .fallback(unknown_path)
        .layer(middleware::from_fn_with_state(Arc::clone(&context), auth::authorize))
        .with_state(context)
}

/// 404 as an HTML page for browsers, as a problem document for others.
async fn unknown_path(frame: page::PageFrame, uri: Uri, headers: HeaderMap) -> Response {
    let problem = Problem::not_found(format!("there is no resource at {}", uri.path().escape_debug()));
    let accepts = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    match accepts {
        Some(accept) if accept.contains("text/html") => frame.not_found(&problem),
        _ => problem.into_response(),
    }
}

/// 405; the router adds `Allow` (RFC 9110, 15.5.6).
async fn wrong_method(method: Method) -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, format!("{method} is not supported for this path"))
}
