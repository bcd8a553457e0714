//! Limits from the peaks of clients.

use std::time::Duration;

/// Steps of numbers that people read at a glance, in each power of ten.
const STEPS: [u64; 9] = [10, 12, 15, 20, 25, 30, 40, 50, 60];
const LAST_STEP: u64 = 80;
/// A limit is at least this many times the largest peak that it spares, where there is room: tomorrow's peaks are not
/// those of the log.
const HEADROOM: f64 = 1.25;
/// And at least this many standard deviations above it: a number of requests that come by chance scatters by its root, and
/// a peak is the largest number of many.
const DEVIATIONS: f64 = 4.0;
/// The headroom for windows up to a second, if the log has whole seconds. A burst around the turn of a second is then
/// spread over two, and its peak in the log may be half of the real one.
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

/// The time in which `sliding_window` with this number of buckets may count a request: it counts whole buckets, and one
/// more than the window has. A client with at most L requests in each (t − that, t] is never denied by a limit L.
pub(super) fn counted_time(window: Duration, buckets: u32) -> Duration {
    let bucket = window.as_micros().div_ceil(u128::from(buckets.max(1)));
    Duration::from_micros((bucket * u128::from(buckets + 1)) as u64)
}

/// A limit that spares the peak `spared`, with headroom, and never denies a client of which `sliding_window` counts
/// `counted` requests. `above`: the peak above the knee, which the limit has to stay below. `is_short`: peaks are
/// estimates, since the log has whole seconds.
pub(super) fn limit(spared: u32, counted: u32, above: Option<u32>, is_short: bool) -> u64 {
    let (spared, counted) = (u64::from(spared), u64::from(counted));
    let headroom = if is_short { HEADROOM_OF_SPREAD } else { HEADROOM };
    let peak = spared as f64;
    let wanted = (peak * headroom).max(peak + DEVIATIONS * peak.sqrt());
    let limit = readable_from(wanted.max(counted as f64));
    match above.map(u64::from) {
        Some(above) if limit >= above => {
            let needed = if counted < above { counted } else { spared };
            readable_to(above.saturating_sub(1)).max(needed)
        }
        _ => limit,
    }
}

/// Whether the peaks in this window are estimates, if the requests of a second were spread over it.
pub(super) fn is_estimated(window: Duration) -> bool {
    window <= Duration::from_secs(1)
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
    fn a_limit_has_headroom() {
        let limits = [1, 3, 10, 40, 100, 1_000].map(|peak| limit(peak, peak, None, false));
        assert_eq!(limits, [5, 10, 25, 80, 150, 1_500]);
        assert_eq!([1, 10, 100].map(|peak| limit(peak, peak, None, true)), [5, 25, 200]);
        assert_eq!(limit(100, 190, None, false), 200, "it counts more than the window has");
    }

    #[test]
    fn a_limit_is_in_the_gap_of_the_knee() {
        for (below, counted, above, expected) in [
            (10, 11, 1_000, 25),
            (10, 11, 20, 15),
            (9, 9, 14, 12),
            (11, 11, 13, 12),
            (101, 102, 103, 102),
            (101, 110, 103, 101),
            (10, 40, 1_000, 40),
            (10, 40, 30, 25),
        ] {
            let found = limit(below, counted, Some(above), false);
            assert_eq!(found, expected, "{below} {counted} {above}");
            assert!(u64::from(below) <= found && found < u64::from(above));
        }
    }

    #[test]
    fn a_sliding_window_counts_a_bucket_more() {
        let counted = |millis, buckets| counted_time(Duration::from_millis(millis), buckets).as_micros();
        assert_eq!(counted(1_000, 10), 1_100_000);
        assert_eq!(counted(1, 7), 8 * 143);
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
