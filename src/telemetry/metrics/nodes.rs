//! The Redis servers of a store: last known state of each.

/// The deployment type of the store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StoreTopology {
    /// One server.
    #[default]
    Single,
    /// A primary with replicas; Sentinels promote one when the primary fails.
    Sentinel,
    /// A Redis Cluster: each primary owns some slots.
    Cluster,
}

impl StoreTopology {
    /// Its name in API responses; `redis` for a single server, for compatibility.
    pub fn name(self) -> &'static str {
        match self {
            Self::Single => "redis",
            Self::Sentinel => "sentinel",
            Self::Cluster => "cluster",
        }
    }
}

/// Whether a server takes writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeRole {
    Primary,
    Replica,
}

impl NodeRole {
    /// `primary`, `replica`
    pub fn name(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Replica => "replica",
        }
    }
}

/// Whether a server responds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NodeState {
    /// No request was sent yet.
    #[default]
    Unknown,
    Up,
    Down,
    /// It failed too often: no decision is sent for now.
    BreakerOpen,
}

impl NodeState {
    /// `unknown`, `up`, `down`, `breaker_open`
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Up => "up",
            Self::Down => "down",
            Self::BreakerOpen => "breaker_open",
        }
    }
}

/// The message about an unavailable server that should make decisions: for the log, warnings and outages.
pub fn unavailable_node(address: &str, why: &str, is_cluster: bool) -> String {
    let what = if is_cluster { "decisions about its keys follow" } else { "policies follow" };
    format!("Redis at {address} is unavailable ({why}): {what} their on_store_error")
}

/// The last known state of one Redis server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// `HOST:PORT`, or the path of a socket.
    pub address: String,
    /// `None` until it is known.
    pub role: Option<NodeRole>,
    /// The address of its primary, if it is a replica.
    pub primary: Option<String>,
    /// The first and the last slot of each range, if it is a primary of a cluster.
    pub slots: Vec<(u16, u16)>,
    pub state: NodeState,
    /// Why it is not up.
    pub failure: Option<String>,
    /// The other servers no longer list it: another server replaced it.
    pub is_lost: bool,
    /// Time of the last round trip, in microseconds.
    pub latency: Option<u64>,
    /// Bytes written by its primary and not acknowledged yet, if it is a replica.
    pub lag: Option<u64>,
    /// Decisions that it made for this instance since the start.
    pub decisions: u64,
    /// The same, in the last second.
    pub decisions_per_second: u64,
    /// Empty until it was reached.
    pub version: String,
}

impl NodeFacts {
    pub fn slot_count(&self) -> u64 {
        self.slots.iter().map(|&(first, last)| u64::from(last.saturating_sub(first)) + 1).sum()
    }
}
