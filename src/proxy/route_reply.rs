//! Requests that their route answers itself.

use http::{HeaderMap, Response, header};
use hyper::body::Incoming;

use super::{
    exchange::Exchange, outcome::PolicyOutcome, reply::Reply, request_context::RequestContext, reservation,
    response_body::ResponseBody, serve::discard, worker::Worker,
};
use crate::{
    config::model::RouteReply,
    limit::{AnswerStatus, GrpcOutcome},
};

/// Answers a request that its policies have admitted with what its route replies. The reply counts for these policies as
/// that of an upstream would.
pub(super) async fn answer<S>(
    worker: &Worker<S>,
    exchange: Exchange,
    context: &RequestContext<'_>,
    body: Incoming,
    outcomes: &mut [PolicyOutcome],
    mut reply: Reply,
) -> Response<ResponseBody> {
    let status = AnswerStatus { http: reply.status, grpc: GrpcOutcome::Known(None) };
    reservation::settle(&worker.rules.policies, &exchange, outcomes, status).await;
    if let Some(reservation) = exchange.reservation() {
        reservation.completed();
    }
    worker.rules.quotas.add_fields(&mut reply.headers, outcomes);
    if !discard(worker, context.request, body) {
        reply = reply.closing();
    }
    exchange.reply_of_route(reply)
}

impl Reply {
    /// What a route is configured to reply.
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
