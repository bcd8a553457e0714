//! Which hosts of an upstream work: what their requests tell, and what probes tell.
//!
//! The two are independent of each other, and a host gets requests while neither has anything against it: a host that no
//! connection can be opened to is left out for a second at a time, one that fails requests is ejected ([`Outliers`]), and one
//! that fails probes ([`monitor`]) is unhealthy until it passes them again. [`Eligible`] says which hosts get the next request.

mod eligible;
mod monitor;
mod outcomes;
mod outliers;
mod probe;

pub(super) use eligible::Eligible;
pub use monitor::monitor;
pub(super) use outliers::Outliers;
