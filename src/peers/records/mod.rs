//! The records of limited clients of all instances.
//!
//! There is one copy of a client, which all instances share: each reads it, merges into it what it knows, and writes it unless
//! somebody else has done so in between. A write that is repeated does no harm. Clients are one table, and users with their
//! addresses another; a table is kept within a budget of bytes, and what changed longest ago leaves first. All keys have one
//! hash tag: they are in one slot, where one script reaches them.
//!
//! Nothing outlives its retention. What is kept for `record.for` is in a value of its own, which expires with the oldest
//! record in it. Before that an instance, whichever asks first, writes it again without that record.

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
pub use scope::Scope;
pub use write::publish_round;

use bb8_redis::redis::Script;

/// Its scripts.
pub(super) fn scripts() -> [&'static Script; 3] {
    [&table::WRITE, &table::SWEEP_DUE, &table::REMOVE]
}
