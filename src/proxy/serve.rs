//! Serves a request, from its head to its response.

use std::{convert::Infallible, rc::Rc};

use http::{Method, Request, Response, StatusCode, Version, request};
use http_body::Body;
use hyper::{body::Incoming, upgrade::OnUpgrade};

use super::{
    affinity::{StickyCookie, request_key},
    bans::{exempt_rules, user_key},
    client::ClientInfo,
    early_hints::HintedRequest,
    field_survey::FieldSurvey,
    forward::Forwarder,
    grpc::response_status,
    header_edits::FilledEdits,
    headers,
    open_exchanges::ExchangeOwner,
    path_rewrite::RewrittenPath,
    request_body::{BodyFault, BodyProgress, RequestBody},
    request_buffering::{ReceivedBody, receive_small},
    request_context::{Found, RequestContext, RequestFacts},
    reservation,
    response_body::ResponseBody,
    rewrite,
    served::Served,
    steps::{ResponseSource, admit, find},
    tunnel::{self, Upgrade},
    worker::Worker,
};
use crate::{
    abuse::{self, ObservedResponse, RequestLine},
    config::model::{EarlyHints, Route},
    limit::StoreAdmin,
    upstream::Affinity,
};

/// Serves one request of `client`.
///
/// # Errors
/// None: every failure becomes a response.
pub fn serve<S: StoreAdmin + 'static>(
    request: Request<Incoming>,
    worker: Rc<Worker<S>>,
    client: Rc<ClientInfo>,
) -> impl Future<Output = Result<Response<ResponseBody>, Infallible>> {
    // Taken apart here, because the future would hold both the request and its parts.
    let (mut request, body) = request.into_parts();
    async move {
        client.timer().begin_request(request.version, !body.is_end_stream());
        let mut upgrade = None;
        if request.version == Version::HTTP_2 {
            upgrade = translate_http2(&mut request, !body.is_end_stream());
        }
        let rules = &*worker.rules;
        let mut served = Served::new(&worker, &client, &request);
        let facts = facts(&worker, &client, &request, &body);
        let survey = facts.survey;

        // Whose request is it, and what is its route?
        let found = match find(&mut served, rules, &facts) {
            Ok(found) => found,
            Err(refused) => return Ok(served.refuse(refused, &mut request, body)),
        };
        served.routed(&request, &found);

        // Is it admitted, and which upstream gets it?
        let mut context = RequestContext::new(rules, &facts, &found);
        let (upstream_index, path) = match admit(&mut served, &mut context).await {
            Ok(ResponseSource::Upstream(index, path)) => (index, path),
            Ok(ResponseSource::Local(reply)) => {
                // Boxed: other requests would need room for its state.
                return Ok(Box::pin(served.reply_locally(&request, body, *reply)).await);
            }
            Err(refused) => {
                if refused.is_admitted() {
                    // Boxed, as above.
                    Box::pin(served.settle_refused()).await;
                }
                return Ok(served.refuse(refused, &mut request, body));
            }
        };
        let (route, upstream) = (context.route, &rules.config.upstreams[upstream_index]);
        let exempt = exempt_rules(&context);
        let key = request_key(&context, upstream);

        // Receive a small body before a connection is taken for it.
        let limits = &rules.config.client_limits;
        let room = &worker.body_room;
        let received =
            receive_small(body, &request, upstream.request_buffering, room, client.timer(), limits);
        let body = match received.await {
            Ok(body) => body,
            Err(reply) => {
                served.exchange.client_broke_off();
                return Ok(Box::pin(served.reply(reply)).await);
            }
        };
        if request.extensions.get::<OnUpgrade>().is_some() && request.version == Version::HTTP_11 {
            let has_body = !matches!(&body, ReceivedBody::Whole(body) if body.is_empty());
            upgrade = Upgrade::requested(&request, has_body);
        }
        let upgrade = upgrade.map(Box::new);

        // Forward it, and wait for the head of the response.
        let is_safe = request.method.is_safe();
        let sticky = StickyCookie::take(upstream, &client, &mut request.headers);
        let affinity = Affinity { key, host: sticky.as_ref().and_then(|cookie| cookie.host) };
        // hyper supports no hints over HTTP/2; HTTP/1.0 has none.
        let takes_hints = route.early_hints == EarlyHints::Pass && request.version == Version::HTTP_11;
        let hinted = takes_hints.then(|| HintedRequest::new(client.timer()));
        let (request, progress) =
            upstream_request(&served, route, &found, (request, survey), body, path, upgrade.as_deref());
        let upload = progress.clone();
        let address = rules.identifying_address(found.client.ip);
        let upstream_client =
            client.timer().upstream_client(worker.upstreams[upstream_index].shared(), address);
        served.exchange.forward_started(&upstream.name);
        let (reservation, asked) = (served.exchange.reservation(), upgrade.as_deref());
        let forwarder =
            Forwarder::new(&worker, &client, &upstream_client, route, upstream_index, reservation, asked);
        let mut retried = Vec::new();
        let forwarded = forwarder.forward(request, progress, &affinity, &mut retried).await;
        served.exchange.set_retried(retried);
        let mut forwarded = match forwarded {
            Ok(forwarded) => forwarded,
            Err(reply) => {
                let is_broken = upload.is_some_and(|upload| upload.fault() == Some(BodyFault::Broken));
                return Ok(Box::pin(served.forward_failed(reply, is_broken)).await);
            }
        };
        if let Some(hinted) = hinted {
            hinted.flushed().await;
        }
        if let Some(cookie) = sticky {
            cookie.renew(forwarded.host.id, forwarded.response.headers_mut());
        }
        served.exchange.forward_responded(&forwarded.host.endpoint, forwarded.response.status());

        // Record the response, and refund the units that it does not cost.
        record_response(&served, route, &found, is_safe, forwarded.response.status());
        let status = || response_status(&forwarded.response);
        reservation::settle(&rules.policies, &served.exchange, &mut served.outcomes, status).await;

        // Respond.
        let Served { exchange, outcomes, .. } = served;
        let owner = || ExchangeOwner { address: found.client.ip, user: user_key(&found.identity), exempt };
        if let Some(upgrade) = upgrade
            && forwarded.response.status() == StatusCode::SWITCHING_PROTOCOLS
        {
            let asked = (*upgrade, owner());
            // Boxed, as above.
            return Ok(Box::pin(tunnel::open(
                &worker, &client, exchange, route, asked, forwarded, &outcomes,
            ))
            .await);
        }
        Ok(rewrite::client_response(&worker, &client, exchange, route, forwarded, &outcomes, owner))
    }
}

/// Gives an HTTP/2 request the form of one of HTTP/1.1. Returns the protocol that it asks for, if it is an extended
/// CONNECT.
fn translate_http2(request: &mut request::Parts, has_body: bool) -> Option<Upgrade> {
    headers::join_cookies(&mut request.headers);
    headers::merge_lengths(&mut request.headers);
    match request.method {
        Method::CONNECT => return Upgrade::extended_connect(request),
        // With a body, it is not a preflight.
        Method::OPTIONS if has_body => headers::announce_body(&mut request.headers),
        _ => {}
    }
    None
}

/// The facts of a request that `client` has sent.
fn facts<'a, S>(
    worker: &'a Worker<S>,
    client: &'a ClientInfo,
    request: &'a request::Parts,
    body: &Incoming,
) -> RequestFacts<'a> {
    RequestFacts {
        request,
        survey: worker.rules.survey(&request.headers),
        peer: client.peer().address().ip(),
        peer_identifier: client.address(),
        is_peer_trusted: client.is_trusted(),
        certificate: client.certificate(),
        listener: Some(client.listener()),
        body_length: Some(body.size_hint().lower()),
        bans: Some(&worker.bans),
    }
}

/// The request for the upstream, and the progress of its body, if it has one.
fn upstream_request<S>(
    served: &Served<'_, S>,
    route: &Route,
    found: &Found,
    (request, survey): (request::Parts, FieldSurvey),
    body: ReceivedBody,
    path: Option<RewrittenPath<'_>>,
    upgrade: Option<&Upgrade>,
) -> (Request<RequestBody>, Option<Rc<BodyProgress>>) {
    let Served { worker, client, exchange, .. } = served;
    let head = (request, survey);
    let (mut request, progress) =
        rewrite::upstream_request(worker, client, exchange, route, &found.target, head, body);
    if let Some(path) = path {
        path.apply(&mut request, worker.config().forwarded);
    }
    if let Some(edits) = &route.request_headers {
        let values = found.placeholders(&worker.rules, exchange.request_id());
        FilledEdits::new(edits, &values).apply_to_request(request.headers_mut());
    }
    if let Some(upgrade) = upgrade {
        upgrade.request(request.headers_mut());
    }
    (request, progress)
}

/// Records a response that tells something about a limited client.
fn record_response<S>(
    served: &Served<'_, S>,
    route: &Route,
    found: &Found,
    is_safe: bool,
    status: StatusCode,
) {
    let Served { worker, exchange, .. } = served;
    let address = worker.rules.identifying_address(found.client.ip);
    if !route.policies.is_empty() && worker.recorder.wants_response(address, status) {
        worker.recorder.record_response(&ObservedResponse {
            client: abuse::masked(address, worker.config().client_address.ipv6_prefix),
            request: RequestLine { is_safe, path: found.target.path(), query: found.target.query() },
            status,
            now: exchange.time(),
        });
    }
}
