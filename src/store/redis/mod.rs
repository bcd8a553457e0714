//! What instances share through Redis.

pub mod records;
