//! Responds to a request: its exchange ends with the body of the response, or with a tunnel.

use std::rc::Rc;

use http::{HeaderMap, Response, StatusCode, Version, request, response};
use tokio::task::yield_now;

use super::{
    client_request::ClientRequest,
    cost_meter::CostMeter,
    exchange::Exchange,
    refused_body::discard,
    reply::Reply,
    request_body::{BodyFault, BodyProgress},
    request_buffering::ReceivedBody,
    request_context::FoundRoute,
    reservation,
    response_body::{BodySource, ResponseBody},
    route_reply::{LocalReply, ReplyOrigin},
    steps::RefusedBy,
    upstream_response::UpstreamResponse,
};
use crate::{
    abuse::{self, ObservedResponse, RequestLine},
    config::model::Route,
    limit::{GrpcOutcome, ResponseStatus},
    telemetry::metrics::Refusal,
};

impl Exchange {
    /// Responds with this head and body.
    pub(super) fn respond(
        mut self: Box<Self>,
        mut head: response::Parts,
        body: BodySource,
    ) -> Response<ResponseBody> {
        self.begin_response(&mut head);
        Response::from_parts(head, ResponseBody::new(body, self))
    }

    /// Responds with the proxy's own `reply`.
    pub(super) fn reply(mut self: Box<Self>, reply: Reply) -> Response<ResponseBody> {
        let (head, body) = self.take_reply(reply);
        self.respond(head, BodySource::Whole(body))
    }

    /// Responds with the route's configured reply.
    pub(super) fn reply_of_route(mut self: Box<Self>, reply: Reply) -> Response<ResponseBody> {
        self.set_of_route();
        self.reply(reply)
    }
}

impl<S> ClientRequest<'_, S> {
    /// Replies to a request that a step has refused.
    pub(super) fn refuse(
        self,
        refused: RefusedBy,
        version: Version,
        headers: HeaderMap,
    ) -> Response<ResponseBody> {
        let Self { worker, client, exchange, body } = self;
        // The bytes after a malformed head can't be trusted.
        let body = body.and_then(ReceivedBody::into_rest).filter(|_| !matches!(refused, RefusedBy::Head(_)));
        let stays_open = body.is_none_or(|body| discard(worker, &exchange, version, &headers, body));
        let (now, outcomes) = (|| exchange.time(), &exchange.outcomes);
        let reply = refused.reply(&worker.rules, client.is_trusted(), now, outcomes, headers);
        exchange.reply(if stays_open { reply } else { reply.closing() })
    }

    /// Notes the response, and records it if it tells something about a limited client.
    pub(super) fn responded(
        &mut self,
        forwarded: &UpstreamResponse,
        route: &Route,
        found: &FoundRoute,
        is_safe: bool,
    ) {
        let status = forwarded.response.status();
        self.exchange.forward_responded(&forwarded.host.endpoint, status);
        if !route.policies.is_empty() {
            self.record_response(found, is_safe, status);
        }
    }

    /// Records a response if it tells something about its client.
    #[inline]
    pub(super) fn record_response(&self, found: &FoundRoute, is_safe: bool, status: StatusCode) {
        let Self { worker, exchange, .. } = self;
        let address = worker.rules.identifying_address(found.client.ip);
        if worker.recorder.wants_response(address, status) {
            worker.recorder.record_response(&ObservedResponse {
                client: abuse::masked(address, worker.config().client_address.ipv6_prefix),
                request: RequestLine { is_safe, path: found.target.path(), query: found.target.query() },
                status,
                now: exchange.time(),
            });
        }
    }

    /// Refunds the units that a response with this status does not cost.
    pub(super) fn settle(&mut self, status: impl FnOnce() -> ResponseStatus) -> impl Future<Output = ()> {
        let (reservation, outcomes) = self.exchange.reserved();
        reservation::settle(&self.worker.rules.policies, reservation, outcomes, status)
    }

    /// Settles a request that its policies have admitted and that is not forwarded.
    async fn settle_refused(&mut self) {
        let (reservation, outcomes) = self.exchange.reserved();
        reservation::settle_refused(&self.worker.rules.policies, reservation, outcomes).await;
    }

    /// Sends the proxy's own `reply` to a request that its policies have admitted, with the quota after this request.
    async fn reply(mut self, mut reply: Reply) -> Response<ResponseBody> {
        self.settle_refused().await;
        self.worker.rules.quotas.add_fields(&mut reply.headers, &self.exchange.outcomes);
        self.exchange.reply(reply)
    }

    /// Sends Tollgate's own reply to a request that its policies have admitted. It counts for these policies as an
    /// upstream's response would, unless the request can't be forwarded.
    pub(super) async fn respond(
        mut self,
        request: &request::Parts,
        LocalReply { mut reply, origin }: LocalReply,
    ) -> Response<ResponseBody> {
        if matches!(origin, ReplyOrigin::FaultyRewrite | ReplyOrigin::Deadline) {
            self.settle_refused().await;
        } else {
            let status = ResponseStatus { http: reply.status, grpc: GrpcOutcome::Known(None) };
            self.settle(|| status).await;
            if let Some(reservation) = self.exchange.reservation() {
                if let Some(mut meter) = CostMeter::new(reservation, reply.status, &reply.headers) {
                    let mut unread = &reply.body[..];
                    while !unread.is_empty() {
                        unread = &unread[meter.read(unread)..];
                    }
                    meter.finish();
                }
                reservation.completed();
                // As in `settle`: the client's next request arrives later.
                yield_now().await;
            }
        }
        let Self { worker, exchange, body, .. } = self;
        worker.rules.quotas.add_fields(&mut reply.headers, &exchange.outcomes);
        let body = body.and_then(ReceivedBody::into_rest);
        if body.is_some_and(|body| !discard(worker, &exchange, request.version, &request.headers, body)) {
            reply = reply.closing();
        }
        match origin {
            ReplyOrigin::Route | ReplyOrigin::Preflight { is_allowed: true } => {
                exchange.reply_of_route(reply)
            }
            ReplyOrigin::Preflight { is_allowed: false } => {
                exchange.count_refusal(Refusal::Origin);
                exchange.reply(reply)
            }
            ReplyOrigin::MaxForwards
            | ReplyOrigin::FaultyRedirect
            | ReplyOrigin::FaultyRewrite
            | ReplyOrigin::Deadline => exchange.reply(reply),
        }
    }

    /// Replies to a request whose client has broken off its body.
    pub(super) async fn broken_off(mut self, reply: Reply) -> Response<ResponseBody> {
        self.exchange.client_broke_off();
        self.reply(reply).await
    }

    /// Replies to a request that no endpoint has responded to. `upload`: the progress of its body.
    pub(super) async fn forward_failed(
        mut self,
        reply: Reply,
        upload: Option<Rc<BodyProgress>>,
    ) -> Response<ResponseBody> {
        if upload.is_some_and(|upload| upload.fault() == Some(BodyFault::Broken)) {
            self.exchange.client_broke_off();
        }
        self.exchange.forward_failed(reply.status);
        self.reply(reply).await
    }
}
