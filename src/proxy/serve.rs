//! Serves a request, from its head to its response.

use std::{convert::Infallible, rc::Rc, time::Duration};

use bytes::Bytes;
use http::{Request, Response, StatusCode, Version, request};
use http_body::Body;
use hyper::body::Incoming;
use tokio::task::yield_now;

use super::{
    affinity::{StickyCookie, request_key},
    bans::{exempt_rules, user_key},
    client::ClientInfo,
    client_request::ClientRequest,
    decisions,
    early_hints::HintedRequest,
    forward::Forwarder,
    grpc::response_status,
    headers,
    open_exchanges::ExchangeOwner,
    request_buffering::ReceivedBody,
    request_context::RequestContext,
    response_body::ResponseBody,
    rewrite,
    route_reply::{LocalReply, ReplyOrigin},
    steps::{ResponseSource, admit, check_optional_key, find, has_optional_key},
    tunnel::{self, Upgrade},
    usage,
    worker::Worker,
};
use crate::{identity::TokenRefusal, limit::StoreAdmin, upstream::Affinity};

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
        let has_body = !body.is_end_stream();
        let upgrade = begin(&client, &mut request, has_body);
        if let Some(service) = client.decisions() {
            let service = service.clone();
            return Ok(Box::pin(decisions::answer((request, body), worker, client, service)).await);
        }
        worker.rules.conceal(&mut request, client.is_trusted());
        let mut served = ClientRequest::new(&worker, &client, &request, body);

        // Whose request is it, and what is its route?
        let facts = served.facts(&request);
        let survey = facts.survey;
        let mut found = match find(&mut served, &worker.rules, &facts) {
            Ok(found) => found,
            Err(refused) => return Ok(served.refuse(refused, request.version, request.headers)),
        };
        if found.identity.refused_token.is_some_and(TokenRefusal::may_be_of_new_key) {
            found.identity = Box::pin(served.identify_again(&facts, found.client, Duration::MAX)).await;
        }
        if has_optional_key(&worker.rules, &found) {
            Box::pin(check_optional_key(&mut served, &worker.rules, &facts, &mut found)).await;
        }
        served.routed(&request, &found);

        // Is it admitted, and which upstream gets it? Rare futures are boxed: all requests would need room for them.
        let mut context = RequestContext::new(&worker.rules, &facts, &found);
        let (index, path) = match admit(&mut served, &mut context).await {
            Ok(ResponseSource::Upstream(index, path)) => (index, path),
            Ok(ResponseSource::Usage) => {
                client.timer().wait_for_store();
                let reply = Box::pin(usage::reply(&*worker.store, &context)).await;
                let reply = LocalReply { reply, origin: ReplyOrigin::Route };
                return Ok(Box::pin(served.respond(&request, reply)).await);
            }
            Ok(ResponseSource::Local(reply)) => return Ok(Box::pin(served.respond(&request, *reply)).await),
            Err(refused) => return Ok(served.refuse(refused, request.version, request.headers)),
        };
        let (route, upstream) = (context.route, &worker.config().upstreams[index]);
        let (exempt, key) = (exempt_rules(&context), request_key(&context, upstream));
        let owner = || ExchangeOwner {
            address: found.client.ip,
            user: user_key(&found.identity),
            exempt,
            key: found.identity.key.as_ref().and_then(|key| key.as_ref().ok()).cloned(),
        };

        // Receive a small body before a connection is taken for it.
        let mut body = ReceivedBody::Whole(Bytes::new());
        if has_body && let Some(received) = served.body.take() {
            body = match received {
                ReceivedBody::Stream(incoming) => {
                    match served.receive_small(incoming, &request, upstream.request_buffering).await {
                        Ok(body) => body,
                        Err(reply) => return Ok(Box::pin(served.broken_off(*reply)).await),
                    }
                }
                received => received,
            };
        }
        let is_usage_unasked = matches!(body, ReceivedBody::Edited(_));

        // Forward the request, and wait for the head of the response.
        let (method, sent_head) = (request.method.clone(), served.sent_head(&request, survey, &found));
        let sticky = StickyCookie::take(upstream, &client, &mut request.headers);
        let affinity = Affinity { key, host: sticky.as_ref().and_then(|cookie| cookie.host) };
        let hinted = HintedRequest::new(route.early_hints, request.version, client.connection());
        let (head, asked) = ((request, survey), upgrade.as_deref());
        let (request, progress) = rewrite::upstream_request(&served, route, &found, head, body, path, asked);
        let (upload, mut retried) = (progress.clone(), Vec::new());
        let upstream_client = served.upstream_client(index, &found);
        served.exchange.forward_started(&upstream.name);
        let forwarder = Forwarder::new(&served, &upstream_client, route, index, asked);
        let forwarded = forwarder.forward(request, progress, &affinity, &mut retried).await;
        served.exchange.set_retried(retried);
        let mut forwarded = match forwarded {
            Ok(forwarded) => forwarded,
            Err(reply) => return Ok(Box::pin(served.forward_failed(*reply, upload)).await),
        };
        if let Some(hinted) = hinted {
            hinted.flushed().await;
        }
        if let Some(cookie) = sticky {
            cookie.renew(forwarded.host.id, forwarded.response.headers_mut());
        }

        // Record the response, and refund the units that it does not cost.
        served.responded(&forwarded, &found, &method, sent_head);
        served.settle(|| response_status(&forwarded.response)).await;
        if forwarded.meter(served.exchange.is_head()) {
            // Let the reservation's task ask the store first: the client's next request arrives later.
            yield_now().await;
        }

        // Respond.
        if let Some(upgrade) = upgrade
            && forwarded.response.status() == StatusCode::SWITCHING_PROTOCOLS
        {
            let granted = (*upgrade, owner());
            let opened = tunnel::open(&worker, &client, served.exchange, route, granted, forwarded);
            return Ok(Box::pin(opened).await);
        }
        let edits = (route, is_usage_unasked);
        Ok(rewrite::client_response(&worker, &client, served.exchange, edits, forwarded, owner))
    }
}

/// Begins the `request` of `client`. Returns the protocol that it asks for instead of HTTP.
#[inline]
fn begin(client: &ClientInfo, request: &mut request::Parts, has_body: bool) -> Option<Box<Upgrade>> {
    client.meter().begin_request(request.version, has_body);
    if request.version == Version::HTTP_2 {
        headers::translate_http2(request, has_body);
    }
    Upgrade::of(request, has_body).map(Box::new)
}
