//! How the process stands.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::schema;

/// `GET /healthz`, `GET /readyz`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// `alive`, `ready`
    #[schema(value_type = schema::HealthWord)]
    pub status: String,
}

/// `GET /v1/status`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    #[schema(example = "0.1.0")]
    pub version: String,
    #[schema(value_type = schema::Time)]
    pub started: String,
    #[schema(value_type = schema::Duration)]
    pub uptime: String,
    pub ready: bool,
    pub draining: bool,
    pub configuration: Configuration,
    pub store: StoreStatus,
    pub workers: usize,
    pub listeners: Vec<String>,
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Configuration {
    pub hash: String,
    /// A hash of all settings that affect decisions, which instances compare: everything but listeners, `admin`, `workers`, `log`,
    /// `access_log`, `tracing` and `shutdown`.
    #[serde(default)]
    pub decides: String,
    #[schema(value_type = schema::Time)]
    pub loaded: String,
    /// `null` if it was not reloaded since the start.
    pub last_reload: Option<LastReload>,
}

/// The result of a reload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LastReload {
    #[schema(value_type = schema::Time)]
    pub time: String,
    /// `null` if it took effect; otherwise the first error, and the previous configuration is still running.
    pub error: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StoreStatus {
    /// `memory` or `redis`.
    #[schema(value_type = schema::Topology)]
    pub topology: String,
    /// Of the memory store, which is also the fallback while Redis is unavailable.
    pub keys: u64,
    pub evicted: u64,
    #[serde(flatten)]
    #[schema(value_type = SharedStore)]
    pub shared: Option<SharedStore>,
}

/// The store that instances share, as this instance sees it. Left out if limits are kept in memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SharedStore {
    /// `master` or `slave`; `null`, like the version, until the store was first reached.
    #[schema(required = false)]
    pub role: Option<String>,
    #[schema(required = false)]
    pub version: Option<String>,
    /// The round trip of the last heartbeat; `null` if it failed.
    #[schema(required = false, value_type = Option<schema::Duration>)]
    pub latency: Option<String>,
    /// `closed`, or `open` while the store is not used.
    #[schema(required = false, value_type = schema::Breaker)]
    pub breaker: String,
    /// Live instances, including this one.
    #[schema(required = false)]
    pub instances: u32,
}

/// Current rates: the data of the event `tick` of `GET /v1/events`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Tick {
    #[schema(value_type = schema::Time)]
    pub time: String,
    /// Of this instance, over the last seconds.
    pub requests_per_second: f64,
    pub denied_per_second: f64,
    /// Addresses that are limited now.
    pub blocked: usize,
    pub ready: bool,
    pub draining: bool,
    pub store: StoreStatus,
}
