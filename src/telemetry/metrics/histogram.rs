//! Histograms with fixed buckets: durations of requests, sizes of batches.

use std::{marker::PhantomData, time::Duration};

use super::Counter;

const BUCKETS: usize = 14;

/// The buckets and the unit of a histogram.
pub(super) trait Scale {
    /// Inclusive upper bounds.
    const BOUNDS: [u64; BUCKETS];
    /// The unit of the bounds, in units of the exposed value.
    const UNIT: f64;
}

const MICROSECOND: f64 = 1e-6;

/// From 1 ms to 30 s, counted in microseconds.
#[derive(Debug, Default)]
pub(super) struct RequestTime;

impl Scale for RequestTime {
    const BOUNDS: [u64; BUCKETS] = [
        1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
        5_000_000, 10_000_000, 30_000_000,
    ];
    const UNIT: f64 = MICROSECOND;
}

/// From 50 µs to 100 ms, counted in microseconds.
#[derive(Debug, Default)]
pub(super) struct StoreTime;

impl Scale for StoreTime {
    const BOUNDS: [u64; BUCKETS] =
        [50, 100, 150, 200, 300, 500, 750, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000];
    const UNIT: f64 = MICROSECOND;
}

/// Decisions per batch to the store.
#[derive(Debug, Default)]
pub(super) struct BatchSize;

impl Scale for BatchSize {
    const BOUNDS: [u64; BUCKETS] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 40, 48, 56, 64];
    const UNIT: f64 = 1.0;
}

/// One count per bucket; the last bucket is above all bounds.
#[derive(Debug, Default)]
pub(super) struct Histogram<S> {
    buckets: [Counter; BUCKETS + 1],
    sum: Counter,
    scale: PhantomData<S>,
}

impl<S: Scale> Histogram<S> {
    pub(super) fn observe(&self, value: u64) {
        // Without branches: the compiler compares all bounds at once.
        let bucket = S::BOUNDS.iter().map(|&bound| usize::from(value > bound)).sum::<usize>();
        self.buckets[bucket].inc();
        self.sum.add(value);
    }

    /// Adds the counts of another histogram.
    pub(super) fn add(&self, other: &Self) {
        self.buckets.iter().zip(&other.buckets).for_each(|(sum, counted)| sum.add(counted.value()));
        self.sum.add(other.sum.value());
    }

    /// Observes a duration; the scale must be in microseconds.
    pub(super) fn observe_time(&self, elapsed: Duration) {
        self.observe(u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX));
    }
}

/// The sum of several histograms.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct HistogramTotal {
    /// Upper bounds, and the counts between each and the previous one.
    pub(super) buckets: Vec<(f64, u64)>,
    pub(super) sum: f64,
    pub(super) count: u64,
}

impl HistogramTotal {
    #[expect(clippy::cast_precision_loss, reason = "the exposed value is a float")]
    pub(super) fn from_histograms<'a, S: Scale + 'a>(
        histograms: impl Iterator<Item = &'a Histogram<S>> + Clone,
    ) -> Self {
        let counts = |bucket: usize| histograms.clone().map(|h| h.buckets[bucket].value()).sum::<u64>();
        let bounds = S::BOUNDS.iter().map(|&bound| in_unit(bound as f64, S::UNIT)).chain([f64::INFINITY]);
        let buckets: Vec<_> = bounds.enumerate().map(|(index, bound)| (bound, counts(index))).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        let sum = histograms.map(|h| h.sum.value()).sum::<u64>();
        Self { buckets, sum: in_unit(sum as f64, S::UNIT), count }
    }
}

/// Estimates a quantile (`share`: 0 to 1) from buckets as in [`HistogramTotal::buckets`], like Prometheus'
/// `histogram_quantile`: values are spread evenly within a bucket, and the last finite bound is the maximum. `None`
/// without values.
#[expect(clippy::cast_precision_loss, reason = "an estimate")]
pub(super) fn quantile(buckets: &[(f64, u64)], share: f64) -> Option<f64> {
    let total: u64 = buckets.iter().map(|(_, count)| count).sum();
    let rank = share * total as f64;
    let (mut below, mut lower) = (0.0, 0.0);
    for &(bound, count) in buckets.iter().filter(|_| total > 0) {
        let within = count as f64;
        if count > 0 && below + within >= rank {
            let share = (rank - below) / within;
            return Some(if bound.is_finite() { lower + (bound - lower) * share } else { lower });
        }
        below += within;
        lower = bound;
    }
    None
}

/// Divides, because multiplying by 1e-6 would not give exactly 0.0025 for 2.5 ms.
fn in_unit(value: f64, unit: f64) -> f64 {
    value / (1.0 / unit).round()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_inclusive_and_the_last_bucket_has_none() {
        let histogram = Histogram::<RequestTime>::default();
        for micros in [0, 1_000, 1_001, 30_000_000, 30_000_001] {
            histogram.observe_time(Duration::from_micros(micros));
        }
        let total = HistogramTotal::from_histograms([&histogram, &histogram].into_iter());
        assert_eq!(total.count, 10);
        assert_eq!(total.buckets[0], (0.001, 4));
        assert_eq!(total.buckets[1], (0.0025, 2));
        assert_eq!(total.buckets[13], (30.0, 2));
        assert_eq!(total.buckets[14], (f64::INFINITY, 2));
        assert!((total.sum - 120.004_004).abs() < 1e-9);
    }

    #[test]
    fn values_without_a_unit_stay_as_they_are() {
        let histogram = Histogram::<BatchSize>::default();
        histogram.observe(64);
        let total = HistogramTotal::from_histograms(std::iter::once(&histogram));
        assert_eq!((total.buckets[13], total.sum), ((64.0, 1), 64.0));
    }

    #[test]
    fn quantiles_are_interpolated_within_buckets() {
        let even = [(1.0, 10), (2.0, 10), (f64::INFINITY, 0)];
        for (share, value) in [(0.0, 0.0), (0.25, 0.5), (0.5, 1.0), (0.75, 1.5), (1.0, 2.0)] {
            assert_eq!(quantile(&even, share), Some(value), "{share}");
        }
        let gap = [(1.0, 1), (2.0, 0), (4.0, 1), (f64::INFINITY, 0)];
        assert_eq!(quantile(&gap, 0.75), Some(3.0), "nothing lies in the bucket between");
        let beyond = [(1.0, 1), (30.0, 0), (f64::INFINITY, 99)];
        assert_eq!(quantile(&beyond, 0.5), Some(30.0), "no more is known than that it took longer");
        assert_eq!(quantile(&[(1.0, 0)], 0.5), None);
    }
}
