//! Where limits are kept.

use std::time::Duration;

use serde::Serialize;

use super::{ClientTls, Secret, serialize};

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
    /// `None`: a share of the memory that the process may take.
    #[serde(serialize_with = "serialize::optional_size", skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<usize>,
}

/// Redis, in which instances share their limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Redis {
    #[serde(flatten)]
    pub topology: RedisTopology,
    /// The user of the servers that Sentinel names, or of a cluster. A `url` has its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Likewise, the password. `None`: that of the first URL of a cluster, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
    /// The database of the servers that Sentinel names. A `url` has its own, and a cluster has only 0.
    #[serde(skip_serializing_if = "serialize::is_zero")]
    pub database: u32,
    /// For `rediss://`.
    pub tls: ClientTls,
    /// For a whole decision, including the wait for a connection.
    #[serde(serialize_with = "serialize::duration")]
    pub timeout: Duration,
    /// Per worker, at least 1.
    pub connections: u32,
    /// The prefix of every key.
    pub prefix: String,
    pub breaker: Breaker,
}

impl Redis {
    /// With the default of every other setting.
    pub fn new(topology: RedisTopology) -> Self {
        Self {
            topology,
            user: None,
            password: None,
            database: 0,
            tls: ClientTls::default(),
            timeout: Duration::from_millis(50),
            connections: 2,
            prefix: "ratelimit".to_owned(),
            breaker: Breaker { failures: 5, retry_after: Duration::from_secs(1) },
        }
    }

    /// A single server, with the default of every other setting.
    pub fn at(url: Secret) -> Self {
        Self::new(RedisTopology::Url(url))
    }

    /// How long one answer may take of what no request waits for.
    pub fn call_timeout(&self) -> Duration {
        self.timeout.max(Duration::from_millis(500))
    }

    /// Time for so many round trips, each as long as a decision may take: four seconds at most, so that a server that is silent
    /// holds nothing up for long.
    pub fn time_for(&self, round_trips: u32) -> Duration {
        (self.timeout * round_trips).min(Duration::from_secs(4))
    }

    /// How long it may take to connect and to be greeted.
    pub fn connect_timeout(&self) -> Duration {
        self.time_for(4).max(Duration::from_secs(1))
    }

    /// The prefix of every key. `cluster.strict` makes it a hash tag, so that all keys are in one slot.
    pub fn key_prefix(&self) -> String {
        match &self.topology {
            RedisTopology::Cluster(Cluster { is_strict: true, .. }) => format!("{{{}}}", self.prefix),
            _ => self.prefix.clone(),
        }
    }

    /// All URLs, each with the path of its setting.
    pub fn urls(&self) -> (&'static str, &[Secret]) {
        match &self.topology {
            RedisTopology::Url(url) => ("store.redis.url", std::slice::from_ref(url)),
            RedisTopology::Sentinel(sentinel) => ("store.redis.sentinel.nodes", &sentinel.nodes),
            RedisTopology::Cluster(cluster) => ("store.redis.cluster.nodes", &cluster.nodes),
        }
    }
}

/// Which servers there are, and who knows that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RedisTopology {
    /// One server: `redis://`, `rediss://` or `unix://`, with user, password and database, if any.
    #[serde(serialize_with = "serialize::url_without_credentials")]
    Url(Secret),
    /// Sentinels name the primary.
    Sentinel(Sentinel),
    /// A Redis Cluster.
    Cluster(Cluster),
}

/// Sentinels, and the primary that they watch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sentinel {
    /// The name under which the Sentinels watch it.
    pub master: String,
    /// URLs of Sentinels, at least one, all `redis://` or all `rediss://`.
    #[serde(serialize_with = "serialize::urls_without_credentials")]
    pub nodes: Vec<Secret>,
    /// Who we are to Sentinels whose URL does not say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
}

/// A Redis Cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cluster {
    /// URLs of some nodes, at least one, all `redis://` or all `rediss://`. They name the others.
    #[serde(serialize_with = "serialize::urls_without_credentials")]
    pub nodes: Vec<Secret>,
    /// All keys are in one slot.
    #[serde(rename = "strict")]
    pub is_strict: bool,
}

/// When to stop asking a failing store, and when to try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Breaker {
    /// Failures in a row, at least 1.
    pub failures: u32,
    #[serde(serialize_with = "serialize::duration")]
    pub retry_after: Duration,
}
