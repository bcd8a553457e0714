//! The changes that the proxy makes to messages: to requests for the upstream, and to responses for the client.

use std::rc::Rc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri, Version, header, request};
use http_body::Body;
use hyper::body::Incoming;

use super::{
    client::ClientInfo,
    client_request::ClientRequest,
    early_hints::handle_informational,
    exchange::Exchange,
    expect_continue::{self, ContinueGate},
    field_survey::{FieldKind, FieldSurvey},
    forwarding_headers,
    grpc::is_grpc,
    header_edits::FilledEdits,
    headers, max_forwards,
    open_exchanges::{ExchangeKind, ExchangeOwner},
    path_rewrite::RewrittenPath,
    request_body::{BodyProgress, BodyTimeouts, RequestBody},
    request_buffering::ReceivedBody,
    request_context::FoundRoute,
    reservation::ReservationGuard,
    response_body::{BodySource, ResponseBody, UpstreamBody},
    trailers::TrailerFilter,
    tunnel::Upgrade,
    upstream_response::UpstreamResponse,
    worker::Worker,
};
use crate::{
    config::model::{EarlyHints, Route, Trailers},
    http2_frames::copy_values,
    response_cost::media_type,
};

/// Fields that a request usually gets on its way: X-Forwarded-For, -Proto and -Host, Via, and the request's number.
const ADDED_FIELDS: usize = 5;

/// The request for the upstream, and the progress of its body, if it has one: with unambiguous framing, a path that leads
/// to `route` however it is read, forwarding fields, and without the client's own claims about its identity. `path`: the
/// rewritten one.
pub(super) fn upstream_request<S>(
    served: &ClientRequest<'_, S>,
    route: &Route,
    found: &FoundRoute,
    (mut head, survey): (request::Parts, FieldSurvey),
    body: ReceivedBody,
    path: Option<Box<RewrittenPath<'_>>>,
    upgrade: Option<&Upgrade>,
) -> (Request<RequestBody>, Option<Rc<BodyProgress>>) {
    let ClientRequest { worker, client, exchange, .. } = served;
    let wants_continue = matches!(body, ReceivedBody::Stream(_))
        && expect_continue::wants_continue(head.version, &head.headers);
    let gate = wants_continue.then(ContinueGate::new);
    rewrite_head(served, route, found, &mut head, survey);
    let hints = match route.early_hints {
        EarlyHints::Drop => None,
        EarlyHints::Pass => client.hand_off().early_hints(),
    };
    let opener = gate.as_ref().map(ContinueGate::opener);
    let (body, progress) = match body {
        ReceivedBody::Whole(bytes) if bytes.is_empty() => (RequestBody::Empty, None),
        ReceivedBody::Whole(bytes) => (RequestBody::Buffered(Box::new(bytes)), None),
        ReceivedBody::Edited(bytes) => {
            // They belong to the client's body.
            for name in ["content-digest", "digest", "content-md5"] {
                head.headers.remove(name);
            }
            // The filter that takes the usage out can't edit a compressed stream.
            head.headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
            (RequestBody::Buffered(Box::new(bytes)), None)
        }
        ReceivedBody::Stream(body) => {
            let body = (Bytes::new(), body);
            let (body, progress) = streamed_body(worker, client, route, &mut head.headers, body, gate);
            (body, Some(progress))
        }
        ReceivedBody::Begun(begun, rest) => {
            let body = (begun, rest);
            let (body, progress) = streamed_body(worker, client, route, &mut head.headers, body, gate);
            (body, Some(progress))
        }
    };
    narrow_codings(exchange, &mut head.headers);
    let mut request = Request::from_parts(head, body);
    handle_informational(&mut request, opener, hints, &worker.rules.via);
    if let Some(path) = path {
        path.apply(&mut request, worker.config().forwarded);
    }
    if let Some(keys) = &worker.rules.keys
        && let Some(uri) = keys.revealed(request.uri(), request.extensions())
    {
        *request.uri_mut() = uri;
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

/// Changes the head of a request for the upstream.
fn rewrite_head<S>(
    served: &ClientRequest<'_, S>,
    route: &Route,
    found: &FoundRoute,
    head: &mut request::Parts,
    survey: FieldSurvey,
) {
    let ClientRequest { worker, client, exchange, .. } = served;
    let (config, claims) = (worker.config(), &worker.rules.claims);
    // hyper's map for the first request of a connection is as small as that request: it grows once, not at each field.
    head.headers.reserve(ADDED_FIELDS);
    // A client cannot remove the fields that a trusted proxy sets about it.
    headers::remove_surveyed_hop_by_hop(&mut head.headers, survey, |name| {
        client.is_trusted() && claims.mentions(name)
    });
    if head.uri.authority().is_some()
        && let Some(host) = found.target.host()
    {
        // RFC 9112, 3.2.2: the absolute form wins over Host.
        head.headers.insert(header::HOST, host.field().clone());
    }
    let claim = if client.is_trusted() { FieldKind::MisspelledClaim } else { FieldKind::Claim };
    if survey.has(claim) {
        claims.remove_from_head(&mut head.headers, client.is_trusted(), route.method_override);
    }
    let has_claims = client.is_trusted() && survey.has(FieldKind::Claim);
    forwarding_headers::set(&mut head.headers, client, config, has_claims);
    exchange.propagate_trace(&mut head.headers);
    headers::append_via(&mut head.headers, &worker.rules.via, head.version);
    if max_forwards::applies(&head.method) {
        max_forwards::count_down(&mut head.headers);
    }
    head.headers.insert(&config.request_id, exchange.request_id().clone());
    head.uri = Uri::from(found.target.forwarded(route.dot_segments).clone());
    if let Some(keys) = &worker.rules.keys {
        keys.prepare_upstream(&mut head.headers, &found.identity);
    }
    head.version = Version::HTTP_11;
}

/// A body that is streamed to the upstream, and its progress. Sets the fields of `headers` that belong to it.
fn streamed_body<S>(
    worker: &Worker<S>,
    client: &ClientInfo,
    route: &Route,
    headers: &mut HeaderMap,
    body: (Bytes, Incoming),
    gate: Option<ContinueGate>,
) -> (RequestBody, Rc<BodyProgress>) {
    let config = worker.config();
    let mut trailers = TrailerFilter::NONE;
    if body.1.size_hint().exact().is_none() {
        // Without it, hyper assumes that a GET of unknown length has no body.
        headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        let (claims, edits) = (&worker.rules.claims, route.request_headers.as_ref());
        trailers = TrailerFilter::new(route.trailers, claims, edits, headers);
    }
    let timeouts = BodyTimeouts {
        response: route.timeouts.response,
        idle: route.timeouts.idle,
        is_call: is_grpc(headers),
    };
    let max = config.max_body(route, client.listener());
    RequestBody::stream(body, gate, client.connection(), &config.client_limits, max, timeouts, trailers)
}

/// Builds the client's response from the upstream's, with the quota fields. `is_usage_unasked`: whether the upstream was
/// asked for an event with the usage that the client had not asked for. Later bans find the client by `owner`.
pub(super) fn client_response<S>(
    worker: &Worker<S>,
    client: &ClientInfo,
    exchange: Box<Exchange>,
    (route, is_usage_unasked): (&Route, bool),
    forwarded: UpstreamResponse,
    owner: impl FnOnce() -> ExchangeOwner,
) -> Response<ResponseBody> {
    let UpstreamResponse { response, survey, mut connection, .. } = forwarded;
    let (mut head, body) = response.into_parts();
    headers::remove_surveyed_hop_by_hop(&mut head.headers, survey, |_| false);
    if survey.has(FieldKind::RepeatedLength) {
        headers::merge_lengths(&mut head.headers);
    }
    if head.status == StatusCode::NO_CONTENT {
        // It must not have one (RFC 9110, 8.6), and HTTP/2 clients would take the response for malformed.
        head.headers.remove(header::CONTENT_LENGTH);
    }
    exchange.remove_foreign_cors(&mut head.headers);
    if client.connection().is_stream() {
        copy_values(&mut head.headers);
    }
    let received = head.version;
    headers::append_via(&mut head.headers, &worker.rules.via, received);
    worker.rules.quotas.add_fields(&mut head.headers, &exchange.outcomes);
    if !connection.is_request_sent() {
        // The rest of the request's body may never be read, and a request after it would be lost.
        head.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    let source = if body.is_end_stream() {
        connection.end();
        BodySource::Whole(Bytes::new())
    } else if exchange.is_head() || matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        // It has no body (RFC 9110, 6.4.1). Over HTTP/2, its head may arrive without the end of its stream.
        connection.read_end(body);
        BodySource::Whole(Bytes::new())
    } else {
        let client = Rc::clone(client.connection());
        let client_timeout = worker.config().client_limits.idle_timeout;
        let (mut trailers, mut guard) = (TrailerFilter::NONE, None);
        let has_length = body.size_hint().exact().is_some();
        if !has_length {
            let may_be_closed = worker.config().close_banned_tunnels || worker.rules.keys.is_some();
            guard = may_be_closed.then(|| worker.register_exchange(ExchangeKind::Stream, owner()));
        }
        // Over HTTP/2, trailers may follow a body of known length.
        if !has_length || received == Version::HTTP_2 {
            let setting = if is_grpc(&head.headers) { Trailers::Pass } else { route.trailers };
            trailers = TrailerFilter::new(
                setting,
                &worker.rules.claims,
                route.response_headers.as_ref(),
                &mut head.headers,
            );
        }
        let is_usage_unasked = is_usage_unasked && is_plain_event_stream(&head.headers);
        if is_usage_unasked {
            head.headers.remove(header::CONTENT_LENGTH);
        }
        let body = UpstreamBody::new(body, connection, client, route.timeouts.idle, client_timeout, trailers);
        BodySource::Upstream(Box::new(body.guarded(guard).without_usage(is_usage_unasked)))
    };
    exchange.respond(head, source)
}

/// Asks only for codings that a meter can read, if the response's body tells its cost.
fn narrow_codings(exchange: &Exchange, headers: &mut HeaderMap) {
    let costs = exchange.reservation().map_or(&[][..], ReservationGuard::costs);
    if costs.iter().all(|cost| cost.settings.body.is_none()) {
        return;
    }
    let takes_gzip = headers.get_all(header::ACCEPT_ENCODING).iter().any(|value| {
        let codings = value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        codings.into_iter().any(|coding| {
            let mut parts = coding.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
            let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(b"gzip") || name == b"*");
            is_gzip && !parts.any(|weight| matches!(weight, b"q=0" | b"q=0.0" | b"q=0.00" | b"q=0.000"))
        })
    });
    let codings = if takes_gzip { "gzip, identity" } else { "identity" };
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(codings));
}

fn is_plain_event_stream(headers: &HeaderMap) -> bool {
    media_type(headers).is_some_and(|media_type| media_type == "text/event-stream")
        && !headers.contains_key(header::CONTENT_ENCODING)
}
