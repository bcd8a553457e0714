//! The records of limited clients of all instances.
//!
//! Each instance writes what it knows of a client into a field of its own of that client's hash, so that
//! no write depends on another and none does harm when it is repeated; a sorted set says which
//! clients have changed. All keys have one hash tag: they are in one slot, where one script reaches them.

mod archive;
mod read;
mod scope;
mod users;
mod write;

pub use archive::RecordArchive;
pub use scope::Scope;
pub use write::publish_round;
