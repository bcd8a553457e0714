//! What is admitted, what is taken, and what is left alone.

use tollgate::{
    config::{
        SystemLookup,
        model::Algorithm::{FixedWindow, MetadataList, SingleCounter, SlidingLog},
    },
    limit::{Check, ClearedLimit, Policy, PolicyId, algorithm::Detail},
};

use super::{
    ALGORITHMS, Harness, MINUTE, SECOND, Subject, entry,
    harness::{START, check},
    policy, with,
};

pub(crate) fn each_algorithm_admits_its_limit_and_no_more<S: Subject>() {
    for algorithm in ALGORITHMS {
        let harness = Harness::<S>::new();
        let policy = policy("p", algorithm, &[(5, SECOND)]);
        for left in (0..5).rev() {
            let verdict = harness.take(&policy, "ip:1", 1);
            assert!(verdict.admitted, "{algorithm:?}");
            assert_eq!((verdict.limit, verdict.remaining, verdict.retry_after), (5, left, Some(0)));
        }
        let denied = harness.take(&policy, "ip:1", 1);
        assert_eq!((denied.admitted, denied.remaining), (false, 0), "{algorithm:?}");
        assert_eq!(harness.used(&policy, "ip:1"), 5, "{algorithm:?}");
    }
}

pub(crate) fn a_denial_changes_nothing_anywhere<S: Subject>() {
    for algorithm in ALGORITHMS {
        let harness = Harness::<S>::new();
        let tight = policy("tight", algorithm, &[(2, SECOND)]);
        let wide = ALGORITHMS.map(|algorithm| policy("wide", algorithm, &[(9, SECOND)]));
        let mut policies: Vec<_> = wide.iter().collect();
        harness.exhaust(&tight, "ip:1");
        for policy in &policies {
            harness.at(900).take(policy, "user:a", 3);
        }

        policies.push(&tight);
        // Late enough that a prune would be seen: some of it is over.
        for time in [1_000, 500_000, 999_999] {
            let before = harness.at(time).snapshot(&policies, &["ip:1", "user:a", "user:b"]);
            for position in 0..=wide.len() {
                let mut checks: Vec<_> =
                    wide.iter().map(|policy| logged(check(policy, "user:a", 1))).collect();
                checks.push(check(&wide[0], "user:b", 1));
                // Whatever drains in between, both units never fit.
                checks.insert(position, check(&tight, "ip:1", 2));
                assert!(!harness.decide(&checks).admitted, "{algorithm:?}");
            }
            assert_eq!(harness.snapshot(&policies, &["ip:1", "user:a", "user:b"]), before);
        }
    }
}

pub(crate) fn admission_takes_from_every_limit<S: Subject>() {
    let harness = Harness::<S>::new();
    let policies = ALGORITHMS.map(|algorithm| policy("p", algorithm, &[(9, SECOND)]));
    let checks: Vec<_> = policies
        .iter()
        .zip(1..)
        .flat_map(|(policy, cost)| [check(policy, "ip:1", cost), check(policy, "user:a", cost + 1)])
        .collect();
    let decision = harness.decide(&checks);
    assert!(decision.admitted);
    for (check, verdict) in checks.iter().zip(&decision.verdicts) {
        assert_eq!(verdict.remaining, 9 - check.cost);
        assert_eq!(harness.used(check.policy, &check.identifier), check.cost);
    }
}

pub(crate) fn no_check_admits_without_state<S: Subject>() {
    let decision = Harness::<S>::new().decide(&[]);
    assert!(decision.admitted && decision.verdicts.is_empty());
}

pub(crate) fn a_denied_request_shows_admitting_checks_as_they_stand<S: Subject>() {
    let harness = Harness::<S>::new();
    let tight = policy("tight", SlidingLog, &[(1, SECOND)]);
    let wide = policy("wide", FixedWindow, &[(9, SECOND)]);
    let untouched = policy("untouched", SingleCounter, &[(9, SECOND)]);
    harness.exhaust(&tight, "ip:1");
    harness.take(&wide, "ip:1", 2);

    let checks = [check(&wide, "ip:1", 3), check(&tight, "ip:1", 1), check(&untouched, "ip:1", 1)];
    let decision = harness.decide(&checks);
    let seen: Vec<_> =
        decision.verdicts.iter().map(|verdict| (verdict.admitted, verdict.remaining)).collect();
    assert_eq!((decision.admitted, seen), (false, vec![(true, 7), (false, 0), (true, 9)]));
    assert_eq!(decision.verdicts[0].retry_after, Some(0));
    assert_eq!(decision.verdicts[2].reset, 0, "nothing is used of it");
}

pub(crate) fn the_cost_is_taken_whole_or_not_at_all<S: Subject>() {
    for algorithm in ALGORITHMS {
        let harness = Harness::<S>::new();
        let policy = policy("p", algorithm, &[(10, SECOND)]);
        assert_eq!(harness.take(&policy, "ip:1", 7).remaining, 3);
        assert_eq!(harness.take(&policy, "ip:1", 4).remaining, 3, "denied, and nothing of it taken");
        assert_eq!(harness.take(&policy, "ip:1", 3).remaining, 0);
    }
}

pub(crate) fn a_cost_of_zero_only_looks<S: Subject>() {
    for algorithm in ALGORITHMS {
        let harness = Harness::<S>::new();
        let policy = policy("p", algorithm, &[(2, SECOND)]);
        let untouched = harness.take(&policy, "ip:1", 0);
        assert_eq!((untouched.admitted, untouched.remaining, untouched.reset), (true, 2, 0));
        // Had it started a window, the window would be over in a second from now.
        harness.at(700_000).exhaust(&policy, "ip:1");
        let before = harness.snapshot(&[&policy], &["ip:1"]);
        assert!(harness.take(&policy, "ip:1", 0).admitted, "{algorithm:?}");
        assert_eq!(harness.snapshot(&[&policy], &["ip:1"]), before);
        if algorithm != FixedWindow {
            assert!(!harness.at(1_699_999).take(&policy, "ip:1", 2).admitted, "{algorithm:?}");
        }
    }
}

pub(crate) fn a_cost_above_the_limit_is_denied_for_good<S: Subject>() {
    for algorithm in ALGORITHMS {
        let harness = Harness::<S>::new();
        let policy = policy("p", algorithm, &[(5, SECOND)]);
        for cost in [6, u64::MAX] {
            let denied = harness.take(&policy, "ip:1", cost);
            assert_eq!((denied.admitted, denied.retry_after), (false, None), "{algorithm:?}");
            assert_eq!((denied.remaining, denied.reset), (5, 0), "{algorithm:?}");
        }
        assert!(harness.take(&policy, "ip:1", 5).admitted, "{algorithm:?}");
    }
}

pub(crate) fn checks_of_one_limit_add_up<S: Subject>() {
    for algorithm in ALGORITHMS {
        let harness = Harness::<S>::new();
        let policy = policy("p", algorithm, &[(5, SECOND)]);
        let twice = [check(&policy, "ip:1", 1), check(&policy, "ip:1", 2)];
        let decision = harness.decide(&twice);
        assert!(decision.admitted && decision.verdicts.iter().all(|verdict| verdict.remaining == 2));
        assert_eq!(harness.used(&policy, "ip:1"), 3, "{algorithm:?}");

        let denied = harness.decide(&twice);
        assert!(!denied.admitted, "each alone would fit, both do not");
        assert_eq!(harness.used(&policy, "ip:1"), 3, "{algorithm:?}");
        assert!(harness.decide(&twice[1..]).admitted, "{algorithm:?}");
    }
}

pub(crate) fn a_raised_or_lowered_limit_takes_effect_at_once<S: Subject>() {
    for algorithm in ALGORITHMS {
        let harness = Harness::<S>::new();
        let five = policy("p", algorithm, &[(5, SECOND)]);
        harness.exhaust(&five, "ip:1");

        assert_eq!(harness.take(&with(&five, 7), "ip:1", 1).remaining, 1, "{algorithm:?}: five count");
        let lowered = harness.take(&with(&five, 2), "ip:1", 1);
        assert_eq!((lowered.admitted, lowered.remaining), (false, 0), "{algorithm:?}");
        assert_eq!(harness.used(&with(&five, 2), "ip:1"), 6, "{algorithm:?}: no count is lost");
        assert_eq!(harness.take(&with(&five, 10), "ip:1", 1).remaining, 3, "{algorithm:?}");
    }
}

pub(crate) fn all_tiers_hold<S: Subject>() {
    let harness = Harness::<S>::new();
    let policy = policy("p", FixedWindow, &[(2, SECOND), (5, MINUTE), (6, 60 * MINUTE)]);
    let second = |second: i64| second * 1_000_000;
    for (time, admitted, tier) in [
        (second(0), true, 0),
        (second(0), true, 0),
        (second(0), false, 0),
        (second(1), true, 0),
        (second(1), true, 0),
        (second(2), true, 1),
        (second(2), false, 1),
        (second(3), false, 1),
        (second(60), true, 2),
        (second(60), false, 2),
        (second(3_599), false, 2),
        (second(3_600), true, 0),
    ] {
        let verdict = harness.at(time).take(&policy, "ip:1", 1);
        assert_eq!((verdict.admitted, verdict.tier), (admitted, tier), "at {time}");
    }
}

pub(crate) fn policies_and_identifiers_are_apart<S: Subject>() {
    let harness = Harness::<S>::new();
    let policies = [
        policy("a", SlidingLog, &[(1, SECOND)]),
        policy("b", SlidingLog, &[(1, SECOND)]),
        policy("a", SlidingLog, &[(1, MINUTE)]),
        policy("a", SingleCounter, &[(1, SECOND)]),
    ];
    for policy in &policies {
        for identifier in ["ip:1", "ip:11", "ip:1+path:/a", ""] {
            assert!(harness.take(policy, identifier, 1).admitted, "{} {identifier}", policy.shape);
            assert!(!harness.take(policy, identifier, 1).admitted, "{} {identifier}", policy.shape);
        }
    }
}

pub(crate) fn a_reset_clears_a_limit_and_its_composites<S: Subject>() {
    let harness = Harness::<S>::new();
    let (a, b) = (policy("a", SlidingLog, &[(1, SECOND)]), policy("b", MetadataList, &[(1, SECOND)]));
    let other = policy("other", FixedWindow, &[(1, SECOND)]);
    let identifiers = ["ip:1", "ip:1+path:/a", "ip:1+path:/b", "ip:11", "user:ip:1"];
    for policy in [&a, &b, &other] {
        for identifier in identifiers {
            harness.exhaust(policy, identifier);
        }
    }
    let cleared = |policy: &str, identifier: &str| ClearedLimit {
        policy: policy.to_owned(),
        identifier: identifier.to_owned(),
    };
    let mut said = harness.reset(&[a.clone(), b.clone()], "ip:1");
    said.sort_by_key(|cleared| (cleared.policy.clone(), cleared.identifier.clone()));
    let expected: Vec<_> = ["a", "b"]
        .iter()
        .flat_map(|policy| identifiers[..3].iter().map(|identifier| cleared(policy, identifier)))
        .collect();
    assert_eq!(said, expected);
    assert!(harness.reset(&[a.clone(), b.clone()], "ip:1").is_empty(), "there is nothing left of it");

    for policy in [&a, &b, &other] {
        for (i, identifier) in identifiers.iter().enumerate() {
            let is_cleared = policy.name != "other" && i < 3;
            assert_eq!(harness.take(policy, identifier, 1).admitted, is_cleared, "{identifier}");
        }
    }
}

pub(crate) fn a_clear_affects_one_limit_alone<S: Subject>() {
    for algorithm in ALGORITHMS {
        let harness = Harness::<S>::new();
        let (a, b) = (policy("a", algorithm, &[(1, SECOND)]), policy("b", algorithm, &[(1, SECOND)]));
        let identifiers = ["ip:1", "ip:1+path:/a", "ip:11"];
        for policy in [&a, &b] {
            identifiers.iter().for_each(|identifier| harness.exhaust(policy, identifier));
        }
        let cleared = harness.clear(std::slice::from_ref(&a), "ip:1");
        assert_eq!(cleared, [ClearedLimit { policy: "a".to_owned(), identifier: "ip:1".to_owned() }]);
        assert!(harness.clear(std::slice::from_ref(&a), "ip:1").is_empty(), "{algorithm:?}");
        for policy in [&a, &b] {
            for identifier in identifiers {
                let is_cleared = policy.name == "a" && identifier == "ip:1";
                assert_eq!(harness.take(policy, identifier, 1).admitted, is_cleared, "{identifier}");
            }
        }
        assert_eq!(harness.clear(&[a.clone(), b.clone()], "ip:1+path:/a").len(), 2, "{algorithm:?}");
    }
}

pub(crate) fn metadata_lists_say_who_filled_them<S: Subject>() {
    let harness = Harness::<S>::new();
    let mut policy = policy("inspect", MetadataList, &[(4, SECOND)]);
    policy.record.keep = 3;
    let users = ["alice", "bob", "carol", "dave", "eve"];
    for (user, time) in users.iter().zip(0..) {
        let detail = Detail::Entry(entry(START + time, user));
        let check = Check { detail, ..check(&policy, "ip:1", 1) };
        assert_eq!(harness.at(time).decide(&[check]).admitted, *user != "eve");
    }
    let entries = harness.entries(&policy, "ip:1");
    let who: Vec<_> = entries.iter().filter_map(|entry| entry.user.as_deref()).collect();
    assert_eq!(who, ["bob", "carol", "dave"], "the newest that were admitted");
    assert_eq!(entries[0].time, START + 1);
    assert!(harness.entries(&policy, "ip:2").is_empty());

    assert!(harness.at(1_000_000).entries(&policy, "ip:1").is_empty(), "the window is over");
}

fn logged(check: Check<'_>) -> Check<'_> {
    Check { detail: Detail::Entry(entry(START, "mallory")), ..check }
}

/// A reload may change what a policy counts: bytes that were used are not requests.
pub(crate) fn counts_of_another_unit_are_apart<S: Subject>() {
    let of = |settings: &str| {
        let yaml = format!(
            "upstreams: {{ u: {{ endpoints: [\"http://127.0.0.1:1\"] }} }}
trusted_proxies: [127.0.0.1]
user: [{{ header: x-user }}]
routes: [{{ path: /*, upstream: u, policies: [p] }}]
policies: {{ p: {{ key: ip, {settings} }} }}"
        );
        let config = tollgate::config::parse("proxy.yaml", &yaml, &SystemLookup).unwrap();
        let mut policy = Policy::all(config.policies.iter().map(AsRef::as_ref)).remove(0);
        let hash = |hash: u32, byte: u8| hash.wrapping_mul(31).wrapping_add(u32::from(byte));
        policy.id = PolicyId(policy.shape.bytes().fold(7, hash));
        policy
    };
    let units = [
        "algorithm: fixed_window, limit: 1000/1d",
        "algorithm: fixed_window, limit: 1GiB/1d, cost: { response: bytes, reserve: 1KiB }",
        "algorithm: fixed_window, limit: 1000/1d, cost: { response: openai, reserve: 1 }",
        "algorithm: fixed_window, limit: 1000/1d, cost: { header: x-cost, max: 9 }",
        "algorithm: distinct, limit: 1000/1d, value: user",
        "algorithm: distinct, limit: 1000/1d, value: path",
    ];
    let harness = Harness::<S>::new();
    for (nth, unit) in units.into_iter().enumerate() {
        let policy = of(unit);
        assert_eq!(harness.used(&policy, "ip:1"), 0, "{unit}");
        assert!(harness.enter(&policy, "ip:1", nth as u128).admitted);
        assert_eq!(harness.used(&of(unit), "ip:1"), 1, "{unit}");
    }
}
