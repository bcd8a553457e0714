//! What was taken and is refunded, since it turned out not to count.

use tollgate::{
    config::model::{
        Algorithm::{Distinct, FixedWindow, MetadataList, SlidingLog, SlidingWindow},
        CalendarUnit, Window,
    },
    limit::{
        Check,
        algorithm::{Detail, Kind},
    },
};

use super::{
    ALGORITHMS, Harness, SECOND, Subject, calendar_policy, entry,
    harness::{GCRA, START, check, member_check, refunding},
    policy, with,
};

pub(crate) fn a_refund_frees_units_of_that_request_alone<S: Subject>() {
    for algorithm in ALGORITHMS.into_iter().filter(|algorithm| *algorithm != GCRA) {
        let harness = Harness::<S>::new();
        let policy = refunding(&policy("p", algorithm, &[(5, SECOND)]));
        harness.at(0).take(&policy, "ip:1", 1);
        let checks = [check(&policy, "ip:1", 3)];
        let receipt = harness.at(300_000).decide(&checks).receipt(0);
        harness.at(600_000).take(&policy, "ip:1", 1);
        assert!(!harness.take(&policy, "ip:1", 1).admitted, "{algorithm:?}");
        harness.refund(&checks, receipt);
        assert_eq!(harness.used(&policy, "ip:1"), 2, "{algorithm:?}: nobody else's");
        assert_eq!(harness.take(&policy, "ip:1", 3).remaining, 0, "{algorithm:?}");
        assert!(!harness.take(&policy, "ip:1", 1).admitted, "{algorithm:?}");
    }
}

/// A reload has removed `count`, or another instance has not got it yet.
pub(crate) fn a_refund_frees_units_for_a_policy_without_count_too<S: Subject>() {
    for algorithm in ALGORITHMS.into_iter().filter(|algorithm| *algorithm != GCRA) {
        let harness = Harness::<S>::new();
        let plain = policy("p", algorithm, &[(5, SECOND)]);
        let counting = refunding(&plain);
        harness.at(0).take(&counting, "ip:1", 1);
        let checks = [check(&counting, "ip:1", 2)];
        let receipt = harness.at(100_000).decide(&checks).receipt(0);
        harness.at(200_000).take(&counting, "ip:1", 2);
        harness.refund(&checks, receipt);
        assert_eq!(harness.used(&plain, "ip:1"), 3, "{algorithm:?}");
        assert!(!harness.take(&plain, "ip:1", 3).admitted, "{algorithm:?}");
        // In one batch, the policy that knows of refunds may come second.
        let [first, second] = [&plain, &counting].map(|policy| vec![check(policy, "ip:1", 1)]);
        let both = harness.together(&[first, second]);
        assert!(both.iter().all(|decision| decision.admitted), "{algorithm:?}");
        let denied = harness.take(&plain, "ip:1", 1);
        assert_eq!((denied.admitted, denied.remaining), (false, 0), "{algorithm:?}");
        if algorithm == SlidingLog {
            assert_eq!(denied.retry_after, Some(800_000));
        }
    }
}

pub(crate) fn a_request_whose_window_is_over_is_not_refunded<S: Subject>() {
    for algorithm in ALGORITHMS {
        let harness = Harness::<S>::new();
        let policy = refunding(&policy("p", algorithm, &[(5, SECOND)]));
        let checks = [check(&policy, "ip:1", 3)];
        let receipt = harness.at(0).decide(&checks).receipt(0);
        harness.at(5_000_000).take(&policy, "ip:1", 4);
        harness.refund(&checks, receipt);
        assert_eq!(harness.used(&policy, "ip:1"), 4, "{algorithm:?}");
        // Nor does a limit that nobody has used come to be.
        harness.refund(&[check(&policy, "ip:2", 3)], receipt);
        assert_eq!(harness.take(&policy, "ip:2", 5).remaining, 0, "{algorithm:?}");
    }
}

/// Of a bucket, what may have drained does not come back.
pub(crate) fn a_bucket_refunds_what_cannot_have_drained<S: Subject>() {
    let policy = refunding(&policy("p", GCRA, &[(5, SECOND)]));
    // A unit drains in 200 ms.
    for (passed, left) in [(0, 2), (200_000, 2), (400_000, 2), (600_000, 2), (601_000, 2)] {
        let harness = Harness::<S>::new();
        harness.at(0).take(&policy, "ip:1", 2);
        let checks = [check(&policy, "ip:1", 3)];
        let receipt = harness.decide(&checks).receipt(0);
        let drained = u64::try_from(passed / 200_000).unwrap();
        // As many as have drained are taken by others, so that it stays full.
        assert_eq!(harness.at(passed).take(&policy, "ip:1", drained).remaining, 0);
        harness.refund(&checks, receipt);
        assert_eq!(harness.used(&policy, "ip:1"), left + drained, "after {passed} µs");
    }
}

pub(crate) fn all_that_a_request_took_is_refunded_at_once<S: Subject>() {
    let harness = Harness::<S>::new();
    let policies = ALGORITHMS.map(|algorithm| refunding(&policy("p", algorithm, &[(9, SECOND)])));
    let checks: Vec<_> = policies
        .iter()
        .flat_map(|policy| [check(policy, "ip:1", 2), check(policy, "user:a", 3), check(policy, "ip:1", 1)])
        .collect();
    let decision = harness.decide(&checks);
    assert!(decision.admitted);
    harness.refund(&checks, decision.receipt(0));
    for policy in &policies {
        assert_eq!(
            (harness.used(policy, "ip:1"), harness.used(policy, "user:a")),
            (0, 0),
            "{:?}",
            policy.kind
        );
        assert_eq!(harness.take(policy, "ip:1", 9).remaining, 0, "{:?}", policy.kind);
    }
}

pub(crate) fn each_tier_is_refunded_its_own<S: Subject>() {
    let buckets = SlidingWindow { buckets: 10 };
    for algorithm in [FixedWindow, buckets] {
        let harness = Harness::<S>::new();
        let policy = refunding(&policy("p", algorithm, &[(4, SECOND), (6, 60 * SECOND)]));
        let checks = [check(&policy, "ip:1", 3)];
        let receipt = harness.at(0).decide(&checks).receipt(0);
        harness.at(2_000_000).take(&policy, "ip:1", 1);
        harness.refund(&checks, receipt);
        let verdict = harness.take(&policy, "ip:1", 0);
        assert_eq!(
            (verdict.tier, verdict.remaining),
            (0, 3),
            "{algorithm:?}: of the second it is gone anyway"
        );
        assert_eq!(harness.take(&with(&policy, 100), "ip:1", 0).remaining, 5, "{algorithm:?}");
    }
}

pub(crate) fn an_entry_that_is_refunded_is_off_the_list<S: Subject>() {
    let harness = Harness::<S>::new();
    let policy = refunding(&policy("p", MetadataList, &[(5, SECOND)]));
    let checks: Vec<_> = ["alice", "bob", "carol"]
        .map(|user| Check { detail: Detail::Entry(entry(START, user)), ..check(&policy, "ip:1", 1) })
        .into();
    let receipts: Vec<_> =
        checks.iter().map(|check| harness.decide(std::slice::from_ref(check)).receipt(0)).collect();
    let who = || -> Vec<String> {
        harness
            .entries(&policy, "ip:1")
            .iter()
            .map(|entry| entry.user.as_deref().unwrap_or("").to_owned())
            .collect()
    };
    for (index, left) in [(1, vec!["alice", "carol"]), (2, vec!["alice"]), (0, vec![])] {
        harness.refund(&checks[index..=index], receipts[index]);
        assert_eq!(who(), left);
        assert_eq!(harness.used(&policy, "ip:1"), left.len() as u64);
    }
}

pub(crate) fn a_refunded_value_was_not_seen<S: Subject>() {
    let harness = Harness::<S>::new();
    let policy = refunding(&policy("p", Distinct, &[(2, SECOND)]));
    let checks = [1, 2].map(|value| member_check(&policy, "ip:1", value));
    let receipts = [0, 1].map(|index| harness.decide(&checks[index..=index]).receipt(0));
    harness.refund(&checks[..1], receipts[0]);
    assert!(harness.enter(&policy, "ip:1", 3).admitted);
    assert!(harness.enter(&policy, "ip:1", 2).admitted, "it is there still");
    assert!(!harness.enter(&policy, "ip:1", 1).admitted);
}

/// Its request was let through because the value was there.
pub(crate) fn a_value_that_another_request_relies_on_stays<S: Subject>() {
    for (later, is_at_once) in [(0, true), (0, false), (1, false), (400_000, false)] {
        let harness = Harness::<S>::new();
        let policy = refunding(&policy("p", Distinct, &[(2, SECOND)]));
        let checks = [member_check(&policy, "ip:1", 1)];
        let receipt = if is_at_once {
            let both = harness.at(0).together(&[checks.to_vec(), checks.to_vec()]);
            assert!(both.iter().all(|decision| decision.admitted));
            both[0].receipt(0)
        } else {
            let receipt = harness.at(0).decide(&checks).receipt(0);
            assert!(harness.at(later).enter(&policy, "ip:1", 1).renews);
            receipt
        };
        harness.refund(&checks, receipt);
        assert_eq!(harness.used(&policy, "ip:1"), 1, "{later} µs later, at once: {is_at_once}");
        assert!(harness.enter(&policy, "ip:1", 2).admitted);
        assert!(!harness.enter(&policy, "ip:1", 3).admitted);
    }
}

pub(crate) fn refunds_go_before_what_is_taken<S: Subject>() {
    for algorithm in ALGORITHMS {
        let harness = Harness::<S>::new();
        let policy = refunding(&policy("p", algorithm, &[(2, SECOND)]));
        let checks = [check(&policy, "ip:1", 2)];
        let receipt = harness.decide(&checks).receipt(0);
        for _ in 0..3 {
            assert!(harness.exchange(&checks, receipt).admitted, "{algorithm:?}");
        }
        assert_eq!(harness.used(&policy, "ip:1"), 2, "{algorithm:?}");
    }
}

/// As after a failover to a server whose clock is slower: its time lies before the windows that have begun.
pub(crate) fn a_clock_that_was_set_back_loses_no_refund<S: Subject>() {
    let day = refunding(&calendar_policy("day", "UTC", 1, &[(100, Window::Calendar(CalendarUnit::Day))]));
    let others = ALGORITHMS.map(|algorithm| refunding(&policy("p", algorithm, &[(100, SECOND)])));
    let tiers = refunding(&policy("tiers", FixedWindow, &[(100, SECOND), (100, 60 * SECOND)]));
    let horizons = SlidingWindow { buckets: 10 };
    let horizons = refunding(&policy("horizons", horizons, &[(100, SECOND), (100, 60 * SECOND)]));
    for policy in others.iter().chain([&day, &tiers, &horizons]) {
        for (back, later) in [(-1, -1), (-200_000, -200_000), (-200_000, 10_000), (-200_000, 600_000)] {
            let harness = Harness::<S>::new();
            harness.at(10).take(policy, "ip:1", 10);
            let checks = [check(policy, "ip:1", 50)];
            let decision = harness.at(back).decide(&checks);
            assert!(decision.admitted);
            harness.at(later).settle(&checks, decision.receipt(0), 5);
            let left = match policy.kind {
                // What may have drained meanwhile is not refunded.
                Kind::Gcra { .. } if later == 600_000 => 1,
                // The harness refunds the others as a whole.
                _ => {
                    if policy.kind.can_settle() {
                        15
                    } else {
                        10
                    }
                }
            };
            let used = harness.used(policy, "ip:1");
            assert_eq!(used, left, "{}: back {back}, settled {later}", policy.kind.description().name);
        }
    }
    let harness = Harness::<S>::new();
    let policy = refunding(&policy("p", Distinct, &[(2, SECOND)]));
    harness.at(10).enter(&policy, "ip:1", 1);
    let checks = [member_check(&policy, "ip:1", 2)];
    let receipt = harness.at(-200_000).decide(&checks).receipt(0);
    harness.refund(&checks, receipt);
    assert_eq!(harness.used(&policy, "ip:1"), 1);
}
