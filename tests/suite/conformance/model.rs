//! The algorithms by definition: remember every admitted request, and count anew each time.

use tollgate::{config::model::Algorithm, limit::algorithm::Tier};

#[derive(Debug, Clone)]
pub(crate) struct Model {
    pub(crate) algorithm: Algorithm,
    pub(crate) tiers: Vec<Tier>,
    /// Time and cost of each, in order.
    pub(crate) admitted: Vec<(i64, u64)>,
}

impl Model {
    /// Whether a request of `cost` units fits in at `now`.
    pub(crate) fn admits(&self, now: i64, cost: u64) -> bool {
        self.tiers.iter().all(|tier| self.used(tier, now) + cost <= tier.limit)
    }

    /// Units of the window that `now` is in.
    pub(crate) fn used(&self, tier: &Tier, now: i64) -> u64 {
        let sum = |is_in: &dyn Fn(i64) -> bool| {
            self.admitted.iter().filter(|(time, _)| is_in(*time)).map(|(_, cost)| cost).sum()
        };
        match self.algorithm {
            Algorithm::SlidingLog => sum(&|time| now - tier.window < time && time <= now),
            Algorithm::SlidingWindow { buckets } => {
                sum(&|time| now < end_of_bucket(time, tier.window, i64::from(buckets)) + tier.window)
            }
            Algorithm::FixedWindow => sum(&|time| time / tier.window == now / tier.window),
            _ => self
                .started_windows(tier)
                .last()
                .map_or(0, |&(start, used)| if now < start + tier.window { used } else { 0 }),
        }
    }

    /// The start of each window that a request began, and the units taken in it.
    fn started_windows(&self, tier: &Tier) -> Vec<(i64, u64)> {
        let mut windows: Vec<(i64, u64)> = Vec::new();
        for &(time, cost) in &self.admitted {
            match windows.last_mut() {
                Some((start, used)) if time < *start + tier.window => *used += cost,
                _ => windows.push((time, cost)),
            }
        }
        windows
    }

    /// The most units that any window of a tier's length has seen, over the tier's limit. Windows that
    /// end with a request see the most.
    pub(crate) fn worst_case(&self, tier: &Tier) -> u64 {
        let sum_before = |end: i64| {
            let is_in = |&&(time, _): &&(i64, u64)| end - tier.window < time && time <= end;
            self.admitted.iter().filter(is_in).map(|(_, cost)| cost).sum::<u64>()
        };
        self.admitted.iter().map(|&(time, _)| sum_before(time)).max().unwrap_or_default()
    }
}

/// Buckets cut a window in equal parts, each beginning at the microsecond at or after its share.
fn end_of_bucket(time: i64, window: i64, buckets: i64) -> i64 {
    let start = time / window * window;
    let ends = (1..=buckets).map(|bucket| start + (bucket * window + buckets - 1) / buckets);
    ends.filter(|end| *end > time).min().unwrap_or(start + window)
}
