//! What a sliding window admits, over one horizon and over several.

use std::collections::VecDeque;

use tollgate::config::model::Algorithm::SlidingWindow;

use super::{Harness, SECOND, Subject, policy};

const TEN: tollgate::config::model::Algorithm = SlidingWindow { buckets: 10 };

pub(crate) fn a_burst_passes_and_a_long_one_does_not<S: Subject>() {
    let harness = Harness::<S>::new();
    let policy = policy("p", TEN, &[(10, SECOND), (20, 10 * SECOND), (25, 15 * SECOND)]);
    let burst = |time: i64| {
        let mut admitted = 0;
        loop {
            let verdict = harness.at(time).take(&policy, "ip:1", 1);
            if !verdict.admitted {
                return (admitted, verdict.limit);
            }
            admitted += 1;
        }
    };
    assert_eq!(burst(0), (10, 10), "a second's worth at once");
    assert_eq!(burst(1_099_999), (0, 10));
    assert_eq!(burst(1_100_000), (10, 20), "and another, but then ten seconds' worth is used up");
    assert_eq!(burst(10_999_999), (0, 20));
    assert_eq!(burst(11_000_000), (5, 25), "the first has left the ten seconds, not the fifteen");
    assert_eq!(burst(16_499_999), (0, 25));
    assert_eq!(burst(16_500_000), (10, 10));
}

pub(crate) fn steady_traffic_gets_nearly_all_of_it<S: Subject>() {
    for buckets in [4, 10] {
        let harness = Harness::<S>::new();
        let policy = policy("p", SlidingWindow { buckets }, &[(20, SECOND)]);
        let (mut admitted, mut latest) = (0_u64, VecDeque::new());
        // A hundred a second, for ten seconds.
        for request in 0..1_000 {
            let now = request * 10_000;
            if harness.at(now).take(&policy, "ip:1", 1).admitted {
                admitted += 1;
                latest.push_back(now);
            }
            latest.retain(|time| *time > now - 1_000_000);
            assert!(latest.len() <= 20, "never more than the limit in any window");
        }
        let least = 10 * 20 * u64::from(buckets) / u64::from(buckets + 1);
        assert!((least..=200).contains(&admitted), "{admitted} of 200 with {buckets} buckets");
    }
}

pub(crate) fn a_bucket_leaves_a_window_after_its_end<S: Subject>() {
    // A window that its buckets do not divide: they end at 143, 286 … milliseconds, rounded up to the microsecond.
    let harness = Harness::<S>::new();
    let policy = policy("p", SlidingWindow { buckets: 7 }, &[(2, SECOND)]);
    harness.at(142_857).take(&policy, "ip:1", 1);
    harness.at(142_858).take(&policy, "ip:1", 1);
    for (time, used) in [(1_142_857, 2), (1_142_858, 1), (1_285_714, 1), (1_285_715, 0)] {
        assert_eq!(harness.at(time).used(&policy, "ip:1"), used, "at {time}");
    }
    let denied = harness.at(200_000).take(&policy, "ip:1", 2);
    assert_eq!((denied.reset, denied.retry_after), (942_858, Some(1_085_715)));
}

pub(crate) fn each_horizon_gives_back_its_own<S: Subject>() {
    let harness = Harness::<S>::new();
    let policy = policy("p", TEN, &[(5, SECOND), (6, 10 * SECOND)]);
    harness.at(50_000).take(&policy, "ip:1", 4);
    let verdict = harness.at(1_100_000).take(&policy, "ip:1", 1);
    assert_eq!((verdict.tier, verdict.remaining, verdict.reset), (1, 1, 9_900_000));
    let denied = harness.at(1_100_000).take(&policy, "ip:1", 2);
    assert_eq!((denied.tier, denied.retry_after), (1, Some(9_900_000)));
    assert_eq!(harness.at(10_999_999).take(&policy, "ip:1", 2).retry_after, Some(1));
    assert!(harness.at(11_000_000).take(&policy, "ip:1", 5).admitted);
}

pub(crate) fn a_ring_is_kept_over_pauses_of_any_length<S: Subject>() {
    for pause in [99_999, 100_000, 200_000, 550_000, 999_999, 1_000_000, 1_100_000, 5_000_000] {
        let harness = Harness::<S>::new();
        let policy = policy("p", TEN, &[(9, SECOND), (90, 60 * SECOND)]);
        for step in 0..9 {
            harness.at(step * 100_000).take(&policy, "ip:1", 1);
        }
        harness.at(800_000 + pause).take(&policy, "ip:1", 1);
        // Of a unit of each tenth of a second, those that have not left, and the last.
        for later in [0, 300_000, 1_000_000] {
            let now = 800_000 + pause + later;
            let left = (0..9).filter(|step| now < (step + 1) * 100_000 + 1_000_000).count() as u64;
            let admitted = left < 9 || pause == 0;
            let last = u64::from(admitted && now < (800_000 + pause) / 100_000 * 100_000 + 1_100_000);
            let taken_at_the_pause =
                (0..9).filter(|step| 800_000 + pause < (step + 1) * 100_000 + 1_000_000).count() < 9;
            let expected = left + u64::from(taken_at_the_pause) * last;
            assert_eq!(used_of_the_second(&harness, &policy, now), expected, "{pause} and {later} later");
        }
    }
}

/// Of the first tier, whichever is the tightest.
fn used_of_the_second<S: Subject>(harness: &Harness<S>, policy: &tollgate::limit::Policy, now: i64) -> u64 {
    let peek = harness.at(now).peek(&super::with(policy, 1), "ip:1");
    if peek.verdict.tier == 0 { peek.used } else { 0 }
}
