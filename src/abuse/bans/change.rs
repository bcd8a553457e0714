//! What instances tell one another of bans.

use std::sync::Arc;

use super::{Ban, Key};

/// What the others are to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BanUpdate {
    /// An operator's ban: it takes the place of what there is for its key.
    Put(Arc<Ban>),
    /// One that this instance gave by itself, or knows when others have lost it: one that ends later stays.
    Merge(Arc<Ban>),
    /// Nobody is banned by this key any more, and its ladders are forgotten.
    Lift(Key),
}

impl BanUpdate {
    /// Whom it is about.
    pub fn key(&self) -> &Key {
        match self {
            Self::Put(ban) | Self::Merge(ban) => &ban.key,
            Self::Lift(key) => key,
        }
    }
}

/// What has changed for all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BanChange {
    /// Somebody is banned; it takes the place of what there is for its key and mode.
    Banned(Ban),
    /// Nobody is banned by this key any more.
    Lifted(Key),
    /// This ban had to make room for others.
    Dropped { key: Key, is_shadow: bool },
}
