//! What the trace of a request is told on its way. Where it is not sampled, the time is not even asked for.

use std::time::Instant;

use http::{HeaderMap, HeaderValue, StatusCode, header, request, uri::Authority};

use super::{
    client::Client,
    exchange::{Exchange, Ledger},
};
use crate::telemetry::{
    metrics::Source,
    traces::{Head, Sent, Trace},
};

/// The trace of a request that has come, if requests are traced.
pub(super) fn begin(
    ledger: &Ledger,
    client: &Client,
    request: &request::Parts,
    request_id: &HeaderValue,
) -> Option<Trace> {
    let head = || Head {
        time: ledger.clock.at(Instant::now()),
        method: request.method.clone(),
        path: request.uri.path().to_owned(),
        host: text(request.headers.get(header::HOST)),
        request_id: text(Some(request_id)).unwrap_or_default(),
    };
    Some(ledger.tracer.as_ref()?.begin(&request.headers, client.is_trusted(), head))
}

fn text(value: Option<&HeaderValue>) -> Option<String> {
    Some(value?.to_str().ok()?.to_owned())
}

impl Exchange {
    /// Tells the upstream where in the trace it stands.
    pub(super) fn tell_trace(&self, headers: &mut HeaderMap) {
        if let Some(trace) = &self.trace {
            trace.tell(headers);
        }
    }

    /// The store is asked about so many checks.
    pub(super) fn deciding(&mut self, checks: usize) {
        self.record(|trace, time| trace.deciding(time, checks));
    }

    /// It has answered. `None`: it has not.
    pub(super) fn decided(&mut self, source: Option<Source>) {
        match source {
            Some(source) => self.judged.by(source),
            None => self.judged.undecided(),
        }
        self.record(|trace, time| trace.decided(time, source.map(Source::name)));
    }

    /// The request is on its way to this upstream.
    pub(super) fn forwarding(&mut self, upstream: &str) {
        self.record(|trace, time| trace.forwarding(time, upstream));
    }

    /// An endpoint has answered.
    pub(super) fn answered_by(&mut self, endpoint: &Authority, status: StatusCode) {
        self.log_upstream(endpoint.as_str());
        self.record(|trace, time| trace.forwarded(time, Sent::Answered(endpoint, status)));
    }

    /// None has, and the client is told this.
    pub(super) fn unanswered(&mut self, status: StatusCode) {
        self.record(|trace, time| trace.forwarded(time, Sent::Failed(status)));
    }

    fn record(&mut self, note: impl FnOnce(&mut Trace, i64)) {
        if let Some(trace) = self.trace.as_mut().filter(|trace| trace.is_sampled()) {
            note(trace, self.ledger.clock.at(Instant::now()));
        }
    }
}
