//! The Redis servers of a store, each as it was seen last.

/// How the servers of a store work together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StoreTopology {
    /// One server, which holds all keys.
    #[default]
    Single,
    /// A primary with its replicas, one of which Sentinels promote when it fails.
    Sentinel,
    /// A Redis Cluster: each primary holds the keys of its slots.
    Cluster,
}

impl StoreTopology {
    /// What answers call it. A single server was called `redis` before there were others.
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

/// Whether a server answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NodeState {
    /// It was not asked yet.
    #[default]
    Unknown,
    Up,
    Down,
    /// It failed so often that no decision is sent to it at the moment.
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

/// What is wrong where decisions would go to this server and it is not available: for the log, warnings and outages.
pub fn unavailable_node(address: &str, why: &str, is_cluster: bool) -> String {
    let what = if is_cluster { "decisions about its keys follow" } else { "policies follow" };
    format!("Redis at {address} is unavailable ({why}): {what} their on_store_error")
}

/// One Redis server, as it was seen last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// `HOST:PORT`, or the path of a socket.
    pub address: String,
    /// `None` until it is known.
    pub role: Option<NodeRole>,
    /// Of a replica: the address of its primary.
    pub primary: Option<String>,
    /// Of a primary of a cluster: the first and the last slot of each range.
    pub slots: Vec<(u16, u16)>,
    pub state: NodeState,
    /// Why it is not up.
    pub failure: Option<String>,
    /// The others do not name it any more: another one decides in its place.
    pub is_lost: bool,
    /// Of the last round trip, in microseconds.
    pub latency: Option<u64>,
    /// Of a replica: bytes that its primary has written and it has not acknowledged.
    pub lag: Option<u64>,
    /// Decisions of this instance that it has answered since the start.
    pub decisions: u64,
    /// Likewise, in the last second.
    pub decisions_per_second: u64,
    /// Empty: it was not reached yet.
    pub version: String,
}

impl NodeFacts {
    /// How many slots it serves.
    pub fn slot_count(&self) -> u64 {
        self.slots.iter().map(|&(first, last)| u64::from(last.saturating_sub(first)) + 1).sum()
    }
}
