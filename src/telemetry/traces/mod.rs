//! Traces: what happened to one request in every service that it passed, told to an OTLP collector.
//!
//! Whether a request is traced is decided where its trace begins (<https://www.w3.org/TR/trace-context/>): a trusted
//! peer's decision is kept, and of what nobody has decided a share is drawn. A request that is not traced costs a
//! random number and a field. What is traced is handed to a thread of its own by a queue that is bounded: a collector
//! that is away, or hangs, costs spans and never time.

mod collector;
mod context;
mod export;
mod recording;
mod trace;
mod tracer;

pub use context::{Context, TRACEPARENT, TRACESTATE};
pub use export::{OpenError, Traces};
pub use recording::{End, Head, Sent};
pub use trace::Trace;
pub use tracer::Tracer;
