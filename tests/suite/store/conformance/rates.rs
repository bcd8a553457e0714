//! What only `gcra` and `sliding_counter` have: parts of units, at any scale, and places to wait for.

use std::time::Duration;

use proptest::{collection::vec, prelude::*, test_runner::TestRunner};
use tollgate::{
    config::model::Algorithm,
    limit::{
        Policy, Receipt,
        algorithm::{Kind, Verdict},
    },
};

use super::{
    Harness, Memory, SECOND, Shared, Subject,
    harness::{GCRA, START, check, refunding},
    model::Model,
    policy, with,
};

const BILLION: u64 = 1_000_000_000;
const YEAR: i64 = 366 * 86_400_000_000;
/// No clock goes further, in microseconds: 2^53 of them are all that a double counts.
const END: i64 = 1 << 52;

pub(crate) fn a_request_above_the_burst_waits_for_its_slot<S: Subject>() {
    let harness = Harness::<S>::new();
    let algorithm = Algorithm::Gcra { burst: 3, delay: Duration::from_millis(900) };
    let policy = policy("p", algorithm, &[(5, SECOND)]);
    let told = |verdict: Verdict| (verdict.admitted, verdict.delay, verdict.remaining, verdict.retry_after);
    for (place, left) in [(0, 2), (0, 1), (0, 0), (200_000, 0), (400_000, 0), (600_000, 0), (800_000, 0)] {
        assert_eq!(told(harness.take(&policy, "ip:1", 1)), (true, place, left, Some(0)));
    }
    // The next place is a second away, a tenth too far.
    assert_eq!(told(harness.take(&policy, "ip:1", 1)), (false, 0, 0, Some(100_000)));
    assert_eq!(told(harness.at(99_999).take(&policy, "ip:1", 1)), (false, 0, 0, Some(1)));
    assert_eq!(told(harness.at(100_000).take(&policy, "ip:1", 1)), (true, 900_000, 0, Some(0)));
    // The places are kept: eight were taken, and five drain in a second.
    assert_eq!(harness.at(1_000_000).used(&policy, "ip:1"), 3);
    assert_eq!(told(harness.take(&policy, "ip:1", 4)), (false, 0, 0, None));
}

pub(crate) fn an_override_forgets_nothing_of_its_policy<S: Subject>() {
    let policy = refunding(&policy("p", GCRA, &[(5, SECOND)]));
    let other = with(&policy, 5_000);
    for refunds in [false, true] {
        let harness = Harness::<S>::new();
        harness.at(0).exhaust(&policy, "ip:1");
        let checks = [check(&other, "ip:1", 1)];
        let receipt = harness.decide(&checks).receipt(0);
        // By the other rate all six are gone, and what is over is swept where others come.
        harness.at(10_000);
        if refunds {
            harness.refund(&checks, receipt);
        }
        for identifier in 0..1_500 {
            assert!(harness.take(&policy, &format!("user:{identifier}"), 1).admitted);
        }
        assert!(!harness.take(&policy, "ip:1", 1).admitted, "refunds: {refunds}");
    }
}

/// What a trace is held against.
#[derive(Debug, Clone)]
struct Scale {
    algorithm: Algorithm,
    limit: u64,
    window: i64,
    counts_denied: bool,
}

impl Scale {
    fn policy(&self) -> Policy {
        let mut policy = policy("p", self.algorithm, &[(self.limit, SECOND)]);
        policy.tiers[0].window = self.window;
        policy.count_denied = self.counts_denied;
        policy
    }

    /// Units that fit at once.
    fn burst(&self) -> u64 {
        match self.algorithm {
            Algorithm::Gcra { burst, .. } => burst,
            _ => self.limit,
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// A request of so many units.
    Few(u64),
    /// Or of so many thousandths of what fits at once, and so many more.
    Part(u64, u64),
    /// So many thousandths of a window pass, and so many microseconds.
    Pass(i64, i64),
    /// So many units drain, give or take a microsecond.
    Drain(u64, i64),
    /// It is time for the last request that was denied.
    Retry,
    /// What was taken so many requests ago is refunded.
    GiveBack(usize),
    /// Limit and burst change to so many hundredths.
    Scale(u64),
}

fn scales() -> impl Strategy<Value = Scale> {
    let units = || {
        let awkward = prop_oneof![Just(7), Just(999_999_937)];
        prop_oneof![3 => Just(BILLION), 2 => 1..10_u64, 2 => 1..=BILLION, 1 => awkward]
    };
    let window = prop_oneof![
        3 => Just(YEAR),
        3 => Just(1_000),
        2 => 1_000..=YEAR,
        2 => 1_000..2_000_000_i64,
        1 => Just(YEAR - 1),
    ];
    let delay = prop_oneof![3 => Just(0), 1 => 0..1_000_000_u64, 1 => 0..=YEAR as u64];
    (any::<bool>(), units(), window, units(), delay, any::<bool>()).prop_map(
        |(is_gcra, limit, window, burst, delay, counts_denied)| {
            let delay = Duration::from_micros(delay);
            let algorithm =
                if is_gcra { Algorithm::Gcra { burst, delay } } else { Algorithm::SlidingCounter };
            Scale { algorithm, limit, window, counts_denied }
        },
    )
}

/// Time may go on, or also back.
fn steps(back: bool) -> impl Strategy<Value = Vec<Step>> {
    let off = || -1_i64..2;
    let least: i64 = if back { -1_100 } else { 0 };
    let forth = prop_oneof![
        3 => Just(0_i64),
        3 => 0..100_i64,
        3 => 0..1_000_i64,
        2 => Just(1_000),
        1 => Just(2_000),
        1 => 1_000..10_000_i64,
        1 => least..1_i64,
    ];
    let step = prop_oneof![
        4 => (0..4_u64).prop_map(Step::Few),
        6 => (0..1_100_u64, 0..3_u64).prop_map(|(part, more)| Step::Part(part, more)),
        3 => Just(Step::Part(1_000, 0)),
        3 => (forth, off()).prop_map(|(part, off)| Step::Pass(part, off)),
        3 => (0..4_u64, off()).prop_map(|(units, off)| Step::Drain(units, off)),
        3 => Just(Step::Retry),
        2 => (0..4_usize).prop_map(Step::GiveBack),
        1 => prop_oneof![Just(30_u64), Just(100), Just(200)].prop_map(Step::Scale),
    ];
    vec(step, 1..60)
}

fn cost(step: &Step, scale: &Scale) -> Option<u64> {
    match *step {
        Step::Few(cost) => Some(cost),
        Step::Part(thousandths, more) => Some(scale.burst() * thousandths / 1_000 + more),
        _ => None,
    }
}

/// When it is after a step that passes time.
fn later(step: &Step, scale: &Scale, now: i64, retry: Option<i64>) -> i64 {
    let later = match *step {
        Step::Pass(thousandths, off) => now + scale.window / 1_000 * thousandths + off,
        Step::Drain(units, off) => now + (scale.window as u64 * units).div_ceil(scale.limit) as i64 + off,
        Step::Retry => retry.unwrap_or(now),
        _ => now,
    };
    if later < END { later } else { now }
}

pub(crate) fn rates_agree_with_the_definition_at_any_scale<S: Subject>() {
    let config = ProptestConfig { cases: 256, failure_persistence: None, ..Default::default() };
    TestRunner::new(config)
        .run(&(scales(), steps(false)), |(scale, steps)| define::<S>(&scale, &steps))
        .unwrap_or_else(|error| panic!("{error}"));
}

fn define<S: Subject>(scale: &Scale, steps: &[Step]) -> Result<(), TestCaseError> {
    let harness = Harness::<S>::new();
    let policy = Policy { count_denied: false, ..scale.policy() };
    let tier = policy.tiers[0];
    let mut model = Model { algorithm: scale.algorithm, tiers: policy.tiers.clone(), admitted: Vec::new() };
    let (mut now, mut retry) = (START, None);
    for step in steps {
        now = later(step, scale, now, retry).max(now);
        let Some(cost) = cost(step, scale) else { continue };
        harness.clock.set(now);
        let verdict = harness.take(&policy, "ip:1", cost);
        prop_assert_eq!(verdict.admitted, model.admits(now, cost), "{} at {}", cost, now - START);
        if verdict.admitted {
            model.admitted.push((now, cost));
            prop_assert_eq!(verdict.delay, model.delay(&tier, now));
        } else if let Some(after) = verdict.retry_after.filter(|after| *after < END - now) {
            prop_assert!(!model.admits(now + after - 1, cost));
            prop_assert!(model.admits(now + after, cost));
            retry = Some(now + after);
        } else {
            prop_assert_eq!(verdict.retry_after.is_none(), cost > model.limit(&tier));
        }
        let used = model.used(&tier, now);
        prop_assert_eq!(harness.used(&policy, "ip:1"), used);
        prop_assert_eq!(verdict.remaining, model.limit(&tier).saturating_sub(used));
        if used > 0 {
            prop_assert_eq!(model.used(&tier, now + verdict.reset - 1), used);
            prop_assert!(model.used(&tier, now + verdict.reset) < used);
        }
    }
    prop_assert!(model.worst_case(&tier) <= model.bound(&tier));
    Ok(())
}

#[test]
fn memory_and_redis_say_the_same_at_any_scale() {
    let config = ProptestConfig { cases: 384, failure_persistence: None, ..Default::default() };
    TestRunner::new(config)
        .run(&(scales(), steps(true)), |(scale, steps)| compare(&scale, &steps))
        .unwrap_or_else(|error| panic!("{error}"));
}

fn compare(scale: &Scale, steps: &[Step]) -> Result<(), TestCaseError> {
    let (memory, redis) = (Harness::<Memory>::new(), Harness::<Shared>::new());
    let original = scale.policy();
    let mut policy = original.clone();
    let mut taken: Vec<(u64, Receipt)> = Vec::new();
    let (mut now, mut retry) = (START, None);
    for (number, step) in steps.iter().enumerate() {
        now = later(step, scale, now, retry);
        memory.clock.set(now);
        redis.clock.set(now);
        match step {
            // What is over may be gone, and must not matter again if time goes back or the rate falls.
            Step::GiveBack(ago) if memory.used(&policy, "ip:1") > 0 => {
                if let Some(index) = taken.len().checked_sub(ago + 1) {
                    let (cost, receipt) = taken.remove(index);
                    memory.refund(&[check(&policy, "ip:1", cost)], receipt);
                    redis.refund(&[check(&policy, "ip:1", cost)], receipt);
                }
            }
            Step::Scale(hundredths) => {
                let scaled = |units: u64| (units * hundredths / 100).clamp(1, BILLION);
                policy.tiers[0].limit = scaled(original.tiers[0].limit);
                if let (Kind::Gcra { burst, .. }, Kind::Gcra { burst: of, .. }) =
                    (&mut policy.kind, original.kind)
                {
                    *burst = scaled(of);
                }
            }
            _ => {}
        }
        if let Some(cost) = cost(step, scale) {
            let checks = [check(&policy, "ip:1", cost)];
            let decision = memory.decide(&checks);
            prop_assert_eq!(&redis.decide(&checks), &decision, "step {}", number);
            if decision.admitted {
                taken.push((cost, decision.receipt(0)));
            } else {
                retry = decision.verdicts[0].retry_after.and_then(|after| now.checked_add(after));
            }
        }
        prop_assert_eq!(redis.peek(&policy, "ip:1"), memory.peek(&policy, "ip:1"), "step {}", number);
    }
    Ok(())
}
