//! The servers, and which of them decides over a key: a single server, the primary that Sentinels name, or the nodes of
//! a Redis Cluster.
//!
//! All threads share one [`Topology`]. Its [`NodeMap`] is replaced as a whole by each change. The monitor keeps it up
//! to date ([`Topology::keep_current`]); a worker that finds a node down triggers a read at once.

mod cluster;
mod handle;
mod node;
mod sentinel;
mod slot;

pub use handle::Topology;
pub(crate) use node::{NodeMap, NodeSeen, RedisNode, ReplicaSeen, ServerCheck, ServerMemory};
pub(super) use slot::of_tag;
pub(crate) use slot::{SLOTS, slot_of};
