//! `single_counter`: one count per window. The first request starts a window.
//!
//! It admits at most 2 × limit in any span of one window: a burst at the end of a window, and another right after it.

use super::{Tier, Verdict, window::CountWindow};

/// The window's start, and the units taken since.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SingleCounter(CountWindow);

impl SingleCounter {
    /// The verdict for a request of `cost` units at the time `now`. Changes nothing.
    pub fn read(&self, tier: Tier, now: i64, cost: u64) -> Verdict {
        Verdict::from_tiers(std::iter::once(self.current(tier, now).status(tier, cost)), now, cost)
    }

    /// Takes `cost` units that a read has admitted. Returns whether state from the future was
    /// discarded.
    pub fn write(&mut self, tier: Tier, now: i64, cost: u64) -> bool {
        let discards = self.0.is_ahead(tier, now);
        let window = self.current(tier, now);
        self.0 = CountWindow { used: window.used.saturating_add(cost), ..window };
        discards
    }

    /// Counts a denied request, up to the limit. Returns whether state from the future was discarded.
    pub fn count_denied(&mut self, tier: Tier, now: i64, cost: u64) -> bool {
        let discards = self.0.is_ahead(tier, now);
        self.0 = self.current(tier, now).with_denied(tier, cost);
        discards
    }

    /// Refunds `cost` units that were taken at `at`, if their window has not ended and is not too far in the future at
    /// the time `now`.
    pub fn refund(&mut self, tier: Tier, now: i64, at: i64, cost: u64) {
        if !self.0.is_ahead(tier, now) {
            self.0.refund(tier, at, cost);
        }
    }

    /// When the window began.
    pub fn start(&self) -> i64 {
        self.0.start
    }

    /// Units taken in the window of `now`.
    pub fn used(&self, tier: Tier, now: i64) -> u64 {
        self.current(tier, now).used
    }

    /// When the state expires: from then on it counts nothing.
    pub fn expires_at(&self, tier: Tier) -> i64 {
        self.0.end(tier)
    }

    fn current(&self, tier: Tier, now: i64) -> CountWindow {
        self.0.current(tier, now, now.saturating_sub(tier.window - 1), now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIER: Tier = Tier { limit: 3, window: 1_000 };

    fn after(writes: &[(i64, u64)]) -> SingleCounter {
        let mut state = SingleCounter::default();
        for &(now, cost) in writes {
            assert!(state.read(TIER, now, cost).admitted, "at {now}");
            state.write(TIER, now, cost);
        }
        state
    }

    #[test]
    fn the_first_request_starts_the_window() {
        let state = after(&[(12_345, 1), (13_344, 2)]);
        let denied = state.read(TIER, 13_344, 1);
        assert_eq!((denied.admitted, denied.retry_after, denied.reset), (false, Some(1), 1));
        let admitted = state.read(TIER, 13_345, 1);
        assert_eq!((admitted.admitted, admitted.remaining, admitted.reset), (true, 2, 1_000));
        assert_eq!(state.expires_at(TIER), 13_345);
    }

    #[test]
    fn an_untouched_limit_has_nothing_to_wait_for() {
        let verdict = SingleCounter::default().read(TIER, 5, 0);
        assert_eq!((verdict.admitted, verdict.remaining, verdict.reset), (true, 3, 0));
    }

    #[test]
    fn time_that_runs_backward_stays_in_the_window() {
        let state = after(&[(5_000, 3)]);
        let denied = state.read(TIER, 4_000, 1);
        assert_eq!((denied.admitted, denied.retry_after), (false, Some(2_000)));
    }

    #[test]
    fn a_window_more_than_a_window_ahead_is_discarded() {
        let mut state = after(&[(5_000, 3)]);
        assert!(state.read(TIER, 3_999, 3).admitted);
        assert!(state.write(TIER, 3_999, 1), "a discard is reported");
        assert!(!state.write(TIER, 3_999, 1));
        assert_eq!(state.used(TIER, 3_999), 2);
    }

    #[test]
    fn a_billion_over_366_days_is_counted_exactly() {
        let tier = Tier { limit: 1_000_000_000, window: 366 * 86_400_000_000 };
        let mut state = SingleCounter::default();
        state.write(tier, 1_800_000_000_000_000, 999_999_999);
        assert!(state.read(tier, 1_800_000_000_000_000 + tier.window - 1, 1).admitted);
        state.write(tier, 1_800_000_000_000_000 + tier.window - 1, 1);
        assert_eq!(state.read(tier, 1_800_000_000_000_000 + tier.window - 1, 1).retry_after, Some(1));
    }

    #[test]
    fn the_ends_of_time_overflow_nothing() {
        for now in [i64::MIN, i64::MIN + 1, -1, 0, i64::MAX - 1, i64::MAX] {
            let mut state = SingleCounter::default();
            state.write(TIER, now, 3);
            for later in [i64::MIN, now, i64::MAX] {
                let _ = (state.read(TIER, later, u64::MAX), state.expires_at(TIER));
            }
            assert!(!state.read(TIER, now, 1).admitted, "at {now}");
        }
    }
}
