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
mod fleet;
mod guard;
mod policy;
mod slices;
mod slicing;
mod store;

pub use breaker::Breaker;
pub use check::Check;
pub use clock::{Clock, ManualClock, SystemClock};
pub use fleet::Fleet;
pub use guard::{Common, Guard};
pub use policy::{Policy, PolicyId, PolicyIds};
pub use slices::Slices;
pub use slicing::Slicing;
pub use store::{Cleared, Decision, Peek, Receipt, Source, Store, StoreAdmin, Unavailable};
