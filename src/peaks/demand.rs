//! The units that one key has used and asked for, in the windows of its limits.

use smallvec::SmallVec;

use super::hourly_max::{HourlyMax, hour};
use crate::limit::{
    Policy,
    algorithm::{Kind, Tier},
};

/// The decisions on one key in a moment, on one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DemandTally {
    /// The tier that the verdicts tell about.
    pub(super) tier: usize,
    /// The most units in use after a request.
    pub(super) used: u64,
    /// Units taken, and units denied.
    pub(super) admitted: u64,
    pub(super) denied: u64,
    /// When the first decision was taken, in microseconds since the Unix epoch.
    pub(super) time: i64,
}

/// The demand of one key under one policy: by tier, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct KeyDemand(SmallVec<[TierDemand; 1]>);

/// The demand on one limit of a key: in the current window, and the peaks of the last hours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct TierDemand {
    /// When the window began, in microseconds since the Unix epoch.
    start: i64,
    /// The most units in use, as the store told.
    used: u32,
    /// Units that this instance has admitted, and denied.
    admitted: u32,
    denied: u32,
    peaks: HourlyMax,
}

/// The peaks of a key in the last 24 hours, by tier. `None`: nothing is known of that tier.
pub type LimitPeaks = SmallVec<[Option<u64>; 1]>;

impl KeyDemand {
    /// Adds the decisions of a moment. `policy`: the variant whose limits were applied.
    pub(super) fn add(&mut self, policy: &Policy, tally: DemandTally) {
        if self.0.len() != policy.tiers.len() {
            self.0.resize(policy.tiers.len(), TierDemand::default());
            self.0.shrink_to_fit();
        }
        // Whether units are taken for good when they are decided: else the sum of units says nothing. The store tells
        // only the tightest of several tiers, so the others' units are counted here.
        let counts_units = policy.tiers.len() > 1 && !policy.may_refund();
        for (index, (demand, tier)) in self.0.iter_mut().zip(&policy.tiers).enumerate() {
            let is_told = index == tally.tier;
            let start = demand.window_start(policy, index, *tier, tally.time);
            if start > demand.start {
                (demand.start, demand.used, demand.admitted, demand.denied) = (start, 0, 0, 0);
            }
            // Another worker may have begun the next window already.
            let mut of_earlier = TierDemand::default();
            let window = if start < demand.start { &mut of_earlier } else { &mut *demand };
            if is_told {
                window.used = window.used.max(small(tally.used));
                window.denied = window.denied.saturating_add(small(tally.denied));
            }
            if counts_units {
                window.admitted = window.admitted.saturating_add(small(tally.admitted));
            }
            let units = window.units(policy.kind, *tier);
            if units > 0 {
                demand.peaks.add(hour(tally.time), units);
            }
        }
    }

    /// The peaks of the 24 hours that end with the hour `now`.
    pub(super) fn peaks(&self, now: i64) -> LimitPeaks {
        self.0.iter().map(|demand| demand.peaks.max(now)).collect()
    }

    /// Forgets hours before the last 24. Returns whether nothing is left.
    pub(super) fn expire(&mut self, now: i64) -> bool {
        self.0.iter_mut().for_each(|demand| demand.peaks.expire(now));
        self.0.iter().all(|demand| demand.peaks.is_empty())
    }

    /// Bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        use crate::memory_budget::heap;
        let tiers = if self.0.spilled() { heap::array::<TierDemand>(self.0.capacity()) } else { 0 };
        let peaks = self.0.iter().map(|demand| heap::array::<(u32, u32)>(demand.peaks.spilled()));
        tiers + peaks.sum::<usize>()
    }
}

impl TierDemand {
    /// When the window that holds `time` began. A window of the clock begins by the clock; another one with the first
    /// request after the last.
    fn window_start(&self, policy: &Policy, index: usize, tier: Tier, time: i64) -> i64 {
        let length = match policy.kind {
            Kind::CalendarWindow if policy.calendar(index).is_some() => {
                let [_, start, ..] = policy.calendar(index).map(|of| of.bounds(time).0).unwrap_or_default();
                return start;
            }
            Kind::FixedWindow | Kind::CalendarWindow => return time - time.rem_euclid(tier.window),
            // The time in which a full bucket drains.
            Kind::Gcra { burst, .. } => {
                let drains = i128::from(burst) * i128::from(tier.window) / i128::from(tier.limit.max(1));
                i64::try_from(drains).unwrap_or(i64::MAX)
            }
            _ => tier.window,
        };
        if time >= self.start.saturating_add(length) { time } else { self.start }
    }

    /// Units in use, and units that were denied beyond them.
    fn units(&self, kind: Kind, tier: Tier) -> u64 {
        let used = u64::from(self.used.max(self.admitted));
        match kind {
            // A denied request that is repeated asks for the same slot, or has the same value.
            Kind::Concurrency | Kind::Distinct if self.denied > 0 => used.max(tier.limit.saturating_add(1)),
            Kind::Concurrency | Kind::Distinct => used,
            _ => used.saturating_add(self.denied.into()),
        }
    }
}

/// Limits are at most 10⁹ units.
fn small(units: u64) -> u32 {
    u32::try_from(units).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        config::model::{self, Algorithm},
        limit::PolicyId,
    };

    const SECOND: i64 = 1_000_000;
    const NOW: i64 = 1_783_080_000 * SECOND;

    fn policy(algorithm: Algorithm, tiers: &[(u64, u64)]) -> Policy {
        let keys = vec![model::KeyRecipe(vec![model::KeyPart::Ip])];
        let rate = |&(limit, seconds)| model::Rate { limit, window: Duration::from_secs(seconds) };
        let config = model::Policy::new("p", algorithm, keys, tiers.iter().map(rate).collect());
        Policy::new(&config, PolicyId(0))
    }

    fn peaks(policy: &Policy, tallies: &[(i64, usize, u64, u64, u64)]) -> Vec<Option<u64>> {
        let mut demand = KeyDemand::default();
        for &(after, tier, used, admitted, denied) in tallies {
            demand.add(policy, DemandTally { tier, used, admitted, denied, time: NOW + after });
        }
        demand.peaks(hour(NOW)).into_vec()
    }

    #[test]
    fn a_peak_is_what_the_store_told_and_what_was_denied_in_the_same_window() {
        let policy = policy(Algorithm::FixedWindow, &[(100, 60)]);
        assert_eq!(peaks(&policy, &[(0, 0, 40, 40, 0), (SECOND, 0, 70, 30, 0)]), [Some(70)]);
        let above = [(0, 0, 100, 100, 30), (59 * SECOND, 0, 100, 0, 50)];
        assert_eq!(peaks(&policy, &above), [Some(180)]);
        // In the next window, it begins anew; a late tally of the window before does not count in it.
        let next = [(59 * SECOND, 0, 100, 0, 30), (60 * SECOND, 0, 90, 90, 0), (59 * SECOND, 0, 100, 0, 20)];
        assert_eq!(peaks(&policy, &next), [Some(130)]);
    }

    #[test]
    fn sliding_windows_begin_with_a_request() {
        let policy = policy(Algorithm::SlidingLog, &[(10, 60)]);
        let tallies = [(50 * SECOND, 0, 10, 10, 3), (100 * SECOND, 0, 10, 0, 4), (111 * SECOND, 0, 8, 1, 0)];
        assert_eq!(peaks(&policy, &tallies), [Some(17)]);
    }

    #[test]
    fn all_tiers_are_counted_and_denials_for_the_one_that_denied() {
        let policy = policy(Algorithm::FixedWindow, &[(10, 1), (120, 60)]);
        let seconds: Vec<_> = (0..9).map(|second| (second * SECOND, 0, 10, 10, 5)).collect();
        assert_eq!(peaks(&policy, &seconds), [Some(15), Some(90)]);
        assert_eq!(
            peaks(&policy, &[(0, 1, 120, 1, 7)]),
            [Some(1), Some(127)],
            "other instances have used 119"
        );
    }

    #[test]
    fn a_bucket_counts_denials_until_it_has_drained() {
        let bucket = Algorithm::Gcra { burst: 20, delay: Duration::ZERO };
        let policy = policy(bucket, &[(10, 1)]);
        let tallies = [(0, 0, 20, 20, 5), (1_999_999, 0, 20, 0, 5), (2 * SECOND, 0, 20, 0, 1)];
        assert_eq!(peaks(&policy, &tallies), [Some(30)]);
    }

    #[test]
    fn a_slot_that_was_denied_is_one_more_however_often_it_is_asked_for() {
        for algorithm in [Algorithm::Concurrency, Algorithm::Distinct] {
            let policy = policy(algorithm, &[(3, 60)]);
            assert_eq!(peaks(&policy, &[(0, 0, 2, 2, 0)]), [Some(2)]);
            assert_eq!(peaks(&policy, &[(0, 0, 3, 0, 50)]), [Some(4)]);
        }
    }

    #[test]
    fn units_that_may_be_refunded_are_not_summed() {
        let mut policy = policy(Algorithm::FixedWindow, &[(10, 1), (120, 60)]);
        policy.count = Some(model::CountedResponses {
            statuses: model::Statuses(vec![401..=401]),
            grpc_statuses: Vec::new(),
        });
        let seconds: Vec<_> = (0..9).map(|second| (second * SECOND, 0, 1, 1, 0)).collect();
        assert_eq!(peaks(&policy, &seconds), [Some(1), None]);
    }
}
