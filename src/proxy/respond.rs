//! Responds to a request: its exchange ends with the body of the response, or with a tunnel.

use std::rc::Rc;

use http::{HeaderMap, Method, Response, StatusCode, Version, request, response};
use tokio::task::yield_now;

use super::{
    client_request::ClientRequest,
    cost_meter::CostMeter,
    exchange::Exchange,
    field_survey::{FieldKind, FieldSurvey},
    refused_body::discard,
    reply::Reply,
    request_body::{BodyFault, BodyProgress},
    request_buffering::ReceivedBody,
    request_context::{FoundRoute, RequestContext},
    reservation,
    response_body::{BodySource, ResponseBody},
    route_reply::{LocalReply, ReplyOrigin},
    steps::RefusedBy,
    upstream_response::UpstreamResponse,
};
use crate::{
    abuse::{self, Credential, ObservedResponse, RequestLine, Signs, is_refusal},
    limit::{GrpcOutcome, ResponseStatus},
    request_values::FoundValues,
    telemetry::metrics::Refusal,
};

/// What records of a response need of the head of its request.
#[derive(Debug, Clone, Copy)]
pub(super) struct SentHead {
    survey: FieldSurvey,
    /// Of a client that was limited or refused recently.
    signs: Option<Signs>,
}

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

    /// What records of the response need of the request's head, which is sent to the upstream.
    pub(super) fn sent_head(
        &self,
        request: &request::Parts,
        survey: FieldSurvey,
        found: &FoundRoute,
    ) -> SentHead {
        let address = self.worker.rules.identifying_address(found.client.ip);
        let is_watched = self.worker.recorder.watches(address);
        let signs = is_watched.then(|| Signs::of(&request.headers, found.target.path(), false));
        SentHead { survey, signs }
    }

    /// Notes the response, and records it if it tells something about a client that was limited or refused.
    pub(super) fn responded(
        &mut self,
        forwarded: &UpstreamResponse,
        found: &FoundRoute,
        method: &Method,
        head: SentHead,
    ) {
        let status = forwarded.response.status();
        self.exchange.forward_responded(&forwarded.host.endpoint, status);
        if is_refusal(status) || head.signs.is_some() {
            self.record_response(found, method, head, status, true);
        }
    }

    /// Records that Tollgate itself refuses a request. `is_guess`: its credential is wrong.
    pub(super) fn record_own_refusal(
        &self,
        context: &RequestContext<'_, '_>,
        status: StatusCode,
        is_guess: bool,
    ) {
        let request = context.request();
        let signs = Some(Signs::of(&request.headers, context.found.target.path(), false));
        let head = SentHead { survey: context.facts.survey, signs };
        self.record_response(context.found, &request.method, head, status, is_guess);
    }

    /// Records a response for incidents; and for hints, if a policy may limit its client. `is_of_client`: what the client sent decided on
    /// the status, and not a rule of ours.
    #[inline(never)]
    fn record_response(
        &self,
        found: &FoundRoute,
        method: &Method,
        head: SentHead,
        status: StatusCode,
        is_of_client: bool,
    ) {
        let Self { worker, exchange, .. } = self;
        let FoundRoute { identity, target, route, .. } = found;
        let address = worker.rules.identifying_address(found.client.ip);
        let has = |kind| head.survey.has(kind);
        let credential = match () {
            () if has(FieldKind::Basic) => Credential::Basic,
            () if has(FieldKind::Token) || identity.key.is_some() => Credential::Token,
            () if has(FieldKind::Cookie) => Credential::Cookie,
            () => Credential::None,
        };
        let values = || found.values.get()?.iter().find_map(FoundValues::person);
        let response = ObservedResponse {
            client: abuse::masked(address, worker.config().client_address.ipv6_prefix),
            route: *route,
            method,
            request: RequestLine {
                is_safe: method.is_safe(),
                path: target.path(),
                query: target.query(),
                headers: None,
                is_logged: false,
            },
            signs: head.signs,
            credential,
            user: identity.user.as_deref().or_else(values),
            may_be_attempt: is_of_client,
            is_customer: identity.valid_key().is_some() || identity.is_verified,
            status,
            now: exchange.time(),
        };
        worker.recorder.note_response(&response);
        if is_of_client && !worker.config().routes[*route].policies.is_empty() {
            worker.recorder.record_response(&response);
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
