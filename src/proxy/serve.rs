//! The way of a request, from top to bottom.

use std::{convert::Infallible, rc::Rc};

use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header, request};
use http_body::Body;
use hyper::body::Incoming;

use super::{
    checks::{self, Admission},
    client::Client,
    discard::discard,
    exchange::Exchange,
    expect::{self, Gate},
    forward::{self, Way},
    forwarded, headers,
    reply::Reply,
    request_body::{BodyTimeouts, RequestBody},
    response_body::{ResponseBody, Source, Streaming},
    worker::Worker,
};
use crate::{
    identity::user,
    limit::Store,
    router::{Refused, Target},
};

/// Serves one request of `client`.
///
/// # Errors
/// None: whatever happens is an answer.
pub async fn serve<S: Store>(
    request: Request<Incoming>,
    worker: Rc<Worker<S>>,
    client: Rc<Client>,
) -> Result<Response<ResponseBody>, Infallible> {
    let (mut request, body) = request.into_parts();
    client.patience().expect_body(!body.is_end_stream());
    let config = &worker.config;
    let request_id = request_id(&request.headers, &config.request_id, client.is_trusted());
    let mut exchange = Exchange::begin(&worker.ledger, &client, &request, request_id);

    // What is asked for, and in what framing?
    let target = match target(&request) {
        Ok(target) => target,
        Err(Refused { status, detail }) => {
            return Ok(exchange.reply(Reply::problem(status, detail).closing()));
        }
    };

    // Who asks?
    let address =
        worker.trusted_proxies.client_address(client.peer().ip(), client.is_trusted(), &request.headers);
    let user = user(&config.user, &request.headers, client.is_trusted());
    exchange.identified(address, user.as_ref());

    // Where does it go?
    let route = match worker.router.find(&request.method, &target, &request.headers) {
        Ok(index) => index,
        Err(Refused { status, detail }) => {
            return Ok(refuse(exchange, &request, body, Reply::problem(status, detail)));
        }
    };
    exchange.routed(route);
    let route = &config.routes[route];

    // Do all its policies admit it?
    let asked = checks::Asked { request: &request, target: &target, route, address, user: user.as_ref() };
    let said = match checks::admit(&worker, &client, &exchange, &asked).await {
        Admission::Admitted(said) => said,
        Admission::Denied { policy, reply } => {
            exchange.limited(policy);
            return Ok(refuse(exchange, &request, body, reply));
        }
        Admission::Undecided => return Ok(refuse(exchange, &request, body, Reply::undecided())),
    };

    // To the upstream, and back.
    let received = request.version;
    let gate = (!body.is_end_stream() && expect::wants_continue(received, &request.headers)).then(Gate::new);
    let opener = gate.as_ref().map(Gate::opener);
    headers::remove_hop_by_hop(&mut request.headers);
    if request.uri.authority().is_some()
        && let Some(host) = target.host()
    {
        // RFC 9112, 3.2.2: the absolute form wins over Host.
        request.headers.insert(header::HOST, host.field().clone());
    }
    forwarded::tell(&mut request.headers, &client, config.forwarded, &worker.claims);
    headers::append_via(&mut request.headers, &worker.via, received);
    request.headers.insert(&config.request_id, exchange.request_id().clone());
    request.uri = Uri::from(target.path_and_query().clone());
    request.version = Version::HTTP_11;

    let timeouts =
        BodyTimeouts { client: config.client_limits.idle_timeout, upstream: route.timeouts.response };
    let (body, progress) = match body.is_end_stream() {
        true => (RequestBody::Empty, None),
        false => {
            if body.size_hint().exact().is_none() {
                // Unless it is told so, hyper takes a GET of unknown length to have no body.
                request.headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
            }
            let (body, progress) = RequestBody::stream(body, gate, Rc::clone(client.patience()), timeouts);
            (body, Some(progress))
        }
    };
    let mut request = Request::from_parts(request, body);
    if let Some(opener) = opener {
        opener.attach(&mut request);
    }
    let way = Way {
        upstream: &worker.upstreams[route.upstream],
        index: route.upstream,
        timeouts: route.timeouts,
        patience: client.patience(),
        metrics: worker.metrics(),
        complaints: &worker.ledger.complaints,
    };
    let forward::Answer { response, mut lease, endpoint } =
        match forward::forward(way, request, progress).await {
            Ok(answer) => answer,
            Err(reply) => return Ok(exchange.reply(reply)),
        };
    exchange.answered_by(config.upstreams[route.upstream].endpoints[endpoint].authority.as_str());

    // The answer, with what the client should know of its limits.
    let (mut response, body) = response.into_parts();
    headers::remove_hop_by_hop(&mut response.headers);
    headers::merge_lengths(&mut response.headers);
    headers::append_via(&mut response.headers, &worker.via, response.version);
    worker.quotas.tell(&mut response.headers, &said);
    if !lease.is_request_sent() {
        // Nobody may be left to read the rest: what the client sent after it would be lost.
        response.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    let source = if body.is_end_stream() {
        lease.end();
        Source::Whole(bytes::Bytes::new())
    } else {
        let patience = Rc::clone(client.patience());
        let (upstream, reader) = (route.timeouts.idle, config.client_limits.idle_timeout);
        Source::Upstream(Streaming::new(body, lease, patience, upstream, reader))
    };
    Ok(exchange.respond(response, source))
}

/// Answers a request that goes no further.
fn refuse(
    exchange: Exchange,
    request: &request::Parts,
    body: Incoming,
    reply: Reply,
) -> Response<ResponseBody> {
    match discard(request, body) {
        true => exchange.reply(reply),
        false => exchange.reply(reply.closing()),
    }
}

/// The ID that a trusted proxy gave the request, or a new one: 128 random bits in hex.
fn request_id(headers: &HeaderMap, name: &header::HeaderName, trusted: bool) -> HeaderValue {
    if trusted && let Some(id) = headers.get(name) {
        return id.clone();
    }
    let mut hex = [0; 32];
    for (digits, byte) in hex.chunks_exact_mut(2).zip(fastrand::u128(..).to_le_bytes()) {
        digits.copy_from_slice(&HEX[usize::from(byte)]);
    }
    HeaderValue::from_bytes(&hex).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// Two digits a byte.
const HEX: [[u8; 2]; 256] = {
    let mut table = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = [b"0123456789abcdef"[byte >> 4], b"0123456789abcdef"[byte & 15]];
        byte += 1;
    }
    table
};

/// What the request is for, if it can be read in one way only.
fn target(request: &request::Parts) -> Result<Target, Refused> {
    framing(&request.headers)?;
    Target::of(&request.method, &request.uri, request.version, &request.headers)
}

fn framing(headers: &HeaderMap) -> Result<(), Refused> {
    match headers::is_coded(headers) {
        false => Ok(()),
        true => Err(Refused {
            status: StatusCode::NOT_IMPLEMENTED,
            detail: "No transfer coding but chunked is supported.",
        }),
    }
}

/// A CORS preflight (Fetch, 4.8), which browsers send of their own accord.
pub(super) fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    *method == Method::OPTIONS
        && headers.contains_key(header::ORIGIN)
        && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}
