//! `upstreams`: endpoints, and how requests get to them.

pub(in crate::config) mod balance;
pub(in crate::config) mod client_tls;
pub(in crate::config) mod endpoint;
pub(in crate::config) mod health;
pub(in crate::config) mod resolve;
pub(in crate::config) mod retry;
pub(in crate::config) mod settings;
