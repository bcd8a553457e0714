//! Random traces, held against the definition.

use std::{collections::HashMap, time::Duration};

use proptest::{collection::vec, prelude::*, test_runner::TestRunner};
use tollgate::{
    config::model::Algorithm,
    limit::{Check, Decision, Policy},
};

use super::{
    Harness, Subject,
    harness::{START, check},
    model::Model,
    policy,
};

const IDENTIFIERS: [&str; 2] = ["ip:1", "user:a"];
const POLICIES: usize = 10;
/// Nothing of it is a whole number of microseconds, and up to two may wait.
const AWKWARD: Algorithm = Algorithm::Gcra { burst: 5, delay: Duration::from_millis(400) };

/// One request: how long after the one before, in tenths of a second and microseconds, and its checks
/// as index of policy, index of identifier, cost.
type Step = (i64, i64, Vec<(usize, usize, u64)>);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let checks = vec((0..POLICIES, 0..IDENTIFIERS.len(), 0..4u64), 1..5);
    vec((0..6i64, -1..2i64, checks), 1..60)
}

fn policies() -> [Policy; POLICIES] {
    use Algorithm::{FixedWindow, MetadataList, SingleCounter, SlidingCounter, SlidingLog, SlidingWindow};
    [
        policy("sc", SingleCounter, &[(4, 1_000)]),
        policy("fw", FixedWindow, &[(5, 1_000)]),
        policy("tiers", FixedWindow, &[(3, 200), (6, 1_000), (8, 2_000)]),
        policy("sl", SlidingLog, &[(5, 1_000)]),
        policy("ml", MetadataList, &[(4, 700)]),
        policy("sx", SlidingCounter, &[(5, 1_000)]),
        policy("gcra", Algorithm::Gcra { burst: 4, delay: Duration::ZERO }, &[(4, 1_000)]),
        policy("awkward", AWKWARD, &[(7, 1_300)]),
        policy("sw", SlidingWindow { buckets: 7 }, &[(5, 1_000)]),
        policy("horizons", SlidingWindow { buckets: 4 }, &[(3, 200), (6, 1_000), (8, 2_000)]),
    ]
}

fn models(policies: &[Policy]) -> HashMap<(usize, usize), Model> {
    use Algorithm::{FixedWindow, MetadataList, SingleCounter, SlidingCounter, SlidingLog, SlidingWindow};
    let gcra = Algorithm::Gcra { burst: 4, delay: Duration::ZERO };
    let algorithms = [
        SingleCounter,
        FixedWindow,
        FixedWindow,
        SlidingLog,
        MetadataList,
        SlidingCounter,
        gcra,
        AWKWARD,
        SlidingWindow { buckets: 7 },
        SlidingWindow { buckets: 4 },
    ];
    let mut models = HashMap::new();
    for (i, policy) in policies.iter().enumerate() {
        for j in 0..IDENTIFIERS.len() {
            let model = Model { algorithm: algorithms[i], tiers: policy.tiers.clone(), admitted: Vec::new() };
            models.insert((i, j), model);
        }
    }
    models
}

pub(crate) fn stores_agree_with_the_definition<S: Subject>() {
    let policies = policies();
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 192, failure_persistence: None, ..Default::default() });
    runner.run(&steps(), |steps| replay::<S>(&policies, &steps)).unwrap_or_else(|error| panic!("{error}"));
}

fn replay<S: Subject>(policies: &[Policy], steps: &[Step]) -> Result<(), TestCaseError> {
    let (harness, mirrored) = (Harness::<S>::new(), Harness::<S>::new());
    let mut models = models(policies);
    let mut now = START;
    for (tenths, micros, wanted) in steps {
        now = (now + tenths * 100_000 + micros).max(now);
        let checks: Vec<Check<'_>> = wanted
            .iter()
            .map(|&(policy, identifier, cost)| check(&policies[policy], IDENTIFIERS[identifier], cost))
            .collect();
        let mut costs: HashMap<(usize, usize), u64> = HashMap::new();
        for &(policy, identifier, cost) in wanted {
            *costs.entry((policy, identifier)).or_default() += cost;
        }

        harness.clock.set(now);
        let mut decision = harness.decide(&checks);
        prop_assert_eq!(decision.admitted, admits(&models, &costs, now));
        let reversed: Vec<_> = checks.iter().rev().cloned().collect();
        mirrored.clock.set(now);
        let mut other = mirrored.decide(&reversed);
        other.verdicts.reverse();
        prop_assert_eq!(&other, &decision, "the order of checks is of no matter");

        if let (false, Some(retry_after)) = (decision.admitted, retry_after(&decision)) {
            prop_assert!(retry_after > 0);
            harness.clock.set(now + retry_after - 1);
            prop_assert!(!harness.decide(&checks).admitted, "denied a microsecond before");
            now += retry_after;
            harness.clock.set(now);
            mirrored.clock.set(now);
            decision = harness.decide(&checks);
            prop_assert!(decision.admitted, "and admitted at it");
            mirrored.decide(&reversed);
        }
        if decision.admitted {
            for (limit, &cost) in costs.iter().filter(|(_, cost)| **cost > 0) {
                models.get_mut(limit).expect("all are there").admitted.push((now, cost));
            }
        }
        verdicts_agree(&models, wanted, &decision, now)?;
        peeks_agree(&harness, policies, &models, now)?;
    }
    for model in models.values() {
        for tier in &model.tiers {
            prop_assert!(model.worst_case(tier) <= model.bound(tier), "{:?}", model.algorithm);
        }
    }
    Ok(())
}

fn admits(models: &HashMap<(usize, usize), Model>, costs: &HashMap<(usize, usize), u64>, now: i64) -> bool {
    costs.iter().all(|(limit, &cost)| models[limit].admits(now, cost))
}

/// The longest; `None` where one is denied for good.
fn retry_after(decision: &Decision) -> Option<i64> {
    decision.verdicts.iter().try_fold(0, |longest, verdict| Some(verdict.retry_after?.max(longest)))
}

/// Remaining and reset tell how the limit stands after the request, of the tightest tier.
fn verdicts_agree(
    models: &HashMap<(usize, usize), Model>,
    wanted: &[(usize, usize, u64)],
    decision: &Decision,
    now: i64,
) -> Result<(), TestCaseError> {
    for (&(policy, identifier, _), verdict) in wanted.iter().zip(&decision.verdicts) {
        let model = &models[&(policy, identifier)];
        let tier = &model.tiers[verdict.tier];
        let used = model.used(tier, now);
        let left = |tier| model.limit(tier).saturating_sub(model.used(tier, now));
        prop_assert_eq!(verdict.limit, model.limit(tier));
        prop_assert_eq!(verdict.remaining, left(tier));
        prop_assert_eq!(verdict.delay, if verdict.admitted { model.delay(tier, now) } else { 0 });
        if verdict.admitted {
            let least = model.tiers.iter().map(left).min();
            prop_assert_eq!(Some(verdict.remaining), least);
        }
        if used == 0 {
            prop_assert_eq!(verdict.reset, 0);
        } else {
            prop_assert_eq!(model.used(tier, now + verdict.reset - 1), used);
            prop_assert!(model.used(tier, now + verdict.reset) < used);
        }
    }
    Ok(())
}

fn peeks_agree<S: Subject>(
    harness: &Harness<S>,
    policies: &[Policy],
    models: &HashMap<(usize, usize), Model>,
    now: i64,
) -> Result<(), TestCaseError> {
    let limits = models.keys().map(|&(policy, identifier)| (&policies[policy], IDENTIFIERS[identifier]));
    let peeks = harness.peeks(limits);
    for (model, peek) in models.values().zip(peeks) {
        prop_assert_eq!(peek.used, model.used(&model.tiers[peek.verdict.tier], now));
    }
    Ok(())
}
