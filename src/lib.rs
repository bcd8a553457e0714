//! skeleton
pub mod config;
pub mod limit;
