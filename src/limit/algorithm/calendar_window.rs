//! `fixed_window` with windows of the calendar, such as months of a time zone, beside windows of constant length.
//!
//! Windows of the calendar differ in length, so each call gets their beginnings. The state has the end of each window:
//! it counts until then, whatever beginnings later calls have.

use smallvec::SmallVec;

use super::{Tier, Verdict, verdict::TierStatus};
use crate::memory_budget::heap;

/// The beginnings of five successive windows of one tier, in microseconds since the Unix epoch, ascending. The first
/// three may be the window of a decision; the others say when the window after it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowBounds(pub [i64; 5]);

impl WindowBounds {
    /// Windows of constant length since the Unix epoch. `now` is in the second.
    pub fn constant(window: i64, now: i64) -> Self {
        let start = now.saturating_sub(now.rem_euclid(window.max(1)));
        Self([-1, 0, 1, 2, 3].map(|nth| start.saturating_add(window.saturating_mul(nth))))
    }

    /// The end of the window that holds `now`, and of the window after it. `None`: none of the first three holds it.
    pub fn ends(&self, now: i64) -> Option<(i64, i64)> {
        let holds = |window: &&[i64]| matches!(**window, [start, end, _] if start <= now && now < end);
        match self.0.windows(3).find(holds) {
            Some(&[_, end, next]) => Some((end, next)),
            _ => None,
        }
    }

    /// The beginning of the window that ends at `end`.
    pub fn start(&self, end: i64) -> i64 {
        self.0.iter().copied().rfind(|&start| start < end).unwrap_or(i64::MIN)
    }

    /// Beyond all dates of the calendar, a window has no end.
    fn ends_or_never(&self, now: i64) -> (i64, i64) {
        self.ends(now).unwrap_or((i64::MAX, i64::MAX))
    }
}

/// Units taken until a window's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct EndingWindow {
    /// Microseconds since the Unix epoch.
    end: i64,
    /// 0 if there is no window.
    used: u64,
}

impl EndingWindow {
    /// This window, if it has not ended and is not void; else the unused one that holds `now`.
    fn current(self, bounds: &WindowBounds, now: i64) -> Self {
        let (end, next) = bounds.ends_or_never(now);
        if self.used > 0 && self.end > now && self.end <= next { self } else { Self { end, used: 0 } }
    }

    /// Whether the window ends after the one that follows the window of `now`, so that it is void.
    fn is_ahead(self, bounds: &WindowBounds, now: i64) -> bool {
        self.used > 0 && self.end > bounds.ends_or_never(now).1
    }

    fn status(self, limit: u64, cost: u64) -> TierStatus {
        TierStatus {
            limit,
            used: self.used,
            frees_at: self.end,
            fits_at: (cost <= limit).then_some(self.end),
            max_delay: 0,
        }
    }
}

/// The newest window of each tier, in the order of the tiers. Empty if nothing was taken. All methods get the bounds of
/// each tier at the time `now`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CalendarWindow(SmallVec<[EndingWindow; 1]>);

impl CalendarWindow {
    /// The verdict for a request of `cost` units at the time `now`. Changes nothing.
    pub fn read(&self, tiers: &[Tier], bounds: &[WindowBounds], now: i64, cost: u64) -> Verdict {
        let each = tiers.iter().zip(bounds).enumerate();
        let statuses = each.map(|(i, (tier, bounds))| self.current(i, bounds, now).status(tier.limit, cost));
        Verdict::from_tiers(statuses, now, cost)
    }

    /// Takes `cost` units of every tier, after a read has admitted them, or in excess: of each tier at most its limit.
    /// Returns whether state from the future was discarded.
    pub fn write(&mut self, tiers: &[Tier], bounds: &[WindowBounds], now: i64, cost: u64) -> bool {
        self.change(bounds, now, |i, window| {
            let limit = tiers.get(i).map_or(0, |tier| tier.limit);
            window.used = window.used.saturating_add(cost.min(limit));
        })
    }

    /// Counts a denied request in every tier, up to its limit. Returns whether state from the future was
    /// discarded.
    pub fn count_denied(&mut self, tiers: &[Tier], bounds: &[WindowBounds], now: i64, cost: u64) -> bool {
        self.change(bounds, now, |i, window| {
            let limit = tiers.get(i).map_or(0, |tier| tier.limit);
            window.used = window.used.saturating_add(cost).min(limit).max(window.used);
        })
    }

    fn change(
        &mut self,
        bounds: &[WindowBounds],
        now: i64,
        count: impl Fn(usize, &mut EndingWindow),
    ) -> bool {
        self.0.resize(bounds.len(), EndingWindow::default());
        let mut discards = false;
        for (i, (window, bounds)) in self.0.iter_mut().zip(bounds).enumerate() {
            discards |= window.is_ahead(bounds, now);
            *window = window.current(bounds, now);
            count(i, window);
        }
        discards
    }

    /// Refunds `cost` units that were taken at `at`, to each tier whose window has not ended. Nothing if a window is
    /// too far in the future at the time `now`.
    pub fn refund(&mut self, bounds: &[WindowBounds], now: i64, at: i64, cost: u64) {
        if self.0.iter().zip(bounds).any(|(window, bounds)| window.is_ahead(bounds, now)) {
            return;
        }
        for (window, bounds) in self.0.iter_mut().zip(bounds) {
            if window.end > now && bounds.start(window.end) <= at && at < window.end {
                window.used = window.used.saturating_sub(cost);
            }
        }
    }

    /// When the newest window began.
    pub fn newest_start(&self, bounds: &[WindowBounds]) -> i64 {
        let starts = self.0.iter().zip(bounds).map(|(window, bounds)| bounds.start(window.end));
        starts.max().unwrap_or(i64::MIN)
    }

    /// Units of one tier taken in the window of `now`.
    pub fn used(&self, index: usize, bounds: &[WindowBounds], now: i64) -> u64 {
        bounds.get(index).map_or(0, |bounds| self.current(index, bounds, now).used)
    }

    /// Bytes on the heap: the window of a single tier is inline.
    pub fn heap_bytes(&self) -> usize {
        if self.0.spilled() { heap::array::<EndingWindow>(self.0.capacity()) } else { 0 }
    }

    /// When the state expires: from then on it counts nothing.
    pub fn expires_at(&self) -> i64 {
        self.0.iter().map(|window| window.end).max().unwrap_or(i64::MIN)
    }

    fn current(&self, index: usize, bounds: &WindowBounds, now: i64) -> EndingWindow {
        self.0.get(index).copied().unwrap_or_default().current(bounds, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400_000_000;
    /// Months of 28, 31, 30, 31 days.
    const BOUNDS: [WindowBounds; 1] = [WindowBounds([0, 28 * DAY, 59 * DAY, 89 * DAY, 120 * DAY])];
    const TIERS: [Tier; 1] = [Tier { limit: 3, window: 31 * DAY }];

    fn after(now: i64, cost: u64) -> CalendarWindow {
        let mut state = CalendarWindow::default();
        assert!(!state.write(&TIERS, &BOUNDS, now, cost));
        state
    }

    #[test]
    fn a_window_counts_until_its_own_end() {
        let state = after(28 * DAY, 3);
        let denied = state.read(&TIERS, &BOUNDS, 59 * DAY - 1, 1);
        assert_eq!((denied.admitted, denied.retry_after, denied.reset), (false, Some(1), 1));
        assert!(state.read(&TIERS, &BOUNDS, 59 * DAY, 3).admitted);
        assert_eq!(state.expires_at(), 59 * DAY);
        // Another version of the zone's rules has another end.
        let later = [WindowBounds([1, 28 * DAY + 1, 58 * DAY, 89 * DAY + 1, 120 * DAY])];
        assert!(!state.read(&TIERS, &later, 58 * DAY + 1, 1).admitted);
        assert!(state.read(&TIERS, &later, 59 * DAY, 1).admitted);
    }

    #[test]
    fn each_of_the_first_three_windows_may_hold_now() {
        for (now, end) in [(0, 28), (28 * DAY - 1, 28), (28 * DAY, 59), (59 * DAY, 89), (89 * DAY - 1, 89)] {
            assert_eq!(after(now, 1).expires_at(), end * DAY, "at {now}");
        }
        assert_eq!((BOUNDS[0].ends(-1), BOUNDS[0].ends(89 * DAY)), (None, None));
    }

    #[test]
    fn time_that_runs_back_by_a_window_stays_and_by_two_voids() {
        let mut state = after(59 * DAY, 3);
        assert!(!state.read(&TIERS, &BOUNDS, 28 * DAY, 1).admitted, "the window after this one");
        assert!(state.read(&TIERS, &BOUNDS, 27 * DAY, 1).admitted, "the one after that");
        let untouched = state.clone();
        state.refund(&BOUNDS, 27 * DAY, 59 * DAY, 1);
        assert_eq!(state, untouched);
        assert!(state.write(&TIERS, &BOUNDS, 27 * DAY, 1), "a discard is reported");
        assert_eq!(state.used(0, &BOUNDS, 27 * DAY), 1);
    }

    #[test]
    fn a_refund_is_for_the_window_in_which_the_units_were_taken() {
        for (taken, refunded, left) in [(28, 28, 1), (28, 27, 2), (58, 28, 1), (58, 59, 2)] {
            let mut state = after(taken * DAY, 2);
            state.refund(&BOUNDS, 58 * DAY, refunded * DAY, 1);
            assert_eq!(state.used(0, &BOUNDS, 58 * DAY), left, "{taken} {refunded}");
        }
        let mut state = after(28 * DAY, 2);
        state.refund(&BOUNDS, 59 * DAY, 28 * DAY, 1);
        assert_eq!(state.used(0, &BOUNDS, 58 * DAY), 2, "it had ended");
    }

    #[test]
    fn a_minute_and_a_month_are_both_kept() {
        let tiers = [Tier { limit: 2, window: 60_000_000 }, TIERS[0]];
        let bounds = |now| [WindowBounds::constant(60_000_000, now), BOUNDS[0]];
        let mut state = CalendarWindow::default();
        state.write(&tiers, &bounds(59 * DAY - 1), 59 * DAY - 1, 2);
        let read = |state: &CalendarWindow, now| {
            let verdict = state.read(&tiers, &bounds(now), now, 1);
            (verdict.admitted, verdict.tier, verdict.remaining)
        };
        assert_eq!(read(&state, 59 * DAY - 1), (false, 0, 0));
        assert_eq!(read(&state, 59 * DAY), (true, 0, 1), "both windows are new");
        state.write(&tiers, &bounds(59 * DAY), 59 * DAY, 2);
        state.write(&tiers, &bounds(60 * DAY), 60 * DAY, 1);
        assert_eq!(read(&state, 60 * DAY), (false, 1, 0));
        assert!(!state.count_denied(&tiers, &bounds(60 * DAY), 60 * DAY, 9));
        assert_eq!([0, 1].map(|i| state.used(i, &bounds(60 * DAY), 60 * DAY)), [2, 3]);
    }

    #[test]
    fn the_ends_of_time_overflow_nothing() {
        let times = [i64::MIN, i64::MIN + 1, -1, 0, i64::MAX - 1, i64::MAX];
        for now in times {
            for bounds in [BOUNDS, [WindowBounds::constant(60_000_000, now)]] {
                let mut state = CalendarWindow::default();
                state.write(&TIERS, &bounds, now, 3);
                for later in times {
                    let _ = (state.read(&TIERS, &bounds, later, u64::MAX), state.expires_at());
                    state.clone().refund(&bounds, later, now, 1);
                }
                assert_eq!(state.used(0, &bounds, now), if now == i64::MAX { 0 } else { 3 }, "at {now}");
            }
        }
    }
}
