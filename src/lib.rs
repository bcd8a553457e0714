//! skeleton
pub mod abuse;
pub mod admin;
pub mod cli;
pub mod config;
pub mod limit;
pub mod telemetry;
