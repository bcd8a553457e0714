//! The records of limited clients of all instances.
//!
//! All instances share one copy of a client: each reads it, merges its own knowledge, and writes it unless another has
//! written it in between. Repeated writes do no harm. Clients are one table, users with their addresses another. A
//! table is kept within a budget of bytes; the entries that changed longest ago are removed first. All keys have one
//! hash tag, so that they are in one slot and one script reaches them.
//!
//! Nothing outlives its retention. Evidence, which is kept for `record.for`, is a value of its own that expires with
//! its oldest record. Before that, one instance writes it again without that record.

mod archive;
mod budget;
mod codec;
mod read;
mod scope;
mod table;
mod unblock;
mod users;
mod write;

pub use archive::RecordArchive;
pub use scope::RecordScope;
pub use write::{publish_rest, publish_round};

use bb8_redis::redis::Script;

/// All scripts of records.
pub(super) fn scripts() -> [&'static Script; 3] {
    [&table::WRITE, &table::SWEEP_DUE, &table::REMOVE]
}
