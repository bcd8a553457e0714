//! What can be seen of Tollgate from outside.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests may panic: that is how they fail"
)]

mod conformance;
mod memory_store;
