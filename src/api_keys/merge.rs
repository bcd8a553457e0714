//! Which of two versions of a key holds, and how long a tombstone is kept. Pure.

use sha2::{Digest, Sha256};

use super::{ApiKey, KeyState, record};

const DAY: i64 = 86_400_000_000;
/// How long a tombstone of a key without an expiry is kept, in microseconds.
const KEPT_FOR: i64 = 366 * DAY;

/// The order of the versions of a key: the greater one holds, at every instance and in Redis. The one that was changed
/// later is greater. Of two that were changed at the same time, it is the one that allows less; of two alike, any, but
/// everywhere the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    /// Microseconds since the Unix epoch.
    pub changed: i64,
    /// Below 2^46: Lua counts in doubles.
    pub tie: u64,
}

impl Stamp {
    pub fn of(key: &ApiKey) -> Self {
        Self::of_record(key, &record::encode(key))
    }

    /// The stamp of the key with this record.
    pub(super) fn of_record(key: &ApiKey, record: &str) -> Self {
        let strictness: u64 = match key.state {
            KeyState::Active => 0,
            KeyState::Revoked { .. } => 1,
            KeyState::Deleted { .. } => 2,
        };
        let hash = Sha256::digest(record.as_bytes());
        let bits = hash.iter().take(5).fold(0_u64, |bits, &byte| bits << 8 | u64::from(byte));
        Self { changed: key.changed, tie: strictness << 40 | bits }
    }
}

/// Until when a tombstone is kept, in microseconds since the Unix epoch: until the key would have expired, and at least
/// a day. `None`: the key is no tombstone.
pub fn kept_until(key: &ApiKey) -> Option<i64> {
    let at = match key.state {
        KeyState::Active => return None,
        KeyState::Revoked { at, .. } | KeyState::Deleted { at } => at,
    };
    let until = key.expires.unwrap_or_else(|| at.saturating_add(KEPT_FOR));
    Some(until.max(at.saturating_add(DAY)))
}

/// Whether the key is a tombstone that is not kept any more.
pub(super) fn is_forgotten(key: &ApiKey, now: i64) -> bool {
    kept_until(key).is_some_and(|until| until <= now)
}
