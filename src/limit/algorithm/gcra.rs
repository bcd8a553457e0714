//! `gcra`: a bucket of `burst` units that drains at a steady rate.

use super::{Tier, Verdict};

/// Placeholder.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gcra;

impl Gcra {
    pub fn read(&self, _tier: Tier, _bucket: (u64, i64), _now: i64, _cost: u64) -> Verdict {
        Verdict::UNKNOWN
    }

    pub fn write(&mut self, _tier: Tier, _bucket: (u64, i64), _now: i64, _cost: u64) -> bool {
        false
    }

    pub fn count_denied(&mut self, _tier: Tier, _bucket: (u64, i64), _now: i64, _cost: u64) -> bool {
        false
    }

    pub fn give_back(&mut self, _tier: Tier, _now: i64, _cost: u64) {}

    pub fn used(&self, _tier: Tier, _now: i64) -> u64 {
        0
    }

    pub fn expires(&self, _tier: Tier) -> i64 {
        i64::MIN
    }
}
