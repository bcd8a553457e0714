//! What can be seen of Tollgate from outside. One binary: it is linked once.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests may panic: that is how they fail"
)]

mod config_golden;
mod config_model;
mod config_robust;
mod conformance;
mod environment;
mod harness;
mod memory_store;
mod proxying;
