//! The store that instances share: limits in Redis, decided by Lua scripts in one round trip.
//!
//! Each worker has its own [`RedisStore`]. Its link gathers the decisions that are asked for while one batch is
//! under way and sends them together; the scripts are those of `lua/`.

mod acl_check;
mod batch;
pub(crate) mod channel;
mod connection;
mod description;
mod entry;
pub(crate) mod error_hint;
mod failure;
mod key;
mod key_set;
mod link;
mod reply;
mod script;
mod server_check;
mod store;

pub use connection::{Server, ServerError};
pub(crate) use failure::Failure;
pub(crate) use server_check::{ServerCheck, check_server};
pub use store::RedisStore;
