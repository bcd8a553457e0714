//! What can be seen of Tollgate from outside. One binary: it is linked once.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests may panic: that is how they fail"
)]

mod broken_answers;
mod broken_uploads;
mod client_limits;
mod config_golden;
mod config_model;
mod config_robust;
mod conformance;
mod environment;
mod forwarding;
mod framing;
mod fuzz;
mod harness;
mod hygiene;
mod memory_store;
mod paths;
mod proxying;
mod refused_uploads;
