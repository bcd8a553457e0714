//! Traces: spans of requests, exported to an OTLP collector.
//!
//! The service that begins a trace decides whether it is sampled (<https://www.w3.org/TR/trace-context/>): a trusted
//! peer's decision is kept, and a share of other requests is sampled at random. An unsampled request costs a random
//! number and a header field. Spans are passed to a separate thread through a bounded queue: an unavailable collector
//! costs spans, never time.

mod context;
mod export;
mod otlp_client;
mod recording;
mod trace;

pub use context::{TRACEPARENT, TRACESTATE, TraceContext};
pub use export::{Traces, TracingError};
pub use recording::{RequestEnd, RequestStart, UpstreamResult};
pub use trace::{RequestTrace, Tracer};
