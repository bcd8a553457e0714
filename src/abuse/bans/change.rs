//! The messages that replicate bans between instances.

use std::sync::Arc;

use super::{Ban, BannedKey};

/// What happened at this instance and is sent to the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BanUpdate {
    /// A ban by hand: it replaces the ban of its key.
    Replace(Arc<Ban>),
    /// A ban that this instance issued by itself, or still knows when the others have lost theirs: a ban of the key that
    /// ends later stays.
    Merge(Arc<Ban>),
    /// The bans of this key that began before are lifted, and its ladders forgotten. `at`: microseconds since the Unix epoch.
    Lift { key: BannedKey, at: i64 },
    /// The bans of this key go, as its ladders do: they stand under another one, and this one must not be written down.
    Forget(BannedKey),
}

impl BanUpdate {
    /// The key whose bans change.
    pub fn key(&self) -> &BannedKey {
        match self {
            Self::Replace(ban) | Self::Merge(ban) => &ban.key,
            Self::Lift { key, .. } | Self::Forget(key) => key,
        }
    }
}

/// What has changed for all instances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BanChange {
    /// A ban that replaces the one of its key and mode.
    Banned(Ban),
    /// The bans of this key are lifted.
    Lifted(BannedKey),
    /// This ban had to make room for others.
    Dropped { key: BannedKey, is_shadow: bool },
}
