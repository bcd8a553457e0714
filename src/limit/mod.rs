//! Limits: which policies hold for a request, and whether all of them admit it.
//!
//! A [`Policy`] applied to one identifier of one request is a [`Check`]. A [`Store`] takes the checks
//! of a request, and admits it iff every one admits, consuming nothing otherwise. The semantics are
//! those of `limits.md`.

pub mod algorithm;
mod check;
mod clock;
mod policy;
mod store;

pub use check::Check;
pub use clock::{Clock, ManualClock, SystemClock};
pub use policy::{Policy, PolicyId};
pub use store::{Cleared, Decision, Peek, Source, Store, Unavailable};
