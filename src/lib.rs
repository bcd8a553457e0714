//! skeleton
pub mod config;
pub mod limit;
pub mod telemetry;
