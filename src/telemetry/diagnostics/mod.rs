//! Diagnostics: warnings about traffic and the store, and outages.
//!
//! Each worker samples its requests with a few instructions. A thread sums the samples every second, applies the rules,
//! which are pure functions, and reports warnings that were raised or cleared.

mod active_warnings;
mod endpoint_changes;
mod finding;
mod floods;
mod health;
mod outages;
mod route_errors;
mod rules;
mod thread;
mod traffic;

pub use active_warnings::Timing;
pub use finding::OutageKind;
pub use floods::FloodingClient;
pub use thread::{ActiveOutage, Diagnostics, SharedWarnings};
pub use traffic::{TrafficSampler, UntrustedPeer};
