//! The keys that verify tokens now.

use std::sync::Arc;

use crate::jwt_keys::JwtKeys;

/// The current keys, and how often they were replaced.
#[derive(Clone)]
pub(super) struct CurrentKeys {
    pub(super) keys: Arc<JwtKeys>,
    pub(super) generation: u64,
}
