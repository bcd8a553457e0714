//! `sliding_log`: a log of when each unit was taken. It never admits more than the limit in any (now − window, now].
//!
//! It costs 8 bytes a unit: a limit of 10⁹ would take 8 GB a key. Use a counter for such limits.

use std::collections::VecDeque;

use super::{Tier, Verdict, verdict::TierStatus};
use crate::memory_budget::heap;

/// The most units that one request may take: each is an entry of its own.
pub const MAX_COST: u64 = 1_000;

/// The time of each unit in microseconds since the Unix epoch, oldest first. Units that have left the window are kept
/// until the next write.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SlidingLog(VecDeque<i64>);

impl SlidingLog {
    /// The verdict for a request of `cost` units at the time `now`. Changes nothing. A cost above [`MAX_COST`] is
    /// never admitted.
    pub fn read(&self, tier: Tier, now: i64, cost: u64) -> Verdict {
        let LogView { outside, at } = self.view(tier, now);
        let used = (self.0.len() - outside) as u64;
        let leaves = |unit: usize| self.0.get(outside + unit).map(|time| time.saturating_add(tier.window));
        // The excess has to leave first, oldest units first. The excess is larger than the log only if the cost alone
        // is above the limit.
        let excess = used.saturating_add(cost).saturating_sub(tier.limit);
        let last_to_leave = usize::try_from(excess.saturating_sub(1)).unwrap_or(usize::MAX);
        let status = TierStatus {
            limit: tier.limit,
            used,
            frees_at: leaves(0).unwrap_or_else(|| at.saturating_add(tier.window)),
            fits_at: if cost > tier.limit.min(MAX_COST) { None } else { leaves(last_to_leave).or(Some(at)) },
            max_delay: 0,
        };
        Verdict::from_tiers(std::iter::once(status), now, cost)
    }

    /// Takes `cost` units that a read has admitted. Returns whether state from the future was
    /// discarded.
    pub fn write(&mut self, tier: Tier, now: i64, cost: u64) -> bool {
        let discards = self.is_ahead(tier, now);
        let LogView { outside, at } = self.view(tier, now);
        self.0.drain(..outside);
        let cost = usize::try_from(cost.min(MAX_COST)).unwrap_or_default();
        // Half as much again, not twice: a long log must not take twice its memory at once.
        if self.0.len() + cost > self.0.capacity() {
            self.0.reserve_exact(cost.max(self.0.len() / 2));
        }
        self.0.extend(std::iter::repeat_n(at, cost));
        // Memory of an old burst is freed.
        if self.0.len() < self.0.capacity() / 8 {
            self.0.shrink_to(self.0.len() * 2);
        }
        discards
    }

    /// Counts a denied request. It replaces the oldest units, so that the newest are kept, up to the limit. Returns
    /// whether state from the future was discarded.
    pub fn count_denied(&mut self, tier: Tier, now: i64, cost: u64) -> bool {
        let discards = self.write(tier, now, cost);
        let most = usize::try_from(tier.limit).unwrap_or(usize::MAX);
        self.0.drain(..self.0.len().saturating_sub(most));
        discards
    }

    /// Refunds `cost` units that were taken at `at`. Units of one instant are interchangeable.
    pub fn refund(&mut self, at: i64, cost: u64) {
        let first = self.0.partition_point(|&time| time < at);
        let units = self.0.range(first..).take_while(|&&time| time == at).count();
        let units = units.min(usize::try_from(cost).unwrap_or(usize::MAX));
        self.0.drain(first..first + units);
    }

    /// When the newest unit was taken.
    pub fn newest(&self) -> Option<i64> {
        self.0.back().copied()
    }

    /// Units taken in the window that ends `now`.
    pub fn used(&self, tier: Tier, now: i64) -> u64 {
        (self.0.len() - self.view(tier, now).outside) as u64
    }

    /// Bytes on the heap: the log, with its spare capacity.
    pub fn heap_bytes(&self) -> usize {
        heap::array::<i64>(self.0.capacity())
    }

    /// When the state expires: from then on it counts nothing.
    pub fn expires_at(&self, tier: Tier) -> i64 {
        self.0.back().map_or(i64::MIN, |newest| newest.saturating_add(tier.window))
    }

    /// The window that ends `now`.
    fn view(&self, tier: Tier, now: i64) -> LogView {
        if self.is_ahead(tier, now) {
            return LogView { outside: self.0.len(), at: now };
        }
        let at = self.0.back().map_or(now, |&newest| newest.max(now));
        // An entry exactly as old as the window is out.
        let outside = match self.0.front() {
            Some(&oldest) if at.saturating_sub(oldest) >= tier.window => {
                self.0.partition_point(|&time| at.saturating_sub(time) >= tier.window)
            }
            _ => 0,
        };
        LogView { outside, at }
    }

    fn is_ahead(&self, tier: Tier, now: i64) -> bool {
        self.0.back().is_some_and(|newest| newest.saturating_sub(now) > tier.window)
    }
}

struct LogView {
    /// How many of the oldest units have left the window.
    outside: usize,
    /// The limit's own time: now, or the newest unit's time if that is ahead.
    at: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIER: Tier = Tier { limit: 3, window: 1_000 };

    fn after(writes: &[(i64, u64)]) -> SlidingLog {
        let mut state = SlidingLog::default();
        for &(now, cost) in writes {
            assert!(state.read(TIER, now, cost).admitted, "at {now}");
            state.write(TIER, now, cost);
        }
        state
    }

    #[test]
    fn a_unit_exactly_as_old_as_the_window_is_out() {
        let state = after(&[(100, 1), (600, 2)]);
        let denied = state.read(TIER, 1_099, 1);
        assert_eq!((denied.admitted, denied.retry_after, denied.reset), (false, Some(1), 1));
        let admitted = state.read(TIER, 1_100, 1);
        assert_eq!((admitted.admitted, admitted.remaining, admitted.reset), (true, 0, 500));
    }

    #[test]
    fn a_cost_waits_for_as_many_units_as_it_needs() {
        let state = after(&[(100, 1), (600, 1), (700, 1)]);
        for (cost, retry_after) in [(1, 200), (2, 700), (3, 800)] {
            let denied = state.read(TIER, 900, cost);
            assert_eq!((denied.admitted, denied.retry_after, denied.reset), (false, Some(retry_after), 200));
            assert!(!state.read(TIER, 899 + retry_after, cost).admitted);
            assert!(state.read(TIER, 900 + retry_after, cost).admitted);
        }
        assert_eq!(state.read(TIER, 900, 4).retry_after, None);
    }

    #[test]
    fn units_of_one_instant_count_one_by_one() {
        let state = after(&[(100, 1), (100, 1), (100, 1)]);
        assert_eq!(state.used(TIER, 100), 3);
        assert!(!state.read(TIER, 100, 1).admitted);
    }

    #[test]
    fn a_cost_above_a_thousand_never_fits() {
        let tier = Tier { limit: 10_000, window: 1_000 };
        let state = SlidingLog::default();
        assert!(state.read(tier, 0, MAX_COST).admitted);
        let denied = state.read(tier, 0, MAX_COST + 1);
        assert_eq!((denied.admitted, denied.retry_after, denied.remaining), (false, None, 10_000));
    }

    #[test]
    fn a_read_does_not_prune_and_a_write_does() {
        let mut state = after(&[(100, 3)]);
        let before = state.clone();
        assert!(state.read(TIER, 5_000, 3).admitted);
        assert_eq!(state, before);
        state.write(TIER, 5_000, 1);
        assert_eq!(state.0, [5_000]);
        assert_eq!(state.expires_at(TIER), 6_000);
    }

    #[test]
    fn time_that_runs_backward_counts_as_the_newest() {
        let mut state = after(&[(5_000, 2)]);
        let verdict = state.read(TIER, 4_500, 1);
        assert_eq!((verdict.admitted, verdict.reset), (true, 1_500));
        state.write(TIER, 4_500, 1);
        assert_eq!(state.0, [5_000; 3], "in order");
        let denied = state.read(TIER, 4_600, 1);
        assert_eq!(denied.retry_after, Some(1_400));
    }

    #[test]
    fn a_log_more_than_a_window_ahead_is_discarded() {
        let mut state = after(&[(5_000, 3)]);
        assert!(!state.read(TIER, 4_000, 1).admitted);
        assert!(state.read(TIER, 3_999, 3).admitted);
        assert!(state.write(TIER, 3_999, 1));
        assert_eq!(state.0, [3_999]);
    }

    #[test]
    fn lowering_and_raising_the_limit_counts_what_was_taken() {
        let state = after(&[(100, 1), (200, 1), (300, 1)]);
        let lowered = Tier { limit: 1, ..TIER };
        let denied = state.read(lowered, 400, 1);
        assert_eq!((denied.admitted, denied.remaining, denied.retry_after), (false, 0, Some(900)));
        assert_eq!(state.read(Tier { limit: 5, ..TIER }, 400, 1).remaining, 1);
    }

    #[test]
    fn a_burst_of_long_ago_holds_no_memory() {
        let tier = Tier { limit: 100_000, window: 1_000 };
        let mut state = SlidingLog::default();
        for _ in 0..100 {
            state.write(tier, 0, 1_000);
        }
        state.write(tier, 1_000, 1);
        assert!(state.0.capacity() < 100);
    }

    #[test]
    fn the_ends_of_time_overflow_nothing() {
        for now in [i64::MIN, i64::MIN + 1, -1, 0, i64::MAX - 1, i64::MAX] {
            let mut state = SlidingLog::default();
            state.write(TIER, now, 3);
            for later in [i64::MIN, now, i64::MAX] {
                let _ = (state.read(TIER, later, u64::MAX), state.expires_at(TIER));
            }
            assert!(!state.read(TIER, now, 1).admitted, "at {now}");
        }
    }
}
