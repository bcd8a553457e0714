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
    /// The hash of what decides over requests, which instances compare: of all but listeners, `admin`, `workers`, `log`,
    /// `access_log`, `tracing` and `shutdown`.
    #[serde(default)]
    pub decides: String,
    #[schema(value_type = schema::Time)]
    pub loaded: String,
    /// `null`: it was read at the start, and not since.
    pub last_reload: Option<LastReload>,
}

/// What became of reading the configuration again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LastReload {
    #[schema(value_type = schema::Time)]
    pub time: String,
    /// `null`: it is in force. Else the first error; the configuration before it is.
    pub error: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StoreStatus {
    /// `memory` or `redis`.
    #[schema(value_type = schema::Topology)]
    pub topology: String,
    /// Of the memory store, which stands in where another one is away.
    pub keys: u64,
    pub evicted: u64,
    #[serde(flatten)]
    #[schema(value_type = SharedStore)]
    pub shared: Option<SharedStore>,
}

/// The store that instances share, as this one sees it. None of it is told where limits are kept in memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SharedStore {
    /// `master` or `slave`; `null`, like the version, until it was reached.
    #[schema(required = false)]
    pub role: Option<String>,
    #[schema(required = false)]
    pub version: Option<String>,
    /// Of the last heartbeat; `null` if that was not answered.
    #[schema(required = false, value_type = Option<schema::Duration>)]
    pub latency: Option<String>,
    /// `closed`, or `open`: it is not asked.
    #[schema(required = false, value_type = schema::Breaker)]
    pub breaker: String,
    /// Those alive, this one among them.
    #[schema(required = false)]
    pub instances: u32,
}

/// How things stand: the data of the event `tick` of `GET /v1/events`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Tick {
    #[schema(value_type = schema::Time)]
    pub time: String,
    /// By this instance, in the last seconds.
    pub requests_per_second: f64,
    pub denied_per_second: f64,
    /// Addresses with a limit that is not over.
    pub blocked: usize,
    pub ready: bool,
    pub draining: bool,
    pub store: StoreStatus,
}
