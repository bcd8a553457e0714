//! The same random trace for memory and for Redis, which must say exactly the same. A trace on which they differ is
//! shrunk and kept in `differential.txt` beside this file, and comes first the next time.

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use proptest::{
    collection::vec,
    prelude::*,
    sample::subsequence,
    test_runner::{FileFailurePersistence, TestRunner},
};
use tollgate::{
    config::model::Algorithm::{
        Concurrency, Distinct, FixedWindow, Gcra, MetadataList, SingleCounter, SlidingCounter, SlidingLog,
        SlidingWindow,
    },
    limit::{
        Check, Decision, Policy, Receipt,
        algorithm::{Detail, Kind, Member, Tier, metadata_list::Entry},
    },
};

use super::{
    Harness, Memory, SECOND, Subject, entry,
    harness::{START, check, forgetful, refunding, shadow, unforgiving},
    on_subjects, policy,
};

on_subjects!(
    memory_and_redis_say_the_same_to_the_same_trace: server Shared, sentinel BehindSentinel, cluster Clustered,
    strict_cluster InOneSlot
);
on_subjects!(
    a_refund_by_a_clock_that_was_set_back_is_the_same_in_both: server Shared, cluster Clustered
);
on_subjects!(
    a_log_decides_the_same_by_policies_with_and_without_count: server Shared, cluster Clustered
);

const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite/store/conformance/differential.txt");
pub(super) const IDENTIFIERS: [&str; 2] = ["ip:1", "ip:1+path:/a"];
/// Of all the policies there are, so many are in a trace.
pub(super) const CAST: usize = 6;

/// Checks as index of policy, index of identifier, cost; and the member that those take which count members.
pub(super) type Request = (Vec<(usize, usize, u64)>, Member);

#[derive(Debug, Clone)]
enum Step {
    Decide(Request),
    /// Requests that come at once, each with its policies' limits at so many hundredths.
    Together(Vec<(Request, u64)>),
    /// What was taken by the request that was admitted so many before the last costs this many units after all.
    Settle(usize, u64),
    /// So many microseconds pass, or come back.
    Pass(i64),
    /// It is the next multiple of so many microseconds, give or take one.
    Align(i64, i64),
    /// The window ends that began so many decisions ago, give or take a microsecond, for a policy.
    Window(usize, usize, i64),
    /// The limits of a policy change to so many hundredths.
    Scale(usize, u64),
    Reset(usize),
}

pub(super) fn policies() -> Vec<Policy> {
    let buckets = SlidingWindow { buckets: 4 };
    let horizons = [(3, 200), (6, SECOND), (8, 2 * SECOND)];
    vec![
        policy("sc", SingleCounter, &[(4, SECOND)]),
        policy("fw", FixedWindow, &[(5, SECOND)]),
        policy("tiers", FixedWindow, &horizons),
        policy("sl", SlidingLog, &[(12, SECOND)]),
        policy("large", SlidingLog, &[(2_500, SECOND)]),
        policy("ml", MetadataList, &[(4, 700)]),
        forgetful(&policy("ml-short", MetadataList, &[(4, 700)])),
        policy("sx", SlidingCounter, &[(5, SECOND)]),
        policy("gcra", Gcra { burst: 5, delay: Duration::from_millis(400) }, &[(7, 1_300)]),
        policy("sw", buckets, &[(6, SECOND)]),
        policy("horizons", buckets, &horizons),
        policy("fine", SlidingWindow { buckets: 100 }, &[(5, 200), (9, SECOND)]),
        policy("di", Distinct, &[(3, SECOND)]),
        policy("cc", Concurrency, &[(3, SECOND)]),
        policy("lock", Concurrency, &[(1, 700)]),
        refunding(&policy("sc-back", SingleCounter, &[(4, SECOND)])),
        refunding(&policy("tiers-back", FixedWindow, &horizons)),
        refunding(&policy("sl-back", SlidingLog, &[(9, SECOND)])),
        refunding(&policy("ml-back", MetadataList, &[(4, 700)])),
        refunding(&forgetful(&policy("ml-short-back", MetadataList, &[(4, 700)]))),
        refunding(&policy("sw-back", buckets, &[(6, SECOND)])),
        refunding(&policy("horizons-back", buckets, &horizons)),
        refunding(&policy("di-back", Distinct, &[(3, SECOND)])),
        unforgiving(&policy("sc-denied", SingleCounter, &[(4, SECOND)])),
        unforgiving(&policy("tiers-denied", FixedWindow, &horizons)),
        unforgiving(&policy("sl-denied", SlidingLog, &[(6, SECOND)])),
        unforgiving(&policy("ml-denied", MetadataList, &[(4, 700)])),
        unforgiving(&policy("sw-denied", buckets, &[(6, SECOND)])),
        unforgiving(&policy("horizons-denied", buckets, &horizons)),
        refunding(&unforgiving(&policy("sl-both", SlidingLog, &[(6, SECOND)]))),
        refunding(&unforgiving(&policy("sw-both", buckets, &[(6, SECOND)]))),
        shadow(&policy("fw-shadow", FixedWindow, &[(3, SECOND)])),
        shadow(&policy("sl-shadow", SlidingLog, &[(3, SECOND)])),
        shadow(&unforgiving(&policy("sw-shadow", buckets, &[(3, SECOND)]))),
        shadow(&policy("di-shadow", Distinct, &[(2, SECOND)])),
        shadow(&policy("cc-shadow", Concurrency, &[(2, SECOND)])),
        refunding(&policy("sx-back", SlidingCounter, &[(5, SECOND)])),
        unforgiving(&policy("sx-denied", SlidingCounter, &[(5, SECOND)])),
        refunding(&policy("gcra-back", Gcra { burst: 5, delay: Duration::ZERO }, &[(7, 1_300)])),
        unforgiving(&policy("gcra-denied", Gcra { burst: 5, delay: Duration::ZERO }, &[(7, 1_300)])),
        shadow(&policy("gcra-shadow", Gcra { burst: 2, delay: Duration::ZERO }, &[(7, 1_300)])),
    ]
}

/// Which of the policies are in the trace, and what happens.
fn traces() -> impl Strategy<Value = (Vec<usize>, Vec<Step>)> {
    (subsequence((0..policies().len()).collect::<Vec<_>>(), CAST), steps())
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let cost = prop_oneof![40 => 0..3_u64, 4 => 3..14_u64, 1 => 998..1_003_u64, 1 => Just(u64::MAX)];
    let member = prop_oneof![9 => 0..4_u128, 1 => 0..40_u128].prop_map(|member| member << 120 | member);
    let request = (vec((0..CAST, 0..IDENTIFIERS.len(), cost), 1..4), member).boxed();
    let hundredths = prop_oneof![Just(30_u64), Just(100), Just(200)];
    let together = vec((request.clone(), hundredths), 2..6);
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
    let actual = prop_oneof![
        4 => Just(0_u64), 4 => 0..16_u64, 1 => 998..1_003_u64, 1 => u64::from(u32::MAX - 2)..1 << 32,
    ];
    let step = prop_oneof![
        10 => request.prop_map(Step::Decide),
        2 => together.prop_map(Step::Together),
        3 => (0..4_usize, actual).prop_map(|(ago, actual)| Step::Settle(ago, actual)),
        2 => (prop_oneof![Just(50_000_i64), Just(250_000)], -1..2_i64).prop_map(|(unit, off)| Step::Align(unit, off)),
        6 => (time, back).prop_map(|(time, back)| Step::Pass(time * back)),
        1 => (0..CAST, prop_oneof![Just(30_u64), Just(100), Just(200)]).prop_map(|(i, s)| Step::Scale(i, s)),
        4 => (0..4_usize, 0..CAST, -1..2_i64).prop_map(|(ago, policy, off)| Step::Window(ago, policy, off)),
        1 => (0..IDENTIFIERS.len()).prop_map(Step::Reset),
    ];
    vec(step, 1..100)
}

/// When what a request of `now` has taken is over. Time that runs backward counts as the newest, which may lie a
/// window ahead.
fn end(policy: &Policy, now: i64) -> RangeInclusive<i64> {
    let end = |tier: &Tier| match policy.kind {
        Kind::FixedWindow => now - now.rem_euclid(tier.window) + tier.window,
        Kind::SlidingWindow { .. } => now + tier.window + tier.window / 4,
        _ => now + tier.window,
    };
    let longest = policy.tiers.iter().map(|tier| tier.window).max().unwrap_or_default();
    let end = policy.tiers.iter().map(end).max().unwrap_or(now);
    match policy.kind {
        // Its window counts in the next one, too.
        Kind::SlidingCounter => now + longest..=end + 2 * longest,
        // A unit drains soon. The burst, which may be doubled, and what waits take less than two windows more.
        Kind::Gcra { .. } => now..=end + 2 * longest,
        // Its first entries may be dropped before it is.
        Kind::MetadataList { retain } if retain < longest => now + retain / 2..=end + longest,
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

fn memory_and_redis_say_the_same_to_the_same_trace<S: Subject>() {
    let config = ProptestConfig {
        cases: 192,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(KEPT))),
        ..ProptestConfig::default()
    };
    let mut runner = TestRunner::new(config);
    runner
        .run(&traces(), |(cast, steps)| replay::<S>(&cast, &steps))
        .unwrap_or_else(|error| panic!("{error}"));
}

/// In Redis, the windows that were too far ahead for the refund were lost, and counted no more once the clock was right.
fn a_refund_by_a_clock_that_was_set_back_is_the_same_in_both<S: Subject>() {
    let decide = |policy, identifier, cost| Step::Decide((vec![(policy, identifier, cost)], 0));
    let steps = [
        decide(4, 1, 1),
        Step::Scale(4, 200),
        decide(4, 1, 3),
        Step::Pass(-2_000_000),
        Step::Settle(1, 0),
        Step::Window(0, 3, 0),
        decide(4, 1, 0),
        Step::Pass(-2_500_000),
        decide(4, 0, 1),
        Step::Settle(0, 0),
    ];
    replay::<S>(&[2, 3, 7, 10, 16, 15], &steps).unwrap();
}

/// What Redis tells to be left may be too little for a policy without `count`: it counts only where that decides.
fn a_log_decides_the_same_by_policies_with_and_without_count<S: Subject>() {
    let plain = policy("sl", SlidingLog, &[(9, SECOND)]);
    let policies = [refunding(&plain), plain];
    let step = prop_oneof![
        6 => (0..2_usize, 0..5_u64).prop_map(|(policy, cost)| Step::Decide((vec![(policy, 0, cost)], 0))),
        4 => (0..6_usize).prop_map(|ago| Step::Settle(ago, 0)),
        3 => (0..400_000_i64).prop_map(Step::Pass),
    ];
    let replay = |steps: Vec<Step>| {
        let (memory, redis) = (Harness::<Memory>::new(), Harness::<S>::new());
        let (mut now, mut given) = (0, Vec::new());
        for (number, step) in steps.into_iter().enumerate() {
            memory.at(now);
            redis.at(now);
            match step {
                Step::Decide((wanted, _)) => {
                    let (policy, _, cost) = wanted[0];
                    let checks = [check(&policies[policy], IDENTIFIERS[0], cost)];
                    let (decision, same) = (memory.decide(&checks), redis.decide(&checks));
                    prop_assert_eq!(same.admitted, decision.admitted, "step {}", number);
                    if !decision.admitted || cost == 0 {
                        prop_assert_eq!(&same.verdicts, &decision.verdicts, "step {}", number);
                    } else {
                        given.push((cost, decision.receipt(0)));
                    }
                }
                Step::Settle(ago, _) => {
                    if let Some(index) = given.len().checked_sub(ago + 1) {
                        let (cost, receipt) = given.remove(index);
                        let checks = [check(&policies[0], IDENTIFIERS[0], cost)];
                        memory.refund(&checks, receipt);
                        redis.refund(&checks, receipt);
                    }
                }
                Step::Pass(time) => now += time,
                other => unreachable!("{other:?}"),
            }
        }
        Ok(())
    };
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 96, failure_persistence: None, ..Default::default() });
    runner.run(&vec(step, 1..80), replay).unwrap_or_else(|error| panic!("{error}"));
}

/// What an admitted request has taken and may be refunded.
struct Taken {
    checks: Vec<(usize, usize, u64)>,
    member: Member,
    entry: Arc<Entry>,
    receipt: Receipt,
}

pub(super) fn checks<'a>(policies: &'a [Policy], request: &Request, entry: &Arc<Entry>) -> Vec<Check<'a>> {
    let (wanted, member) = request;
    let check = |&(policy, identifier, cost): &(usize, usize, u64)| {
        let policy = &policies[policy];
        let detail = match policy.kind {
            _ if policy.keeps_entries() => Detail::Entry(Arc::clone(entry)),
            kind if kind.counts_members() => Detail::Member(*member),
            _ => Detail::None,
        };
        Check { policy, identifier: IDENTIFIERS[identifier].into(), cost, detail }
    };
    wanted.iter().map(check).collect()
}

/// What of a request was written, and may be refunded.
fn taken(policies: &[Policy], request: &Request, entry: Arc<Entry>, decision: &Decision) -> Option<Taken> {
    let (wanted, member) = request;
    let was_taken = |&(&(policy, _, cost), verdict): &(&(usize, usize, u64), _)| {
        let verdict: &tollgate::limit::algorithm::Verdict = verdict;
        cost > 0
            && verdict.admitted
            && (policies[policy].may_refund() || policies[policy].kind.counts_members())
    };
    let checks: Vec<_> =
        wanted.iter().zip(&decision.verdicts).filter(was_taken).map(|(check, _)| *check).collect();
    (decision.admitted && !checks.is_empty()).then(|| Taken {
        checks,
        member: *member,
        entry,
        receipt: decision.receipt(0),
    })
}

fn replay<S: Subject>(cast: &[usize], steps: &[Step]) -> Result<(), TestCaseError> {
    let (memory, redis) = (Harness::<Memory>::new(), Harness::<S>::new());
    let all = policies();
    let original: Vec<Policy> = cast.iter().map(|&index| all[index].clone()).collect();
    let mut policies = original.clone();
    // Long enough for any step back.
    let (mut now, mut latest) = (60_000_000, 0);
    let (mut ends, mut decided): (Vec<RangeInclusive<i64>>, Vec<i64>) = Default::default();
    let mut given: Vec<Taken> = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        memory.at(now);
        redis.at(now);
        latest = latest.max(now);
        let entry: Arc<Entry> = entry(START + now, &number.to_string());
        match step {
            Step::Decide(request) => {
                let checks = checks(&policies, request, &entry);
                decided.push(now);
                ends.extend(request.0.iter().map(|&(policy, ..)| end(&original[policy], now)));
                let decision = memory.decide(&checks);
                prop_assert_eq!(redis.decide(&checks), decision.clone(), "step {}", number);
                given.extend(taken(&policies, request, entry, &decision));
            }
            Step::Together(requests) => {
                let scales: Vec<Vec<Policy>> = requests
                    .iter()
                    .map(|(_, hundredths)| {
                        original.iter().map(|policy| scaled(policy, *hundredths)).collect()
                    })
                    .collect();
                let checks: Vec<Vec<Check<'_>>> = requests
                    .iter()
                    .zip(&scales)
                    .map(|((request, _), policies)| checks(policies, request, &entry))
                    .collect();
                decided.push(now);
                for (request, _) in requests {
                    ends.extend(request.0.iter().map(|&(policy, ..)| end(&original[policy], now)));
                }
                let decisions = memory.together(&checks);
                prop_assert_eq!(redis.together(&checks), decisions.clone(), "step {}", number);
                for ((request, _), decision) in requests.iter().zip(&decisions) {
                    given.extend(taken(&policies, request, Arc::clone(&entry), decision));
                }
            }
            Step::Settle(ago, actual) => {
                if let Some(index) = given.len().checked_sub(ago + 1) {
                    let Taken { checks: taken, member, entry, receipt } = given.remove(index);
                    decided.push(now);
                    ends.extend(taken.iter().map(|&(policy, ..)| end(&original[policy], now)));
                    let checks = checks(&policies, &(taken, member), &entry);
                    memory.settle(&checks, receipt, *actual);
                    redis.settle(&checks, receipt, *actual);
                }
            }
            Step::Align(unit, off) => {
                let next = START + now + unit - (START + now).rem_euclid(*unit) - START + off;
                now = now.max(next);
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
                    cleared.sort_by_key(|limit: &tollgate::limit::ClearedLimit| {
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
