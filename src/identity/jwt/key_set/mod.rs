//! The key set that a provider of tokens publishes, fetched again and again by a thread of its own.

mod fetch;
mod set;
mod timing;
mod waiting;

pub(super) use set::{KeySet, KeySetSource};
pub use timing::KeySetTiming;
