//! skeleton
pub mod model;
