//! The health of an upstream's hosts: by their requests, and by probes.
//!
//! The two are independent, and a host gets requests while both find it healthy. A host that can't be connected to is
//! left out for a second at a time, a host that fails requests is ejected ([`Outliers`]), and a host that fails probes
//! ([`monitor`]) is unhealthy until it passes them again. [`Eligible`] determines the hosts for the next request.

mod eligible;
mod monitor;
mod outcomes;
mod outliers;
mod probe;

pub(super) use eligible::Eligible;
pub use monitor::monitor;
pub(super) use outliers::Outliers;
