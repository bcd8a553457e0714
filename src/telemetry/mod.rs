//! What Tollgate tells of itself: metrics for Prometheus, a line a request, its own messages.

pub mod access_log;
pub mod diagnostics;
mod events;
pub mod log;
pub mod metrics;
#[cfg(test)]
pub(crate) mod testing;
mod throttle;
pub mod time;
pub mod traces;

pub use events::{Event, Events, Heard, Listener};
pub use throttle::Throttle;
