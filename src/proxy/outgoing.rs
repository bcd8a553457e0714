//! A request as the upstream gets it.

use std::rc::Rc;

use http::{HeaderValue, Request, Uri, Version, header, request};
use http_body::Body;
use hyper::body::Incoming;

use super::{
    client::Client,
    exchange::Exchange,
    expect::{self, Gate},
    forwarded, headers,
    request_body::{BodyTimeouts, Progress, RequestBody},
    worker::Worker,
};
use crate::{config::model::Route, router::Target};

/// Makes of what the client sent what the upstream gets: one framing of one message, for exactly the path
/// that `route` matched, with what the upstream should know of the client and nothing that the client
/// claims about itself. Beside it, how far the body has come, if there is one.
pub(super) fn request<S>(
    worker: &Worker<S>,
    client: &Client,
    exchange: &Exchange,
    route: &Route,
    target: &Target,
    mut head: request::Parts,
    body: Incoming,
) -> (Request<RequestBody>, Option<Rc<Progress>>) {
    let config = worker.config();
    let received = head.version;
    let gate = (!body.is_end_stream() && expect::wants_continue(received, &head.headers)).then(Gate::new);
    headers::remove_hop_by_hop(&mut head.headers);
    if head.uri.authority().is_some()
        && let Some(host) = target.host()
    {
        // RFC 9112, 3.2.2: the absolute form wins over Host.
        head.headers.insert(header::HOST, host.field().clone());
    }
    forwarded::tell(&mut head.headers, client, config.forwarded, &worker.rules.claims);
    exchange.tell_trace(&mut head.headers);
    headers::append_via(&mut head.headers, &worker.rules.via, received);
    head.headers.insert(&config.request_id, exchange.request_id().clone());
    head.uri = Uri::from(target.path_and_query().clone());
    head.version = Version::HTTP_11;

    if body.is_end_stream() {
        return (Request::from_parts(head, RequestBody::Empty), None);
    }
    if body.size_hint().exact().is_none() {
        // Unless it is told so, hyper takes a GET of unknown length to have no body.
        head.headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    let timeouts =
        BodyTimeouts { client: config.client_limits.idle_timeout, upstream: route.timeouts.response };
    let opener = gate.as_ref().map(Gate::opener);
    let (body, progress) = RequestBody::stream(body, gate, Rc::clone(client.patience()), timeouts);
    let mut request = Request::from_parts(head, body);
    if let Some(opener) = opener {
        opener.attach(&mut request);
    }
    (request, Some(progress))
}
