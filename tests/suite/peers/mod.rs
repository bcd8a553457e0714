//! What instances that share a Redis tell each other.

mod shared_records;
mod shutdown;
