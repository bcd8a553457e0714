//! The store inside the process: shared by all workers, exact, and bounded in keys and bytes.
//!
//! [`MemoryStore`] (`store.rs`) is a list of shards (`shard.rs`), each a map (`slots.rs`) behind its own lock. `decide`
//! (`decide.rs`) locks the shards of a request in the order of their index, reads all its limits, and writes them if
//! all admit. Except for `reset`, the work under a lock is bounded. No lock is held across an await.

mod budget;
mod decide;
mod shard;
mod slots;
mod store;

pub use store::{MemoryStats, MemoryStore};
