//! The messages that replicate bans between instances.

use std::sync::Arc;

use super::{Ban, BannedKey};

/// An update by this instance for the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BanUpdate {
    /// A ban by an operator, which replaces the ban of its key.
    Replace(Arc<Ban>),
    /// A ban that this instance issued itself, or still has when the others have lost theirs. A ban of the key that
    /// ends later is kept.
    Merge(Arc<Ban>),
    /// Lifts the bans of this key that began before, and removes its ladders. `at`: microseconds since the Unix
    /// epoch.
    Lift { key: BannedKey, at: i64 },
    /// Removes the bans of this key, and its ladders: they have moved to another key, because this one must not be
    /// stored.
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

/// A change for all instances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BanChange {
    /// A ban that replaces the one of its key and mode.
    Banned(Ban),
    /// The bans of this key are lifted.
    Lifted(BannedKey),
    /// The bans of this key have moved to another one.
    Forgotten(BannedKey),
    /// This ban was removed to make room for others.
    Dropped { key: BannedKey, is_shadow: bool },
}
