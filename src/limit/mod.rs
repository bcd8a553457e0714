//! Limits: which policies hold for a request, and whether all of them admit it.
//!
//! A [`Policy`] applied to one identifier of one request is a [`Check`]. A [`Store`] takes the checks
//! of a request, and admits it iff every one admits, consuming nothing otherwise. The semantics are
//! those of `limits.md`.

pub mod algorithm;
mod breaker;
mod check;
mod clock;
mod denials;
mod guarded_store;
mod instances;
mod policy;
mod sliced_store;
mod slices;
mod store;

pub use breaker::Breaker;
pub use check::Check;
pub use clock::{Clock, ManualClock, SystemClock};
pub use guarded_store::{GuardShared, GuardedStore};
pub use instances::{Epoch, Instances};
pub use policy::{Policy, PolicyId, PolicyIds};
pub use sliced_store::SlicedStore;
pub use slices::Slices;
pub use store::{
    ClearedLimit, Decision, DecisionSource, LimitUsage, Receipt, Store, StoreAdmin, Unavailable,
};
