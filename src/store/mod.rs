//! The stores that keep the state of limits. Both implement [`limit::Store`](crate::limit::Store).

pub mod memory;
pub mod redis;
