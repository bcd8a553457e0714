//! Limits: which policies apply to a request, and whether all of them admit it.
//!
//! A [`Policy`] applied to one identifier of one request is a [`Check`]. A [`Store`] decides over the checks of a
//! request. It admits the request iff every check admits, and takes nothing otherwise. `docs/limits.md` has the
//! semantics.
//!
//! A worker's store is a stack. Each layer implements [`Store`]:
//!
//! ```text
//! ShardedStore               sharded_store.rs: splits a request over several nodes of a cluster (address_room.rs)
//! └── GuardedStore           guarded_store.rs: local denials (denials.rs), on_store_error
//!     ├── SlicedStore        sliced_store.rs: spends quota slices (slices.rs) first
//!     │   └── RedisStore     store/redis/store.rs: one batch for many decisions, decided by a Lua script
//!     │       └── lua/decide.lua with lua/<algorithm>.lua, the twins of algorithm/*.rs
//!     └── Arc<MemoryStore>   store/memory/store.rs: decides by algorithm/*.rs while Redis is away
//! ```
//!
//! That is `ShardedStore<GuardedStore<SlicedStore<RedisStore>, Arc<MemoryStore>>>`, put together in `app/stores.rs`.
//! Without Redis the workers share the `MemoryStore` alone.

mod address_room;
pub mod algorithm;
mod breaker;
mod calendar;
mod check;
mod clock;
mod denials;
mod guarded_store;
mod instances;
mod policy;
mod response_status;
mod sharded_store;
mod sliced_store;
mod slices;
mod store;

pub use breaker::CircuitBreaker;
pub use calendar::Calendar;
pub use check::Check;
pub use clock::{Clock, ManualClock, SteadyClock, WallClock};
pub use guarded_store::{GuardShared, GuardedStore};
pub use instances::{Epoch, Instances};
pub use policy::{Candidate, Policy, PolicyId, PolicyIds};
pub use response_status::{GrpcOutcome, ResponseStatus};
pub use sharded_store::ShardedStore;
pub use sliced_store::SlicedStore;
pub use slices::Slices;
pub use store::{
    ClearedLimit, Decision, DecisionSource, LimitUsage, Receipt, Store, StoreAdmin, Taken, Unavailable,
};
