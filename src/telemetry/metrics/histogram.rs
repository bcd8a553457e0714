//! How long requests take, in fixed buckets from 1 ms to 30 s.

use std::time::Duration;

use super::Counter;

/// Upper bounds in microseconds, each inclusive.
const BOUNDS: [u64; 14] = [
    1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000,
    10_000_000, 30_000_000,
];

/// Counts of durations, one a bucket; the last is for whatever took longer than 30 s.
#[derive(Debug, Default)]
pub(super) struct Histogram {
    buckets: [Counter; BOUNDS.len() + 1],
    /// Microseconds.
    sum: Counter,
}

impl Histogram {
    pub(super) fn observe(&self, elapsed: Duration) {
        let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        // Without branches: the compiler compares all bounds at once.
        let bucket = BOUNDS.iter().map(|&bound| usize::from(micros > bound)).sum::<usize>();
        self.buckets[bucket].inc();
        self.sum.add(micros);
    }
}

/// The histograms of all workers, added up.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Total {
    /// Upper bound in seconds, and how many fell between it and the one before.
    pub(super) buckets: Vec<(f64, u64)>,
    /// Seconds.
    pub(super) sum: f64,
    pub(super) count: u64,
}

impl Total {
    pub(super) fn of<'a>(histograms: impl Iterator<Item = &'a Histogram> + Clone) -> Self {
        let counts = |bucket: usize| histograms.clone().map(|h| h.buckets[bucket].value()).sum::<u64>();
        let bounds = BOUNDS.iter().map(|&micros| seconds(micros)).chain([f64::INFINITY]);
        let buckets: Vec<_> = bounds.enumerate().map(|(index, bound)| (bound, counts(index))).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        Self { buckets, sum: seconds(histograms.map(|h| h.sum.value()).sum()), count }
    }
}

fn seconds(micros: u64) -> f64 {
    Duration::from_micros(micros).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_inclusive_and_the_last_bucket_has_none() {
        let histogram = Histogram::default();
        for micros in [0, 1_000, 1_001, 30_000_000, 30_000_001] {
            histogram.observe(Duration::from_micros(micros));
        }
        let total = Total::of([&histogram, &histogram].into_iter());
        assert_eq!(total.count, 10);
        assert_eq!(total.buckets[0], (0.001, 4));
        assert_eq!(total.buckets[1], (0.0025, 2));
        assert_eq!(total.buckets[13], (30.0, 2));
        assert_eq!(total.buckets[14], (f64::INFINITY, 2));
        assert!((total.sum - 120.004_004).abs() < 1e-9);
    }
}
