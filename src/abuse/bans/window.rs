//! Counts the denials of a sliding window in buckets. Pure.

/// Buckets of a window: their sum spans at most the window, and at least seven eighths of it.
pub const BUCKETS: usize = 8;

/// The counts of a window. Times and windows are microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DenialWindow {
    /// Time of the last denial.
    latest: i64,
    /// The number of the last bucket, counted from the epoch.
    newest: i64,
    counts: [u64; BUCKETS],
}

impl DenialWindow {
    /// Counts denials between `first` and `last`, and returns the number in the window that ends with the last of
    /// all. The number is never too high, because all of them count as of `first`.
    pub fn add(&mut self, first: i64, last: i64, count: u64, window: i64, now: i64) -> u64 {
        let (width, latest) = (width(window), now.saturating_add(window));
        if self.latest > latest || self.newest > latest.div_euclid(width) {
            // The clock was set back; or the window was shorter, and its buckets had other numbers.
            *self = Self::default();
        }
        let bucket = bucket(first, window);
        for passed in (self.newest.saturating_add(1)..=bucket).rev().take(BUCKETS) {
            self.counts[slot(passed)] = 0;
        }
        self.newest = self.newest.max(bucket);
        if bucket > self.newest - BUCKETS as i64 {
            let counted = &mut self.counts[slot(bucket)];
            *counted = counted.saturating_add(count);
        }
        self.latest = self.latest.max(last);
        let begins = self.latest.saturating_sub(window);
        let buckets = (self.newest - BUCKETS as i64 + 1)..=self.newest;
        let inside = buckets.filter(|bucket| bucket.saturating_mul(width) > begins);
        inside.fold(0, |sum, bucket| sum.saturating_add(self.counts[slot(bucket)]))
    }

    /// When none of the denials counts any more.
    pub fn expires(&self, window: i64) -> i64 {
        self.latest.saturating_add(window)
    }
}

/// The number of the bucket of a time, counted from the epoch.
pub(super) fn bucket(time: i64, window: i64) -> i64 {
    time.div_euclid(width(window))
}

fn width(window: i64) -> i64 {
    (window.max(1) + BUCKETS as i64 - 1) / BUCKETS as i64
}

fn slot(bucket: i64) -> usize {
    usize::try_from(bucket.rem_euclid(BUCKETS as i64)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: i64 = 1_783_080_001_000_000;

    proptest! {
        #[test]
        fn a_sum_is_never_too_large_and_little_too_small(
            window in 1_000..10_000_000_i64,
            steps in prop::collection::vec((0..2_000_000_i64, 0..200_000_i64, 1..20_u64), 1..40),
        ) {
            let mut counted = DenialWindow::default();
            // By time, each at the worst of the moments between which it was.
            let mut all: Vec<(i64, i64, u64)> = Vec::new();
            let mut time = NOW;
            for (pause, lasted, count) in steps {
                let (first, last) = (time + pause, time + pause + lasted);
                time = last;
                all.push((first, last, count));
                let found = counted.add(first, last, count, window, last);
                let within = |from: i64| {
                    all.iter().filter(|(first, ..)| *first > from).map(|(.., count)| count).sum::<u64>()
                };
                prop_assert!(found <= within(last - window), "{found} in {all:?}");
                let sure = last - window + width(window);
                prop_assert!(found >= within(sure), "{found} in {all:?}");
            }
        }
    }

    #[test]
    fn late_denials_count_in_their_own_bucket() {
        let mut window = DenialWindow::default();
        assert_eq!(window.add(NOW, NOW, 3, 8_000, NOW), 3);
        assert_eq!(window.add(NOW - 3_000, NOW - 3_000, 2, 8_000, NOW), 5);
        assert_eq!(window.add(NOW - 9_000, NOW - 9_000, 2, 8_000, NOW), 5);
        assert_eq!(window.add(NOW + 8_000, NOW + 8_000, 1, 8_000, NOW + 8_000), 1);
    }

    #[test]
    fn a_changed_window_starts_anew() {
        for (before, after) in [(1_000_000, 60_000_000), (60_000_000, 1_000_000), (1_000_000, 1_001_000)] {
            let mut window = DenialWindow::default();
            window.add(NOW, NOW, 3, before, NOW);
            let counted: Vec<_> =
                (1..4).map(|at| window.add(NOW + at, NOW + at, 1, after, NOW + at)).collect();
            assert_eq!(counted, [1, 2, 3], "{before} {after}");
        }
    }

    #[test]
    fn a_clock_set_back_starts_anew() {
        let mut window = DenialWindow::default();
        window.add(NOW, NOW, 3, 1_000, NOW);
        let earlier = NOW - 1_000_000;
        assert_eq!(window.add(earlier, earlier, 2, 1_000, earlier), 2);
    }
}
