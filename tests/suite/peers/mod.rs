//! What instances that share a Redis tell each other.

mod api_keys;
mod audit_log;
mod shared_records;
mod shutdown;
mod unshared_changes;
