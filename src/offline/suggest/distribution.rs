//! The distribution of peaks over clients, and the knee in it.

use serde::Serialize;

/// A knee needs at least this many clients below it, so that they show the usual traffic.
const MIN_BELOW: usize = 20;
/// A knee has at most this share of all clients above it: the service is for the mass of the clients.
const MAX_SHARE_ABOVE: f64 = 0.05;
/// A peak below this is above no knee: from 1 to 3 requests is a ratio of 3, too.
const MIN_ABOVE: u32 = 10;
/// The smallest ratio between the two sides of a knee, so that a limit has room between them.
const MIN_RATIO: f64 = 2.0;
/// A gap that chance makes less often than e^-SIGNIFICANCE (once in 3000) is a knee. In fact chance makes one more often,
/// since the steepness of the tail is an estimate.
const SIGNIFICANCE: f64 = 8.0;
/// The smallest steepness of the tail that is assumed: where all clients have nearly the same peak.
const MIN_STEEPNESS: f64 = 0.05;

/// The peak of each client in one window, in ascending order.
#[derive(Debug, Clone)]
pub(super) struct PeakDistribution(Vec<u32>);

/// A gap between the peaks of most clients and those of a few.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Knee {
    /// The largest peak below the gap.
    pub below: u32,
    /// The smallest peak above it.
    pub above: u32,
    /// Number of clients above it.
    pub clients_above: usize,
}

/// A row of the histogram: the clients whose peaks are in a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct HistogramRow {
    pub from: u32,
    pub to: u32,
    pub clients: usize,
}

impl PeakDistribution {
    pub(super) fn new(mut peaks: Vec<u32>) -> Self {
        peaks.sort_unstable();
        Self(peaks)
    }

    /// The smallest peak that at least `share` (0 to 1) of the clients do not exceed. 0 without clients.
    pub(super) fn quantile(&self, share: f64) -> u32 {
        let exceeding = self.may_exceed(share);
        self.0.get((self.0.len() - exceeding).saturating_sub(1)).copied().unwrap_or(0)
    }

    /// The largest number of clients that may exceed a limit that spares `share` of them.
    fn may_exceed(&self, share: f64) -> usize {
        // 0.1 % of 1000 is 1, and not 0.9999…
        (((1.0 - share) * self.0.len() as f64) + 1e-9) as usize
    }

    /// Number of clients whose peak is above `limit`.
    pub(super) fn above(&self, limit: u64) -> usize {
        self.0.len() - self.0.partition_point(|&peak| u64::from(peak) <= limit)
    }

    /// The knee: the lowest gap in the upper tail that is too wide for chance.
    ///
    /// The largest peaks of any crowd lie far apart. Rényi has shown how far: in a tail that falls like a power, the
    /// logarithm of the ratio between the j-th and the next peak, times j, is exponentially distributed; its mean,
    /// the steepness of the tail, is the same for all j (tails of other usual shapes fall faster, and so have narrower gaps).
    /// Hill's estimator gives that mean for the clients below the gap. A gap is a knee if it is [`SIGNIFICANCE`] times as
    /// wide, and meets the conditions of the constants above.
    ///
    /// The lowest such gap counts, and not the widest: a client that sends ten times as much as all others must not hide
    /// behind one that sends a hundred times as much.
    pub(super) fn knee(&self) -> Option<Knee> {
        let peaks = &self.0;
        let most_above = (peaks.len() as f64 * MAX_SHARE_ABOVE) as usize;
        // One client above is always possible.
        let most_above = most_above.max(1).min(peaks.len().saturating_sub(MIN_BELOW));
        (1..=most_above).rev().find_map(|clients_above| {
            let (below_gap, above_gap) = peaks.split_at(peaks.len() - clients_above);
            let (&below, &above) = (below_gap.last()?, above_gap.first()?);
            let ratio = f64::from(above) / f64::from(below.max(1));
            let is_wide = above >= MIN_ABOVE && ratio >= MIN_RATIO;
            let is_unlikely = || {
                clients_above as f64 * ratio.ln() >= SIGNIFICANCE * steepness(below_gap).max(MIN_STEEPNESS)
            };
            (is_wide && is_unlikely()).then_some(Knee { below, above, clients_above })
        })
    }

    /// Rows of doubling width, from the smallest to the largest peak.
    pub(super) fn histogram(&self) -> Vec<HistogramRow> {
        let mut rows: Vec<HistogramRow> = Vec::new();
        for &peak in &self.0 {
            match rows.last_mut().filter(|row| peak <= row.to) {
                Some(row) => row.clients += 1,
                None => {
                    let from = 1 << peak.max(1).ilog2();
                    rows.push(HistogramRow { from, to: from + (from - 1), clients: 1 });
                }
            }
        }
        rows
    }
}

/// Hill's estimator for the largest tenth of these peaks, 10 at least: the mean logarithm of their ratio to the next
/// smaller one. `peaks` are in ascending order.
fn steepness(peaks: &[u32]) -> f64 {
    let tail = (peaks.len() / 10).max(10).min(peaks.len().saturating_sub(1));
    let (below, tail) = peaks.split_at(peaks.len() - tail);
    let Some(&base) = below.last() else { return 0.0 };
    let logarithms = tail.iter().map(|&peak| (f64::from(peak.max(1)) / f64::from(base.max(1))).ln());
    logarithms.sum::<f64>() / tail.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    #[test]
    fn quantiles_are_peaks_of_clients() {
        let of_1000 = PeakDistribution::new((1..=1_000).rev().collect());
        for (share, peak) in [(0.0, 0), (0.5, 500), (0.9, 900), (0.99, 990), (0.999, 999), (1.0, 1_000)] {
            let quantile = of_1000.quantile(share);
            assert_eq!(quantile, peak.max(1), "{share}");
            assert!(of_1000.above(quantile.into()) as f64 <= (1.0 - share) * 1_000.0 + 1e-6);
        }
        let of_500 = PeakDistribution::new((1..=500).collect());
        assert_eq!(of_500.quantile(0.999), 500, "half a client is spared, too");
        assert_eq!(PeakDistribution::new(vec![]).quantile(0.5), 0);
        assert_eq!((of_500.above(0), of_500.above(499), of_500.above(500)), (500, 1, 0));
    }

    #[test]
    fn a_histogram_has_all_clients() {
        let rows = PeakDistribution::new(vec![1, 1, 2, 3, 9, 15, 16, u32::MAX]).histogram();
        let shown: Vec<_> = rows.iter().map(|row| (row.from, row.to, row.clients)).collect();
        assert_eq!(shown, [(1, 1, 2), (2, 3, 2), (8, 15, 2), (16, 31, 1), (1 << 31, u32::MAX, 1)]);
    }

    /// Peaks whose logarithms are normally distributed, as those of people are: a few times the median at most.
    fn people(count: usize, rng: &mut Rng) -> Vec<u32> {
        let normal = |rng: &mut Rng| (0..12).map(|_| rng.f64()).sum::<f64>() - 6.0;
        (0..count).map(|_| (12.0 * (0.5 * normal(rng)).exp()).round().max(1.0) as u32).collect()
    }

    #[test]
    fn crowds_have_hardly_ever_a_knee_by_chance() {
        let mut rng = Rng::with_seed(7);
        let mut found = 0;
        for round in 0..2_000 {
            let count = [30, 100, 1_000][round % 3];
            let peaks = match round % 2 {
                0 => people(count, &mut rng),
                // Pareto: the steepest tail that is usual.
                _ => (0..count).map(|_| (3.0 / rng.f64().powf(0.6)) as u32).collect(),
            };
            found += usize::from(PeakDistribution::new(peaks).knee().is_some());
        }
        assert!(found <= 20, "{found} of 2000");
    }

    #[test]
    fn the_lowest_gap_counts_and_the_clients_above_it_may_differ_by_far() {
        let mut rng = Rng::with_seed(8);
        for count in [100, 1_000, 5_000] {
            let mut peaks = people(count, &mut rng);
            let below = *peaks.iter().max().unwrap();
            peaks.extend([600, 3_600, 100_000]);
            let knee = PeakDistribution::new(peaks).knee();
            assert_eq!(knee, Some(Knee { below, above: 600, clients_above: 3 }), "{count}");
        }
    }

    #[test]
    fn few_clients_or_small_peaks_show_no_knee() {
        assert_eq!(PeakDistribution::new([vec![3; 19], vec![1_000]].concat()).knee(), None, "too few below");
        assert_eq!(PeakDistribution::new([vec![1; 99], vec![9]].concat()).knee(), None, "too small above");
        assert_eq!(PeakDistribution::new([vec![10; 100], vec![19]].concat()).knee(), None, "too close");
        assert_eq!(
            PeakDistribution::new([vec![10; 100], vec![1_000; 20]].concat()).knee(),
            None,
            "too many above"
        );
        assert!(PeakDistribution::new([vec![10; 100], vec![20]].concat()).knee().is_some());
        assert_eq!(PeakDistribution::new(vec![]).knee(), None);
    }
}
