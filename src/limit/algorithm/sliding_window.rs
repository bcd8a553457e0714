//! `sliding_window`: a ring of buckets per tier, with a running total. It never admits more than the limit in any
//! window: the total spans the bucket of now and the `buckets` before it, which is more than a window. Steady traffic
//! gets at least buckets / (buckets + 1) of the limit.

use super::{Tier, Verdict, verdict::TierStatus};
use crate::memory_budget::heap;

/// The ring of each tier, in the order of the tiers. Empty if nothing was taken.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SlidingWindow(Box<[Ring]>);

/// The counts of the newest bucket and of the `buckets` before it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Ring {
    /// The number of the newest bucket.
    newest: i64,
    /// The sum of the counts. If it is 0, there is no newest bucket.
    total: u32,
    /// The count of bucket `i` is at `i` modulo the ring's length.
    counts: Box<[u32]>,
}

impl SlidingWindow {
    /// The verdict for a request of `cost` units at the time `now`. Changes nothing.
    pub fn read(&self, tiers: &[Tier], buckets: u32, now: i64, cost: u64) -> Verdict {
        let statuses = tiers.iter().enumerate().map(|(i, &tier)| {
            let grid = Grid::new(tier, buckets);
            match self.0.get(i) {
                Some(ring) => ring.status(grid, tier, now, cost),
                None => Ring::empty(0).status(grid, tier, now, cost),
            }
        });
        Verdict::from_tiers(statuses, now, cost)
    }

    /// Takes `cost` units of every tier, after a read has admitted them, or in excess: of each tier at most its limit.
    /// Returns whether state from the future was discarded.
    pub fn write(&mut self, tiers: &[Tier], buckets: u32, now: i64, cost: u64) -> bool {
        self.extend(tiers, buckets);
        let mut discards = false;
        for (ring, &tier) in self.0.iter_mut().zip(tiers) {
            discards |= ring.advance(Grid::new(tier, buckets), now);
            ring.add(cost.min(tier.limit));
        }
        discards
    }

    /// Counts a denied request in every tier. It replaces the oldest units, so that the newest are kept, up to the
    /// limit. Returns whether state from the future was discarded.
    pub fn count_denied(&mut self, tiers: &[Tier], buckets: u32, now: i64, cost: u64) -> bool {
        let discards = self.write(tiers, buckets, now, cost);
        for (ring, tier) in self.0.iter_mut().zip(tiers) {
            ring.drop_oldest_above(tier.limit);
        }
        discards
    }

    /// Refunds `cost` units that were taken at `at`, as far as that bucket still counts `now` and still has them.
    pub fn refund(&mut self, tiers: &[Tier], buckets: u32, now: i64, at: i64, cost: u64) {
        let grid = |tier| Grid::new(tier, buckets);
        let is_there = self.0.iter().zip(tiers).any(|(ring, &tier)| ring.may_hold(grid(tier), now, at));
        if !is_there {
            return;
        }
        for (ring, &tier) in self.0.iter_mut().zip(tiers) {
            let is_there = ring.may_hold(grid(tier), now, at);
            ring.advance(grid(tier), now);
            if is_there {
                ring.remove(grid(tier).bucket(at), cost);
            }
        }
    }

    /// When the newest bucket began.
    pub fn newest_start(&self, tiers: &[Tier], buckets: u32) -> i64 {
        let rings = self.0.iter().zip(tiers);
        rings.map(|(ring, &tier)| Grid::new(tier, buckets).start(ring.newest)).max().unwrap_or(i64::MIN)
    }

    /// Units of one tier that count at the time `now`.
    pub fn used(&self, index: usize, tier: Tier, buckets: u32, now: i64) -> u64 {
        self.0.get(index).map_or(0, |ring| ring.view(Grid::new(tier, buckets), now).used)
    }

    /// Bytes on the heap: a ring for each tier.
    pub fn heap_bytes(&self) -> usize {
        let counts: usize = self.0.iter().map(|ring| heap::array::<u32>(ring.counts.len())).sum();
        heap::array::<Ring>(self.0.len()) + counts
    }

    /// When the state expires: from then on it counts nothing.
    pub fn expires_at(&self, tiers: &[Tier], buckets: u32) -> i64 {
        let rings = self.0.iter().zip(tiers).filter(|(ring, _)| ring.total > 0);
        let ends = rings.map(|(ring, &tier)| {
            let newest = ring.nonempty_buckets().next_back().unwrap_or(ring.newest);
            Grid::new(tier, buckets).leaves_at(newest)
        });
        ends.max().unwrap_or(i64::MIN)
    }

    fn extend(&mut self, tiers: &[Tier], buckets: u32) {
        if self.0.len() != tiers.len() {
            self.0 = tiers.iter().map(|_| Ring::empty(buckets as usize + 1)).collect();
        }
    }
}

/// The part of a ring that counts now.
struct RingView {
    /// The bucket of now, or the newest one if that is ahead.
    at: i64,
    used: u64,
    discards: bool,
}

impl Ring {
    /// A ring without units.
    fn empty(counts: usize) -> Self {
        Self { newest: 0, total: 0, counts: vec![0; counts].into_boxed_slice() }
    }

    /// The numbers of the buckets with units, oldest first.
    fn nonempty_buckets(&self) -> impl DoubleEndedIterator<Item = i64> {
        let length = if self.total == 0 { 0 } else { self.counts.len() as i64 };
        let oldest = self.newest.saturating_sub(length - 1);
        (0..length).map(move |i| oldest.saturating_add(i)).filter(|&bucket| self.count(bucket) > 0)
    }

    /// Whether units that were taken at `at` may be among those that count `now`.
    fn may_hold(&self, grid: Grid, now: i64, at: i64) -> bool {
        let (view, bucket) = (self.view(grid, now), grid.bucket(at));
        view.used > 0
            && bucket >= grid.first_counted(view.at)
            && self.nonempty_buckets().any(|filled| filled == bucket)
    }

    fn slot(&self, bucket: i64) -> usize {
        bucket.rem_euclid(self.counts.len() as i64) as usize
    }

    fn count(&self, bucket: i64) -> u64 {
        u64::from(self.counts[self.slot(bucket)])
    }

    fn view(&self, grid: Grid, now: i64) -> RingView {
        let at = grid.bucket(now);
        if self.total == 0 {
            return RingView { at, used: 0, discards: false };
        }
        if at < self.newest && grid.start(self.newest).saturating_sub(now) > grid.window {
            return RingView { at, used: 0, discards: true };
        }
        let at = at.max(self.newest);
        let left = self.nonempty_buckets().take_while(|&bucket| bucket < grid.first_counted(at));
        let left = left.map(|bucket| self.count(bucket)).sum();
        RingView { at, used: u64::from(self.total).saturating_sub(left), discards: false }
    }

    fn status(&self, grid: Grid, tier: Tier, now: i64, cost: u64) -> TierStatus {
        let RingView { at, used, .. } = self.view(grid, now);
        let inside =
            || self.nonempty_buckets().filter(|&bucket| used > 0 && bucket >= grid.first_counted(at));
        let excess = used.saturating_add(cost).saturating_sub(tier.limit);
        // The excess is larger than the total only if the cost alone is above the limit.
        let mut gone = 0;
        let last_to_leave = inside().find(|&bucket| {
            gone += self.count(bucket);
            gone >= excess
        });
        TierStatus {
            limit: tier.limit,
            used,
            frees_at: grid.leaves_at(inside().next().unwrap_or(at)),
            fits_at: (cost <= tier.limit).then(|| grid.leaves_at(last_to_leave.unwrap_or(at))),
            max_delay: 0,
        }
    }

    /// Makes the bucket of now the newest. Returns whether the old state was too far ahead and was discarded.
    fn advance(&mut self, grid: Grid, now: i64) -> bool {
        let RingView { at, used, discards } = self.view(grid, now);
        if used == 0 {
            self.counts.fill(0);
        } else {
            // Each reuses the slot of a bucket that has left.
            for bucket in self.newest + 1..=at {
                let slot = self.slot(bucket);
                self.counts[slot] = 0;
            }
        }
        self.newest = at;
        self.total = u32::try_from(used).unwrap_or(u32::MAX);
        discards
    }

    /// Adds `cost` units to the newest bucket.
    fn add(&mut self, cost: u64) {
        let cost = u32::try_from(cost).unwrap_or(u32::MAX).min(u32::MAX - self.total);
        let slot = self.slot(self.newest);
        self.counts[slot] += cost;
        self.total += cost;
    }

    /// Removes up to `cost` units from a bucket. Returns the number removed.
    fn remove(&mut self, bucket: i64, cost: u64) -> u64 {
        let slot = self.slot(bucket);
        let units = u32::try_from(cost).unwrap_or(u32::MAX).min(self.counts[slot]).min(self.total);
        self.counts[slot] -= units;
        self.total -= units;
        u64::from(units)
    }

    /// Removes the oldest units until at most `limit` are left.
    fn drop_oldest_above(&mut self, limit: u64) {
        let mut excess = u64::from(self.total).saturating_sub(limit);
        while excess > 0 {
            let Some(oldest) = self.nonempty_buckets().next() else { break };
            excess -= self.remove(oldest, excess);
        }
    }
}

/// The division of a tier's time into buckets. Bucket `k` × `buckets` + `j` begins `k` windows and `j` / `buckets` of a
/// window after the Unix epoch, rounded up to the microsecond.
#[derive(Debug, Clone, Copy)]
struct Grid {
    window: i64,
    buckets: i64,
}

impl Grid {
    fn new(tier: Tier, buckets: u32) -> Self {
        Self { window: tier.window, buckets: i64::from(buckets) }
    }

    fn bucket(self, time: i64) -> i64 {
        let (windows, rest) = (time.div_euclid(self.window), time.rem_euclid(self.window));
        windows.saturating_mul(self.buckets).saturating_add(rest * self.buckets / self.window)
    }

    fn start(self, bucket: i64) -> i64 {
        let (windows, rest) = (bucket.div_euclid(self.buckets), bucket.rem_euclid(self.buckets));
        let part = (rest * self.window).div_euclid(self.buckets);
        let rounds_up = i64::from(part * self.buckets < rest * self.window);
        windows.saturating_mul(self.window).saturating_add(part + rounds_up)
    }

    /// The oldest bucket that counts while `at` is the current one.
    fn first_counted(self, at: i64) -> i64 {
        at.saturating_sub(self.buckets)
    }

    /// When a bucket stops counting: a window after its end.
    fn leaves_at(self, bucket: i64) -> i64 {
        self.start(bucket.saturating_add(self.buckets + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUCKETS: u32 = 10;
    const TIER: [Tier; 1] = [Tier { limit: 3, window: 1_000 }];

    fn after(tiers: &[Tier], writes: &[(i64, u64)]) -> SlidingWindow {
        let mut state = SlidingWindow::default();
        for &(now, cost) in writes {
            assert!(state.read(tiers, BUCKETS, now, cost).admitted, "at {now}");
            state.write(tiers, BUCKETS, now, cost);
        }
        state
    }

    fn retry_after(state: &SlidingWindow, now: i64, cost: u64) -> Option<i64> {
        let verdict = state.read(&TIER, BUCKETS, now, cost);
        assert!(!verdict.admitted, "at {now}");
        let again = |at: i64| state.read(&TIER, BUCKETS, at, cost).admitted;
        if let Some(after) = verdict.retry_after {
            assert!(!again(now + after - 1) && again(now + after), "at {now}, after {after}");
        }
        verdict.retry_after
    }

    #[test]
    fn a_bucket_leaves_a_window_after_its_end() {
        let state = after(&TIER, &[(150, 3)]);
        assert_eq!(retry_after(&state, 150, 1), Some(1_050));
        assert_eq!(retry_after(&state, 1_199, 3), Some(1));
        let verdict = state.read(&TIER, BUCKETS, 1_200, 1);
        assert_eq!((verdict.admitted, verdict.remaining, verdict.reset), (true, 2, 1_100));
        assert_eq!(state.expires_at(&TIER, BUCKETS), 1_200);
    }

    #[test]
    fn a_cost_waits_for_as_many_buckets_as_it_needs() {
        let state = after(&TIER, &[(150, 1), (320, 1), (990, 1)]);
        let waits = [1, 2, 3, 4].map(|cost| retry_after(&state, 1_000, cost));
        assert_eq!(waits, [Some(200), Some(400), Some(1_000), None]);
        assert_eq!(state.read(&TIER, BUCKETS, 1_000, 1).reset, 200);
    }

    #[test]
    fn buckets_that_were_passed_over_are_empty() {
        let mut state = after(&TIER, &[(50, 1), (150, 1), (250, 1)]);
        // The slots of the first and the third are skipped, that of the second is the new one's.
        state.write(&TIER, BUCKETS, 1_450, 1);
        assert_eq!(state.used(0, TIER[0], BUCKETS, 1_450), 1);
        assert_eq!(state.used(0, TIER[0], BUCKETS, 2_499), 1);
        assert_eq!(state.used(0, TIER[0], BUCKETS, 2_500), 0);
    }

    #[test]
    fn every_instant_lies_in_the_bucket_that_its_start_says() {
        for (window, buckets) in
            [(1_000, 10), (1_000, 7), (1_001, 100), (3, 4), (1, 100), (366 * 86_400_000_000, 99)]
        {
            let grid = Grid { window, buckets };
            let around = |time: i64| [time - 1, time, time + 1];
            let k = 1_800_000_000_000_000 / window;
            for start in (0..=buckets).flat_map(|j| around(grid.start(k * buckets + j))).chain(around(0)) {
                let bucket = grid.bucket(start);
                assert!(grid.start(bucket) <= start && start < grid.start(bucket + 1), "{grid:?} {start}");
                assert_eq!(grid.leaves_at(bucket), grid.start(bucket + 1) + window);
            }
        }
    }

    #[test]
    fn each_tier_has_its_say() {
        let tiers = [Tier { limit: 2, window: 1_000 }, Tier { limit: 3, window: 10_000 }];
        let state = after(&tiers, &[(0, 2)]);
        let denied = state.read(&tiers, BUCKETS, 0, 1);
        assert_eq!((denied.admitted, denied.tier, denied.retry_after), (false, 0, Some(1_100)));
        let state = after(&tiers, &[(0, 2), (1_100, 1)]);
        let denied = state.read(&tiers, BUCKETS, 2_300, 1);
        assert_eq!((denied.tier, denied.limit, denied.retry_after), (1, 3, Some(8_700)));
        assert_eq!(state.expires_at(&tiers, BUCKETS), 12_000);
    }

    #[test]
    fn time_that_runs_backward_counts_in_the_newest_bucket() {
        let mut state = after(&TIER, &[(5_000, 2)]);
        assert!(state.read(&TIER, BUCKETS, 4_000, 1).admitted);
        assert!(!state.write(&TIER, BUCKETS, 4_000, 1));
        assert_eq!(retry_after(&state, 4_000, 1), Some(2_100));
    }

    #[test]
    fn a_ring_more_than_a_window_ahead_is_discarded() {
        let mut state = after(&TIER, &[(5_000, 3)]);
        assert!(!state.read(&TIER, BUCKETS, 4_000, 1).admitted);
        assert!(state.read(&TIER, BUCKETS, 3_999, 3).admitted);
        assert!(state.write(&TIER, BUCKETS, 3_999, 1), "a discard is reported");
        assert!(!state.write(&TIER, BUCKETS, 3_999, 1));
        assert_eq!(state.used(0, TIER[0], BUCKETS, 3_999), 2);
    }

    #[test]
    fn denied_requests_take_the_place_of_the_oldest() {
        let mut state = after(&TIER, &[(50, 2), (150, 1)]);
        state.count_denied(&TIER, BUCKETS, 950, 1);
        assert_eq!(state.used(0, TIER[0], BUCKETS, 950), 3);
        assert_eq!(state.used(0, TIER[0], BUCKETS, 1_100), 2, "one of the two oldest was left");
        state.count_denied(&TIER, BUCKETS, 950, 3);
        assert_eq!(state.used(0, TIER[0], BUCKETS, 1_999), 3, "all are new");
        assert_eq!(state.used(0, TIER[0], BUCKETS, 2_000), 0);
    }

    #[test]
    fn a_refund_leaves_its_bucket_and_no_other() {
        let mut state = after(&TIER, &[(50, 1), (150, 2)]);
        state.refund(&TIER, BUCKETS, 250, 99, 5);
        assert_eq!(state.used(0, TIER[0], BUCKETS, 150), 2);
        state.refund(&TIER, BUCKETS, 250, 250, 1);
        state.refund(&TIER, BUCKETS, 250, -1_000_000, 1);
        assert_eq!(state.used(0, TIER[0], BUCKETS, 150), 2, "nothing was taken there");
        state.refund(&TIER, BUCKETS, 250, 150, 2);
        assert_eq!(state.expires_at(&TIER, BUCKETS), i64::MIN, "nothing is left");
        assert!(state.read(&TIER, BUCKETS, 150, 3).admitted);
    }

    #[test]
    fn lowering_and_raising_the_limit_counts_what_was_taken() {
        let state = after(&TIER, &[(50, 1), (150, 1), (250, 1)]);
        let lowered = [Tier { limit: 1, ..TIER[0] }];
        let denied = state.read(&lowered, BUCKETS, 300, 1);
        assert_eq!((denied.admitted, denied.remaining, denied.retry_after), (false, 0, Some(1_000)));
        assert_eq!(state.read(&[Tier { limit: 5, ..TIER[0] }], BUCKETS, 300, 1).remaining, 1);
    }

    #[test]
    fn a_read_changes_nothing() {
        let state = after(&TIER, &[(50, 3)]);
        let before = state.clone();
        assert!(state.read(&TIER, BUCKETS, 9_000, 3).admitted);
        assert_eq!(state, before);
    }

    #[test]
    fn a_billion_over_366_days_is_counted_exactly() {
        let tier = [Tier { limit: 1_000_000_000, window: 366 * 86_400_000_000 }];
        let now = 1_800_000_000_000_000;
        let mut state = SlidingWindow::default();
        state.write(&tier, 100, now, 999_999_999);
        assert!(state.read(&tier, 100, now, 1).admitted);
        state.write(&tier, 100, now, 1);
        let after = state.read(&tier, 100, now, 1).retry_after.unwrap();
        assert!(after > tier[0].window && after <= tier[0].window / 100 * 101);
        assert!(!state.read(&tier, 100, now + after - 1, 1).admitted);
        assert!(state.read(&tier, 100, now + after, 1_000_000_000).admitted);
    }

    #[test]
    fn the_ends_of_time_overflow_nothing() {
        for now in [i64::MIN, i64::MIN + 1, -1, 0, i64::MAX - 1, i64::MAX] {
            let mut state = SlidingWindow::default();
            state.write(&TIER, BUCKETS, now, 3);
            for later in [i64::MIN, now, i64::MAX] {
                let _ = state.read(&TIER, BUCKETS, later, u64::MAX);
                let mut state = state.clone();
                state.count_denied(&TIER, BUCKETS, later, u64::MAX);
                state.refund(&TIER, BUCKETS, later, now, u64::MAX);
                let _ = state.expires_at(&TIER, BUCKETS);
            }
            assert!(!state.read(&TIER, BUCKETS, now, 1).admitted, "at {now}");
        }
    }
}
