//! `sliding_counter`: the count of this calendar window (UTC), plus a share of the previous window's count. The share
//! is the part of the previous window that a sliding window still covers; its units are assumed to be spread evenly.
//!
//! It admits just under 2 × limit in any span of one window: a burst at the end of a window fades evenly, although it
//! arrived at once.

use super::{Tier, Verdict, verdict::TierStatus};

/// The counts of two consecutive windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SlidingCounter {
    /// When the newer window began, in microseconds since the Unix epoch.
    pub start: i64,
    pub current: u64,
    /// Units of the previous window.
    pub previous: u64,
}

impl SlidingCounter {
    /// The verdict for a request of `cost` units at the time `now`. Changes nothing.
    pub fn read(&self, tier: Tier, now: i64, cost: u64) -> Verdict {
        Verdict::from_tiers(std::iter::once(self.current(tier, now).status(tier, now, cost)), now, cost)
    }

    /// Takes `cost` units that a read has admitted. Returns whether state from the future was discarded.
    pub fn write(&mut self, tier: Tier, now: i64, cost: u64) -> bool {
        let discards = self.is_ahead(tier, now);
        let windows = self.current(tier, now);
        *self = Self { current: windows.current.saturating_add(cost), ..windows };
        discards
    }

    /// Counts a denied request, up to the limit. Returns whether state from the future was discarded.
    pub fn count_denied(&mut self, tier: Tier, now: i64, cost: u64) -> bool {
        let discards = self.is_ahead(tier, now);
        let windows = self.current(tier, now);
        let room = tier.limit.saturating_sub(windows.units(tier, now));
        *self = Self { current: windows.current.saturating_add(cost.min(room)), ..windows };
        discards
    }

    /// Refunds `cost` units that were taken at `at`, if that was in one of the two windows of `now`.
    pub fn refund(&mut self, tier: Tier, now: i64, at: i64, cost: u64) {
        let mut windows = self.current(tier, now);
        let Self { start, current, previous } = &mut windows;
        let (first, end) = (start.saturating_sub(tier.window), start.saturating_add(tier.window));
        let units = if at >= *start { current } else { previous };
        if first <= at && at < end && *units > 0 {
            *units = units.saturating_sub(cost);
            *self = windows;
        }
    }

    /// Units in the sliding window that ends `now`, rounded up.
    pub fn used(&self, tier: Tier, now: i64) -> u64 {
        self.current(tier, now).units(tier, now)
    }

    /// When the state expires: from then on it counts nothing.
    pub fn expires_at(&self, tier: Tier) -> i64 {
        self.start.saturating_add(tier.window).saturating_add(tier.window)
    }

    /// The limit's status for a request of `cost` units. `self` must be the windows of `now`.
    pub fn status(self, tier: Tier, now: i64, cost: u64) -> TierStatus {
        let used = self.units(tier, now);
        let admits = used.saturating_add(cost) <= tier.limit;
        TierStatus {
            limit: tier.limit,
            used,
            frees_at: self.frees_at(tier, now, if admits { cost } else { 0 }),
            fits_at: (cost <= tier.limit).then(|| self.fits_at(tier, now, cost)),
            max_delay: 0,
        }
    }

    /// The two windows of `now`, or the state's own if they are ahead.
    fn current(self, tier: Tier, now: i64) -> Self {
        let start = now.saturating_sub(now.rem_euclid(tier.window.max(1)));
        if self.is_untouched() || self.is_ahead(tier, now) {
            Self { start, ..Self::default() }
        } else if self.start >= start {
            self
        } else {
            let is_next = self.start.saturating_add(tier.window) >= start;
            Self { start, current: 0, previous: if is_next { self.current } else { 0 } }
        }
    }

    /// When the request fits, if no other comes in between. Its cost must not be above the limit.
    fn fits_at(self, tier: Tier, now: i64, cost: u64) -> i64 {
        let Self { start, current, previous } = self;
        let room = tier.limit.saturating_sub(cost);
        match room.checked_sub(current) {
            Some(room) => start.saturating_add(time_until_decayed(tier, previous, room)).max(now),
            // Not in this window, whose own units are kept. They decay in the next window.
            None => start.saturating_add(tier.window).saturating_add(time_until_decayed(tier, current, room)),
        }
    }

    /// When the count falls below that of `now`, after `cost` more units are taken.
    fn frees_at(self, tier: Tier, now: i64, cost: u64) -> i64 {
        let Self { start, current, previous } = self;
        match self.previous_share(tier, now).checked_sub(1) {
            Some(less) => start.saturating_add(time_until_decayed(tier, previous, less)),
            None => {
                let units = current.saturating_add(cost);
                let decays = time_until_decayed(tier, units, units.saturating_sub(1));
                start.saturating_add(tier.window).saturating_add(decays)
            }
        }
    }

    fn units(self, tier: Tier, now: i64) -> u64 {
        self.previous_share(tier, now).saturating_add(self.current)
    }

    /// The units of the previous window that still count, rounded up.
    fn previous_share(self, tier: Tier, now: i64) -> u64 {
        let window = i128::from(tier.window.max(1));
        let passed = (i128::from(now) - i128::from(self.start)).clamp(0, window);
        let share = (i128::from(self.previous) * (window - passed) + window - 1) / window;
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    fn is_untouched(self) -> bool {
        self.current == 0 && self.previous == 0
    }

    /// Whether the state is more than a window ahead of now, and so void.
    fn is_ahead(self, tier: Tier, now: i64) -> bool {
        !self.is_untouched() && self.start.saturating_sub(now) > tier.window
    }
}

/// How far into a window the previous window's `units` have decayed to `least`, in microseconds.
fn time_until_decayed(tier: Tier, units: u64, least: u64) -> i64 {
    let window = i128::from(tier.window);
    let covered = match units {
        0 => window,
        units => (i128::from(least) * window / i128::from(units)).min(window),
    };
    // Between 0 and the window.
    i64::try_from(window - covered).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const YEAR: i64 = 366 * 86_400_000_000;
    const BILLION: u64 = 1_000_000_000;
    const TIER: Tier = Tier { limit: 3, window: 1_000 };

    fn after(writes: &[(i64, u64)]) -> SlidingCounter {
        let mut state = SlidingCounter::default();
        for &(now, cost) in writes {
            assert!(state.read(TIER, now, cost).admitted, "at {now}");
            assert!(!state.write(TIER, now, cost));
        }
        state
    }

    #[test]
    fn the_window_before_counts_by_its_share() {
        let state = after(&[(5_999, 3)]);
        // Three units leave evenly over the next window.
        for (now, used) in
            [(5_999, 3), (6_000, 3), (6_001, 3), (6_333, 3), (6_334, 2), (6_667, 1), (6_999, 1)]
        {
            assert_eq!(state.used(TIER, now), used, "at {now}");
        }
        assert_eq!(state.used(TIER, 7_000), 0);
        assert_eq!(state.expires_at(TIER), 7_000);
    }

    #[test]
    fn a_request_waits_for_the_share_that_it_needs() {
        let state = after(&[(5_200, 3)]);
        for (cost, fits_at) in [(1, 6_334), (2, 6_667), (3, 7_000)] {
            for now in [5_200, 5_999, 6_000, 6_200] {
                let denied = state.read(TIER, now, cost);
                assert_eq!((denied.admitted, denied.retry_after), (false, Some(fits_at - now)), "at {now}");
                assert_eq!((denied.remaining, denied.reset), (0, 6_334 - now));
            }
            assert!(!state.read(TIER, fits_at - 1, cost).admitted);
            assert!(state.read(TIER, fits_at, cost).admitted);
        }
        assert_eq!(state.read(TIER, 5_200, 4).retry_after, None);
    }

    #[test]
    fn both_windows_may_have_to_decay() {
        // Three of the previous window, of which one has left, and one of now.
        let state = after(&[(5_000, 3), (6_334, 1)]);
        for (cost, fits_at) in [(1, 6_667), (2, 7_000), (3, 8_000)] {
            assert_eq!(state.read(TIER, 6_334, cost).retry_after, Some(fits_at - 6_334), "{cost}");
            assert!(!state.read(TIER, fits_at - 1, cost).admitted);
            assert!(state.read(TIER, fits_at, cost).admitted);
        }
    }

    #[test]
    fn units_come_back_when_the_rounded_share_falls() {
        let state = after(&[(5_000, 2)]);
        // With its own, three: a third of them leaves in a third of the next window.
        assert_eq!(state.read(TIER, 5_100, 1).reset, 6_334 - 5_100);
        assert_eq!(state.read(TIER, 5_100, 0).reset, 6_500 - 5_100);
        assert_eq!(state.read(TIER, 6_100, 1).reset, 6_500 - 6_100);
        assert_eq!(state.read(TIER, 6_500, 1).reset, 7_000 - 6_500, "the last of it leaves with its window");
        let untouched = SlidingCounter::default().read(TIER, 5, 0);
        assert_eq!((untouched.admitted, untouched.remaining, untouched.reset), (true, 3, 0));
    }

    #[test]
    fn two_windows_later_nothing_counts() {
        let state = after(&[(5_999, 3)]);
        assert!(!state.read(TIER, 6_999, 3).admitted);
        assert!(state.read(TIER, 7_000, 3).admitted);
        let mut state = after(&[(5_000, 3)]);
        state.write(TIER, 9_000, 1);
        assert_eq!(state, SlidingCounter { start: 9_000, current: 1, previous: 0 });
    }

    #[test]
    fn before_the_epoch_windows_begin_at_their_floor() {
        let state = after(&[(-1, 3)]);
        assert_eq!(state.start, -1_000);
        assert_eq!((state.used(TIER, 999), state.used(TIER, 1_000)), (1, 0));
    }

    #[test]
    fn time_that_runs_backward_stays_in_the_window() {
        let mut state = after(&[(4_000, 3), (5_500, 1)]);
        // As of its start, when three of the previous window still counted.
        let denied = state.read(TIER, 4_200, 1);
        assert_eq!((denied.admitted, denied.remaining), (false, 0));
        assert_eq!((denied.retry_after, denied.reset), (Some(5_667 - 4_200), 5_334 - 4_200));
        assert!(!state.write(TIER, 4_000, 1));
        assert_eq!(state, SlidingCounter { start: 5_000, current: 2, previous: 3 });
    }

    #[test]
    fn windows_more_than_a_window_ahead_are_discarded() {
        let mut state = after(&[(5_000, 3)]);
        assert!(!state.read(TIER, 4_000, 1).admitted);
        assert!(state.read(TIER, 3_999, 3).admitted);
        assert!(state.write(TIER, 3_999, 1), "a discard is reported");
        assert!(!state.write(TIER, 3_999, 1));
        assert_eq!(state.used(TIER, 3_999), 2);
    }

    #[test]
    fn lowering_and_raising_the_limit_counts_what_was_taken() {
        let state = after(&[(5_000, 3)]);
        let lowered = Tier { limit: 1, ..TIER };
        let denied = state.read(lowered, 6_000, 1);
        assert_eq!((denied.admitted, denied.remaining, denied.retry_after), (false, 0, Some(1_000)));
        assert_eq!(state.read(Tier { limit: 5, ..TIER }, 6_000, 1).remaining, 1);
    }

    #[test]
    fn a_denial_that_counts_fills_the_limit_and_no_more() {
        let mut state = after(&[(5_000, 3)]);
        assert!(!state.count_denied(TIER, 6_000, 3));
        assert_eq!((state.current, state.previous), (0, 3), "there was no room");
        state.count_denied(TIER, 6_500, 3);
        assert_eq!((state.current, state.used(TIER, 6_500)), (1, 3));
        state.count_denied(Tier { limit: 1, ..TIER }, 6_500, 1);
        assert_eq!(state.current, 1, "nor is anything lost");
        assert!(state.count_denied(TIER, 1_000, 1), "a discard is reported");
    }

    #[test]
    fn a_refund_leaves_the_window_it_was_taken_in() {
        let state = after(&[(4_000, 2), (5_999, 2)]);
        for (at, left) in [
            (5_000, (0, 2)),
            (5_999, (0, 2)),
            (4_999, (2, 0)),
            (4_000, (2, 0)),
            (3_999, (2, 2)),
            (6_000, (2, 2)),
        ] {
            let mut state = state;
            state.refund(TIER, 5_999, at, 5);
            assert_eq!((state.current, state.previous), left, "at {at}");
        }
        // By now its window may be the previous one, or over.
        for (now, left) in [(6_000, (6_000, 0, 0)), (7_000, (5_000, 2, 2))] {
            let mut state = state;
            state.refund(TIER, now, 5_999, 5);
            assert_eq!((state.start, state.current, state.previous), left, "at {now}");
        }
    }

    #[test]
    fn a_billion_over_366_days_and_over_a_millisecond_is_exact() {
        for (tier, later) in [
            // 31 622.4 µs a unit.
            (Tier { limit: BILLION, window: YEAR }, [31_623, 63_245, 94_868]),
            // A million units a microsecond.
            (Tier { limit: BILLION, window: 1_000 }, [1, 1, 1]),
        ] {
            let start = 60 * YEAR;
            let mut state = SlidingCounter::default();
            state.write(tier, start, BILLION - 1);
            assert!(state.read(tier, start + tier.window - 1, 1).admitted);
            state.write(tier, start + tier.window - 1, 1);
            let next = start + tier.window;
            for (cost, later) in (1..).zip(later) {
                assert_eq!(state.read(tier, start, cost).retry_after, Some(tier.window + later));
                assert!(!state.read(tier, next + later - 1, cost).admitted);
                assert!(state.read(tier, next + later, cost).admitted);
            }
            assert!(!state.read(tier, next + tier.window - 1, BILLION).admitted);
            assert!(state.read(tier, next + tier.window, BILLION).admitted);
        }
    }

    #[test]
    fn the_ends_of_time_overflow_nothing() {
        for tier in [TIER, Tier { limit: 3, window: i64::MAX }, Tier { limit: 3, window: 1 }] {
            for now in [i64::MIN, i64::MIN + 1, -1, 0, i64::MAX - 1, i64::MAX] {
                let mut state = SlidingCounter::default();
                state.write(tier, now, 3);
                assert!(!state.read(tier, now, 1).admitted, "at {now}");
                state.write(tier, now, u64::MAX);
                for later in [i64::MIN, now, i64::MAX] {
                    let _ = (state.read(tier, later, u64::MAX), state.expires_at(tier));
                    let mut state = state;
                    state.count_denied(tier, later, u64::MAX);
                    state.refund(tier, later, now, 1);
                }
            }
        }
    }
}
