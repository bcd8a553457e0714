//! Which of two versions of a key holds, and how long a tombstone is kept. Pure.

use std::{fmt, num::ParseIntError, str::FromStr};

use sha2::{Digest, Sha256};

use super::{ApiKey, KeyState, record};

const DAY: i64 = 86_400_000_000;
/// How long a tombstone is kept at least, in microseconds.
const KEPT_FOR: i64 = 366 * DAY;

/// The order of the versions of a key: the greater one holds, at every instance and in Redis. A revocation is final, so
/// the first field comes first. Of two versions in the same state, the one that was changed later is greater. Of two
/// that were changed at the same time it is any, but everywhere the same.
///
/// Each number is below 2^53: Lua counts in doubles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    /// [`KeyState::finality`].
    pub finality: u8,
    /// Microseconds since the Unix epoch.
    pub changed: i64,
    pub tie: u64,
}

impl Stamp {
    pub fn of(key: &ApiKey) -> Self {
        let hash = Sha256::digest(record::encode(key).as_bytes());
        let tie = hash.iter().take(5).fold(0_u64, |bits, &byte| bits << 8 | u64::from(byte));
        Self { finality: key.state.finality(), changed: key.changed, tie }
    }
}

/// As clients name a version: `FINALITY-CHANGED-TIE`.
impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { finality, changed, tie } = self;
        write!(f, "{finality}-{changed}-{tie}")
    }
}

impl FromStr for Stamp {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        let mut parts = text.splitn(3, '-');
        let mut next = || parts.next().unwrap_or_default();
        Ok(Self { finality: next().parse()?, changed: next().parse()?, tie: next().parse()? })
    }
}

/// Until when a tombstone is kept, in microseconds since the Unix epoch: for 366 days, and until the key would have
/// expired. An expiry alone is not enough: an instance that was away may know the key with a later one. `None`: the key
/// is no tombstone.
pub fn kept_until(key: &ApiKey) -> Option<i64> {
    let at = match key.state {
        KeyState::Active => return None,
        KeyState::Revoked { at, .. } | KeyState::Deleted { at } => at,
    };
    let until = at.saturating_add(KEPT_FOR);
    Some(key.expires.map_or(until, |expires| expires.max(until)))
}

/// Whether the key is a tombstone that is not kept any more.
pub(super) fn is_forgotten(key: &ApiKey, now: i64) -> bool {
    kept_until(key).is_some_and(|until| until <= now)
}

#[cfg(test)]
mod tests {
    use super::{super::testing::key, *};

    #[test]
    fn the_name_of_a_version_is_read_again() {
        let stamp = Stamp::of(&key("a"));
        assert_eq!(stamp.to_string().parse(), Ok(stamp));
        for wrong in ["", "0", "0-1", "0-1-2-3", "0-x-1", "256-1-1", "0--1-1"] {
            assert!(wrong.parse::<Stamp>().is_err(), "{wrong}");
        }
    }
}
