//! The store that instances share: limits in Redis, decided by Lua scripts in one round trip.
//!
//! Each worker has its own [`RedisStore`]. Its link gathers the decisions that are asked for while one batch is
//! under way and sends them together; the scripts are those of `lua/`. One [`Monitor`] a process keeps in touch
//! with the server, so that no request has to.

mod audit;
mod bans;
mod batch;
mod connection;
mod description;
mod duties;
mod entry;
mod failure;
mod key;
mod keys;
mod link;
mod monitor;
mod pardons;
mod pulse;
pub mod records;
mod rights;
mod roll;
mod script;
mod standing;
mod store;
mod trouble;

pub use connection::{Server, ServerError};
pub use duties::Duties;
pub use monitor::Monitor;
pub use store::RedisStore;
