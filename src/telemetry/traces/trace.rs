//! One request's trace.

use http::{HeaderMap, HeaderValue};
use opentelemetry::trace::TraceId;

use super::{
    context::{Context, TRACEPARENT, TRACESTATE},
    recording::{End, Recording, Sent},
};

/// What the upstream is told of the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// What we were told.
    AsItCame,
    /// That we are its parent; the state stays as it came.
    Parent,
    /// That we are its parent, and nothing of what came.
    Anew,
}

/// The trace that a request belongs to, and what is recorded of it if it is sampled.
#[derive(Debug)]
pub struct Trace {
    context: Context,
    told: Told,
    recording: Option<Box<Recording>>,
}

impl Trace {
    pub(super) fn new(context: Context, told: Told, recording: Option<Box<Recording>>) -> Self {
        Self { context, told, recording }
    }

    /// The trace's ID.
    pub fn id(&self) -> TraceId {
        self.context.trace
    }

    /// Whether the request is sampled: only then is the time of anything asked for.
    pub fn is_sampled(&self) -> bool {
        self.recording.is_some()
    }

    /// Tells the upstream where in the trace it stands.
    pub fn tell(&self, headers: &mut HeaderMap) {
        if self.told == Told::AsItCame {
            return;
        }
        if self.told == Told::Anew {
            headers.remove(&TRACESTATE);
        }
        headers.insert(&TRACEPARENT, self.traceparent());
    }

    fn traceparent(&self) -> HeaderValue {
        let span = self.recording.as_ref().map_or(self.context.span, |recording| recording.forwarding_span());
        Context { span, ..self.context }.value()
    }

    /// The store is asked about so many checks. `time` here and below: microseconds since the Unix epoch.
    pub fn deciding(&mut self, time: i64, checks: usize) {
        if let Some(recording) = &mut self.recording {
            recording.deciding(time, checks);
        }
    }

    /// It has answered: `source` decided, if anyone did.
    pub fn decided(&mut self, time: i64, source: Option<&'static str>) {
        if let Some(recording) = &mut self.recording {
            recording.decided(time, source);
        }
    }

    /// The request is on its way to an upstream of this name.
    pub fn forwarding(&mut self, time: i64, upstream: &str) {
        if let Some(recording) = &mut self.recording {
            recording.forwarding(time, upstream);
        }
    }

    /// The head of the answer is here, or the reply in its place.
    pub fn forwarded(&mut self, time: i64, sent: Sent<'_>) {
        if let Some(recording) = &mut self.recording {
            recording.forwarded(time, sent);
        }
    }

    /// The request has ended. Hands over what was recorded, without waiting.
    pub fn end(self, end: &End<'_>) {
        if let Some(recording) = self.recording {
            recording.end(end);
        }
    }
}
