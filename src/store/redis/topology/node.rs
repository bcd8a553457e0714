//! The primaries, which decide, and the last observations of each.

use std::sync::{
    Arc,
    atomic::{AtomicU8, AtomicU64, Ordering::Relaxed},
};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::SLOTS;
use crate::{
    limit::CircuitBreaker,
    store::redis::{connection::Server, server_address::ServerAddress},
    telemetry::metrics::unavailable_node,
};

const UNKNOWN: u8 = 0;
const TAKEN: u8 = 1;
const REFUSED: u8 = 2;

/// A primary, which decides over limits.
#[derive(Debug)]
pub(crate) struct RedisNode {
    pub(crate) address: ServerAddress,
    pub(crate) server: Server,
    /// Opens when this server fails.
    pub(crate) breaker: CircuitBreaker,
    /// Decisions of this process that it has made.
    pub(in crate::store::redis) decisions: AtomicU64,
    /// Whether one script may use keys of several slots: [`UNKNOWN`], [`TAKEN`] or [`REFUSED`].
    any_slots: AtomicU8,
    pub(crate) seen: Mutex<NodeSeen>,
}

/// The last observations of a server.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeSeen {
    pub(crate) check: ServerCheck,
    pub(crate) memory: ServerMemory,
    /// Microseconds of the last round trip; `None` if it failed.
    pub(crate) latency: Option<u64>,
    /// The error of the last probe, or of the decisions that opened the breaker.
    pub(crate) failure: Option<String>,
    /// Recent decisions a second.
    pub(crate) rate: u64,
    pub(crate) replicas: Vec<ReplicaSeen>,
    /// When the warning of evicted keys ends.
    pub(crate) evicting_until: Option<Instant>,
}

impl NodeSeen {
    /// Records why the server is not available. Returns the message to log, if it was available before.
    pub(crate) fn fail(&mut self, address: &ServerAddress, why: &str, is_cluster: bool) -> Option<String> {
        let was_available = self.failure.replace(why.to_owned()).is_none();
        was_available.then(|| unavailable_node(&address.to_string(), why, is_cluster))
    }
}

/// A server's INFO, and the warnings about it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ServerCheck {
    /// `master` or `slave`.
    pub(crate) role: String,
    pub(crate) version: String,
    /// New with each start of the server; empty if it is not reported.
    pub(crate) run_id: String,
    pub(crate) warnings: Vec<String>,
    /// Whether it is a cluster node, which does not have all keys.
    pub(in crate::store::redis) has_other_keys: bool,
}

/// How full a server is, as far as it reports it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ServerMemory {
    /// Keys evicted since the server's start.
    pub(crate) evicted: Option<u64>,
    /// Bytes in use that count against the limit.
    pub(crate) used: Option<u64>,
    /// `maxmemory` in bytes; `None` without one.
    pub(crate) limit: Option<u64>,
}

/// A replica, as its primary sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReplicaSeen {
    pub(crate) address: ServerAddress,
    pub(crate) is_online: bool,
    /// Bytes that the primary has written and the replica has not acknowledged.
    pub(crate) lag: Option<u64>,
}

impl RedisNode {
    pub(super) fn new(server: Server, failures: u32) -> Self {
        Self {
            address: server.address(),
            server,
            breaker: CircuitBreaker::new(failures),
            decisions: AtomicU64::new(0),
            any_slots: AtomicU8::new(UNKNOWN),
            seen: Mutex::default(),
        }
    }

    /// Decisions of this process that it has made since the start.
    pub(crate) fn decisions(&self) -> u64 {
        self.decisions.load(Relaxed)
    }

    /// Whether one script may use keys of several slots.
    pub(in crate::store::redis) fn takes_any_slots(&self) -> bool {
        self.any_slots.load(Relaxed) == TAKEN
    }

    /// Whether [`RedisNode::takes_any_slots`] is known.
    pub(super) fn is_tested(&self) -> bool {
        self.any_slots.load(Relaxed) != UNKNOWN
    }

    /// Sets [`RedisNode::takes_any_slots`].
    pub(in crate::store::redis) fn set_takes_any_slots(&self, is_taken: bool) {
        self.any_slots.store(if is_taken { TAKEN } else { REFUSED }, Relaxed);
    }
}

/// Which node decides over which keys.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeMap {
    /// Incremented by each change.
    pub(crate) epoch: u64,
    /// The primaries. Empty while none is known.
    pub(crate) nodes: Vec<Arc<RedisNode>>,
    /// In a cluster: the index of each slot's owner, or [`NO_NODE`]. `None`: the first node has all keys.
    pub(crate) slots: Option<Box<[u16; SLOTS]>>,
    /// In a cluster: the address of each replica, with that of its primary.
    pub(crate) replicas: Vec<(ServerAddress, ServerAddress)>,
}

/// In [`NodeMap::slots`]: no node serves the slot.
pub(super) const NO_NODE: u16 = u16::MAX;

impl NodeMap {
    /// The index of the node that decides over the keys of a slot.
    pub(in crate::store::redis) fn owner_index(&self, slot: u16) -> Option<usize> {
        let index = match &self.slots {
            Some(slots) => usize::from(*slots.get(usize::from(slot))?),
            None => 0,
        };
        (index < self.nodes.len()).then_some(index)
    }

    /// The node that decides over a key.
    pub(crate) fn owner_of(&self, key: &[u8]) -> Option<&Arc<RedisNode>> {
        let slot = if self.slots.is_some() { super::slot_of(key) } else { 0 };
        self.nodes.get(self.owner_index(slot)?)
    }

    pub(in crate::store::redis) fn node_at(&self, address: &ServerAddress) -> Option<&Arc<RedisNode>> {
        self.nodes.iter().find(|node| node.address == *address)
    }

    /// The ranges of slots of a node: first and last of each.
    pub(crate) fn slot_ranges(&self, node: &RedisNode) -> Vec<(u16, u16)> {
        let Some(slots) = &self.slots else { return Vec::new() };
        let index = self.nodes.iter().position(|known| known.address == node.address);
        let mut ranges: Vec<(u16, u16)> = Vec::new();
        for (slot, owner) in (0..).zip(slots.iter()) {
            if index != Some(usize::from(*owner)) {
                continue;
            }
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == slot => *last = slot,
                _ => ranges.push((slot, slot)),
            }
        }
        ranges
    }
}
