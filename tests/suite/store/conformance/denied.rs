//! Policies that count what they deny: a client that keeps hammering stays denied.

use tollgate::{
    config::model::Algorithm::{SlidingLog, SlidingWindow},
    limit::Policy,
};

use super::{
    ALGORITHMS, Harness, SECOND, Subject,
    harness::{check, unforgiving},
    policy, with,
};

const BUCKETS: tollgate::config::model::Algorithm = SlidingWindow { buckets: 10 };

pub(crate) fn a_hammering_client_stays_denied<S: Subject>() {
    for algorithm in [SlidingLog, BUCKETS] {
        let harness = Harness::<S>::new();
        let policy = unforgiving(&policy("p", algorithm, &[(3, SECOND)]));
        harness.exhaust(&policy, "ip:1");
        // Three a second and more, for ten seconds.
        for request in 1..=50 {
            let denied = harness.at(request * 200_000).take(&policy, "ip:1", 1);
            assert!(!denied.admitted, "{algorithm:?} {request}");
            assert_eq!(harness.used(&policy, "ip:1"), 3, "{algorithm:?}: the newest three, and no more");
        }
        // Until it leaves the window: the oldest of the newest three came 400 ms before the last.
        let later = |micros: i64| harness.at(10_000_000 + micros).take(&policy, "ip:1", 0).remaining;
        let first = if algorithm == SlidingLog { 600_000 } else { 700_000 };
        assert_eq!([later(first - 1), later(first)], [0, 1], "{algorithm:?}");
    }
}

pub(crate) fn the_newest_stay<S: Subject>() {
    let harness = Harness::<S>::new();
    let log = unforgiving(&policy("p", SlidingLog, &[(3, SECOND)]));
    for (time, cost) in [(0, 1), (100_000, 2), (200_000, 2)] {
        harness.at(time).take(&log, "ip:1", cost);
    }
    // Of those at 0 and at 100 ms only one is left.
    for (time, used) in [(1_099_999, 3), (1_100_000, 2), (1_199_999, 2), (1_200_000, 0)] {
        assert_eq!(harness.at(time).used(&log, "ip:1"), used, "at {time}");
    }
    let harness = Harness::<S>::new();
    let window = unforgiving(&policy("p", BUCKETS, &[(3, SECOND), (4, 10 * SECOND)]));
    for (time, cost) in [(0, 1), (100_000, 2), (200_000, 2)] {
        harness.at(time).take(&window, "ip:1", cost);
    }
    let left = |time| harness.at(time).take(&window, "ip:1", 0);
    for (time, remaining) in [(1_199_999, 0), (1_200_000, 0), (10_999_999, 0)] {
        assert_eq!(left(time).remaining, remaining, "at {time}: the longer horizon keeps four");
    }
    let short = |time| harness.at(time).take(&with_second(&window, 100), "ip:1", 0).remaining;
    for (time, remaining) in [(1_199_999, 0), (1_200_000, 1), (1_299_999, 1), (1_300_000, 3)] {
        assert_eq!(short(time), remaining, "at {time}");
    }
}

/// The same policy with another limit over its second tier.
fn with_second(policy: &Policy, limit: u64) -> Policy {
    let mut policy = policy.clone();
    policy.tiers[1].limit = limit;
    policy
}

pub(crate) fn a_denial_is_counted_up_to_the_limit<S: Subject>() {
    for algorithm in ALGORITHMS {
        let harness = Harness::<S>::new();
        let policy = unforgiving(&policy("p", algorithm, &[(5, SECOND)]));
        harness.take(&policy, "ip:1", 4);
        let denied = harness.take(&policy, "ip:1", 3);
        assert_eq!(
            (denied.admitted, denied.remaining),
            (false, 0),
            "{algorithm:?}: it tells how it stands then"
        );
        assert_eq!(harness.used(&policy, "ip:1"), 5, "{algorithm:?}");
        assert!(!harness.take(&policy, "ip:1", 1).admitted, "{algorithm:?}");
    }
}

pub(crate) fn a_denied_cost_above_the_limit_is_not_counted<S: Subject>() {
    for algorithm in ALGORITHMS {
        let harness = Harness::<S>::new();
        let policy = unforgiving(&policy("p", algorithm, &[(5, SECOND)]));
        harness.take(&policy, "ip:1", 2);
        let denied = harness.take(&policy, "ip:1", 6);
        assert_eq!(
            (denied.admitted, denied.retry_after, denied.remaining),
            (false, None, 3),
            "{algorithm:?}"
        );
        assert_eq!(harness.used(&policy, "ip:1"), 2, "{algorithm:?}");
    }
}

pub(crate) fn only_the_check_that_denies_counts_it<S: Subject>() {
    for algorithm in ALGORITHMS {
        let harness = Harness::<S>::new();
        let (strict, wide) = (
            unforgiving(&policy("strict", algorithm, &[(2, SECOND)])),
            unforgiving(&policy("wide", algorithm, &[(9, SECOND)])),
        );
        harness.take(&strict, "ip:1", 1);
        let decision = harness.decide(&[check(&wide, "ip:1", 2), check(&strict, "ip:1", 2)]);
        assert!(!decision.admitted, "{algorithm:?}");
        assert_eq!((harness.used(&wide, "ip:1"), harness.used(&strict, "ip:1")), (0, 2), "{algorithm:?}");
    }
}

pub(crate) fn a_look_is_no_denial<S: Subject>() {
    for algorithm in ALGORITHMS {
        let harness = Harness::<S>::new();
        let policy = unforgiving(&policy("p", algorithm, &[(5, SECOND)]));
        harness.take(&policy, "ip:1", 5);
        let lowered = with(&policy, 2);
        for _ in 0..2 {
            assert!(!harness.take(&lowered, "ip:1", 0).admitted, "{algorithm:?}");
            assert_eq!(harness.used(&lowered, "ip:1"), 5, "{algorithm:?}: it has changed nothing");
        }
    }
}

pub(crate) fn denials_and_admissions_that_come_at_once_add_up<S: Subject>() {
    for algorithm in ALGORITHMS {
        let harness = Harness::<S>::new();
        let policy = unforgiving(&policy("p", algorithm, &[(9, SECOND)]));
        let strict = with(&policy, 2);
        harness.take(&policy, "ip:1", 2);
        // One of them has a lower limit, as an override may.
        let requests = [&strict, &policy, &policy].map(|policy| vec![check(policy, "ip:1", 1)]);
        let admitted: Vec<_> = harness.together(&requests).iter().map(|decision| decision.admitted).collect();
        assert_eq!(admitted, [false, true, true], "{algorithm:?}");
        assert_eq!(harness.used(&policy, "ip:1"), 4, "{algorithm:?}");
    }
}
