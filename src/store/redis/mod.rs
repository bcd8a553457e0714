//! The store that instances share: limits in Redis, decided by a Lua script in one round trip.
//!
//! Each worker has its own [`RedisStore`], which stands at the bottom of the stack
//! `GuardedStore<SlicedStore<RedisStore>, Arc<MemoryStore>>` (see [`limit`](crate::limit)). A decision goes
//!
//! 1. in: `store.rs` merges the checks of one limit; `link.rs` queues the request until a connection is free.
//! 2. encode: `batch.rs` packs the queued requests in MessagePack, with their keys (`key.rs`, `key_set.rs`), policies
//!    (`description.rs`) and entries (`entry.rs`).
//! 3. script: `script.rs` joins `lua/prelude.lua`, `lua/window_counter.lua`, `lua/members.lua`, `lua/<algorithm>.lua` and
//!    `lua/decide.lua`. The head of `decide.lua` describes KEYS, ARGV and the reply; the head of each algorithm's file its
//!    own part of them.
//! 4. decode: `batch.rs` splits the reply by request; `store.rs` (`to_decision`) by check; `reply.rs` turns each check's
//!    numbers into a verdict, by the width and order that the algorithm's Lua file replies with.
//!
//! Encoder, script and decoder are tied by position. A change to one is a change to all three and to `limit::algorithm::Kind`'s
//! table, which has each algorithm's number and reply width. `failure.rs` classifies what may fail on the way.

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
