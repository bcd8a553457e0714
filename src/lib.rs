//! skeleton
pub mod abuse;
pub mod config;
pub mod limit;
pub mod telemetry;
