//! The sockets that Tollgate opens, and the secrets that guard them.

use std::{fmt, net::SocketAddr};

use serde::Serialize;

/// A socket on which clients are served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Listener {
    pub address: SocketAddr,
}

/// The admin port. Another address than loopback always has a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Admin {
    pub address: SocketAddr,
    pub token: Option<Secret>,
}

/// A value that never reaches a log or a page.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps `value`.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself, for the one place that compares or sends it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
