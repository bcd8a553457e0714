//! The trace of a request, and the tracer of a worker, which begins traces.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue};
use opentelemetry::trace::TraceId;

use super::{
    context::{TRACEPARENT, TRACESTATE, TraceContext, is_tracestate_valid},
    export::{Exporter, Traces},
    recording::{Recording, RequestEnd, RequestStart, UpstreamResult},
};

/// The trace context that is sent to the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Propagation {
    /// The received context.
    Unchanged,
    /// Our span as the parent, and the received `tracestate`.
    Child,
    /// Our span as the parent, without `tracestate`.
    Restart,
}

/// The trace of a request, and its recording if it is sampled.
#[derive(Debug)]
pub struct RequestTrace {
    context: TraceContext,
    propagation: Propagation,
    recording: Option<Box<Recording>>,
}

impl RequestTrace {
    pub(super) fn new(
        context: TraceContext,
        propagation: Propagation,
        recording: Option<Box<Recording>>,
    ) -> Self {
        Self { context, propagation, recording }
    }

    pub fn id(&self) -> TraceId {
        self.context.trace
    }

    /// Whether the request is sampled; otherwise times are not needed.
    pub fn is_sampled(&self) -> bool {
        self.recording.is_some()
    }

    /// Adds the context to the headers for the upstream.
    pub fn inject(&self, headers: &mut HeaderMap) {
        if self.propagation == Propagation::Unchanged {
            return;
        }
        if self.propagation == Propagation::Restart {
            headers.remove(&TRACESTATE);
        }
        headers.insert(&TRACEPARENT, self.traceparent());
    }

    fn traceparent(&self) -> HeaderValue {
        let span = self.recording.as_ref().map_or(self.context.span, |recording| recording.forwarding_span());
        TraceContext { span, ..self.context }.value()
    }

    /// Notes whose API key the request has: attributes, each with its value.
    pub fn set_key<'a>(&mut self, attributes: impl IntoIterator<Item = (&'static str, &'a str)>) {
        if let Some(recording) = &mut self.recording {
            recording.set_key(attributes);
        }
    }

    /// Notes the proxy that has asked about the request.
    pub fn set_front(&mut self, front: &'static str) {
        if let Some(recording) = &mut self.recording {
            recording.set_front(front);
        }
    }

    /// The decision on `checks` checks begins. `time` here and below: microseconds since the Unix epoch.
    pub fn start_decision(&mut self, time: i64, checks: usize) {
        if let Some(recording) = &mut self.recording {
            recording.start_decision(time, checks);
        }
    }

    /// The decision was made by `source`; `None`: it could not be made.
    pub fn end_decision(&mut self, time: i64, source: Option<&'static str>) {
        if let Some(recording) = &mut self.recording {
            recording.end_decision(time, source);
        }
    }

    /// Sending the request to this upstream begins.
    pub fn start_forwarding(&mut self, time: i64, upstream: &str) {
        if let Some(recording) = &mut self.recording {
            recording.start_forwarding(time, upstream);
        }
    }

    /// The response head has arrived, or a reply of the proxy replaces it.
    pub fn end_forwarding(&mut self, time: i64, result: UpstreamResult<'_>) {
        if let Some(recording) = &mut self.recording {
            recording.end_forwarding(time, result);
        }
    }

    /// The request has ended. Queues its spans without waiting.
    pub fn end(self, end: &RequestEnd<'_>) {
        if let Some(recording) = self.recording {
            recording.end(end);
        }
    }
}

/// Begins the traces of a worker's requests.
#[derive(Debug, Clone)]
pub struct Tracer {
    sample: f64,
    exporter: Arc<Exporter>,
}

impl Traces {
    /// Creates a tracer for one worker.
    pub fn tracer(&self) -> Tracer {
        Tracer { sample: self.sample, exporter: Arc::clone(&self.exporter) }
    }
}

impl Tracer {
    /// Begins the trace of a request with these headers. A trusted peer's trace is continued, including whether it is
    /// sampled. Any other trace begins here, so that clients cannot choose which requests are traced. `start` is called
    /// only if the request is sampled.
    pub fn begin(
        &self,
        headers: &HeaderMap,
        is_peer_trusted: bool,
        start: impl FnOnce() -> RequestStart,
    ) -> RequestTrace {
        let extracted = TraceContext::extract(headers);
        match extracted {
            Some(parent) if is_peer_trusted => {
                let propagation = match (parent.sampled, is_tracestate_valid(headers)) {
                    (false, _) => Propagation::Unchanged,
                    (true, true) => Propagation::Child,
                    (true, false) => Propagation::Restart,
                };
                let recording = parent.sampled.then(|| self.record(parent, Some(parent), None, start()));
                RequestTrace::new(parent, propagation, recording)
            }
            _ => {
                let sampled = self.sample > 0.0 && fastrand::f64() < self.sample;
                let own = TraceContext::begin(sampled);
                let link = extracted.filter(|context| context.sampled);
                let recording = sampled.then(|| self.record(own, None, link, start()));
                RequestTrace::new(own, Propagation::Restart, recording)
            }
        }
    }

    fn record(
        &self,
        at: TraceContext,
        parent: Option<TraceContext>,
        link: Option<TraceContext>,
        start: RequestStart,
    ) -> Box<Recording> {
        Box::new(Recording::new(Arc::clone(&self.exporter), at.trace, parent, link, start))
    }
}
