//! Checks that compare topics with each other.

pub(in crate::config) mod decisions;
pub(in crate::config) mod ineffective_limits;
pub(in crate::config) mod key_limits;
pub(in crate::config) mod large_keys;
pub(in crate::config) mod loops;
pub(in crate::config) mod unreachable_limits;
pub(in crate::config) mod unserved_listeners;
