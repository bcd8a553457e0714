//! One case, replayed on one store.

use std::{collections::HashMap, time::Duration};

use tollgate::{
    config::model::Algorithm,
    limit::{
        Check, Policy, Receipt,
        algorithm::{Detail, Verdict},
    },
};

use super::{
    super::{Harness, Subject, policy},
    data::{Case, Limits, Name, Step},
    units::{Micros, Told},
};

pub(super) struct Replay<'a, S: Subject> {
    harness: Harness<S>,
    case: &'a Case,
    algorithm: Name,
    /// Of the step, from 0.
    number: usize,
    leases: HashMap<u128, Receipt>,
    differences: Vec<String>,
}

/// What ours differs in from what `case` tells.
pub(super) fn replay<S: Subject>(case: &Case, algorithm: Name) -> Vec<String> {
    let harness = Harness::<S>::new();
    let mut replay =
        Replay { harness, case, algorithm, number: 0, leases: HashMap::new(), differences: Vec::new() };
    for (number, step) in case.steps.iter().enumerate() {
        replay.number = number;
        replay.harness.at(step.at.0);
        let policies = replay.policies(step);
        if step.clear {
            replay.harness.reset(&policies, &step.key);
        } else if let Some(token) = step.release {
            replay.release(step, &policies, token);
        } else {
            replay.request(step, &policies);
        }
    }
    replay.differences
}

impl<S: Subject> Replay<'_, S> {
    /// Those that the step is held against.
    fn policies(&self, step: &Step) -> Vec<Policy> {
        let held = |name: &String| step.checks.is_empty() || step.checks.contains(name);
        let held = self.case.policies.iter().filter(|(name, _)| held(name));
        held.map(|(name, limits)| described(name, self.algorithm, &limits.with(&step.with))).collect()
    }

    fn request(&mut self, step: &Step, policies: &[Policy]) {
        let checks = checks(step, policies, step.lease);
        for time in 1..=step.times {
            let decision = self.harness.decide(&checks);
            if let Some(token) = step.lease {
                self.leases.insert(token, decision.receipt(0));
            }
            let Some(admitted) = step.admitted else { continue };
            self.compare("admitted", admitted, decision.admitted);
            if let ([verdict], true) = (decision.verdicts.as_slice(), time == step.times) {
                self.compare_verdict(step, admitted, *verdict);
                self.compare_full_after(step, &policies[0]);
            }
        }
    }

    fn release(&self, step: &Step, policies: &[Policy], token: u128) {
        let receipt = self.leases[&token];
        self.harness.refund(&checks(step, policies, Some(token)), receipt);
    }

    fn compare_verdict(&mut self, step: &Step, admitted: bool, ours: Verdict) {
        self.compare("check_admits", step.check_admits.unwrap_or(admitted), ours.admitted);
        self.compare("limit", step.limit.unwrap_or(ours.limit), ours.limit);
        self.compare("remaining", step.remaining.unwrap_or(ours.remaining), ours.remaining);
        self.compare_duration("reset", step.reset, Some(ours.reset));
        self.compare_duration("delay", step.delay, Some(ours.delay));
        let retry_after = if ours.admitted { Some(Told::Is(0)) } else { step.retry_after };
        self.compare_duration("retry_after", retry_after, ours.retry_after);
    }

    /// Nothing is used so much later, and a moment before that something still is. A look changes nothing.
    fn compare_full_after(&mut self, step: &Step, policy: &Policy) {
        let Some(full_after) = step.full_after else { return };
        let (unit, within) = self.tolerance();
        let full = step.at.0 + full_after.0;
        let used = |micros: i64| self.harness.at(micros).used(policy, &step.key);
        let (late, early) = (used(full + within), used(full - unit.max(within)));
        self.harness.at(step.at.0);
        self.compare("used when full", 0, late);
        if full_after.0 > 0 {
            self.compare("used before", true, early > 0);
        }
    }

    fn compare_duration(&mut self, what: &str, theirs: Option<Told>, ours: Option<i64>) {
        let (unit, within) = self.tolerance();
        if let Some(theirs) = theirs
            && !theirs.agrees(ours, unit, within)
        {
            self.differences.push(format!("step {}: {what}: theirs {theirs:?}, ours {ours:?}", self.number));
        }
    }

    fn compare<T: PartialEq + Copy + std::fmt::Debug>(&mut self, what: &str, theirs: T, ours: T) {
        if theirs != ours {
            self.differences.push(format!("step {}: {what}: theirs {theirs:?}, ours {ours:?}", self.number));
        }
    }

    /// The unit to which the source rounds up, and by how much it may be off, in microseconds.
    fn tolerance(&self) -> (i64, i64) {
        let micros = |of: Option<Micros>, default| of.map_or(default, |micros| micros.0);
        (micros(self.case.rounds_up_to, 1), micros(self.case.within, 0))
    }
}

fn checks<'a>(step: &Step, policies: &'a [Policy], token: Option<u128>) -> Vec<Check<'a>> {
    let detail = token.map_or(Detail::None, Detail::Member);
    let check = |policy| Check {
        policy,
        identifier: step.key.as_str().into(),
        cost: step.cost,
        detail: detail.clone(),
    };
    policies.iter().map(check).collect()
}

fn described(name: &str, algorithm: Name, limits: &Limits) -> Policy {
    let tiers: Vec<(u64, u64)> = limits
        .limits
        .iter()
        .flatten()
        .map(|rate| (rate.limit, u64::try_from(rate.window.0 / 1_000).unwrap()))
        .collect();
    let delay = limits.delay.map_or(0, |delay| u64::try_from(delay.0).unwrap());
    let algorithm = match algorithm {
        Name::SingleCounter => Algorithm::SingleCounter,
        Name::FixedWindow => Algorithm::FixedWindow,
        Name::SlidingWindow => Algorithm::SlidingWindow { buckets: limits.buckets.unwrap_or(10) },
        Name::SlidingLog => Algorithm::SlidingLog,
        Name::SlidingCounter => Algorithm::SlidingCounter,
        Name::Gcra => {
            Algorithm::Gcra { burst: limits.burst.unwrap_or(tiers[0].0), delay: Duration::from_micros(delay) }
        }
        Name::Concurrency => Algorithm::Concurrency,
    };
    let mut policy = policy(name, algorithm, &tiers);
    policy.is_shadow = limits.shadow.unwrap_or(false);
    policy.count_denied = limits.count_denied.unwrap_or(false);
    policy
}
