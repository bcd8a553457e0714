//! Where the state of the limits lives: what implements [`limit::Store`](crate::limit::Store).

pub mod memory;
pub mod redis;
