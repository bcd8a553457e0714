//! What can be seen of Tollgate from outside, grouped as the crate's modules are. One binary: it is linked once.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests may panic: that is how they fail"
)]

mod abuse;
mod admin;
mod app;
mod cli;
mod config;
mod convert;
mod decisions;
mod deploy;
mod faults;
mod guide;
mod harness;
mod history;
mod identity;
mod layering;
mod limit;
mod listener;
mod peers;
mod programs;
mod proxy;
mod request_values;
mod response_cost;
mod store;
mod telemetry;
mod upstream;
