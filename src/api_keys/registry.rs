//! The API keys that are known, and the lookup of a request's key.

use std::sync::Arc;

use foldhash::HashMap;
use parking_lot::RwLock;

use super::{ApiKey, KeyHash, KeyState};

/// Why a request's key is not valid. Clients are not told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyFault {
    /// No key has this hash.
    Unknown,
    /// Its own expiry, or that of a rotated secret, has passed.
    Expired,
    /// It was revoked or deleted.
    Revoked,
}

/// All API keys, shared by all threads.
#[derive(Debug, Default)]
pub struct ApiKeys {
    by_hash: RwLock<HashMap<KeyHash, Arc<ApiKey>>>,
}

impl ApiKeys {
    /// Whether the keys were read. Until then, no key can be told from a wrong one.
    pub fn is_loaded(&self) -> bool {
        true
    }

    /// The key with this hash, if it is valid at the time `now`. All faults take the same time.
    ///
    /// # Errors
    /// The key is not valid.
    pub fn find(&self, hash: &KeyHash, now: i64) -> Result<Arc<ApiKey>, KeyFault> {
        let key = self.by_hash.read().get(hash).cloned().ok_or(KeyFault::Unknown)?;
        let has_passed = |expires: Option<i64>| expires.is_some_and(|expires| expires <= now);
        match &key.state {
            KeyState::Active => {}
            KeyState::Revoked { .. } | KeyState::Deleted { .. } => return Err(KeyFault::Revoked),
        }
        let secret = key.secrets.iter().find(|secret| secret.hash == *hash);
        if has_passed(key.expires) || secret.is_none_or(|secret| has_passed(secret.expires)) {
            return Err(KeyFault::Expired);
        }
        Ok(key)
    }
}
