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

pub(crate) fn a_pause_of_any_length_empties_what_it_passes_over<S: Subject>() {
    for pause in [1, 99_999, 100_000, 200_000, 550_000, 999_999, 1_000_000, 1_100_000, 5_000_000] {
        let harness = Harness::<S>::new();
        let policy = policy("p", TEN, &[(90, SECOND)]);
        // A unit in each tenth of a second but the last.
        let mut taken: Vec<i64> = (0..9).map(|tenth| tenth * 100_000).collect();
        taken.push(800_000 + pause);
        for &time in &taken {
            harness.at(time).take(&policy, "ip:1", 1);
        }
        for later in [0, 100_000, 300_000, 1_000_000, 1_100_000] {
            let now = 800_000 + pause + later;
            let left =
                taken.iter().filter(|time| now < **time / 100_000 * 100_000 + 1_100_000).count() as u64;
            assert_eq!(harness.at(now).used(&policy, "ip:1"), left, "a pause of {pause}, and {later} later");
        }
    }
}

pub(crate) fn horizons_are_counted_over_pauses_of_any_length<S: Subject>() {
    let harness = Harness::<S>::new();
    let policy = policy("p", TEN, &[(90, SECOND), (91, 7 * SECOND)]);
    let taken = [0, 50_000, 1_300_000, 1_350_000, 1_600_000, 4_000_000, 7_699_999, 8_400_000, 15_000_000];
    for (index, &now) in taken.iter().enumerate() {
        harness.at(now).take(&policy, "ip:1", 1);
        for (tier, bucket) in [(0, 100_000), (1, 700_000)] {
            let is_in = |time: &&i64| now < *time / bucket * bucket + 11 * bucket;
            let left = taken[..=index].iter().filter(is_in).count() as u64;
            // The one that is asked about is made the tightest.
            let mut asked = policy.clone();
            asked.tiers[tier].limit = 20;
            let seen = harness.take(&asked, "ip:1", 0);
            assert_eq!((seen.tier, seen.remaining), (tier, 20 - left), "at {now}");
        }
    }
}
