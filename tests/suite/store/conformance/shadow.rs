//! Shadow policies watch, and never stand in the way.

use super::{
    ALGORITHMS, Harness, SECOND, Subject,
    harness::{check, shadow, unforgiving},
    policy,
};

pub(crate) fn a_shadow_never_denies_and_is_not_written_when_it_would<S: Subject>() {
    for algorithm in ALGORITHMS {
        for strict in [false, true] {
            let harness = Harness::<S>::new();
            let policy = shadow(&policy("p", algorithm, &[(3, SECOND)]));
            let policy = if strict { unforgiving(&policy) } else { policy };
            for request in 0..5 {
                let decision = harness.decide(&[check(&policy, "ip:1", 1)]);
                assert!(decision.admitted, "{algorithm:?}");
                assert_eq!(decision.verdicts[0].admitted, request < 3, "{algorithm:?}");
            }
            let before = harness.snapshot(&[&policy], &["ip:1"]);
            assert_eq!(harness.used(&policy, "ip:1"), 3, "{algorithm:?}");
            harness.decide(&[check(&policy, "ip:1", 2)]);
            assert_eq!(harness.snapshot(&[&policy], &["ip:1"]), before, "{algorithm:?}");
        }
    }
}

pub(crate) fn beside_a_shadow_that_would_deny_the_others_are_written<S: Subject>() {
    for algorithm in ALGORITHMS {
        let harness = Harness::<S>::new();
        let (watched, real) = (
            shadow(&policy("watched", algorithm, &[(1, SECOND)])),
            policy("real", algorithm, &[(3, SECOND)]),
        );
        for used in 1..=3 {
            let decision = harness.decide(&[check(&watched, "ip:1", 1), check(&real, "ip:1", 1)]);
            assert!(decision.admitted, "{algorithm:?}");
            assert_eq!(decision.verdicts[0].admitted, used == 1, "{algorithm:?}");
            assert_eq!(
                (harness.used(&watched, "ip:1"), harness.used(&real, "ip:1")),
                (1, used),
                "{algorithm:?}"
            );
        }
    }
}

pub(crate) fn a_shadow_is_not_written_where_the_request_is_denied<S: Subject>() {
    for algorithm in ALGORITHMS {
        let harness = Harness::<S>::new();
        let (watched, real) = (
            shadow(&policy("watched", algorithm, &[(5, SECOND)])),
            policy("real", algorithm, &[(1, SECOND)]),
        );
        harness.exhaust(&real, "ip:1");
        for _ in 0..3 {
            let decision = harness.decide(&[check(&watched, "ip:1", 1), check(&real, "ip:1", 1)]);
            assert!(!decision.admitted && decision.verdicts[0].admitted, "{algorithm:?}");
            assert_eq!((decision.verdicts[0].remaining, decision.verdicts[0].reset), (5, 0), "{algorithm:?}");
        }
        assert_eq!(harness.used(&watched, "ip:1"), 0, "{algorithm:?}");
    }
}
