//! `/login`: exchanges the token for a session cookie.

use std::sync::Arc;

use axum::{
    Extension,
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use http::{
    HeaderMap, StatusCode,
    header::{ORIGIN, SET_COOKIE},
};
use maud::html;
use serde::Deserialize;
use subtle::ConstantTimeEq;

use super::{
    super::{
        context::HandlerContext,
        extract::{JsonBody, RemoteAddress},
        problem::Problem,
        session,
        token_throttle::{TokenVerdict, throttled_response},
    },
    assets,
    layout::{Page, PageFrame},
};

pub(super) async fn page(
    State(context): State<Arc<HandlerContext>>,
    frame: PageFrame,
    headers: HeaderMap,
) -> Response {
    let now = context.state.clock.now();
    match &context.state.token {
        Some(token) if !session::is_valid(token, &headers, now) => {
            frame.without_navigation(&form()).into_response()
        }
        // No token is configured, or the session is valid already.
        _ => Redirect::to("/").into_response(),
    }
}

fn form() -> Page {
    let body = html! {
        div.card.login {
            img src=(assets::url("icon.svg")) alt="" width="40" height="40";
            h1 { "Sign in to Tollgate" }
            p { "Enter the admin token: " code { "admin.token" } " in proxy.yaml." }
            noscript { p.error { "Signing in needs JavaScript. All other pages can be read without it." } }
            form #login action="/login" {
                // Password managers store the token under this user name.
                input type="text" name="username" value="tollgate" autocomplete="username" hidden;
                label { span { "Token" }
                    input type="password" name="token" required autocomplete="current-password" autofocus aria-describedby="wrong";
                }
                p.error #wrong role="alert" hidden {}
                button.primary.js type="submit" { "Sign in" }
            }
        }
    };
    Page { title: "Sign in".to_owned(), body }
}

/// The body of `POST /login`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Login {
    token: String,
}

/// `POST /login`
pub(super) async fn log_in(
    State(context): State<Arc<HandlerContext>>,
    Extension(RemoteAddress(peer)): Extension<RemoteAddress>,
    headers: HeaderMap,
    JsonBody(Login { token: submitted }): JsonBody<Login>,
) -> Result<Response, Problem> {
    let Some(token) = &context.state.token else {
        return Err(Problem::not_found("no token is configured, so there is no sign-in"));
    };
    let is_right = submitted.as_bytes().ct_eq(token.reveal().as_bytes()).into();
    match context.login_throttle.check(peer, is_right).await {
        TokenVerdict::Right => {}
        TokenVerdict::Throttled => return Ok(throttled_response()),
        TokenVerdict::Wrong { is_first } => {
            if is_first {
                tracing::warn!(%peer, "a sign-in from {peer} to the admin port used a wrong token");
            }
            return Err(Problem::new(StatusCode::FORBIDDEN, "wrong token"));
        }
    }
    let cookie = session::issue(token, context.state.clock.now(), is_tls(&headers));
    Ok((StatusCode::NO_CONTENT, [(SET_COOKIE, cookie)]).into_response())
}

/// `POST /logout`
pub(super) async fn log_out(headers: HeaderMap) -> Response {
    (StatusCode::NO_CONTENT, [(SET_COOKIE, session::expire(is_tls(&headers)))]).into_response()
}

/// Whether the browser uses https. The port itself has no TLS, but a proxy in front of it may: `Origin` has the scheme.
fn is_tls(headers: &HeaderMap) -> bool {
    headers.get(ORIGIN).is_some_and(|origin| origin.as_bytes().starts_with(b"https://"))
}
