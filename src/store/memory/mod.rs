//! The store inside the process: shared by all workers, exact, and never above its number of keys.
//!
//! [`MemoryStore`] is a row of shards, each a map behind a lock of its own. `decide` takes the
//! shards of a request in the order of their index, reads all its limits, and writes them if all
//! admit. Whatever is done to one shard is bounded but for `reset`, and no lock is held across an
//! await.

mod decide;
mod shard;
mod store;

pub use store::{MemoryStats, MemoryStore};
