//! The store that instances share: limits in Redis, decided by a Lua script in one round trip.
//!
//! Each worker has its own [`RedisStore`], the lowest layer of the stack
//! `ShardedStore<GuardedStore<SlicedStore<RedisStore>, Arc<MemoryStore>>>` (see [`limit`](crate::limit)). [`Topology`]
//! knows the servers. The steps of a decision:
//!
//! 1. in: `store.rs` merges the checks of one limit; `routing.rs` chooses the server that has them; `link.rs` queues
//!    the request until a connection to that server is free.
//! 2. encode: `batch.rs` packs the queued requests in MessagePack, with their keys (`key.rs`, `key_set.rs`), policies
//!    (`description.rs`) and entries (`entry.rs`).
//! 3. script: `script.rs` joins `lua/prelude.lua` and `lua/decide.lua`, with each `lua/<algorithm>.lua` in it. The head
//!    of `decide.lua` describes KEYS, ARGV and the reply; the head of each algorithm's file its own part of them.
//! 4. decode: `batch.rs` splits the reply by request; `store.rs` (`to_decision`) by check; `reply.rs` turns each
//!    check's numbers into a verdict, by the width and order that the algorithm's Lua file replies with.
//! 5. reroute: `routing.rs` sends a request elsewhere if a node of a cluster has not run it, since its slot is
//!    elsewhere.
//!
//! Encoder, script and decoder are tied by position. A change to one is a change to all three and to the table of
//! `limit::algorithm::Kind`, which has each algorithm's number and reply width. `failure.rs` classifies failures.
//!
//! All other shared state in Redis is read and written by a `RoutedConnection`.

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
mod reply_bounds;
mod routed_connection;
mod routing;
mod script;
mod server_address;
mod server_check;
mod server_connection;
mod store;
mod subscription;
mod topology;

pub(crate) use connection::Server;
pub use connection::ServerError;
pub(crate) use failure::{Failure, is_unknown_script};
pub(crate) use routed_connection::RoutedConnection;
pub(crate) use server_address::ServerAddress;
pub(crate) use server_check::{check_server, read_memory, read_replicas};
pub(crate) use server_connection::ServerConnection;
pub use store::RedisStore;
pub use topology::Topology;
pub(crate) use topology::{NodeSeen, RedisNode, ReplicaSeen, ServerCheck, ServerMemory};
