//! `listeners`, `admin`, and the limits of client connections.

pub(in crate::config) mod checks;
pub(in crate::config) mod clients;
pub(in crate::config) mod guessable_token;
pub(in crate::config) mod resolve;
pub(in crate::config) mod settings;
pub(in crate::config) mod tls;
