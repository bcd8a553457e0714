//! Where limits are kept.

use std::{path::PathBuf, time::Duration};

use serde::Serialize;

use super::{Secret, serialize};

/// Where the state of limits is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Store {
    /// With Redis, the fallback while Redis is unavailable.
    pub memory: MemoryStore,
    /// `None`: limits are kept in memory only.
    pub redis: Option<Redis>,
}

/// The store inside the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemoryStore {
    /// At least 1.
    pub max_keys: usize,
}

/// Redis, in which instances share their limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Redis {
    /// `redis://`, `rediss://` or `unix://`, with user, password and database, if any.
    #[serde(serialize_with = "serialize::url_without_credentials")]
    pub url: Secret,
    /// For `rediss://`.
    pub tls: RedisTls,
    /// For a whole decision, including the wait for a connection.
    #[serde(serialize_with = "serialize::duration")]
    pub timeout: Duration,
    /// Per worker, at least 1.
    pub connections: u32,
    /// The prefix of every key.
    pub prefix: String,
    pub breaker: Breaker,
}

/// Which authorities to trust, and our own certificate. Files in PEM.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct RedisTls {
    /// The only certificate authorities that are trusted. `None`: Mozilla's, which are built in.
    pub ca: Option<PathBuf>,
    /// Certificate and key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// When to stop asking a failing store, and when to try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Breaker {
    /// Failures in a row, at least 1.
    pub failures: u32,
    #[serde(serialize_with = "serialize::duration")]
    pub retry_after: Duration,
}
