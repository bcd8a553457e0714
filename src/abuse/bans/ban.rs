//! A ban, by hand or by a rule.

use super::BannedKey;

/// The name of bans by hand, where others have the name of their rule.
pub const MANUAL: &str = "ban";

/// Times that are no further apart may be the same, read by another clock: in microseconds.
const SAME_TIME: u64 = 1_000_000;

/// A ban. Times are microseconds since the Unix epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ban {
    pub key: BannedKey,
    pub since: i64,
    pub until: i64,
    pub reason: String,
    /// `operator at 127.0.0.1`, or the rule: `bans.hammering`.
    pub by: String,
    /// How often in a row the rule has banned this key, this time included; 0 for a ban by hand.
    pub level: u32,
    /// Recorded and counted; no request is denied.
    pub is_shadow: bool,
}

/// Bans that have a bound of their own: no number of bans pushes out one of another class. Any client can make up users,
/// and have them banned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BanClass {
    /// By hand.
    Manual,
    /// Of addresses, by rules.
    Address,
    /// Of users, by rules.
    User,
}

impl BanClass {
    /// Each of them.
    pub const ALL: [Self; 3] = [Self::Manual, Self::Address, Self::User];
}

impl Ban {
    /// What it shares its bound with.
    pub fn class(&self) -> BanClass {
        match self.key {
            _ if self.is_manual() => BanClass::Manual,
            BannedKey::Address(_) => BanClass::Address,
            BannedKey::User(_) => BanClass::User,
        }
    }

    /// Whether an operator issued it.
    pub fn is_manual(&self) -> bool {
        self.level == 0
    }

    /// Whether it stays where both of one key are known. Of two by hand that is the later word of an operator, else the one
    /// that ends last.
    pub(super) fn outdoes(&self, other: &Self) -> bool {
        match (self.is_manual(), other.is_manual()) {
            (true, true) => self.since > other.since && self.until.abs_diff(other.until) > SAME_TIME,
            _ => self.until > other.until,
        }
    }

    /// The name that its denials are listed under: the rule, or [`MANUAL`].
    pub fn name(&self) -> &str {
        if self.is_manual() { MANUAL } else { &self.by }
    }

    /// Whether it has not ended yet.
    pub fn is_active(&self, now: i64) -> bool {
        now < self.until
    }
}
