//! The sockets that Tollgate opens, and the secrets that guard them.

use std::{fmt, net::SocketAddr};

use serde::Serialize;

/// A socket on which clients are served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Listener {
    pub address: SocketAddr,
}

/// The admin port. It always has a token, unless its address is loopback.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Admin {
    pub address: SocketAddr,
    pub token: Option<Secret>,
}

/// A value that is never shown in a log or on a page.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps `value`.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself, to compare or to send it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
