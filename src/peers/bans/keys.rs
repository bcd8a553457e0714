//! The keys of bans. They have one hash tag, so that they are in one slot and one script reaches them all.

use crate::store::redis::channel;

pub(super) struct BanKeys {
    /// KEYS in the order of `lua/bans_prelude.lua`.
    pub(super) all: [String; 10],
    pub(super) channel: String,
}

impl BanKeys {
    pub(super) fn new(prefix: &str) -> Self {
        let all = [
            "ends",
            "told",
            "version",
            "ladders",
            "expiries",
            "manual",
            "addresses",
            "users",
            "user_expiries",
            "lifts",
        ];
        Self { all: all.map(|name| format!("{prefix}:{{bans}}:{name}")), channel: channel::name(prefix) }
    }

    /// The key of the version.
    pub(super) fn version(&self) -> &str {
        &self.all[2]
    }
}

/// A key in the slot of the bans.
pub(in crate::peers) fn key(prefix: &str) -> String {
    BanKeys::new(prefix).version().to_owned()
}
