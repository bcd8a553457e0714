//! Metrics, the access log, traces, diagnostics, events, and the process' own log.

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

pub use events::{EndpointsChange, Event, EventDelivery, Events, IncidentAct, IncidentNews, Subscription};
pub use throttle::Throttle;
