//! The algorithms by definition: remember every admitted request, and count anew each time.

use std::time::Duration;

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
        self.tiers.iter().all(|tier| match self.algorithm {
            Algorithm::Gcra { burst, delay } => {
                let drains = i128::from(micros(delay)) * i128::from(tier.limit);
                cost <= burst && self.level(tier, now) + scaled(tier, cost) - drains <= scaled(tier, burst)
            }
            _ => self.used(tier, now) + cost <= tier.limit,
        })
    }

    /// Units that are told as the limit.
    pub(crate) fn limit(&self, tier: &Tier) -> u64 {
        match self.algorithm {
            Algorithm::Gcra { burst, .. } => burst,
            _ => tier.limit,
        }
    }

    /// Microseconds until the bucket holds no more than its burst.
    pub(crate) fn delay(&self, tier: &Tier, now: i64) -> i64 {
        match self.algorithm {
            Algorithm::Gcra { burst, .. } => {
                let excess = (self.level(tier, now) - scaled(tier, burst)).max(0);
                i64::try_from(div_ceil(excess, i128::from(tier.limit))).unwrap()
            }
            _ => 0,
        }
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
            Algorithm::SlidingCounter => {
                let of = |window: i64| sum(&|time| time / tier.window == window);
                let (window, left) = (now / tier.window, tier.window - now % tier.window);
                let share = i128::from(of(window - 1)) * i128::from(left);
                of(window) + u64::try_from(div_ceil(share, i128::from(tier.window))).unwrap()
            }
            Algorithm::Gcra { .. } => {
                u64::try_from(div_ceil(self.level(tier, now), i128::from(tier.window))).unwrap()
            }
            _ => self
                .started_windows(tier)
                .last()
                .map_or(0, |&(start, used)| if now < start + tier.window { used } else { 0 }),
        }
    }

    /// What is in the bucket, in parts of a unit of which it has as many as the window has microseconds: it was
    /// empty last at some request, and since then has held what came, less what drained.
    fn level(&self, tier: &Tier, now: i64) -> i128 {
        let (mut came, mut most) = (0, 0);
        for &(time, cost) in self.admitted.iter().rev() {
            came += scaled(tier, cost);
            most = most.max(came - i128::from(now - time) * i128::from(tier.limit));
        }
        most
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

    /// The most units that any window of a tier's length may see.
    pub(crate) fn bound(&self, tier: &Tier) -> u64 {
        match self.algorithm {
            Algorithm::SlidingLog | Algorithm::SlidingWindow { .. } => tier.limit,
            Algorithm::SlidingCounter => 2 * tier.limit - 1,
            Algorithm::Gcra { burst, delay } => {
                let waiting = i128::from(micros(delay)) * i128::from(tier.limit) / i128::from(tier.window);
                u64::try_from(waiting).map_or(u64::MAX, |waiting| burst + tier.limit + waiting)
            }
            _ => 2 * tier.limit,
        }
    }

    /// The most units that any window of a tier's length has seen. Windows that
    /// end with a request see the most.
    pub(crate) fn worst_case(&self, tier: &Tier) -> u64 {
        let sum_before = |end: i64| {
            let is_in = |&&(time, _): &&(i64, u64)| end - tier.window < time && time <= end;
            self.admitted.iter().filter(is_in).map(|(_, cost)| cost).sum::<u64>()
        };
        self.admitted.iter().map(|&(time, _)| sum_before(time)).max().unwrap_or_default()
    }
}

fn scaled(tier: &Tier, units: u64) -> i128 {
    i128::from(units) * i128::from(tier.window)
}

fn div_ceil(dividend: i128, divisor: i128) -> i128 {
    (dividend + divisor - 1) / divisor
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap()
}

/// Buckets cut a window in equal parts, each beginning at the microsecond at or after its share.
fn end_of_bucket(time: i64, window: i64, buckets: i64) -> i64 {
    let start = time / window * window;
    let ends = (1..=buckets).map(|bucket| start + (bucket * window + buckets - 1) / buckets);
    ends.filter(|end| *end > time).min().unwrap_or(start + window)
}
