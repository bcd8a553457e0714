//! `gcra`: the generic cell rate algorithm, as a bucket of `burst` units that drains at a steady rate: limit per
//! window. It admits at most burst + limit units in any span of one window, plus the units that may be delayed.

use super::{Tier, Verdict, level::Level, verdict::TierStatus};

/// Most units that may be delayed, regardless of `delay`. Together with the burst they still fit a double exactly.
const MAX_WAITING_UNITS: i128 = 1 << 50;

/// The bucket's level at the time `at`, in microseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Gcra {
    pub at: i64,
    pub level: Level,
}

impl Gcra {
    /// The verdict for a request of `cost` units at the time `now`. Changes nothing. `bucket`: its burst and its delay.
    pub fn read(&self, tier: Tier, bucket: (u64, i64), now: i64, cost: u64) -> Verdict {
        Verdict::from_tiers(std::iter::once(self.current(tier, now).status(tier, bucket, cost)), now, cost)
    }

    /// Takes `cost` units that a read has admitted. Returns whether state from the future was discarded.
    pub fn write(&mut self, tier: Tier, _bucket: (u64, i64), now: i64, cost: u64) -> bool {
        let discards = self.is_ahead(tier, now);
        let Self { at, level } = self.current(tier, now);
        *self = Self { at, level: level.with(cost) };
        discards
    }

    /// Counts a denied request, up to the burst. Returns whether state from the future was discarded.
    pub fn count_denied(&mut self, tier: Tier, (burst, _): (u64, i64), now: i64, cost: u64) -> bool {
        let discards = self.is_ahead(tier, now);
        let Self { at, level } = self.current(tier, now);
        let full = Level { whole: burst, part: 0 };
        *self = Self { at, level: level.with(cost).min(full).max(level) };
        discards
    }

    /// Refunds `cost` units that were taken at `taken`, except those that may have drained by `now`. Otherwise a refund
    /// would also free units that later requests took.
    pub fn refund(&mut self, tier: Tier, now: i64, taken: i64, cost: u64) {
        let Self { at, level } = self.current(tier, now);
        let passed = i128::from(at) - i128::from(taken);
        let left = level.without(tier, cost, passed);
        // An unchanged level keeps its time, since the clock may still be set back.
        if left != level {
            *self = Self { at, level: left };
        }
    }

    /// Units in the bucket, rounded up.
    pub fn used(&self, tier: Tier, now: i64) -> u64 {
        self.current(tier, now).level.units()
    }

    /// When the bucket is empty.
    pub fn expires_at(&self, tier: Tier) -> i64 {
        self.at.saturating_add(self.level.time_until_empty(tier))
    }

    /// The limit's status for a request of `cost` units. `self` must be the bucket's current state.
    pub fn status(self, tier: Tier, (burst, delay): (u64, i64), cost: u64) -> TierStatus {
        let Self { at, level } = self;
        let room = i128::from(burst) - i128::from(cost);
        TierStatus {
            limit: burst,
            used: level.units(),
            frees_at: at.saturating_add(level.time_until_less(tier)),
            fits_at: (room >= 0).then(|| at.saturating_add(level.time_until_at_most(tier, room))),
            max_delay: max_delay(tier, delay),
        }
    }

    /// The bucket at the time `now`, or at its own time if that is ahead.
    fn current(self, tier: Tier, now: i64) -> Self {
        if self.level.is_empty() || self.is_ahead(tier, now) {
            Self { at: now, level: Level::default() }
        } else if self.at >= now {
            self
        } else {
            let passed = i128::from(now) - i128::from(self.at);
            Self { at: now, level: self.level.drained(tier, passed) }
        }
    }

    /// Whether the state is more than a window ahead of now, and so void.
    fn is_ahead(self, tier: Tier, now: i64) -> bool {
        !self.level.is_empty() && self.at.saturating_sub(now) > tier.window
    }
}

/// How long a request may be delayed, in microseconds.
pub fn max_delay(tier: Tier, delay: i64) -> i64 {
    let most = MAX_WAITING_UNITS * i128::from(tier.window) / i128::from(tier.limit.max(1));
    delay.min(i64::try_from(most).unwrap_or(i64::MAX)).max(0)
}

/// How far delayed requests may fill the bucket above its burst.
pub fn allowance(tier: Tier, max_delay: i64) -> Level {
    Level::from_drain_time(tier, max_delay)
}

#[cfg(test)]
mod tests {
    use super::*;

    const YEAR: i64 = 366 * 86_400_000_000;
    const BILLION: u64 = 1_000_000_000;
    const NOW: i64 = 1_800_000_000_000_000;
    /// A unit drains in 333⅓ µs.
    const TIER: Tier = Tier { limit: 3, window: 1_000 };
    const BUCKET: (u64, i64) = (3, 0);

    fn after(bucket: (u64, i64), writes: &[(i64, u64)]) -> Gcra {
        let mut state = Gcra::default();
        for &(now, cost) in writes {
            assert!(state.read(TIER, bucket, now, cost).admitted, "at {now}");
            assert!(!state.write(TIER, bucket, now, cost));
        }
        state
    }

    #[test]
    fn a_unit_fits_as_soon_as_there_is_room_for_all_of_it() {
        let state = after(BUCKET, &[(5_000, 3)]);
        for (cost, retry_after) in [(1, 334), (2, 667), (3, 1_000)] {
            let denied = state.read(TIER, BUCKET, 5_000, cost);
            let observed = (denied.admitted, denied.retry_after, denied.remaining, denied.reset);
            assert_eq!(observed, (false, Some(retry_after), 0, 334));
            assert!(!state.read(TIER, BUCKET, 4_999 + retry_after, cost).admitted);
            assert!(state.read(TIER, BUCKET, 5_000 + retry_after, cost).admitted);
        }
        assert_eq!(state.expires_at(TIER), 6_000);
        assert_eq!((state.used(TIER, 5_999), state.used(TIER, 6_000)), (1, 0));
    }

    #[test]
    fn parts_of_units_are_kept() {
        let mut state = Gcra::default();
        state.write(TIER, BUCKET, 0, 3);
        // 334 µs drain two thousandths more than a unit, each time: they add up to one at last.
        let mut now = 0;
        for _ in 0..500 {
            now += 334;
            assert!(state.read(TIER, BUCKET, now, 1).admitted, "at {now}");
            state.write(TIER, BUCKET, now, 1);
        }
        assert_eq!(state.level, Level { whole: 2, part: 0 });
        assert!(state.read(TIER, BUCKET, now, 1).admitted);
        assert!(!state.read(TIER, BUCKET, now, 2).admitted);
    }

    #[test]
    fn the_burst_is_the_reported_limit() {
        let verdict = Gcra::default().read(TIER, (7, 0), 0, 2);
        assert_eq!((verdict.limit, verdict.remaining, verdict.reset), (7, 5, 334));
        let untouched = Gcra::default().read(TIER, (7, 0), 0, 0);
        assert_eq!((untouched.admitted, untouched.remaining, untouched.reset), (true, 7, 0));
        let never = Gcra::default().read(TIER, (7, i64::MAX), 0, 8);
        assert_eq!((never.admitted, never.retry_after), (false, None), "not even by waiting");
    }

    #[test]
    fn a_delayed_request_is_given_its_delay() {
        let bucket = (3, 700);
        let mut state = after(bucket, &[(5_000, 3)]);
        for delay in [334, 667] {
            let waits = state.read(TIER, bucket, 5_000, 1);
            assert_eq!((waits.admitted, waits.delay, waits.remaining), (true, delay, 0));
            state.write(TIER, bucket, 5_000, 1);
        }
        // Its turn is after a millisecond: it must wait until that is 700 µs away.
        let denied = state.read(TIER, bucket, 5_000, 1);
        assert_eq!((denied.admitted, denied.retry_after, denied.delay), (false, Some(300), 0));
        assert_eq!(state.read(TIER, bucket, 5_299, 1).retry_after, Some(1));
        let waits = state.read(TIER, bucket, 5_300, 1);
        assert_eq!((waits.admitted, waits.delay), (true, 700));
    }

    #[test]
    fn time_that_runs_backward_counts_as_the_newest() {
        let state = after(BUCKET, &[(5_000, 3)]);
        let denied = state.read(TIER, BUCKET, 4_000, 1);
        assert_eq!((denied.admitted, denied.retry_after, denied.reset), (false, Some(1_334), 1_334));
        // A delayed request waits the whole delay, or is denied.
        let waits = state.read(TIER, (3, 1_334), 4_000, 1);
        assert_eq!((waits.admitted, waits.delay), (true, 1_334));
        assert_eq!(state.read(TIER, (3, 1_333), 4_000, 1).retry_after, Some(1));
    }

    #[test]
    fn a_bucket_more_than_a_window_ahead_is_discarded() {
        let mut state = after(BUCKET, &[(5_000, 3)]);
        assert!(state.read(TIER, BUCKET, 3_999, 3).admitted);
        assert!(state.write(TIER, BUCKET, 3_999, 1), "a discard is reported");
        assert!(!state.write(TIER, BUCKET, 3_999, 1));
        assert_eq!(state.used(TIER, 3_999), 2);
    }

    #[test]
    fn lowering_and_raising_rate_and_burst_counts_what_was_taken() {
        let state = after(BUCKET, &[(5_000, 3)]);
        let denied = state.read(TIER, (1, 0), 5_000, 1);
        assert_eq!((denied.remaining, denied.retry_after), (0, Some(1_000)));
        assert_eq!(state.read(TIER, (5, 0), 5_000, 1).remaining, 1);
        let slower = Tier { limit: 1, ..TIER };
        assert_eq!(state.read(slower, BUCKET, 5_000, 1).retry_after, Some(1_000));
    }

    #[test]
    fn a_denial_that_counts_fills_the_bucket_and_no_more() {
        let bucket = (3, 700);
        let mut state = after(bucket, &[(5_000, 3)]);
        assert!(!state.count_denied(TIER, bucket, 5_100, 1));
        assert_eq!((state.at, state.level), (5_100, Level { whole: 3, part: 0 }));
        state.write(TIER, bucket, 5_100, 2);
        state.count_denied(TIER, bucket, 5_100, 3);
        assert_eq!(state.level, Level { whole: 5, part: 0 }, "those who wait keep their places");
        assert!(state.count_denied(TIER, bucket, 1_000, 1), "a discard is reported");
        assert_eq!(state.level, Level { whole: 1, part: 0 });
    }

    #[test]
    fn a_refund_above_the_level_empties_the_bucket() {
        let mut state = after(BUCKET, &[(5_000, 3)]);
        state.refund(TIER, 5_100, 5_100, 1);
        assert_eq!((state.at, state.level), (5_100, Level { whole: 1, part: 700 }));
        state.refund(TIER, 5_100, 5_100, 2);
        assert_eq!((state.used(TIER, 5_100), state.expires_at(TIER)), (0, 5_100));
    }

    #[test]
    fn a_billion_over_366_days_and_over_a_millisecond_is_exact() {
        let bucket = (BILLION, 0);
        for (tier, later) in [
            // 31 622.4 µs a unit.
            (Tier { limit: BILLION, window: YEAR }, [31_623, 63_245, 94_868]),
            // A million units a microsecond.
            (Tier { limit: BILLION, window: 1_000 }, [1, 1, 1]),
            (Tier { limit: 999_999_937, window: YEAR - 1 }, [31_623, 63_245, 94_868]),
        ] {
            let mut state = Gcra::default();
            state.write(tier, bucket, NOW, BILLION);
            for (cost, later) in (1..).zip(later) {
                assert_eq!(state.read(tier, bucket, NOW, cost).retry_after, Some(later));
                assert!(!state.read(tier, bucket, NOW + later - 1, cost).admitted);
                assert!(state.read(tier, bucket, NOW + later, cost).admitted);
            }
            let empty = i128::from(BILLION) * i128::from(tier.window);
            let empty = (empty + i128::from(tier.limit) - 1) / i128::from(tier.limit);
            let empty = NOW + i64::try_from(empty).unwrap();
            assert_eq!(state.expires_at(tier), empty);
            assert!(!state.read(tier, bucket, empty - 1, BILLION).admitted);
            assert!(state.read(tier, bucket, empty, BILLION).admitted);
        }
    }

    #[test]
    fn the_longest_delay_keeps_levels_countable() {
        let fast = Tier { limit: BILLION, window: 1_000 };
        let max_delay = max_delay(fast, YEAR);
        assert!(max_delay < YEAR && allowance(fast, max_delay).whole <= 1 << 50);
        assert_eq!(super::max_delay(TIER, 700), 700);
        assert_eq!(allowance(TIER, 700), Level { whole: 2, part: 100 });
    }

    #[test]
    fn the_ends_of_time_overflow_nothing() {
        let huge = Tier { limit: u64::MAX, window: i64::MAX };
        for tier in [TIER, huge, Tier { limit: 1, window: i64::MAX }, Tier { limit: u64::MAX, window: 1 }] {
            for now in [i64::MIN, i64::MIN + 1, -1, 0, i64::MAX - 1, i64::MAX] {
                for bucket in [BUCKET, (u64::MAX, i64::MAX)] {
                    let mut state = Gcra::default();
                    state.write(tier, bucket, now, 3);
                    assert!(!state.read(tier, BUCKET, now, 1).admitted, "at {now}");
                    state.write(tier, bucket, now, u64::MAX);
                    for later in [i64::MIN, now, i64::MAX] {
                        let _ = (state.read(tier, bucket, later, u64::MAX), state.expires_at(tier));
                        let mut state = state;
                        state.count_denied(tier, bucket, later, u64::MAX);
                        state.refund(tier, later, now, 1);
                    }
                }
            }
        }
    }
}
