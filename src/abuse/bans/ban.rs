//! A ban.

use super::Key;

/// What bans by hand are called where those of rules have their rule's name.
pub const MANUAL: &str = "ban";

/// A ban. Times are microseconds since the Unix epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ban {
    pub key: Key,
    pub since: i64,
    pub until: i64,
    pub reason: String,
    /// `operator at 127.0.0.1`, or the rule: `bans.hammering`.
    pub by: String,
    /// How often in a row the rule has banned this key, this time included; 0 where an operator did.
    pub level: u32,
    /// Recorded and counted; no request is denied.
    pub is_shadow: bool,
}

impl Ban {
    /// Whether an operator gave it.
    pub fn is_manual(&self) -> bool {
        self.level == 0
    }

    /// What denials by it are listed under: the rule, or [`MANUAL`].
    pub fn name(&self) -> &str {
        if self.is_manual() { MANUAL } else { &self.by }
    }

    /// Whether it shuts anybody out at this time.
    pub fn holds(&self, now: i64) -> bool {
        now < self.until
    }
}
