//! Warnings about the traffic and the store, and outages: what an operator should look at.
//!
//! Each worker samples its requests with a few instructions. A thread adds the samples up every second, applies rules
//! that know only the facts they are given, and reports the warnings that were raised or cleared.

mod active_warnings;
mod endpoint_changes;
mod floods;
mod health;
mod outages;
mod route_errors;
mod rules;
mod thread;
mod traffic;

pub use active_warnings::Timing;
pub use floods::FloodingClient;
pub use outages::OutageKind;
pub use thread::{Diagnostics, Outage, Warnings};
pub use traffic::{TrafficSampler, UntrustedPeer};
