//! The same random trace for memory and for Redis, which must say exactly the same. A trace on which they differ is
//! shrunk and kept in `differential.txt` beside this file, and comes first the next time.

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{FileFailurePersistence, TestRunner},
};
use tollgate::{
    config::model::Algorithm::{FixedWindow, Gcra, MetadataList, SingleCounter, SlidingCounter, SlidingLog},
    limit::{
        Check, Policy,
        algorithm::{Detail, Kind, Tier, metadata_list::Entry},
    },
};

use super::{Harness, Memory, SECOND, Shared, entry, policy};

const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite/conformance/differential.txt");
const IDENTIFIERS: [&str; 2] = ["ip:1", "ip:1+path:/a"];
const POLICIES: usize = 8;

#[derive(Debug, Clone)]
enum Step {
    /// A request with checks as index of policy, index of identifier, cost.
    Decide(Vec<(usize, usize, u64)>),
    /// So many microseconds pass, or come back.
    Pass(i64),
    /// The window ends that began so many decisions ago, give or take a microsecond, for a policy.
    Window(usize, usize, i64),
    /// The limits of a policy change to so many hundredths.
    Scale(usize, u64),
    Reset(usize),
}

fn policies() -> [Policy; POLICIES] {
    [
        policy("sc", SingleCounter, &[(4, SECOND)]),
        policy("fw", FixedWindow, &[(5, SECOND)]),
        policy("tiers", FixedWindow, &[(3, 200), (6, SECOND), (8, 2 * SECOND)]),
        policy("sl", SlidingLog, &[(12, SECOND)]),
        policy("large", SlidingLog, &[(2_500, SECOND)]),
        policy("ml", MetadataList, &[(4, 700)]),
        policy("sx", SlidingCounter, &[(5, SECOND)]),
        policy("gcra", Gcra { burst: 5, delay: Duration::from_millis(400) }, &[(7, 1_300)]),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let cost = prop_oneof![40 => 0..3_u64, 4 => 3..14_u64, 1 => 998..1_003_u64, 1 => Just(u64::MAX)];
    let checks = vec((0..POLICIES, 0..IDENTIFIERS.len(), cost), 1..4);
    // Around what matters: an instant, a part of a window, a window, more than any window.
    let around = |micros: i64| prop_oneof![3 => Just(micros), 1 => Just(micros - 1), 1 => Just(micros + 1)];
    let time = prop_oneof![
        4 => 0..3_i64,
        8 => 0..300_000_i64,
        2 => around(200_000),
        2 => around(700_000),
        6 => around(1_000_000),
        1 => around(2_000_000),
        1 => 0..9_000_000_i64,
    ];
    let back = prop_oneof![9 => Just(1_i64), 1 => Just(-1_i64)];
    let step = prop_oneof![
        10 => checks.prop_map(Step::Decide),
        6 => (time, back).prop_map(|(time, back)| Step::Pass(time * back)),
        1 => (0..POLICIES, prop_oneof![Just(30_u64), Just(100), Just(200)]).prop_map(|(i, s)| Step::Scale(i, s)),
        4 => (0..4_usize, 0..POLICIES, -1..2_i64).prop_map(|(ago, policy, off)| Step::Window(ago, policy, off)),
        1 => (0..IDENTIFIERS.len()).prop_map(Step::Reset),
    ];
    vec(step, 1..100)
}

/// When what a request of `now` has taken is over. Time that runs backward counts as the newest, which may lie a
/// window ahead.
fn end(policy: &Policy, now: i64) -> RangeInclusive<i64> {
    let end = |tier: &Tier| match policy.kind {
        Kind::FixedWindow => now - now.rem_euclid(tier.window) + tier.window,
        _ => now + tier.window,
    };
    let longest = policy.tiers.iter().map(|tier| tier.window).max().unwrap_or_default();
    let end = policy.tiers.iter().map(end).max().unwrap_or(now);
    match policy.kind {
        // Its window counts in the next one, too.
        Kind::SlidingCounter => now + longest..=end + 2 * longest,
        // A unit drains soon. The burst, which may be doubled, and what waits take less than two windows more.
        Kind::Gcra { .. } => now..=end + 2 * longest,
        _ => end..=end + longest,
    }
}

fn scaled(policy: &Policy, hundredths: u64) -> Policy {
    let mut policy = policy.clone();
    // A bucket that is empty at the rate of its last request may be gone: only its burst changes.
    if let Kind::Gcra { burst, .. } = &mut policy.kind {
        *burst = (*burst * hundredths / 100).max(1);
        return policy;
    }
    for tier in &mut policy.tiers {
        tier.limit = (tier.limit * hundredths / 100).max(1);
    }
    policy
}

#[test]
fn memory_and_redis_say_the_same_to_the_same_trace() {
    let config = ProptestConfig {
        cases: 384,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(KEPT))),
        ..ProptestConfig::default()
    };
    let mut runner = TestRunner::new(config);
    runner.run(&steps(), |steps| replay(&steps)).unwrap_or_else(|error| panic!("{error}"));
}

fn replay(steps: &[Step]) -> Result<(), TestCaseError> {
    let (memory, redis) = (Harness::<Memory>::new(), Harness::<Shared>::new());
    let original = policies();
    let mut policies = original.clone();
    // Long enough for any step back.
    let (mut now, mut latest) = (60_000_000, 0);
    let (mut ends, mut decided): (Vec<RangeInclusive<i64>>, Vec<i64>) = Default::default();
    for (number, step) in steps.iter().enumerate() {
        memory.at(now);
        redis.at(now);
        latest = latest.max(now);
        match step {
            Step::Decide(wanted) => {
                let entry: Arc<Entry> = entry(i64::try_from(number).unwrap_or_default(), "acme");
                let checks: Vec<Check<'_>> = wanted
                    .iter()
                    .map(|&(policy, identifier, cost)| Check {
                        policy: &policies[policy],
                        identifier: IDENTIFIERS[identifier].into(),
                        cost,
                        detail: match policies[policy].keeps_entries() {
                            true => Detail::Entry(Arc::clone(&entry)),
                            false => Detail::None,
                        },
                    })
                    .collect();
                decided.push(now);
                ends.extend(wanted.iter().map(|&(policy, ..)| end(&original[policy], now)));
                prop_assert_eq!(redis.decide(&checks), memory.decide(&checks), "step {}", number);
            }
            Step::Window(ago, policy, off) => {
                let begun = decided.iter().rev().nth(*ago).copied().unwrap_or(now);
                now = now.max(begun + original[*policy].tiers[0].window + off);
            }
            Step::Pass(time) if *time >= 0 => now += time,
            // What is over may be gone: time does not go back to where it would not be over yet.
            Step::Pass(time) => {
                if !ends.iter().any(|end| *end.start() <= latest && now + time < *end.end()) {
                    now += time;
                }
            }
            Step::Scale(index, hundredths) => policies[*index] = scaled(&original[*index], *hundredths),
            Step::Reset(identifier) => {
                let cleared = |mut cleared: Vec<_>| {
                    cleared.sort_by_key(|limit: &tollgate::limit::Cleared| {
                        (limit.policy.clone(), limit.identifier.clone())
                    });
                    cleared
                };
                let identifier = IDENTIFIERS[*identifier];
                prop_assert_eq!(
                    cleared(redis.reset(&policies, identifier)),
                    cleared(memory.reset(&policies, identifier)),
                    "step {}",
                    number
                );
            }
        }
    }
    for policy in &policies {
        for identifier in IDENTIFIERS {
            prop_assert_eq!(redis.peek(policy, identifier), memory.peek(policy, identifier));
            prop_assert_eq!(redis.entries(policy, identifier), memory.entries(policy, identifier));
        }
    }
    Ok(())
}
