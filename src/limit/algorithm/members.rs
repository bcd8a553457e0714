//! What `distinct` and `concurrency` are made of: members, each with a time.

use super::{Member, Tier, Verdict};

/// Placeholder.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Members;

impl Members {
    pub fn read_leases(&self, _tier: Tier, _now: i64, _cost: u64, _token: Member) -> Verdict {
        Verdict::UNKNOWN
    }

    pub fn read_values(&self, _tier: Tier, _now: i64, _cost: u64, _value: Member) -> Verdict {
        Verdict::UNKNOWN
    }

    pub fn write_lease(&mut self, _tier: Tier, _now: i64, _token: Member) -> bool {
        false
    }

    pub fn write_value(&mut self, _tier: Tier, _now: i64, _value: Member) -> bool {
        false
    }

    pub fn give_back(&mut self, _member: Member) {}

    pub fn leases(&self, _tier: Tier, _now: i64) -> u64 {
        0
    }

    pub fn values(&self, _tier: Tier, _now: i64) -> u64 {
        0
    }

    pub fn last_lease(&self) -> i64 {
        i64::MIN
    }

    pub fn last_value(&self, _tier: Tier) -> i64 {
        i64::MIN
    }
}
