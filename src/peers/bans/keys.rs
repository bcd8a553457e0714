//! Where bans are kept. All keys have one hash tag: they are in one slot, where one script reaches them.

use crate::store::redis::channel;

pub(super) struct BanKeys {
    /// As `lua/bans_prelude.lua` has them.
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

    /// One of them.
    pub(super) fn version(&self) -> &str {
        &self.all[2]
    }
}

/// A key of those where bans are kept.
pub(in crate::peers) fn key(prefix: &str) -> String {
    BanKeys::new(prefix).version().to_owned()
}
