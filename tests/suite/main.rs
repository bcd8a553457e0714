//! The integration tests.

mod config_golden;
mod config_model;
mod config_robust;
mod environment;
