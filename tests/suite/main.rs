//! The integration tests.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may panic: that is how they fail")]

mod config_golden;
mod config_model;
mod config_robust;
mod environment;
