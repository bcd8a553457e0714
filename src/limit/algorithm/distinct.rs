//! `distinct`: limits how many different values are seen in a window. A value that was seen already is always admitted.

use super::{Member, Tier, Verdict, members::Members, verdict::TierStatus};

/// The values, each with a stamp: twice the time when it was last seen, in microseconds since the Unix epoch, plus one
/// if it had been seen before at the same time. So a refund distinguishes a value that only its request has brought
/// from one that another request relies on. Values that have left the window are kept until the next write.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Distinct(Members);

/// The highest stamp of a time.
fn last_stamp(time: i64) -> i64 {
    time.saturating_mul(2).saturating_add(1)
}

fn time_of_stamp(stamp: i64) -> i64 {
    stamp.div_euclid(2)
}

impl Distinct {
    /// The verdict for a request with this `value` at the time `now`. Changes nothing. Any cost above 0 counts as one
    /// value.
    pub fn read(&self, tier: Tier, now: i64, cost: u64, value: Member) -> Verdict {
        let DistinctView { cutoff, at, .. } = self.view(tier, now);
        let used = self.0.count_between(last_stamp(cutoff), i64::MAX);
        let known = self.time_of(value).is_some_and(|time| time > cutoff);
        // A value that is seen again becomes the newest, so another one is the oldest.
        let is_seen_again = known && cost > 0;
        let in_window = || self.0.after(last_stamp(cutoff));
        let oldest = in_window().find(|(_, other)| !is_seen_again || *other != value);
        let excess = used.saturating_add(cost.min(1)).saturating_sub(tier.limit);
        let last_to_leave = in_window().nth(usize::try_from(excess.saturating_sub(1)).unwrap_or(usize::MAX));
        let leaves = |found: Option<(i64, Member)>| {
            found.map_or(at, |(stamp, _)| time_of_stamp(stamp)).saturating_add(tier.window)
        };
        let status = TierStatus {
            limit: tier.limit,
            used,
            frees_at: leaves(oldest),
            fits_at: Some(leaves(last_to_leave)),
            max_delay: 0,
        };
        Verdict::from_member(status, now, cost, known)
    }

    /// Records that `value` was seen, after a read has admitted it. Returns whether state from the future was
    /// discarded.
    pub fn write(&mut self, tier: Tier, now: i64, value: Member) -> bool {
        let DistinctView { cutoff, at, discards } = self.view(tier, now);
        self.0.retain_between(last_stamp(cutoff), i64::MAX);
        let is_repeated = self.time_of(value) == Some(at);
        self.0.set(value, if is_repeated { last_stamp(at) } else { at.saturating_mul(2) });
        discards
    }

    /// Forgets a value that was taken at the time `at`, unless it was seen again since then.
    pub fn refund(&mut self, at: i64, value: Member) {
        if self.0.time_of(value).is_some_and(|stamp| stamp <= at.saturating_mul(2)) {
            self.0.remove(value);
        }
    }

    /// Values seen in the window that ends `now`.
    pub fn used(&self, tier: Tier, now: i64) -> u64 {
        self.0.count_between(last_stamp(self.view(tier, now).cutoff), i64::MAX)
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.0.heap_bytes()
    }

    /// When the state expires: from then on it counts nothing.
    pub fn expires_at(&self, tier: Tier) -> i64 {
        self.newest().map_or(i64::MIN, |newest| newest.saturating_add(tier.window))
    }

    /// When the newest value was seen.
    pub fn newest(&self) -> Option<i64> {
        self.0.newest().map(time_of_stamp)
    }

    fn time_of(&self, value: Member) -> Option<i64> {
        self.0.time_of(value).map(time_of_stamp)
    }

    fn view(&self, tier: Tier, now: i64) -> DistinctView {
        let newest = self.newest().unwrap_or(now);
        if newest.saturating_sub(now) > tier.window {
            return DistinctView { cutoff: i64::MAX, at: now, discards: true };
        }
        let at = newest.max(now);
        DistinctView { cutoff: at.saturating_sub(tier.window), at, discards: false }
    }
}

/// The window that ends now.
struct DistinctView {
    /// Values last seen at this time or before do not count.
    cutoff: i64,
    /// The limit's own time: now, or the newest value's time if that lies ahead.
    at: i64,
    /// Whether the state is too far ahead: then all of it is void.
    discards: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIER: Tier = Tier { limit: 3, window: 1_000 };

    fn after(writes: &[(i64, Member)]) -> Distinct {
        let mut state = Distinct::default();
        for &(now, value) in writes {
            assert!(state.read(TIER, now, 1, value).admitted, "{value} at {now}");
            state.write(TIER, now, value);
        }
        state
    }

    #[test]
    fn values_beyond_the_limit_are_denied() {
        let state = after(&[(100, 1), (200, 2), (300, 3)]);
        let denied = state.read(TIER, 1_099, 1, 4);
        assert_eq!((denied.admitted, denied.remaining, denied.retry_after), (false, 0, Some(1)));
        let admitted = state.read(TIER, 1_100, 1, 4);
        assert_eq!((admitted.admitted, admitted.remaining, admitted.reset), (true, 0, 100));
        assert_eq!(state.expires_at(TIER), 1_300);
    }

    #[test]
    fn a_value_that_was_seen_passes_and_stays() {
        let mut state = after(&[(100, 1), (200, 2), (300, 3)]);
        for (value, reset) in [(1, 300), (2, 200), (3, 200)] {
            let verdict = state.read(TIER, 900, u64::MAX, value);
            assert_eq!((verdict.admitted, verdict.remaining, verdict.reset), (true, 0, reset), "{value}");
            assert_eq!(verdict.retry_after, Some(0));
        }
        state.write(TIER, 900, 1);
        assert_eq!(state.used(TIER, 900), 3);
        assert_eq!(state.read(TIER, 900, 1, 4).retry_after, Some(300), "the second is the oldest now");
        assert_eq!(state.read(TIER, 900, 0, 2).reset, 300, "a read of cost 0 moves nothing");
    }

    #[test]
    fn where_the_limit_was_lowered_those_that_were_seen_pass() {
        let state = after(&[(100, 1), (200, 2), (300, 3)]);
        let lowered = Tier { limit: 1, ..TIER };
        assert!(state.read(lowered, 400, 1, 2).admitted);
        assert!(state.read(lowered, 400, 0, 2).admitted, "a read of cost 0 is admitted, too");
        let denied = state.read(lowered, 400, 1, 4);
        assert_eq!((denied.admitted, denied.remaining, denied.reset), (false, 0, 700));
        assert_eq!(denied.retry_after, Some(900), "all three must leave");
        assert!(!state.read(lowered, 1_299, 1, 4).admitted);
        assert!(state.read(lowered, 1_300, 1, 4).admitted);
    }

    #[test]
    fn a_value_exactly_as_old_as_the_window_is_out() {
        let mut state = after(&[(100, 1)]);
        assert_eq!((state.used(TIER, 1_099), state.used(TIER, 1_100)), (1, 0));
        state.write(TIER, 1_100, 2);
        assert_eq!(state.0.len(), 1, "and a write removes it");
    }

    #[test]
    fn time_that_runs_backward_counts_as_the_newest() {
        let mut state = after(&[(5_000, 1)]);
        state.write(TIER, 4_500, 2);
        assert_eq!(state.time_of(2), Some(5_000));
        assert_eq!(state.read(TIER, 4_600, 1, 3).reset, 1_400);
    }

    #[test]
    fn values_more_than_a_window_ahead_are_discarded() {
        let mut state = after(&[(4_500, 1), (5_000, 2), (5_000, 3)]);
        assert!(!state.read(TIER, 4_000, 1, 4).admitted);
        assert_eq!(state.read(TIER, 3_999, 1, 1).remaining, 2, "not even the one is known");
        assert!(state.write(TIER, 3_999, 4), "a discard is reported");
        assert!(!state.write(TIER, 3_999, 4));
        assert_eq!(state.used(TIER, 3_999), 1);
    }

    #[test]
    fn a_refunded_value_is_forgotten() {
        let mut state = after(&[(100, 1), (200, 2), (300, 3)]);
        state.refund(200, 2);
        state.refund(200, 9);
        assert_eq!(state.used(TIER, 300), 2);
        assert!(state.read(TIER, 300, 1, 4).admitted);
    }

    #[test]
    fn a_value_that_was_seen_again_is_not_forgotten() {
        for again in [100, 101, 900] {
            let mut state = after(&[(100, 1), (again, 1)]);
            state.refund(100, 1);
            assert_eq!(state.used(TIER, again), 1, "seen again at {again}");
            assert_eq!(state.used(TIER, again + TIER.window), 0);
        }
    }

    #[test]
    fn ten_thousand_values_are_counted() {
        let tier = Tier { limit: 10_000, window: 1_000_000 };
        let mut state = Distinct::default();
        for (now, value) in (0..10_000).zip(0..) {
            assert!(state.read(tier, now, 1, value).admitted);
            state.write(tier, now, value);
        }
        assert_eq!(state.read(tier, 10_000, 1, 10_000).retry_after, Some(990_000));
        assert!(state.read(tier, 10_000, 1, 5_000).admitted);
    }

    #[test]
    fn the_ends_of_time_overflow_nothing() {
        for now in [i64::MIN, i64::MIN + 1, -1, 0, i64::MAX - 1, i64::MAX] {
            let mut state = Distinct::default();
            state.write(TIER, now, 1);
            for later in [i64::MIN, now, i64::MAX] {
                let _ =
                    (state.read(TIER, later, u64::MAX, 2), state.used(TIER, later), state.expires_at(TIER));
                state.clone().write(TIER, later, 3);
            }
        }
    }
}
