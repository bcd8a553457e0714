//! `sliding_counter`: the count of this calendar window, and of the one before it the share that is inside.

use super::{Tier, Verdict};

/// Placeholder.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SlidingCounter;

impl SlidingCounter {
    pub fn read(&self, _tier: Tier, _now: i64, _cost: u64) -> Verdict {
        Verdict::UNKNOWN
    }

    pub fn write(&mut self, _tier: Tier, _now: i64, _cost: u64) -> bool {
        false
    }

    pub fn count_denied(&mut self, _tier: Tier, _now: i64, _cost: u64) -> bool {
        false
    }

    pub fn give_back(&mut self, _tier: Tier, _at: i64, _cost: u64) {}

    pub fn used(&self, _tier: Tier, _now: i64) -> u64 {
        0
    }

    pub fn expires(&self, _tier: Tier) -> i64 {
        i64::MIN
    }
}
