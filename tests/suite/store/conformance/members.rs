//! What is counted by members: different values, and requests under way.

use std::collections::{HashMap, HashSet};

use proptest::{collection::vec, prelude::*, test_runner::TestRunner};
use tollgate::{
    config::model::Algorithm::{Concurrency, Distinct},
    limit::{Check, DecisionSource, Receipt, algorithm::Detail},
};

use super::{
    Harness, MINUTE, SECOND, Subject,
    harness::{START, check, member_check, shadow},
    policy, with,
};

pub(crate) fn a_value_that_was_seen_always_passes<S: Subject>() {
    let harness = Harness::<S>::new();
    let policy = policy("p", Distinct, &[(3, SECOND)]);
    for (value, left) in [(1, 2), (2, 1), (1, 1), (3, 0), (2, 0), (1, 0)] {
        let verdict = harness.enter(&policy, "ip:1", value);
        assert!(verdict.admitted);
        assert_eq!((verdict.limit, verdict.remaining, verdict.retry_after), (3, left, Some(0)), "{value}");
    }
    let denied = harness.enter(&policy, "ip:1", 4);
    assert_eq!((denied.admitted, denied.remaining, denied.retry_after), (false, 0, Some(1_000_000)));
    assert_eq!(harness.used(&policy, "ip:1"), 3);
    assert!(harness.enter(&policy, "ip:2", 4).admitted, "behind another address there is room");

    let lowered = with(&policy, 1);
    assert!(harness.enter(&lowered, "ip:1", 2).admitted, "it was seen");
    assert!(!harness.enter(&lowered, "ip:1", 4).admitted);
    assert!(harness.enter(&with(&policy, 4), "ip:1", 4).admitted);
}

pub(crate) fn a_value_is_forgotten_a_window_after_it_was_last_seen<S: Subject>() {
    let harness = Harness::<S>::new();
    let policy = policy("p", Distinct, &[(2, SECOND)]);
    harness.at(0).enter(&policy, "ip:1", 1);
    harness.at(100_000).enter(&policy, "ip:1", 2);
    let seen_again = harness.at(600_000).enter(&policy, "ip:1", 1);
    assert_eq!(seen_again.reset, 500_000, "the other is the oldest now");
    for cost in [1, 5] {
        let ask = |time| {
            let check = Check { detail: Detail::Member(3), ..check(&policy, "ip:1", cost) };
            harness.at(time).decide(&[check]).verdicts[0]
        };
        assert_eq!(ask(1_000_000).retry_after, Some(100_000), "any cost is one value");
        assert_eq!(ask(1_099_999).retry_after, Some(1));
    }
    assert!(harness.at(1_100_000).enter(&policy, "ip:1", 3).admitted);
    assert_eq!(harness.at(1_599_999).used(&policy, "ip:1"), 2);
    assert_eq!(harness.at(1_600_000).used(&policy, "ip:1"), 1);
    assert_eq!(harness.at(2_100_000).used(&policy, "ip:1"), 0);
}

pub(crate) fn where_a_limit_was_lowered_as_many_values_must_leave<S: Subject>() {
    let harness = Harness::<S>::new();
    let policy = policy("p", Distinct, &[(5, SECOND)]);
    for value in 0..5_u8 {
        harness.at(i64::from(value) * 10_000).enter(&policy, "ip:1", value.into());
    }
    let lowered = with(&policy, 2);
    let denied = harness.at(50_000).enter(&lowered, "ip:1", 9);
    assert_eq!((denied.reset, denied.retry_after), (950_000, Some(980_000)), "four of five");
    assert!(!harness.at(1_029_999).enter(&lowered, "ip:1", 9).admitted);
    assert!(harness.at(1_030_000).enter(&lowered, "ip:1", 9).admitted);
}

pub(crate) fn a_value_of_a_denied_request_is_not_noted<S: Subject>() {
    let harness = Harness::<S>::new();
    let (values, lock) = (policy("v", Distinct, &[(2, SECOND)]), policy("l", Concurrency, &[(1, SECOND)]));
    harness.enter(&lock, "ip:1", 1);
    harness.enter(&values, "ip:1", 1);
    for value in [1, 2] {
        let checks = [member_check(&values, "ip:1", value), member_check(&lock, "ip:1", 2)];
        let before = harness.at(500_000).snapshot(&[&values, &lock], &["ip:1"]);
        let decision = harness.decide(&checks);
        assert!(!decision.admitted && decision.verdicts[0].admitted);
        assert_eq!((decision.verdicts[0].remaining, decision.verdicts[0].reset), (1, 500_000));
        assert_eq!(harness.snapshot(&[&values, &lock], &["ip:1"]), before);
    }
    assert_eq!(harness.at(1_000_000).used(&values, "ip:1"), 0, "it was not seen again");
}

pub(crate) fn so_many_are_under_way_and_no_more<S: Subject>() {
    let harness = Harness::<S>::new();
    let policy = policy("p", Concurrency, &[(2, MINUTE)]);
    assert_eq!(harness.enter(&policy, "ip:1", 1).remaining, 1);
    assert_eq!(harness.enter(&policy, "ip:1", 2).remaining, 0);
    let denied = harness.enter(&policy, "ip:1", 3);
    assert_eq!((denied.admitted, denied.remaining), (false, 0));
    assert_eq!(
        (denied.retry_after, denied.reset),
        (Some(1_000_000), 1_000_000),
        "nobody knows when one ends"
    );
    assert_eq!(harness.used(&policy, "ip:1"), 2);
    assert_eq!(harness.peek(&policy, "ip:2").verdict.reset, 0);
}

pub(crate) fn a_lease_is_given_back_by_its_token_and_by_no_other<S: Subject>() {
    let harness = Harness::<S>::new();
    let policy = policy("p", Concurrency, &[(2, MINUTE)]);
    let receipt = Receipt { source: DecisionSource::Store, time: START };
    let end = |identifier: &str, token| harness.refund(&[member_check(&policy, identifier, token)], receipt);
    harness.enter(&policy, "ip:1", 1);
    harness.enter(&policy, "ip:1", 2);
    end("ip:1", 3);
    end("ip:2", 1);
    assert!(!harness.enter(&policy, "ip:1", 3).admitted, "nobody has ended");
    end("ip:1", 2);
    end("ip:1", 2);
    assert_eq!(harness.used(&policy, "ip:1"), 1, "once, however often it is said");
    assert!(harness.enter(&policy, "ip:1", 3).admitted);
    assert!(!harness.enter(&policy, "ip:1", 2).admitted, "its slot is taken");
}

pub(crate) fn a_lease_lasts_as_long_as_it_is_renewed<S: Subject>() {
    let harness = Harness::<S>::new();
    let policy = policy("p", Concurrency, &[(2, SECOND)]);
    harness.at(0).enter(&policy, "ip:1", 1);
    harness.at(0).enter(&policy, "ip:1", 2);
    for time in [600_000, 1_200_000, 2_199_999] {
        let renewed = harness.at(time).enter(&policy, "ip:1", 1);
        assert!(renewed.admitted, "at {time}");
    }
    assert_eq!(harness.used(&policy, "ip:1"), 1, "the other has expired");
    let lowered = with(&policy, 1);
    harness.enter(&policy, "ip:1", 3);
    assert!(harness.at(3_199_998).enter(&lowered, "ip:1", 3).admitted, "also where the limit was lowered");
    assert_eq!(harness.used(&policy, "ip:1"), 2);
    assert_eq!(harness.at(3_199_999).used(&policy, "ip:1"), 1, "expired to the microsecond");
    assert_eq!(harness.at(4_199_997).used(&policy, "ip:1"), 1);
    assert_eq!(harness.at(4_199_998).used(&policy, "ip:1"), 0);
}

pub(crate) fn a_limit_of_one_is_a_lock<S: Subject>() {
    let harness = Harness::<S>::new();
    let policy = policy("p", Concurrency, &[(1, SECOND)]);
    let receipt = Receipt { source: DecisionSource::Store, time: START };
    for owner in 1..5 {
        assert!(harness.enter(&policy, "ip:1", owner).admitted);
        assert!(!harness.enter(&policy, "ip:1", owner + 1).admitted);
        harness.refund(&[member_check(&policy, "ip:1", owner + 1)], receipt);
        assert!(harness.enter(&policy, "ip:1", owner).admitted, "still its own");
        harness.refund(&[member_check(&policy, "ip:1", owner)], receipt);
    }
}

pub(crate) fn members_that_come_at_once_are_counted_together<S: Subject>() {
    for (algorithm, callers) in [(Concurrency, 3), (Concurrency, 40), (Distinct, 5), (Distinct, 40)] {
        let harness = Harness::<S>::new();
        let policy = policy("p", algorithm, &[(5, SECOND)]);
        // Each comes twice, and a member that is in stays in.
        let requests: Vec<_> = (0..callers)
            .chain(0..callers)
            .map(|member| vec![member_check(&policy, "ip:1", member)])
            .collect();
        let decisions = harness.together(&requests);
        let admitted: Vec<bool> = decisions.iter().map(|decision| decision.admitted).collect();
        let expected: Vec<bool> = (0..callers).chain(0..callers).map(|member| member < 5).collect();
        assert_eq!(admitted, expected, "{algorithm:?}");
        assert_eq!(u128::from(harness.used(&policy, "ip:1")), callers.min(5));
    }
}

pub(crate) fn members_of_a_clock_that_jumped_freeze_nothing<S: Subject>() {
    const YEAR: i64 = 366 * 86_400_000_000;
    for algorithm in [Concurrency, Distinct] {
        let harness = Harness::<S>::new();
        let policy = policy("p", algorithm, &[(2, SECOND)]);
        for member in [1, 2] {
            harness.at(YEAR).enter(&policy, "ip:1", member);
        }
        assert!(!harness.at(YEAR - 1_000_000).enter(&policy, "ip:1", 3).admitted, "{algorithm:?}");
        assert_eq!(harness.at(0).enter(&policy, "ip:1", 3).remaining, 1, "{algorithm:?}");
        assert!(harness.enter(&policy, "ip:1", 4).admitted, "{algorithm:?}");
        assert!(!harness.at(999_999).enter(&policy, "ip:1", 5).admitted, "{algorithm:?}");
        assert!(harness.at(1_000_000).enter(&policy, "ip:1", 5).admitted, "{algorithm:?}");
    }
}

pub(crate) fn a_member_that_a_shadow_denies_is_not_noted<S: Subject>() {
    for algorithm in [Concurrency, Distinct] {
        let harness = Harness::<S>::new();
        let policy = shadow(&policy("p", algorithm, &[(2, SECOND)]));
        for member in 0..5 {
            let decision = harness.decide(&[member_check(&policy, "ip:1", member)]);
            assert!(decision.admitted, "{algorithm:?}");
            assert_eq!(decision.verdicts[0].admitted, member < 2, "{algorithm:?}");
        }
        assert_eq!(harness.used(&policy, "ip:1"), 2, "{algorithm:?}");
    }
}

/// The member that comes, after how many tenths of a window and microseconds; and whether it leaves instead.
type Visit = (i64, i64, u128, bool);

pub(crate) fn members_agree_with_the_definition<S: Subject>() {
    let visits = vec((0..6_i64, -1..2_i64, 0..12_u128, prop::bool::weighted(0.15)), 1..80);
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 96, failure_persistence: None, ..Default::default() });
    runner.run(&visits, |visits| replay::<S>(&visits)).unwrap_or_else(|error| panic!("{error}"));
}

/// When each was last admitted, unless it has left: that is all there is to know.
fn replay<S: Subject>(visits: &[Visit]) -> Result<(), TestCaseError> {
    const LIMIT: u64 = 4;
    let window = 1_000_000;
    for algorithm in [Concurrency, Distinct] {
        let harness = Harness::<S>::new();
        let policy = policy("p", algorithm, &[(LIMIT, SECOND)]);
        let (mut now, mut last): (i64, HashMap<u128, i64>) = (START, HashMap::new());
        // Those that several requests have brought at the time when they were last admitted: one of them leaves, and others stay.
        let mut shared: HashSet<u128> = HashSet::new();
        for &(tenths, micros, member, leaves) in visits {
            now = (now + tenths * 100_000 + micros).max(now);
            harness.clock.set(now);
            let check = member_check(&policy, "ip:1", member);
            if leaves {
                harness.refund(&[check], Receipt { source: DecisionSource::Store, time: now });
                let stays =
                    algorithm == Distinct && shared.contains(&member) && last.get(&member) == Some(&now);
                if !stays {
                    last.remove(&member);
                }
                continue;
            }
            let inside = |last: &HashMap<u128, i64>| -> HashSet<u128> {
                last.iter().filter(|(_, time)| now - **time < window).map(|(member, _)| *member).collect()
            };
            let before = inside(&last);
            let admits = before.contains(&member) || (before.len() as u64) < LIMIT;
            let verdict = harness.decide(&[check]).verdicts[0];
            prop_assert_eq!(verdict.admitted, admits);
            if admits && last.insert(member, now) == Some(now) {
                shared.insert(member);
            } else {
                shared.remove(&member);
            }
            let after = inside(&last).len() as u64;
            prop_assert_eq!(verdict.remaining, LIMIT - after);
            prop_assert_eq!(harness.used(&policy, "ip:1"), after);
            let oldest = last.values().filter(|time| now - **time < window).min().copied();
            let leaves = oldest.map_or(0, |oldest| oldest + window - now);
            let (reset, retry_after) = match algorithm {
                Concurrency => (1_000_000, 1_000_000),
                _ => (leaves, leaves),
            };
            prop_assert_eq!(verdict.reset, reset);
            prop_assert_eq!(verdict.retry_after, Some(if admits { 0 } else { retry_after }));
        }
    }
    Ok(())
}
