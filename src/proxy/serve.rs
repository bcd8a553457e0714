//! The way of a request, from top to bottom.

use std::{convert::Infallible, rc::Rc};

use http::{Request, Response, request};
use http_body::Body;
use hyper::body::Incoming;

use super::{
    admit::{Admission, Admitted, admit},
    ban::shut_out,
    checks::Asked,
    client::Client,
    discard::discard,
    exchange::Exchange,
    forward::{Way, forward},
    incoming, outgoing,
    reply::Reply,
    request_id,
    response_body::ResponseBody,
    rules::target,
    settle,
    worker::Worker,
};
use crate::{identity::identify, limit::StoreAdmin, router::Refused};

/// Serves one request of `client`.
///
/// # Errors
/// None: whatever happens is an answer.
pub async fn serve<S: StoreAdmin + 'static>(
    request: Request<Incoming>,
    worker: Rc<Worker<S>>,
    client: Rc<Client>,
) -> Result<Response<ResponseBody>, Infallible> {
    let (request, body) = request.into_parts();
    client.patience().expect_body(!body.is_end_stream());
    let rules = &*worker.rules;
    let config = &rules.config;
    let request_id = request_id::of(&request.headers, &config.request_id, client.is_trusted());
    let mut exchange = Exchange::begin(&worker.ledger, &client, &request, request_id);

    // What is asked for, and in what framing?
    let target = match target(&request) {
        Ok(target) => target,
        Err(Refused { status, detail }) => {
            return Ok(exchange.reply(Reply::problem(status, detail).closing()));
        }
    };

    // Who asks?
    let is_peer_trusted = client.is_trusted();
    let address = rules.trusted_proxies.client_address(client.peer().ip(), is_peer_trusted, &request.headers);
    let identity = identify(&config.user, &rules.verifier, &request.headers, is_peer_trusted);
    exchange.identified(address, identity.user.as_ref());
    worker.sampler.record(address, rules.untrusted_peer(&client, &request.headers));

    // Where does it go?
    let route = match rules.router.find(&request.method, &target, &request.headers) {
        Ok(index) => index,
        Err(Refused { status, detail }) => {
            return Ok(refuse(exchange, &request, body, Reply::problem(status, detail)));
        }
    };
    exchange.routed(route);
    let route = &config.routes[route];

    // Is whoever asks shut out?
    let identity = &identity;
    let asked = Asked { request: &request, target: &target, route, address, identity, is_peer_trusted };
    if let Some(reply) = shut_out(&worker, &client, &mut exchange, &asked) {
        return Ok(refuse(exchange, &request, body, reply));
    }

    // Do all its policies admit it?
    let Admitted { mut said, delay } = match admit(&worker, &client, &mut exchange, &asked).await {
        Admission::Admitted(admitted) => admitted,
        Admission::Denied { policy, reply } => {
            exchange.limited(policy);
            return Ok(refuse(exchange, &request, body, reply));
        }
        Admission::Undecided => return Ok(refuse(exchange, &request, body, Reply::undecided())),
    };

    // Is its place some way off?
    client.patience().rest(delay).await;

    // To the upstream, and back.
    let (request, progress) = outgoing::request(&worker, &client, &exchange, route, &target, request, body);
    let upstream = &config.upstreams[route.upstream];
    exchange.forwarding(&upstream.name);
    let answer = match forward(Way::to(&worker, &client, route), request, progress).await {
        Ok(answer) => answer,
        Err(reply) => {
            exchange.unanswered(reply.status);
            return Ok(exchange.reply(reply));
        }
    };
    exchange.answered_by(&upstream.endpoints[answer.endpoint].authority, answer.response.status());

    // Does this answer count?
    settle::charge(&rules.policies, &exchange, &mut said, answer.response.status()).await;

    // The answer, with what the client should know of its limits.
    Ok(incoming::answer(&worker, &client, exchange, route, answer, &said))
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
