//! Serves a request, from its head to its response.

use std::{convert::Infallible, rc::Rc};

use compact_str::CompactString;
use http::{Request, Response, StatusCode, request};
use http_body::Body;
use hyper::body::Incoming;

use super::{
    affinity::{StickyCookie, request_key},
    bans::{exempt_rules, user_key},
    client::ClientInfo,
    early_hints::HintedRequest,
    field_survey::FieldSurvey,
    forward::Forwarder,
    grpc::response_status,
    headers,
    open_exchanges::ExchangeOwner,
    path_rewrite::RewrittenPath,
    request_body::BodyFault,
    request_context::{Found, RequestContext},
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
    config::model::Route,
    limit::StoreAdmin,
    upstream::{Affinity, KeyHash},
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
        let has_body = !body.is_end_stream();
        client.meter().begin_request(request.version, has_body);
        headers::translate_http2(&mut request, has_body);
        let upgrade = Upgrade::of(&mut request, has_body).map(Box::new);
        let rules = &*worker.rules;
        let mut served = Served::new(&worker, &client, &request, body);

        // Whose request is it, and what is its route?
        let facts = served.facts(&request);
        let survey = facts.survey;
        let found = match find(&mut served, rules, &facts) {
            Ok(found) => found,
            Err(refused) => return Ok(served.refuse(refused, &mut request).await),
        };
        served.routed(&request, &found);

        // Is it admitted, and which upstream gets it?
        let mut context = RequestContext::new(rules, &facts, &found);
        let (upstream, path) = match admit(&mut served, &mut context).await {
            Ok(ResponseSource::Upstream(index, path)) => (index, path),
            Ok(ResponseSource::Local(reply)) => {
                // Boxed: other requests would need room for its state.
                return Ok(Box::pin(served.reply_locally(&request, *reply)).await);
            }
            Err(refused) => return Ok(served.refuse(refused, &mut request).await),
        };
        let forwarding = Forwarding {
            route: context.route,
            upstream,
            path,
            upgrade,
            exempt: exempt_rules(&context),
            key: request_key(&context, &rules.config.upstreams[upstream]),
            found: &found,
        };
        Ok(forward(served, (request, survey), forwarding).await)
    }
}

/// An admitted request on its way to an upstream.
struct Forwarding<'a> {
    route: &'a Route,
    /// The index of the upstream.
    upstream: usize,
    /// The rewritten path.
    path: Option<RewrittenPath<'a>>,
    upgrade: Option<Box<Upgrade>>,
    /// The names of the ban rules that the request is exempt from.
    exempt: Vec<CompactString>,
    /// The key that requests are balanced by.
    key: KeyHash,
    found: &'a Found,
}

/// Forwards an admitted request, and responds with the upstream's response.
#[expect(clippy::manual_async_fn, reason = "an async function's future holds its arguments twice")]
fn forward<'a, S: StoreAdmin + 'static>(
    mut served: Served<'a, S>,
    (mut request, survey): (request::Parts, FieldSurvey),
    forwarding: Forwarding<'a>,
) -> impl Future<Output = Response<ResponseBody>> {
    async move {
        let Forwarding { route, upstream: index, path, upgrade, exempt, key, found } = forwarding;
        let Served { worker, client, .. } = served;
        let (rules, upstream) = (&*worker.rules, &worker.rules.config.upstreams[index]);

        // Receive a small body before a connection is taken for it.
        let body = match served.receive_small(&request, upstream.request_buffering).await {
            Ok(body) => body,
            Err(reply) => return Box::pin(served.broken_off(reply)).await,
        };

        // Send the request, and wait for the head of the response.
        let is_safe = request.method.is_safe();
        let sticky = StickyCookie::take(upstream, client, &mut request.headers);
        let affinity = Affinity { key, host: sticky.as_ref().and_then(|cookie| cookie.host) };
        let hinted = HintedRequest::new(route.early_hints, request.version, client.connection());
        let head = (request, survey);
        let (request, progress) =
            rewrite::upstream_request(&served, route, found, head, body, path, upgrade.as_deref());
        let upload = progress.clone();
        let address = rules.identifying_address(found.client.ip);
        let upstream_client = client.hand_off().upstream_client(worker.upstreams[index].shared(), address);
        served.exchange.forward_started(&upstream.name);
        let (reservation, asked) = (served.exchange.reservation(), upgrade.as_deref());
        let forwarder = Forwarder::new(worker, client, &upstream_client, route, index, reservation, asked);
        let mut retried = Vec::new();
        let forwarded = forwarder.forward(request, progress, &affinity, &mut retried).await;
        served.exchange.set_retried(retried);
        let mut forwarded = match forwarded {
            Ok(forwarded) => forwarded,
            Err(reply) => {
                let is_broken = upload.is_some_and(|upload| upload.fault() == Some(BodyFault::Broken));
                return Box::pin(served.forward_failed(*reply, is_broken)).await;
            }
        };
        if let Some(hinted) = hinted {
            hinted.flushed().await;
        }
        if let Some(cookie) = sticky {
            cookie.renew(forwarded.host.id, forwarded.response.headers_mut());
        }
        let status = forwarded.response.status();
        served.exchange.forward_responded(&forwarded.host.endpoint, status);

        // Record the response, and refund the units that it does not cost.
        record_response(&served, route, found, is_safe, status);
        let status_of_call = || response_status(&forwarded.response);
        reservation::settle(
            &rules.policies,
            served.exchange.reservation(),
            &mut served.outcomes,
            status_of_call,
        )
        .await;

        // Respond.
        let Served { exchange, outcomes, .. } = served;
        let owner = || ExchangeOwner { address: found.client.ip, user: user_key(&found.identity), exempt };
        if let Some(upgrade) = upgrade
            && status == StatusCode::SWITCHING_PROTOCOLS
        {
            let asked = (*upgrade, owner());
            return Box::pin(tunnel::open(worker, client, exchange, route, asked, forwarded, &outcomes))
                .await;
        }
        rewrite::client_response(worker, client, exchange, route, forwarded, &outcomes, owner)
    }
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
