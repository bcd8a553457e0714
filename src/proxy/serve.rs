//! Serves a request, from its head to its response.

use std::{
    convert::Infallible,
    net::IpAddr,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Version, request};
use http_body::Body;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::timeout;

use super::{
    admit::{Admission, admit},
    affinity::{StickyCookie, request_key},
    bans::{check_bans, exempt_rules, user_key},
    client::{ClientInfo, Peer},
    cors::CorsResponse,
    early_ends::Judgement,
    early_hints::HintedRequest,
    exchange::Exchange,
    expect_continue,
    forward::Forwarder,
    grpc::response_status,
    header_edits::FilledEdits,
    headers,
    min_rate::RateBudget,
    open_exchanges::ExchangeOwner,
    outcome::{Outcomes, PolicyOutcome},
    path_rewrite::RewrittenPath,
    reply::Reply,
    request_body::BodyFault,
    request_buffering::{ReceivedBody, is_buffered, receive},
    request_context::{RequestContext, client_address},
    reservation,
    response_body::ResponseBody,
    rewrite, route_reply,
    rules::parse_target,
    split::split_route,
    tunnel::{self, Upgrade},
    worker::Worker,
};
use crate::{
    abuse::{self, RequestLine},
    config::model::{ClientLimits, Config, EarlyHints},
    identity::{AccessRule, ClientIp, Credentials},
    limit::StoreAdmin,
    router::Rejection,
    telemetry::metrics::{CutOff, CutOffBody, CutOffReason, Http2Abuse},
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
        let has_body = !body.is_end_stream();
        client.meter().begin_request(request.version, has_body);
        if request.version == Version::HTTP_2 {
            headers::join_cookies(&mut request.headers);
            headers::merge_lengths(&mut request.headers);
            // With a body, it is not a preflight.
            if has_body && request.method == Method::OPTIONS {
                headers::announce_body(&mut request.headers);
            }
        }
        let upgrade = Upgrade::of(&mut request, has_body).map(Box::new);
        let rules = &*worker.rules;
        let config = &rules.config;
        let is_peer_trusted = client.is_trusted();
        let request_id = headers::request_id(&request.headers, &config.request_id, is_peer_trusted);
        // Counts and logs the request when it is dropped, at the latest with the response's body.
        let mut exchange = Exchange::new(&worker.telemetry, &client, &request, request_id);

        // hyper counts the fields of HTTP/1 itself.
        if request.version == Version::HTTP_2 && request.headers.len() > config.client_limits.headers {
            return Ok(exchange.reply(Reply::problem(
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "The request has too many header fields.",
            )));
        }

        // Which target does the request have, and how is it framed?
        let survey = rules.survey(&request.headers);
        let target = match parse_target(&request, survey) {
            Ok(target) => target,
            Err(Rejection { status, detail }) => {
                return Ok(exchange.reply(Reply::problem(status, detail).closing()));
            }
        };

        // May its address send requests at all?
        let client_ip = rules.trusted_proxies.client_address(
            client.peer().address().ip(),
            is_peer_trusted,
            &request.headers,
        );
        let ClientIp { ip: address, is_known: is_address_known } = client_ip;
        if let Some(watched) = client.hand_off().watched()
            && let judgement = watched.judge(address_of_client(config, address), client.timer().now())
            && judgement != Judgement::Served
        {
            exchange.set_client(address, None);
            if judgement == Judgement::RefusedNow {
                worker.record_flood(Peer::Address((address, 0).into()), Http2Abuse::RapidResets);
                worker.metrics().thread().http2_abuse(Http2Abuse::RapidResets).inc();
            }
            return Ok(refuse(&worker, exchange, &request, body, Reply::too_many_ended_early()));
        }
        if let Some(rule) = rules.access.everywhere()
            && let Some(reply) = check_access(&worker, &mut exchange, rule, client_ip)
        {
            exchange.set_client(address, None);
            // The connection of a trusted proxy carries the requests of other clients, too.
            let reply = if is_peer_trusted { reply } else { reply.closing() };
            return Ok(refuse(&worker, exchange, &request, body, reply));
        }

        // Does the listener serve this client?
        if let Some(reply) = client.listener_reply()
            && reply.is_for(&request.headers, is_peer_trusted)
        {
            return Ok(refuse(&worker, exchange, &request, body, reply.reply(&target)));
        }

        // Who is the client?
        let certificate = client.certificate();
        let credentials = Credentials { headers: &request.headers, is_peer_trusted, certificate };
        let identity = rules.identify(credentials);
        exchange.set_client(address, rules.written_user(&identity));
        worker.sampler.record(address, rules.untrusted_peer(&client, &request.headers, survey));

        // Where does the request go?
        let route_index = match rules.router.find(&request.method, &target, &request.headers) {
            Ok(index) => index,
            Err(Rejection { status, detail }) => {
                return Ok(refuse(&worker, exchange, &request, body, Reply::problem(status, detail)));
            }
        };
        exchange.set_route(route_index);
        let mut route = &config.routes[route_index];
        if let Some(Some(cors)) = rules.cors.get(route_index) {
            exchange.set_cors(CorsResponse::new(cors, &request.headers));
        }
        if let Some(edits) = &route.response_headers {
            let edits = FilledEdits::new(edits, &exchange.placeholders(&rules.router, &target, &identity));
            exchange.edit_response(edits);
        }

        let identity = &identity;
        let mut context = RequestContext {
            request: &request,
            target: &target,
            route,
            address,
            is_address_known,
            identity,
            certificate,
            is_peer_trusted,
        };
        if let Some(split) = &route.split {
            route =
                split_route(split, &context, || client_address(&worker, &client, address)).unwrap_or(route);
            context.route = route;
        }

        // May its address send requests there?
        if let Some(rule) = rules.access.of_route(route_index)
            && let Some(reply) = check_access(&worker, &mut exchange, rule, client_ip)
        {
            return Ok(refuse(&worker, exchange, &request, body, reply));
        }

        // Is the client banned?
        if let Some(reply) = check_bans(&worker, &client, &mut exchange, &context) {
            return Ok(refuse(&worker, exchange, &request, body, reply));
        }

        // Is the body too long? A body of unknown length is measured while it is received.
        if !body.is_end_stream()
            && config.max_body(route, client.listener()).is_some_and(|max| body.size_hint().lower() > max)
        {
            return Ok(refuse(&worker, exchange, &request, body, Reply::body_too_large()));
        }

        // Do the policies of the route admit the request?
        let mut outcomes = Outcomes::new();
        let delay = match admit(&worker, &client, &mut exchange, &context, &mut outcomes).await {
            Admission::Admitted { delay } => delay,
            Admission::Denied => {
                let stays_open = discard(&worker, &exchange, &request, body);
                let (policy, reply) = rules.quotas.denial(&outcomes, request.headers);
                exchange.verdict.deny(policy);
                return Ok(exchange.reply(if stays_open { reply } else { reply.closing() }));
            }
            Admission::Unidentified(policy) => {
                let outcome = PolicyOutcome::unidentified(policy, &rules.policies[policy]);
                exchange.verdict.deny(policy);
                return Ok(refuse(&worker, exchange, &request, body, rules.quotas.unidentified(outcome)));
            }
            Admission::Undecided => return Ok(refuse(&worker, exchange, &request, body, Reply::undecided())),
        };

        // Wait for the GCRA slot.
        client.timer().delay(delay).await;
        if client.timer().is_call_over() {
            // Boxed, as below: other requests would need room for its state.
            let reply = Reply::gateway_timeout();
            let reply = Box::pin(with_quota(&worker, &exchange, &mut outcomes, reply)).await;
            return Ok(refuse(&worker, exchange, &request, body, reply));
        }

        // Does the route reply itself?
        let upstream_index = match route_reply::upstream_of(&exchange, &context, &rules.router) {
            Ok(index) => index,
            Err(reply) => {
                // Boxed: other requests would need room for its state.
                let responded =
                    route_reply::respond(&worker, exchange, &context, body, &mut outcomes, *reply);
                return Ok(Box::pin(responded).await);
            }
        };

        // Which path does the upstream get?
        let mut rewritten = None;
        if let Some(rewrite) = &route.rewrite {
            match RewrittenPath::new(rewrite, &exchange.placeholders(&rules.router, &target, identity)) {
                Ok(path) => rewritten = path,
                Err(Rejection { status, detail }) => {
                    let reply = Reply::problem(status, detail);
                    let reply = Box::pin(with_quota(&worker, &exchange, &mut outcomes, reply)).await;
                    return Ok(refuse(&worker, exchange, &request, body, reply));
                }
            }
        }

        // Receive a small body before a connection is taken for it.
        let upstream = &config.upstreams[upstream_index];
        let body = if body.is_end_stream() {
            ReceivedBody::Whole(Bytes::new())
        } else if is_buffered(&request, &body, upstream.request_buffering)
            && let Some(_room) = worker.body_room.reserve(&body)
        {
            // Boxed: most requests have no body, but would need room for its state.
            match Box::pin(receive(body, client.connection(), &config.client_limits)).await {
                Ok(whole) => ReceivedBody::Whole(whole),
                Err(reply) => {
                    exchange.client_broke_off();
                    let reply = Box::pin(with_quota(&worker, &exchange, &mut outcomes, reply)).await;
                    return Ok(exchange.reply(reply));
                }
            }
        } else {
            ReceivedBody::Stream(body)
        };

        let is_safe = request.method.is_safe();

        let exempt = exempt_rules(&worker, &client, &context);

        // Is it tied to one of the endpoints?
        let key = request_key(&worker, &client, &context, upstream);
        let sticky = StickyCookie::take(upstream, &client, &mut request.headers);
        let affinity = Affinity { key, host: sticky.as_ref().and_then(|cookie| cookie.host) };

        // Forward the request, and wait for the head of the response.
        // hyper supports no hints over HTTP/2; HTTP/1.0 has none.
        let takes_hints = route.early_hints == EarlyHints::Pass && request.version == Version::HTTP_11;
        let hinted = takes_hints.then(|| HintedRequest::new(client.connection()));
        // In a block, because a borrowed local keeps its place in the future until its scope ends.
        let (request, progress) = {
            let (mut request, progress) = rewrite::upstream_request(
                &worker,
                &client,
                &exchange,
                route,
                &target,
                (request, survey),
                body,
            );
            if let Some(path) = rewritten {
                path.apply(&mut request, config.forwarded);
            }
            if let Some(edits) = &route.request_headers {
                let values = exchange.placeholders(&rules.router, &target, identity);
                FilledEdits::new(edits, &values).apply_to_request(request.headers_mut());
            }
            if let Some(upgrade) = &upgrade {
                upgrade.request(request.headers_mut());
            }
            (request, progress)
        };
        let shared = worker.upstreams[upstream_index].shared();
        let client_address = address_of_client(config, address);
        let upstream_client = client.hand_off().upstream_client(shared, client_address);
        exchange.forward_started(&upstream.name);
        let (reservation, asked) = (exchange.reservation(), upgrade.as_deref());
        let forwarder =
            Forwarder::new(&worker, &client, &upstream_client, route, upstream_index, reservation, asked);
        let upload = progress.clone();
        let mut retried = Vec::new();
        let mut forwarded = match forwarder.forward(request, progress, &affinity, &mut retried).await {
            Ok(forwarded) => forwarded,
            Err(reply) => {
                exchange.set_retried(retried);
                if upload.is_some_and(|upload| upload.fault() == Some(BodyFault::Broken)) {
                    exchange.client_broke_off();
                }
                exchange.forward_failed(reply.status);
                let reply = Box::pin(with_quota(&worker, &exchange, &mut outcomes, reply)).await;
                return Ok(exchange.reply(reply));
            }
        };
        exchange.set_retried(retried);
        if let Some(hinted) = hinted {
            hinted.flushed().await;
        }
        if let Some(cookie) = sticky {
            cookie.renew(forwarded.host.id, forwarded.response.headers_mut());
        }
        exchange.forward_responded(&forwarded.host.endpoint, forwarded.response.status());

        // Record the response, if it tells something about a limited client.
        let status = forwarded.response.status();
        if !route.policies.is_empty() && worker.recorder.wants_response(client_address, status) {
            let client = abuse::masked(address, config.client_address.ipv6_prefix);
            let request = RequestLine { is_safe, path: target.path(), query: target.query() };
            worker.recorder.record_response(&abuse::ObservedResponse {
                client,
                request,
                status,
                now: exchange.time(),
            });
        }

        // Refund the units that this response does not cost.
        reservation::settle(&rules.policies, &exchange, &mut outcomes, || {
            response_status(&forwarded.response)
        })
        .await;

        let owner = || ExchangeOwner { address, user: user_key(identity), exempt };
        if let Some(upgrade) = upgrade
            && forwarded.response.status() == StatusCode::SWITCHING_PROTOCOLS
        {
            // Boxed: other requests would need room for its state.
            return Ok(Box::pin(tunnel::open(
                &worker,
                &client,
                exchange,
                route,
                (*upgrade, owner()),
                forwarded,
                &outcomes,
            ))
            .await);
        }

        // Respond, with the quota fields.
        Ok(rewrite::client_response(&worker, &client, exchange, route, forwarded, &outcomes, owner))
    }
}

/// The address that identifies the client: for IPv6, the first bits only.
fn address_of_client(config: &Config, address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(_) => abuse::masked(address, config.client_address.ipv6_prefix).addr(),
    }
}

/// The reply to a client whose address may not send the request.
fn check_access<S>(
    worker: &Worker<S>,
    exchange: &mut Exchange,
    rule: &AccessRule,
    client: ClientIp,
) -> Option<Reply> {
    let denial = rule.denial(client)?;
    let names = &worker.telemetry.policies;
    exchange.verdict.forbid(names.iter().rposition(|name| name == denial.setting()).unwrap_or(names.len()));
    Some(Reply::forbidden_address())
}

/// The proxy's own `reply` to a request that its policies have admitted, with the quota after this request.
async fn with_quota<S>(
    worker: &Worker<S>,
    exchange: &Exchange,
    outcomes: &mut [PolicyOutcome],
    mut reply: Reply,
) -> Reply {
    reservation::settle_refused(&worker.rules.policies, exchange, outcomes).await;
    worker.rules.quotas.add_fields(&mut reply.headers, outcomes);
    reply
}

/// Replies to a request that is not forwarded.
fn refuse<S>(
    worker: &Worker<S>,
    exchange: Box<Exchange>,
    request: &request::Parts,
    body: Incoming,
    reply: Reply,
) -> Response<ResponseBody> {
    match discard(worker, &exchange, request, body) {
        true => exchange.reply(reply),
        false => exchange.reply(reply.closing()),
    }
}

/// Bytes of a refused request's body that are read to keep its connection.
const MAX_DISCARDED: u64 = 64 << 10;
/// How long the body of a refused HTTP/2 request is read.
const DISCARD_STREAM_FOR: Duration = Duration::from_secs(1);

/// Reads and drops the body of a refused request, so that its connection can serve the next one: hyper closes a
/// connection whose body is dropped unread.
///
/// Over HTTP/2, a dropped body resets only its own stream. But some clients lose a response that is followed by a
/// reset at once (seen with curl 7.88), so the body is read for a while. Unread, its bytes would occupy the window
/// that all streams of the connection share.
///
/// False if the connection has to be closed: over HTTP/1, if the body is long, or the client waits for a 100 before
/// it sends it.
pub(super) fn discard<S>(
    worker: &Worker<S>,
    exchange: &Exchange,
    request: &request::Parts,
    mut body: Incoming,
) -> bool {
    if body.is_end_stream() {
        return true;
    }
    if request.version == Version::HTTP_2 {
        let client = Rc::clone(exchange.connection());
        tokio::task::spawn_local(async move {
            let read = async {
                while let Some(Ok(frame)) = body.frame().await {
                    client.meter().add_received(frame.data_ref().map_or(0, |data| data.len() as u64));
                }
            };
            let _late = timeout(DISCARD_STREAM_FOR, read).await;
        });
        return true;
    }
    if body.size_hint().lower() > MAX_DISCARDED
        || expect_continue::wants_continue(request.version, &request.headers)
    {
        return false;
    }
    let ClientLimits { idle_timeout, min_rate, .. } = worker.config().client_limits;
    let mut budget = RateBudget::new(min_rate, idle_timeout);
    let metrics = Arc::clone(worker.metrics().thread());
    let client = Rc::clone(exchange.connection());
    let request = client.meter().request_number();
    // Meanwhile the response has time limits of its own, so this read does not use the connection's.
    tokio::task::spawn_local(async move {
        let mut read = 0;
        while read <= MAX_DISCARDED {
            let waits_since = Instant::now();
            let Ok(frame) = timeout(idle_timeout.min(budget.left()), body.frame()).await else {
                let reason = match budget.left() < idle_timeout {
                    true => CutOffReason::MinRate,
                    false => CutOffReason::IdleTimeout,
                };
                metrics.cut_offs().counter(CutOff { body: CutOffBody::Request, reason }).inc();
                break;
            };
            let frame = match frame {
                Some(Ok(frame)) => frame,
                Some(Err(_)) => break,
                None => {
                    client.refused_body_was_read(request);
                    break;
                }
            };
            let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
            budget.spend(waits_since.elapsed());
            budget.earn(bytes);
            read += bytes;
        }
    });
    true
}
