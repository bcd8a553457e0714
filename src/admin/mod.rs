//! The admin port: health, metrics, the API for operators and its page.
//!
//! It has its own thread and runtime, so that it responds while the workers are saturated. [`dto`] has the bodies of
//! its requests and responses; errors are `application/problem+json` (RFC 9457).

mod active_config;
mod alerts;
mod archive_client;
mod audit;
mod auth;
mod background;
mod ban_reach;
mod bans;
mod blocked;
mod client_state;
mod configuration;
mod connection_slots;
mod context;
mod customers;
mod drains;
pub mod dto;
mod events;
mod evidence;
mod explain;
mod extract;
mod health;
mod held_limits;
mod history;
mod incidents;
mod key_changes;
mod keys;
mod limit_key;
mod limits;
mod openapi;
mod page;
mod paging;
mod peaks;
mod peer_reader;
mod problem;
mod readiness;
mod reload;
mod reload_requests;
mod router;
mod server;
mod session;
mod state;
mod status;
mod store_client;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod token_throttle;
mod unblock;
mod upstreams;
mod users;

pub use active_config::{ActiveConfig, ConfigSnapshot};
pub use readiness::{ProcessPhase, Readiness};
pub use reload_requests::{ReloadRequest, ReloadSender};
pub use server::{AdminHandle, Backends, spawn};
pub use state::{AdminState, ProcessFacts, StoreFactsSources};
pub use token_throttle::WRONG_TOKEN_KEYS;
