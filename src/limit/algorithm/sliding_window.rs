//! `sliding_window`: of each tier a ring of buckets and their running total.

use super::{Tier, Verdict};

/// Placeholder.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SlidingWindow;

impl SlidingWindow {
    pub fn read(&self, _tiers: &[Tier], _buckets: u32, _now: i64, _cost: u64) -> Verdict {
        Verdict::UNKNOWN
    }

    pub fn write(&mut self, _tiers: &[Tier], _buckets: u32, _now: i64, _cost: u64) -> bool {
        false
    }

    pub fn count_denied(&mut self, _tiers: &[Tier], _buckets: u32, _now: i64, _cost: u64) -> bool {
        false
    }

    pub fn give_back(&mut self, _tiers: &[Tier], _buckets: u32, _at: i64, _cost: u64) {}

    pub fn used(&self, _index: usize, _tier: Tier, _buckets: u32, _now: i64) -> u64 {
        0
    }

    pub fn expires(&self, _tiers: &[Tier], _buckets: u32) -> i64 {
        i64::MIN
    }
}
