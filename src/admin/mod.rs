//! The admin port: health, metrics, and who was behind a blocked address.
//!
//! It has a thread and a runtime of its own, so that it answers while the workers are saturated. The
//! shapes of its answers are in [`shapes`]; errors are `application/problem+json` (RFC 9457).

mod archivist;
mod audit;
mod bans;
mod blocked;
mod body;
mod current;
mod desk;
mod events;
mod explain;
mod guard;
mod guesses;
mod health;
mod in_force;
mod limits;
mod openapi;
mod page;
mod params;
mod places;
mod problem;
mod reload;
mod rounds;
mod router;
mod server;
mod session;
pub mod shapes;
mod state;
mod status;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod users;
mod vocabulary;

pub use current::{Configured, InForce};
pub use reload::{ReloadRequest, Reloads};
pub use server::{AdminHandle, spawn};
pub use state::{Facts, Phase, Readiness, State};
