//! Tollgate: a reverse proxy with built-in throttling.
//!
//! The modules in the order in which a request meets them. To see what happens to one, start at
//! [`proxy::serve`].

pub mod abuse;
pub mod config;
pub mod identity;
pub mod limit;
pub mod router;
pub mod store;
pub mod telemetry;
