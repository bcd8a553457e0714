//! A ban by an operator or by a rule.

use super::BannedKey;

/// The name of bans by operators, in place of a rule's name.
pub const MANUAL: &str = "ban";

/// Microseconds by which one time may differ when it is read via another clock.
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
    /// How often in a row the rule has banned this key, including this ban; 0 for a ban by an operator.
    pub level: u32,
    /// Recorded and counted only: no request is denied.
    pub is_shadow: bool,
}

/// Bans with a limit of their own: no number of bans pushes out one of another class. Any client can make up users,
/// and get them banned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BanClass {
    /// By operators.
    Manual,
    /// Of addresses, by rules.
    Address,
    /// Of users, by rules.
    User,
}

impl BanClass {
    /// All classes.
    pub const ALL: [Self; 3] = [Self::Manual, Self::Address, Self::User];
}

impl Ban {
    /// The class, which determines its limit.
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

    /// Whether it wins over another ban of the same key. Of two bans by operators the later one wins, otherwise the
    /// one that ends last.
    pub(super) fn outdoes(&self, other: &Self) -> bool {
        match (self.is_manual(), other.is_manual()) {
            (true, true) => self.since > other.since && self.until.abs_diff(other.until) > SAME_TIME,
            _ => self.until > other.until,
        }
    }

    /// The name under which its denials are listed: the rule, or [`MANUAL`].
    pub fn name(&self) -> &str {
        if self.is_manual() { MANUAL } else { &self.by }
    }

    /// Whether it has not ended yet.
    pub fn is_active(&self, now: i64) -> bool {
        now < self.until
    }
}
