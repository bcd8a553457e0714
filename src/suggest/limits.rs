//! Limits from the peaks of clients.

use std::time::Duration;

use super::distribution::{Distribution, Knee};

/// Steps of numbers that people read at a glance, in each power of ten.
const STEPS: [u64; 9] = [10, 12, 15, 20, 25, 30, 40, 50, 60];
const LAST_STEP: u64 = 80;
/// A limit is this many times the largest peak that it spares, where there is room: tomorrow's peaks are not those of
/// the log. It is above 1.1, because a `sliding_window` of 10 buckets may count a request for a tenth longer.
const HEADROOM: f64 = 1.25;
/// The same for windows up to a second, if the log has whole seconds. A burst around the turn of a second is then spread
/// over two, and its peak in the log may be half of the real one.
const HEADROOM_OF_SPREAD: f64 = 2.0;
/// The largest limit of a policy.
const MAX_LIMIT: u64 = 1_000_000_000;

/// The smallest readable number that is not below `number`.
pub(super) fn readable_from(number: f64) -> u64 {
    let number = number.clamp(1.0, MAX_LIMIT as f64);
    if number <= 10.0 {
        return number.ceil() as u64;
    }
    let power = 10_u64.pow((number.log10().floor() as u32).saturating_sub(1));
    let is_enough = |step: &u64| (step * power) as f64 >= number;
    STEPS.into_iter().chain([LAST_STEP, 100]).find(is_enough).map_or(MAX_LIMIT, |step| step * power)
}

/// The next readable number above `limit`.
pub(super) fn readable_above(limit: u64) -> u64 {
    readable_from(limit as f64 + 1.0)
}

/// The largest readable number up to `number`. 1 at least.
fn readable_to(number: u64) -> u64 {
    let mut found = 1;
    while readable_above(found) <= number && found < MAX_LIMIT {
        found = readable_above(found);
    }
    found
}

/// The limit for a window, and the peak that it spares at least.
///
/// Below a knee, all clients are spared, and the limit is in the gap. Without one, all but 1 − `spare` of the clients are.
/// `is_spread`: the requests of a second were spread over it.
pub(super) fn limit(
    peaks: &Distribution,
    knee: Option<Knee>,
    spare: f64,
    window: Duration,
    is_spread: bool,
) -> u64 {
    let is_short = is_spread && window <= Duration::from_secs(1);
    let headroom = if is_short { HEADROOM_OF_SPREAD } else { HEADROOM };
    let spared = knee.map_or_else(|| peaks.quantile(spare), |knee| knee.below);
    let limit = readable_from(f64::from(spared) * headroom);
    match knee {
        Some(Knee { below, above, .. }) if limit >= above.into() => {
            readable_to(u64::from(above) - 1).max(below.into())
        }
        _ => limit,
    }
}

/// The tiers that a policy needs: for each window its limit, or `None` if another tier admits no more than it does.
/// `limits`: by windows of ascending length.
pub(super) fn needed(limits: &[(Duration, u64)]) -> Vec<Option<(Duration, u64)>> {
    let is_needed = |&(window, limit): &(Duration, u64)| {
        !limits.iter().any(|&(other, of_other)| match other.cmp(&window) {
            // A longer window that admits no more in all than this one at once.
            std::cmp::Ordering::Greater => of_other <= limit,
            // Shorter windows that together cover this one.
            std::cmp::Ordering::Less => {
                let windows = window.as_nanos().div_ceil(other.as_nanos().max(1));
                windows.saturating_mul(of_other.into()) <= limit.into()
            }
            std::cmp::Ordering::Equal => false,
        })
    };
    limits.iter().map(|tier| is_needed(tier).then_some(*tier)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_readable_numbers() {
        let numbers = [0.5, 1.0, 1.2, 7.5, 10.0, 10.1, 61.0, 81.0, 100.0, 101.0, 999.0, 4_500.0, 1e12];
        let readable = [1, 1, 2, 8, 10, 12, 80, 100, 100, 120, 1_000, 5_000, MAX_LIMIT];
        assert_eq!(numbers.map(readable_from), readable);
        assert_eq!([1, 9, 10, 60, 100].map(readable_above), [2, 10, 12, 80, 120]);
        assert_eq!([1, 9, 11, 59, 101].map(readable_to), [1, 9, 10, 50, 100]);
    }

    #[test]
    fn a_limit_is_in_the_gap_of_the_knee() {
        let second = Duration::from_secs(1);
        for (below, above, limit_between) in
            [(10, 1_000, 15), (10, 20, 15), (9, 14, 12), (11, 13, 12), (101, 103, 101)]
        {
            let knee = Some(Knee { below, above, clients_above: 1 });
            let peaks = Distribution::new([vec![below; 100], vec![above]].concat());
            let found = limit(&peaks, knee, 0.9, second, false);
            assert_eq!(found, limit_between, "{below} {above}");
            assert!(u64::from(below) <= found && found < u64::from(above));
        }
    }

    #[test]
    fn without_a_knee_a_limit_spares_the_share_and_has_headroom() {
        let peaks = Distribution::new((1..=1_000).collect());
        let of =
            |spare, window, is_spread| limit(&peaks, None, spare, Duration::from_millis(window), is_spread);
        assert_eq!(of(1.0, 1_000, false), 1_500);
        assert_eq!(of(0.9, 1_000, false), 1_200);
        assert_eq!((of(0.9, 1_000, true), of(0.9, 1_001, true)), (2_000, 1_200));
    }

    #[test]
    fn tiers_that_never_deny_are_left_out() {
        let tiers = |limits: &[(u64, u64)]| {
            let limits: Vec<_> =
                limits.iter().map(|&(seconds, limit)| (Duration::from_secs(seconds), limit)).collect();
            needed(&limits)
                .into_iter()
                .flatten()
                .map(|(window, limit)| (window.as_secs(), limit))
                .collect::<Vec<_>>()
        };
        assert_eq!(tiers(&[(1, 10), (60, 100), (3_600, 1_000)]), [(1, 10), (60, 100), (3_600, 1_000)]);
        assert_eq!(tiers(&[(1, 10), (60, 10), (3_600, 10)]), [(3_600, 10)]);
        assert_eq!(tiers(&[(1, 1), (60, 60)]), [(1, 1)]);
        assert_eq!(tiers(&[(1, 1), (60, 80), (3_600, 500)]), [(1, 1), (3_600, 500)]);
    }
}
