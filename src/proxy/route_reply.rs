//! Requests that their route replies to itself.

use std::fmt::Write;

use super::{
    cors::{CorsResponse, is_preflight},
    max_forwards,
    placeholders::PlaceholderValues,
    reply::Reply,
    request_context::RequestContext,
};
use crate::{
    config::model::{Redirect, RouteAction, RouteReply},
    router::{Host, Rejection},
};
use http::{HeaderMap, HeaderValue, StatusCode, header};

/// A reply of Tollgate in place of an upstream's response.
pub struct LocalReply {
    pub(super) reply: Reply,
    pub(super) origin: ReplyOrigin,
}

/// Why Tollgate itself replies to an admitted request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplyOrigin {
    /// The route's `reply` or `redirect`.
    Route,
    /// The request is a CORS preflight.
    Preflight { is_allowed: bool },
    /// `Max-Forwards` is 0.
    MaxForwards,
    /// A value from the request makes the redirect lead elsewhere, or is missing.
    FaultyRedirect,
    /// The same of the path for the upstream.
    FaultyRewrite,
    /// The client's own deadline passed while its request waited for a slot.
    Deadline,
}

/// The index of the upstream for the request. `cors`: of the response, if the route has `cors`.
///
/// # Errors
/// The reply that Tollgate sends instead.
pub(super) fn upstream_of(
    context: &RequestContext<'_, '_>,
    cors: Option<&CorsResponse>,
    request_id: &HeaderValue,
) -> Result<usize, Box<LocalReply>> {
    match &context.route.action {
        RouteAction::Upstream(index)
            if cors.is_none() && !max_forwards::applies(&context.request().method) =>
        {
            Ok(*index)
        }
        _ => local_reply(context, cors, request_id),
    }
}

#[cold]
fn local_reply(
    context: &RequestContext<'_, '_>,
    cors: Option<&CorsResponse>,
    request_id: &HeaderValue,
) -> Result<usize, Box<LocalReply>> {
    let request = context.request();
    let (reply, origin) = match (&context.route.action, cors) {
        (_, Some(cors)) if is_preflight(request, context.route) => {
            let origin = ReplyOrigin::Preflight { is_allowed: cors.allows_origin() };
            (cors.preflight(&request.headers), origin)
        }
        (RouteAction::Upstream(index), _) => match max_forwards::reply_if_spent(request) {
            None => return Ok(*index),
            Some(reply) => (reply, ReplyOrigin::MaxForwards),
        },
        // `find_source` has handled the first; no listener that forwards requests reaches the other.
        (RouteAction::Usage | RouteAction::Decision, _) => (Reply::undecided(), ReplyOrigin::Route),
        (RouteAction::Reply(configured), _) => (Reply::configured(configured), ReplyOrigin::Route),
        (RouteAction::Redirect(redirect), _) => {
            match location(redirect, &context.found.placeholders(context.rules, request_id)) {
                Ok(location) => {
                    let reply = Reply::redirect(redirect.status, &location, "This has moved.");
                    (reply, ReplyOrigin::Route)
                }
                Err(Rejection { status, detail }) => {
                    (Reply::problem(status, detail), ReplyOrigin::FaultyRedirect)
                }
            }
        }
    };
    Err(Box::new(LocalReply { reply, origin }))
}

/// The target of `redirect` for a request with these values.
///
/// # Errors
/// 400 if a value from the request makes the path lead elsewhere, or if there is no host to keep.
pub(super) fn location(redirect: &Redirect, values: &PlaceholderValues<'_>) -> Result<String, Rejection> {
    let target = values.target;
    let mut location = String::new();
    match (redirect.scheme, redirect.authority.as_deref().or_else(|| target.host().map(Host::name))) {
        (Some(scheme), Some(authority)) => location += &format!("{scheme}://{authority}"),
        (Some(_), None) => {
            let detail = "Without a Host header, the server can't say where this is.";
            return Err(Rejection { status: StatusCode::BAD_REQUEST, detail });
        }
        (None, _) => {
            if let Some(authority) = &redirect.authority {
                location += &format!("//{authority}");
            }
        }
    }
    match &redirect.path {
        Some(path) => location += &values.path(path)?,
        None => location += target.path(),
    }
    let kept = target.query().filter(|_| redirect.keeps_query);
    let queries = [redirect.query.as_deref(), kept];
    for (query, mark) in queries.into_iter().flatten().zip(['?', '&']) {
        // Writing to a string does not fail.
        let _written = write!(location, "{mark}{query}");
    }
    if let Some(fragment) = &redirect.fragment {
        location += &format!("#{fragment}");
    }
    Ok(location)
}

impl Reply {
    /// The configured reply of a route.
    pub(super) fn configured(configured: &RouteReply) -> Self {
        let mut headers = HeaderMap::with_capacity(configured.headers.len() + 4);
        if let Some(content_type) = &configured.content_type {
            headers.insert(header::CONTENT_TYPE, content_type.clone());
        }
        for (name, value) in &configured.headers {
            headers.append(name, value.clone());
        }
        let status = configured.status;
        let detail = status.canonical_reason().unwrap_or_default().into();
        Self { status, headers, body: configured.body.clone(), detail, retry_after: None }
    }
}
