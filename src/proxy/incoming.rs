//! An upstream's answer as the client gets it.

use std::rc::Rc;

use bytes::Bytes;
use http::{HeaderValue, Response, header};
use http_body::Body;

use super::{
    client::Client,
    exchange::Exchange,
    forward::Answer,
    headers,
    quota::Said,
    response_body::{ResponseBody, Source, Streaming},
    worker::Worker,
};
use crate::config::model::Route;

/// Makes of what the upstream answered what the client gets, with what its limits `said`.
pub(super) fn answer<S>(
    worker: &Worker<S>,
    client: &Client,
    exchange: Exchange,
    route: &Route,
    answer: Answer,
    said: &[Said],
) -> Response<ResponseBody> {
    let Answer { response, mut lease, .. } = answer;
    let (mut head, body) = response.into_parts();
    headers::remove_hop_by_hop(&mut head.headers);
    headers::merge_lengths(&mut head.headers);
    headers::append_via(&mut head.headers, &worker.rules.via, head.version);
    worker.rules.quotas.tell(&mut head.headers, said);
    if !lease.is_request_sent() {
        // Nobody may be left to read the rest: what the client sent after it would be lost.
        head.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    let source = if body.is_end_stream() {
        lease.end();
        Source::Whole(Bytes::new())
    } else {
        let patience = Rc::clone(client.patience());
        let reader = worker.config().client_limits.idle_timeout;
        Source::Upstream(Streaming::new(body, lease, patience, route.timeouts.idle, reader))
    };
    exchange.respond(head, source)
}
