//! The routes of the pages: which paths are pages, which are public, and the redirect to the login page.

use std::sync::Arc;

use axum::{
    Router, middleware,
    response::Response,
    routing::{get, post},
};
use http::{StatusCode, Uri, header::LOCATION};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::{
    super::context::HandlerContext, address, assets, audit, bans, blocked, explain, history, incidents, keys,
    layout, login, overview, peaks, policies, upstreams, user,
};

/// The first path segments of all pages but the overview.
const PAGES: [&str; 12] = [
    "incidents",
    "blocked",
    "users",
    "keys",
    "customers",
    "usage",
    "history",
    "upstreams",
    "policies",
    "bans",
    "explain",
    "audit",
];

pub(in crate::admin) fn routes() -> Router<Arc<HandlerContext>> {
    Router::new()
        .route("/", get(overview::overview))
        .route("/incidents", get(incidents::incidents))
        .route("/incidents/{id}", get(incidents::incident))
        .route("/blocked", get(blocked::blocked))
        .route("/blocked/{ip}", get(address::address))
        .route("/users/{user}", get(user::user))
        .route("/bans", get(bans::bans))
        .route("/keys", get(keys::keys))
        .route("/customers", get(history::customers))
        .route("/usage", get(history::usage))
        .route("/usage.csv", get(history::usage_csv))
        .route("/history", get(history::history))
        .route("/history.csv", get(history::denials_csv))
        .route("/upstreams", get(upstreams::upstreams))
        .route("/policies", get(policies::policies))
        .route("/policies/{name}", get(peaks::peaks))
        .route("/explain", get(explain::explain))
        .route("/audit", get(audit::audit))
        .route("/login", get(login::page).post(login::log_in))
        .route("/logout", post(login::log_out))
        .route("/assets/{name}", get(assets::serve))
        .layer(middleware::map_response(|response| async { layout::with_security_headers(response) }))
}

/// Whether `path` is that of an HTML page.
pub(in crate::admin) fn is_page(path: &str) -> bool {
    let mut segments = path.split('/').skip(1);
    segments.next().is_some_and(|first| first.is_empty() && path == "/" || PAGES.contains(&first))
}

/// Whether `path` is served without a token.
pub(in crate::admin) fn is_public(path: &str) -> bool {
    let is_asset = |path: &str| {
        path.strip_prefix("/assets/").is_some_and(|name| !name.is_empty() && !name.contains('/'))
    };
    path == "/login" || is_asset(path)
}

/// Redirects to the login page, which leads back to `requested`.
pub(in crate::admin) fn redirect_to_login(requested: &Uri) -> Response {
    let target = requested.path_and_query().map_or("/", |target| target.as_str());
    let location = match target {
        "/" => "/login".to_owned(),
        target => format!("/login?next={}", utf8_percent_encode(target, NON_ALPHANUMERIC)),
    };
    let mut response = Response::default();
    *response.status_mut() = StatusCode::SEE_OTHER;
    // Percent-encoded text is ASCII, so this does not fail.
    if let Ok(location) = location.try_into() {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}
