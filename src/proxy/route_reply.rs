//! Requests that their route replies to itself.

use std::fmt::Write;

use http::{HeaderMap, Response, StatusCode, header};
use hyper::body::Incoming;

use super::{
    cors::is_preflight, exchange::Exchange, max_forwards, outcome::PolicyOutcome,
    placeholders::PlaceholderValues, reply::Reply, request_context::RequestContext, reservation,
    response_body::ResponseBody, serve::discard, worker::Worker,
};
use crate::{
    config::model::{Redirect, RouteAction, RouteReply},
    limit::{GrpcOutcome, ResponseStatus},
    router::{Host, Rejection, Router},
    telemetry::metrics::Refusal,
};

/// A reply of Tollgate in place of an upstream's response.
pub(super) struct LocalReply {
    reply: Reply,
    /// Whether the route is configured to reply. If not, the request is refused.
    is_configured: bool,
}

/// The index of the upstream for the request.
///
/// # Errors
/// The reply that its route sends instead, also to a CORS preflight.
pub(super) fn upstream_of(
    exchange: &Exchange,
    context: &RequestContext<'_>,
    router: &Router,
) -> Result<usize, Box<LocalReply>> {
    match &context.route.action {
        RouteAction::Upstream(index)
            if exchange.cors().is_none() && !max_forwards::applies(&context.request.method) =>
        {
            Ok(*index)
        }
        action => reply(action, exchange, context, router),
    }
}

#[cold]
fn reply(
    action: &RouteAction,
    exchange: &Exchange,
    context: &RequestContext<'_>,
    router: &Router,
) -> Result<usize, Box<LocalReply>> {
    if let Some(cors) = exchange.cors().filter(|_| is_preflight(context.request, context.route)) {
        let is_configured = cors.allows_origin();
        if !is_configured {
            exchange.count_refusal(Refusal::Origin);
        }
        let reply = cors.preflight(&context.request.headers);
        return Err(Box::new(LocalReply { reply, is_configured }));
    }
    let configured = match action {
        RouteAction::Upstream(index) => {
            return match max_forwards::reply_if_spent(context.request) {
                None => Ok(*index),
                Some(reply) => Err(Box::new(LocalReply { reply, is_configured: false })),
            };
        }
        RouteAction::Reply(configured) => Reply::configured(configured),
        RouteAction::Redirect(redirect) => {
            match location(redirect, &exchange.placeholders(router, context.target, context.identity)) {
                Ok(location) => Reply::redirect(redirect.status, &location, "This has moved."),
                Err(Rejection { status, detail }) => {
                    let reply = Reply::problem(status, detail);
                    return Err(Box::new(LocalReply { reply, is_configured: false }));
                }
            }
        }
    };
    Err(Box::new(LocalReply { reply: configured, is_configured: true }))
}

/// Sends the route's reply to a request that its policies have admitted. It counts for these policies as an
/// upstream's response would.
pub(super) async fn respond<S>(
    worker: &Worker<S>,
    exchange: Box<Exchange>,
    context: &RequestContext<'_>,
    body: Incoming,
    outcomes: &mut [PolicyOutcome],
    LocalReply { mut reply, is_configured }: LocalReply,
) -> Response<ResponseBody> {
    let status = ResponseStatus { http: reply.status, grpc: GrpcOutcome::Known(None) };
    reservation::settle(&worker.rules.policies, exchange.reservation(), outcomes, || status).await;
    if let Some(reservation) = exchange.reservation() {
        reservation.completed();
    }
    worker.rules.quotas.add_fields(&mut reply.headers, outcomes);
    if !discard(worker, &exchange, context.request, body) {
        reply = reply.closing();
    }
    match is_configured {
        true => exchange.reply_of_route(reply),
        false => exchange.reply(reply),
    }
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
