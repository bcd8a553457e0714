//! Costs that are settled, held against a model that counts by definition: what was taken and what is settled, below and
//! above the reservation, in each tier.

use std::{collections::BTreeMap, time::Duration};

use proptest::{collection::vec, prelude::*, test_runner::TestRunner};
use tollgate::{
    config::model::{
        Algorithm::{FixedWindow, Gcra, SingleCounter, SlidingCounter, SlidingWindow},
        CalendarUnit, Window,
    },
    limit::{
        Policy, Receipt,
        algorithm::{Kind, Tier},
    },
};

use super::{
    Harness, SECOND, Subject, calendar_policy,
    harness::{START, check},
    policy,
};

const BUCKETS: i64 = 4;

fn policies() -> Vec<Policy> {
    let horizons = [(30, 200), (60, SECOND), (80, 2 * SECOND)];
    let buckets = SlidingWindow { buckets: BUCKETS as u32 };
    vec![
        policy("single", SingleCounter, &[(40, SECOND)]),
        policy("fixed", FixedWindow, &[(50, SECOND)]),
        policy("tiers", FixedWindow, &horizons),
        policy("counter", SlidingCounter, &[(50, SECOND)]),
        policy("bucket", Gcra { burst: 50, delay: Duration::ZERO }, &[(70, 1_300)]),
        policy("window", buckets, &[(60, SECOND)]),
        policy("horizons", buckets, &horizons),
        // Limits of bytes may be as high.
        policy("large-fixed", FixedWindow, &[(1 << 50, SECOND), (1 << 51, 2 * SECOND)]),
        policy("large-single", SingleCounter, &[(1 << 50, SECOND)]),
    ]
}

/// What is used of one limit.
struct Model<'p> {
    policy: &'p Policy,
    /// Units by tier and time, in parts as long as [`Model::part`].
    parts: BTreeMap<(usize, i64), u64>,
    /// Of `single_counter`: when its window began, and its units.
    window: (i64, u64),
    /// Of `gcra`: its level at a time, in parts of a unit of which it has as many as the window has microseconds.
    level: (i64, i128),
}

impl<'p> Model<'p> {
    fn new(policy: &'p Policy) -> Self {
        Self { policy, parts: BTreeMap::new(), window: (0, 0), level: (0, 0) }
    }

    fn part(&self, tier: usize, time: i64) -> i64 {
        let window = self.policy.tiers[tier].window;
        match self.policy.kind {
            Kind::SlidingWindow { .. } => time.div_euclid(window / BUCKETS),
            _ => time.div_euclid(window),
        }
    }

    /// How many parts before that of now count.
    fn earlier(&self) -> i64 {
        match self.policy.kind {
            Kind::SlidingWindow { .. } => BUCKETS,
            Kind::SlidingCounter => 1,
            _ => 0,
        }
    }

    fn limit(&self, tier: usize) -> u64 {
        match self.policy.kind {
            Kind::Gcra { burst, .. } => burst,
            _ => self.policy.tiers[tier].limit,
        }
    }

    fn level(&self, now: i64) -> i128 {
        let Tier { limit, .. } = self.policy.tiers[0];
        (self.level.1 - i128::from(now - self.level.0) * i128::from(limit)).max(0)
    }

    /// Units, rounded up.
    fn used(&self, tier: usize, now: i64) -> u64 {
        let Tier { window, .. } = self.policy.tiers[tier];
        let ceil =
            |parts: i128| u64::try_from((parts + i128::from(window) - 1) / i128::from(window)).unwrap();
        let current = self.part(tier, now);
        let units = |part| self.parts.get(&(tier, part)).copied().unwrap_or_default();
        match self.policy.kind {
            Kind::SingleCounter => {
                if now < self.window.0 + window {
                    self.window.1
                } else {
                    0
                }
            }
            Kind::Gcra { .. } => ceil(self.level(now)),
            Kind::SlidingCounter => {
                let left = window - now.rem_euclid(window);
                units(current) + ceil(i128::from(units(current - 1)) * i128::from(left))
            }
            _ => (current - self.earlier()..=current).map(units).sum(),
        }
    }

    fn admits(&self, now: i64, cost: u64) -> bool {
        let Tier { window, .. } = self.policy.tiers[0];
        match self.policy.kind {
            Kind::Gcra { burst, .. } => {
                let scaled = |units: u64| i128::from(units) * i128::from(window);
                self.level(now) + scaled(cost) <= scaled(burst)
            }
            _ => (0..self.policy.tiers.len())
                .all(|tier| self.used(tier, now).saturating_add(cost) <= self.limit(tier)),
        }
    }

    fn charge(&mut self, now: i64, units: u64) {
        self.charge_each(now, |_| units);
    }

    /// Charges what a response costs beyond its reservation: of each tier, one limit at most.
    fn charge_excess(&mut self, now: i64, units: u64) {
        self.charge_each(now, |Tier { limit, .. }| units.min(limit));
    }

    fn charge_each(&mut self, now: i64, units_of: impl Fn(Tier) -> u64) {
        let Tier { window, .. } = self.policy.tiers[0];
        let units = units_of(self.policy.tiers[0]);
        if now >= self.window.0 + window || self.window.1 == 0 {
            self.window = (now, 0);
        }
        self.window.1 += units;
        self.level = (now, self.level(now) + i128::from(units) * i128::from(window));
        for tier in 0..self.policy.tiers.len() {
            *self.parts.entry((tier, self.part(tier, now))).or_default() += units_of(self.policy.tiers[tier]);
        }
    }

    /// Gives units back that were taken at `at`.
    fn refund(&mut self, now: i64, at: i64, units: u64) {
        let Tier { limit, window } = self.policy.tiers[0];
        let (start, used) = self.window;
        if now < start + window && (start..start + window).contains(&at) {
            self.window.1 = used.saturating_sub(units);
        }
        let drained = i128::from(now - at) * i128::from(limit);
        let left = (i128::from(units) * i128::from(window) - drained).max(0);
        self.level = (now, (self.level(now) - left).max(0));
        for tier in 0..self.policy.tiers.len() {
            let (oldest, part) = (self.part(tier, now) - self.earlier(), self.part(tier, at));
            if let Some(taken) = self.parts.get_mut(&(tier, part)).filter(|_| part >= oldest) {
                *taken = taken.saturating_sub(units);
            }
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// A reservation of a policy.
    Take(usize, u64),
    /// What was taken so many before the last costs this after all.
    Settle(usize, u64),
    Pass(i64),
    /// It is the next multiple of so many microseconds, give or take one.
    Align(i64, i64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let units = || {
        prop_oneof![
            8 => 0..60_u64,
            1 => 100..1_000_u64,
            1 => (1 << 32) - 1..(1 << 32) + 2_u64,
            1 => (1 << 40) - 1..(1 << 40) + 2_u64,
            1 => (1 << 49) - 1..(1 << 49) + 2_u64,
            1 => (1 << 50) - 1..(1 << 50) + 2_u64,
        ]
    };
    let step = prop_oneof![
        6 => (0..policies().len(), units()).prop_map(|(policy, cost)| Step::Take(policy, cost)),
        5 => (0..5_usize, units()).prop_map(|(ago, actual)| Step::Settle(ago, actual)),
        3 => (0..400_000_i64).prop_map(Step::Pass),
        2 => (prop_oneof![Just(50_000_i64), Just(200_000), Just(1_000_000)], -1..2_i64)
            .prop_map(|(unit, off)| Step::Align(unit, off)),
    ];
    vec(step, 1..80)
}

pub(crate) fn settlements_agree_with_the_definition<S: Subject>() {
    let policies = policies();
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 256, failure_persistence: None, ..Default::default() });
    runner.run(&steps(), |steps| replay::<S>(&policies, &steps)).unwrap_or_else(|error| panic!("{error}"));
}

/// A reservation that is not settled.
struct Taken {
    policy: usize,
    cost: u64,
    receipt: Receipt,
}

fn replay<S: Subject>(policies: &[Policy], steps: &[Step]) -> Result<(), TestCaseError> {
    let harness = Harness::<S>::new();
    let mut models: Vec<_> = policies.iter().map(Model::new).collect();
    let mut open: Vec<Taken> = Vec::new();
    let mut now = START;
    for step in steps {
        harness.clock.set(now);
        let changed = match *step {
            Step::Take(index, cost) => {
                let (policy, model) = (&policies[index], &mut models[index]);
                let decision = harness.decide(&[check(policy, "ip:1", cost)]);
                prop_assert_eq!(decision.admitted, model.admits(now, cost), "{} takes {}", policy.name, cost);
                let verdict = decision.verdicts[0];
                if decision.admitted {
                    model.charge(now, cost);
                    open.push(Taken { policy: index, cost, receipt: decision.receipt(0) });
                } else if let Some(retry_after) = verdict.retry_after {
                    prop_assert!(!model.admits(now + retry_after - 1, cost), "{} waits", policy.name);
                    prop_assert!(model.admits(now + retry_after, cost), "{} waits no longer", policy.name);
                }
                index
            }
            Step::Settle(ago, actual) => {
                let Some(nth) = open.len().checked_sub(ago + 1) else { continue };
                let Taken { policy: index, cost, receipt } = open.remove(nth);
                let (policy, model) = (&policies[index], &mut models[index]);
                // Redis counts exactly up to 2⁵³.
                let is_exact = model.used(policy.tiers.len() - 1, now) + actual < 1 << 53;
                let actual = if is_exact { actual } else { cost };
                harness.settle(&[check(policy, "ip:1", cost)], receipt, actual);
                match actual.checked_sub(cost) {
                    Some(more) => model.charge_excess(now, more),
                    None => model.refund(now, receipt.time, cost - actual),
                }
                index
            }
            Step::Pass(time) => {
                now += time;
                continue;
            }
            Step::Align(unit, off) => {
                now = now.max(now + unit - now.rem_euclid(unit) + off);
                continue;
            }
        };
        let (policy, model) = (&policies[changed], &models[changed]);
        let peek = harness.peek(policy, "ip:1");
        let (tier, verdict) = (peek.verdict.tier, peek.verdict);
        prop_assert_eq!(peek.used, model.used(tier, now), "{} after {:?}", policy.name, step);
        prop_assert_eq!(verdict.remaining, model.limit(tier).saturating_sub(peek.used), "{}", policy.name);
    }
    Ok(())
}

/// A response of more than the smallest limit counts in full where the limit is larger.
pub(crate) fn an_excess_is_one_limit_of_each_tier_at_most<S: Subject>() {
    let buckets = SlidingWindow { buckets: 10 };
    let tiers = [(2_000, 60 * SECOND), (60_000, 86_400 * SECOND)];
    let policies = [
        policy("window", buckets, &tiers),
        policy("fixed", FixedWindow, &tiers),
        calendar_policy(
            "calendar",
            "UTC",
            1,
            &[
                (2_000, Window::Length(Duration::from_secs(60))),
                (60_000, Window::Calendar(CalendarUnit::Day)),
            ],
        ),
    ];
    for policy in &policies {
        let harness = Harness::<S>::new();
        let checks = [check(policy, "ip:1", 1_000)];
        let receipt = harness.decide(&checks).receipt(0);
        harness.settle(&checks, receipt, 50_010);
        let wide = |tier: usize| {
            let mut wide = policy.clone();
            wide.tiers
                .iter_mut()
                .enumerate()
                .filter(|(other, _)| *other != tier)
                .for_each(|(_, tier)| tier.limit = 1 << 31);
            harness.used(&wide, "ip:1")
        };
        assert_eq!([wide(0), wide(1)], [3_000, 50_010], "{}", policy.name);
        harness.settle(&checks, receipt, 1 << 40);
        assert_eq!(wide(1), 110_010, "{}", policy.name);
    }
}
