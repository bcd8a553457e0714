//! Which route a request takes: [`Target`] reads what the request is for, [`Router`] finds its route.
//!
//! What a route matched is what the upstream gets. A path is normalised once (RFC 3986, 6.2.2), matched
//! in that form and forwarded in that form. Origins differ in how they read what is left: some take
//! `%2F` or `\` for a slash, some merge `//`, some drop `;parameters`. A request whose route would
//! depend on that is refused, so that no spelling of a path gets around the policies of its route.

mod host;
mod normalise;
mod pattern;
mod reading;
mod refused;
mod table;
mod target;

pub use host::Host;
pub use refused::Refused;
pub use table::{Account, Misfit, Router};
pub use target::Target;
