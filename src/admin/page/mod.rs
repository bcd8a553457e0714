//! The page: what the admin port knows, for people. HTML that is made here and can be read without JavaScript, which adds
//! what changes something, and that it stays up to date.

mod address;
mod assets;
mod audit;
mod bans;
mod blocked;
mod chart;
mod components;
mod dialogs;
mod explain;
mod format;
mod headers;
mod layout;
mod login;
mod overview;
mod policies;
#[cfg(test)]
mod tests;
mod timeline;
mod user;

use std::sync::Arc;

use axum::{Router, middleware, response::Response, routing::get};
use http::{StatusCode, Uri, header::LOCATION};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::context::HandlerContext;

pub(super) use layout::PageFrame;

/// Where pages are, but for the first.
const PAGES: [&str; 6] = ["blocked", "users", "policies", "bans", "explain", "audit"];

pub(super) fn routes() -> Router<Arc<HandlerContext>> {
    Router::new()
        .route("/", get(overview::overview))
        .route("/blocked", get(blocked::blocked))
        .route("/blocked/{ip}", get(address::address))
        .route("/users/{user}", get(user::user))
        .route("/bans", get(bans::bans))
        .route("/policies", get(policies::policies))
        .route("/explain", get(explain::explain))
        .route("/audit", get(audit::audit))
        .route("/login", get(login::page).post(login::log_in))
        .route("/logout", axum::routing::post(login::log_out))
        .route("/assets/{name}", get(assets::serve))
        .layer(middleware::map_response(headers::secure))
}

/// Whether there is a page for people at `path`.
pub(super) fn is_page(path: &str) -> bool {
    let mut components = path.split('/').skip(1);
    components.next().is_some_and(|first| first.is_empty() && path == "/" || PAGES.contains(&first))
}

/// Whether `path` is for those, too, who have not shown the token yet.
pub(super) fn is_for_strangers(path: &str) -> bool {
    path == "/login" || path.starts_with("/assets/")
}

/// Where the token is asked for, and from where it goes back to `asked`.
pub(super) fn to_login(asked: &Uri) -> Response {
    let target = asked.path_and_query().map_or("/", |target| target.as_str());
    let location = match target {
        "/" => "/login".to_owned(),
        target => format!("/login?next={}", utf8_percent_encode(target, NON_ALPHANUMERIC)),
    };
    let mut response = Response::default();
    *response.status_mut() = StatusCode::SEE_OTHER;
    // What was encoded so is ASCII.
    if let Ok(location) = location.try_into() {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}
