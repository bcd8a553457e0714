//! `fixed_window`: one count per tier and calendar window (UTC). All tiers are one value.
//!
//! It admits at most 2 × limit in any span of one window: a burst on either side of a boundary.

use smallvec::SmallVec;

use super::{Tier, Verdict, window::CountWindow};
use crate::memory_budget::heap;

/// The newest window of each tier, in the order of the tiers. Empty if nothing was taken.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FixedWindow(SmallVec<[CountWindow; 1]>);

impl FixedWindow {
    /// The verdict for a request of `cost` units at the time `now`. Changes nothing.
    pub fn read(&self, tiers: &[Tier], now: i64, cost: u64) -> Verdict {
        let statuses =
            tiers.iter().enumerate().map(|(i, &tier)| self.current(i, tier, now).status(tier, cost));
        Verdict::from_tiers(statuses, now, cost)
    }

    /// Takes `cost` units of every tier, after a read has admitted them, or in excess: of each tier at most its limit.
    /// Returns whether state from the future was discarded.
    pub fn write(&mut self, tiers: &[Tier], now: i64, cost: u64) -> bool {
        self.0.resize(tiers.len(), CountWindow::default());
        let mut discards = false;
        for (i, &tier) in tiers.iter().enumerate() {
            discards |= self.0[i].is_ahead(tier, now);
            let window = self.current(i, tier, now);
            self.0[i] = CountWindow { used: window.used.saturating_add(cost.min(tier.limit)), ..window };
        }
        discards
    }

    /// Counts a denied request in every tier, up to its limit. Returns whether state from the future was
    /// discarded.
    pub fn count_denied(&mut self, tiers: &[Tier], now: i64, cost: u64) -> bool {
        self.0.resize(tiers.len(), CountWindow::default());
        let mut discards = false;
        for (i, &tier) in tiers.iter().enumerate() {
            discards |= self.0[i].is_ahead(tier, now);
            self.0[i] = self.current(i, tier, now).with_denied(tier, cost);
        }
        discards
    }

    /// Refunds `cost` units that were taken at `at`, to each tier whose window has not ended. Nothing if a window is
    /// too far in the future at the time `now`.
    pub fn refund(&mut self, tiers: &[Tier], now: i64, at: i64, cost: u64) {
        if self.0.iter().zip(tiers).any(|(window, &tier)| window.is_ahead(tier, now)) {
            return;
        }
        for (window, &tier) in self.0.iter_mut().zip(tiers) {
            window.refund(tier, at, cost);
        }
    }

    /// When the newest window began.
    pub fn newest_start(&self) -> i64 {
        self.0.iter().map(|window| window.start).max().unwrap_or(i64::MIN)
    }

    /// Units of one tier taken in the window of `now`.
    pub fn used(&self, index: usize, tier: Tier, now: i64) -> u64 {
        self.current(index, tier, now).used
    }

    /// Bytes on the heap: the window of a single tier is inline.
    pub fn heap_bytes(&self) -> usize {
        if self.0.spilled() { heap::array::<CountWindow>(self.0.capacity()) } else { 0 }
    }

    /// When the state expires: from then on it counts nothing.
    pub fn expires_at(&self, tiers: &[Tier]) -> i64 {
        self.0.iter().zip(tiers).map(|(window, &tier)| window.end(tier)).max().unwrap_or(i64::MIN)
    }

    fn current(&self, index: usize, tier: Tier, now: i64) -> CountWindow {
        let start = now.saturating_sub(now.rem_euclid(tier.window));
        self.0.get(index).copied().unwrap_or_default().current(tier, now, start, start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;
    const TIERS: [Tier; 2] = [Tier { limit: 2, window: SECOND }, Tier { limit: 3, window: 60 * SECOND }];

    fn after(writes: &[(i64, u64)]) -> FixedWindow {
        let mut state = FixedWindow::default();
        for &(now, cost) in writes {
            assert!(state.read(&TIERS, now, cost).admitted, "at {now}");
            state.write(&TIERS, now, cost);
        }
        state
    }

    #[test]
    fn windows_are_the_calendars() {
        let state = after(&[(7 * SECOND - 1, 2)]);
        let denied = state.read(&TIERS, 7 * SECOND - 1, 1);
        assert_eq!((denied.admitted, denied.tier, denied.retry_after), (false, 0, Some(1)));
        let next = state.read(&TIERS, 7 * SECOND, 1);
        assert_eq!((next.admitted, next.tier, next.remaining), (true, 1, 0));
        assert_eq!(next.reset, 53 * SECOND);
        assert_eq!(state.expires_at(&TIERS), 60 * SECOND);
    }

    #[test]
    fn the_slower_tier_decides_when_to_come_back() {
        let state = after(&[(0, 1), (SECOND, 2)]);
        let denied = state.read(&TIERS, SECOND, 1);
        assert_eq!((denied.tier, denied.limit, denied.retry_after), (1, 3, Some(59 * SECOND)));
        assert!(!state.read(&TIERS, 60 * SECOND - 1, 1).admitted);
        assert!(state.read(&TIERS, 60 * SECOND, 1).admitted);
    }

    #[test]
    fn the_cost_must_fit_every_tier() {
        let verdict = after(&[]).read(&TIERS, 0, 3);
        assert_eq!((verdict.admitted, verdict.tier, verdict.retry_after), (false, 0, None));
    }

    #[test]
    fn before_the_epoch_windows_begin_at_their_floor() {
        let state = after(&[(-1, 2)]);
        assert!(!state.read(&TIERS, -SECOND, 1).admitted, "still the window that began at -1 s");
        assert!(state.read(&TIERS, 0, 1).admitted);
    }

    #[test]
    fn each_tier_discards_what_lies_more_than_its_window_ahead() {
        let mut state = after(&[(100 * SECOND, 2)]);
        let back = state.read(&TIERS, 90 * SECOND, 1);
        assert_eq!((back.admitted, back.tier, back.remaining), (true, 1, 0), "the minute still counts");
        assert!(state.write(&TIERS, 90 * SECOND, 1));
        assert_eq!(state.used(0, TIERS[0], 90 * SECOND), 1);
        assert_eq!(state.used(1, TIERS[1], 90 * SECOND), 3);
    }

    #[test]
    fn a_billion_over_366_days_is_counted_exactly() {
        let tier = [Tier { limit: 1_000_000_000, window: 366 * 86_400_000_000 }];
        let now = 1_800_000_000_000_000;
        let mut state = FixedWindow::default();
        state.write(&tier, now, 1_000_000_000);
        let end = (now / tier[0].window + 1) * tier[0].window;
        assert_eq!(state.read(&tier, now, 1).retry_after, Some(end - now));
        assert!(!state.read(&tier, end - 1, 1).admitted);
        assert!(state.read(&tier, end, 1_000_000_000).admitted);
    }

    #[test]
    fn the_ends_of_time_overflow_nothing() {
        for now in [i64::MIN, i64::MIN + 1, -1, 0, i64::MAX - 1, i64::MAX] {
            let mut state = FixedWindow::default();
            state.write(&TIERS, now, 3);
            for later in [i64::MIN, now, i64::MAX] {
                let _ = (state.read(&TIERS, later, u64::MAX), state.expires_at(&TIERS));
            }
            assert!(!state.read(&TIERS, now, 1).admitted, "at {now}");
        }
    }
}
