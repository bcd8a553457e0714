//! What the admin port answers, as it is written and as the command line reads it. Times are RFC 3339 in
//! UTC, durations as in proxy.yaml, keys as in the store (`ip:203.0.113.7`).

use serde::{Deserialize, Serialize};

/// `GET /v1/status`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    pub version: String,
    pub started: String,
    pub uptime: String,
    pub ready: bool,
    pub draining: bool,
    pub configuration: Configuration,
    pub store: StoreStatus,
    pub workers: usize,
    pub listeners: Vec<String>,
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    pub hash: String,
    pub loaded: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreStatus {
    /// `memory` or `redis`.
    pub topology: String,
    /// Of the memory store, which stands in where another one is away.
    pub keys: u64,
    pub evicted: u64,
    #[serde(flatten)]
    pub shared: Option<SharedStore>,
}

/// The store that instances share, as this one sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedStore {
    /// `master` or `slave`; `null`, like the version, until it was reached.
    pub role: Option<String>,
    pub version: Option<String>,
    /// Of the last heartbeat; `null` if that was not answered.
    pub latency: Option<String>,
    /// `closed`, or `open`: it is not asked.
    pub breaker: String,
    /// Those alive, this one among them.
    pub instances: u32,
    pub warnings: Vec<String>,
}

/// `GET /v1/blocked`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocked {
    pub blocked: Vec<BlockedAddress>,
    /// Where the next page begins; `null` on the last.
    pub cursor: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockedAddress {
    pub address: String,
    pub policies: Vec<String>,
    pub first: String,
    pub last: String,
    /// When its last limit frees. May be past: addresses stay listed for a while.
    pub until: String,
    pub denied: u64,
    pub distinct_users: usize,
    pub hint: String,
}

/// `GET /v1/blocked/{ip}`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    #[serde(flatten)]
    pub address: BlockedAddress,
    /// Newest first.
    pub records: Vec<Record>,
    pub limits: Vec<Limit>,
    pub bans: Vec<Ban>,
}

/// A request that filled a limit, or one that was held back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub time: String,
    pub user: Option<String>,
    pub method: String,
    pub path: String,
    pub policy: String,
}

/// How a limit of the address stands: its tightest tier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    pub policy: String,
    pub key: String,
    pub used: u64,
    pub limit: u64,
    pub remaining: u64,
    pub reset: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ban {
    pub key: String,
    pub until: String,
    pub reason: String,
    pub by: String,
    pub level: u32,
}

/// `DELETE /v1/blocked/{ip}`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unblocked {
    pub address: String,
    pub cleared: Vec<ClearedLimit>,
    pub bans_lifted: u64,
    /// Denied behind the address, and not cleared: users, API keys.
    pub other_keys: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClearedLimit {
    pub policy: String,
    pub key: String,
}

/// What went wrong (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ProblemDetails {
    #[serde(default)]
    pub title: String,
    #[serde(default)]
    pub detail: String,
}
