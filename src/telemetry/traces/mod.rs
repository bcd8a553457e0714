//! Traces: what happened to one request in every service on its way, exported to an OTLP collector.
//!
//! Whether a request is traced is decided where its trace begins (<https://www.w3.org/TR/trace-context/>): a trusted
//! peer's decision is kept, and of the rest a share is drawn at random. A request that is not traced costs a
//! random number and a field. What is traced is handed to a thread of its own by a queue that is bounded: a collector
//! that is away, or hangs, costs spans and never time.

mod context;
mod export;
mod otlp_client;
mod recording;
mod trace;

pub use context::{TRACEPARENT, TRACESTATE, TraceContext};
pub use export::{OpenError, Traces};
pub use recording::{RequestEnd, RequestStart, UpstreamResult};
pub use trace::{Trace, Tracer};
