//! Tollgate: a reverse proxy with built-in throttling.
//!
//! The crate, in the order in which a request meets it. To see what happens to one, start at
//! [`proxy::serve`].

pub mod config;
pub mod limit;
pub mod router;
pub mod store;
