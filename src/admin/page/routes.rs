//! The routes of the pages.

use std::sync::Arc;

use axum::{
    Router, middleware,
    routing::{get, post},
};

use super::{
    super::context::HandlerContext, address, assets, audit, bans, blocked, explain, layout, login, overview,
    policies, upstreams, user,
};

pub(in crate::admin) fn routes() -> Router<Arc<HandlerContext>> {
    Router::new()
        .route("/", get(overview::overview))
        .route("/blocked", get(blocked::blocked))
        .route("/blocked/{ip}", get(address::address))
        .route("/users/{user}", get(user::user))
        .route("/bans", get(bans::bans))
        .route("/upstreams", get(upstreams::upstreams))
        .route("/policies", get(policies::policies))
        .route("/explain", get(explain::explain))
        .route("/audit", get(audit::audit))
        .route("/login", get(login::page).post(login::log_in))
        .route("/logout", post(login::log_out))
        .route("/assets/{name}", get(assets::serve))
        .layer(middleware::map_response(|response| async { layout::with_security_headers(response) }))
}
