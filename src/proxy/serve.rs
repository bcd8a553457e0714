//! The way of a request, from top to bottom.

use std::{convert::Infallible, rc::Rc};

use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header, request};
use http_body::Body;
use hyper::body::Incoming;

use super::{
    checks::{self, Admission},
    client::Client,
    exchange::Exchange,
    expect::{self, Gate},
    forward::{self, Way},
    forwarded, headers, leftover,
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
    let config = &worker.config;
    let request_id = request_id(&request.headers, &config.request_id, client.is_trusted());
    let mut exchange = Exchange::begin(&worker.ledger, &client, &request, request_id);

    // What is asked for, and in what framing?
    let target = match target(&request) {
        Ok(target) => target,
        Err(Refused { status, detail }) => {
            client.patience().leave_body();
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
            let reply = Reply::problem(status, detail);
            return Ok(refuse(exchange, reply, &client, &request.headers, body).await);
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
            return Ok(refuse(exchange, reply, &client, &request.headers, body).await);
        }
        Admission::Undecided => {
            return Ok(refuse(exchange, Reply::undecided(), &client, &request.headers, body).await);
        }
    };

    // To the upstream, and back.
    let received = request.version;
    let gate = (expect::wants_continue(&request.headers) && !body.is_end_stream()).then(Gate::new);
    let opener = gate.as_ref().map(Gate::opener);
    headers::remove_hop_by_hop(&mut request.headers);
    if let Some(host) = target.host() {
        request.headers.insert(header::HOST, host.field().clone());
    }
    forwarded::tell(&mut request.headers, &client, config.forwarded, &config.client_address);
    headers::append_via(&mut request.headers, &worker.via, received);
    request.headers.insert(&config.request_id, exchange.request_id().clone());
    request.uri = Uri::from(target.path_and_query().clone());
    request.version = Version::HTTP_11;

    let timeouts =
        BodyTimeouts { client: config.client_limits.idle_timeout, upstream: route.timeouts.response };
    let (body, progress) = match body.is_end_stream() {
        true => (RequestBody::Empty, None),
        false => {
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
    headers::append_via(&mut response.headers, &worker.via, response.version);
    worker.quotas.tell(&mut response.headers, &said);
    let source = if body.is_end_stream() {
        lease.end();
        Source::Whole(bytes::Bytes::new())
    } else {
        let patience = Rc::clone(client.patience());
        let (upstream, reader) = (route.timeouts.idle, config.client_limits.idle_timeout);
        Source::Upstream(Streaming::new(body, lease, patience, upstream, reader))
    };
    let mut answer = exchange.respond(response.status, response.headers, source);
    *answer.extensions_mut() = response.extensions;
    Ok(answer)
}

/// Answers with `reply` a request whose body nobody needs. Where the client waits for a 100, or the body is
/// not at its end soon, the connection ends: else it goes on.
async fn refuse(
    exchange: Exchange,
    reply: Reply,
    client: &Client,
    headers: &HeaderMap,
    body: Incoming,
) -> Response<ResponseBody> {
    if body.is_end_stream() || !expect::wants_continue(headers) && leftover::read_out(body).await {
        return exchange.reply(reply);
    }
    client.patience().leave_body();
    exchange.reply(reply.closing())
}

/// The ID that a trusted proxy gave the request, or a new one: 128 random bits in hex.
fn request_id(headers: &HeaderMap, name: &header::HeaderName, trusted: bool) -> HeaderValue {
    if trusted && let Some(id) = headers.get(name) {
        return id.clone();
    }
    let mut hex = [0; 32];
    let mut random = fastrand::u128(..);
    for digit in &mut hex {
        *digit = b"0123456789abcdef"[(random & 15) as usize];
        random >>= 4;
    }
    HeaderValue::from_bytes(&hex).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// What the request is for, if it can be read in one way only.
fn target(request: &request::Parts) -> Result<Target, Refused> {
    framing(&request.headers)?;
    Target::of(&request.method, &request.uri, request.version, &request.headers)
}

/// hyper takes a body whose last coding is `chunked` for what it is, but not the codings before it:
/// passed on without them, it would be another message (RFC 9112, 6.1).
fn framing(headers: &HeaderMap) -> Result<(), Refused> {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(coding), None) if coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked") => Ok(()),
        _ => Err(Refused {
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
