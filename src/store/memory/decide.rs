//! The two-phase decision: read all limits of a request, then write all of them or none.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
};

use parking_lot::MutexGuard;
use smallvec::{SmallVec, smallvec};

use super::{
    MemoryStore,
    budget::ByteBudget,
    shard::{Now, StoreShard},
    slots::LimitName,
};
use crate::limit::{
    Check, Decision, DecisionSource, Receipt, Taken,
    algorithm::{LimitState, Verdict},
};

/// A check between the two phases: read, and not yet written.
struct PendingCheck<'a> {
    check: &'a Check<'a>,
    name: LimitName<'a>,
    /// The index of the limit's shard among the locked ones.
    lock: usize,
    /// Units of all checks of the request on this limit.
    cost: u64,
    /// Whether an earlier check of the request is on the same limit and writes it.
    is_repeated: bool,
    /// The index of the limit's slot in its shard, if it has one.
    found: Option<usize>,
    verdict: Verdict,
}

impl PendingCheck<'_> {
    /// Whether it denies and is enforced: then the request is denied.
    fn denies_request(&self) -> bool {
        !self.verdict.admitted && !self.check.policy.is_shadow
    }

    /// Takes the units of an admitting check of an admitted request.
    fn write(&self, shard: &mut StoreShard, now: Now) {
        if self.cost > 0 && !self.is_repeated && self.verdict.admitted {
            shard.write(&self.name, self.found, self.check, now, self.cost, &self.verdict);
        }
    }

    /// For a denied request: takes nothing and sets the verdict to the limit's current status. If the check denies and
    /// its policy has `count_denied`, counts it first.
    fn settle_denied(&mut self, shard: &mut StoreShard, now: Now) {
        let policy = self.check.policy;
        if self.verdict.admitted {
            self.verdict = read(shard, shard.state(&self.name, self.found), self.check, now, 0);
        } else if policy.count_denied
            && !policy.is_shadow
            && self.cost > 0
            && self.verdict.retry_after.is_some()
        {
            if !self.is_repeated {
                shard.count_denied(&self.name, self.found, policy, now, self.cost);
            }
            self.verdict = read(shard, shard.state(&self.name, self.found), self.check, now, self.cost);
            shard.protect(&self.name, self.found, policy, now, &self.verdict);
        } else if self.verdict.remaining == 0 {
            shard.protect(&self.name, self.found, policy, now, &self.verdict);
        }
    }
}

impl MemoryStore {
    /// [`Store::decide`](crate::limit::Store::decide) without waiting.
    ///
    /// Checks of one request on the same limit are decided as one, with the sum of their costs.
    pub fn decide_now(&self, checks: &[Check<'_>]) -> Decision {
        match checks {
            [check] => self.decide_one(check),
            _ => self.decide_many(checks),
        }
    }

    /// The same for one check, the most frequent case: without lists it takes two thirds of the time.
    fn decide_one(&self, check: &Check<'_>) -> Decision {
        let now = self.now([check.policy]);
        let name = self.name(check.policy.id, &check.identifier);
        let mut shard = self.shards[self.shard_of(&name)].lock();
        let found = shard.find(&name);
        let verdict = read(&shard, found.map(|slot| shard.state_at(slot)), check, now, check.cost);
        let mut pending =
            PendingCheck { check, name, lock: 0, cost: check.cost, is_repeated: false, found, verdict };
        let admitted = !pending.denies_request();
        if admitted {
            pending.write(&mut shard, now);
        } else {
            pending.settle_denied(&mut shard, now);
        }
        let time = now.of(check.policy);
        let parts =
            if admitted { receipts(&[&*shard], std::slice::from_ref(&pending), now, time) } else { None };
        Decision {
            admitted,
            source: DecisionSource::Store,
            time,
            verdicts: smallvec![pending.verdict],
            parts,
        }
    }

    fn decide_many(&self, checks: &[Check<'_>]) -> Decision {
        let now = self.now(checks.iter().map(|check| check.policy));
        let names: SmallVec<[LimitName<'_>; 2]> =
            checks.iter().map(|check| self.name(check.policy.id, &check.identifier)).collect();
        let order = self.shards_of(&names);
        let mut locks: SmallVec<[MutexGuard<'_, StoreShard>; 2]> =
            order.iter().map(|&shard| self.shards[shard].lock()).collect();
        let lock = |name: &LimitName<'_>| {
            let shard = self.shard_of(name);
            order.iter().position(|&locked| locked == shard).unwrap_or_default()
        };
        decide(&mut locks, lock, checks, &names, now)
    }

    /// [`Store::look`](crate::limit::Store::look) without waiting: decides over a copy of these limits.
    pub fn look_now(&self, checks: &[Check<'_>]) -> Decision {
        let now = self.now(checks.iter().map(|check| check.policy));
        let names: SmallVec<[LimitName<'_>; 2]> =
            checks.iter().map(|check| self.name(check.policy.id, &check.identifier)).collect();
        // Without a bound, so that copying evicts nothing.
        let mut copy = StoreShard::new(usize::MAX, Arc::new(ByteBudget::new(self.budget.max())));
        {
            let order = self.shards_of(&names);
            let locks: SmallVec<[MutexGuard<'_, StoreShard>; 2]> =
                order.iter().map(|&shard| self.shards[shard].lock()).collect();
            for name in &names {
                let of = order.iter().position(|&shard| shard == self.shard_of(name));
                if let Some(shard) = of.and_then(|at| locks.get(at)) {
                    copy.copy_slot(shard, name);
                }
            }
        }
        decide(&mut [&mut copy], |_| 0, checks, &names, now)
    }

    /// [`Store::settle`](crate::limit::Store::settle) without waiting.
    pub fn settle_now(&self, taken: &[Taken<'_>]) {
        let now = self.now(taken.iter().map(|taken| taken.check.policy));
        for Taken { check, receipt, actual } in taken {
            let name = self.name(check.policy.id, &check.identifier);
            let mut shard = self.shards[self.shard_of(&name)].lock();
            match check.cost.checked_sub(*actual) {
                Some(rest) => shard.refund(&name, check, rest, now, receipt.time),
                None => shard.charge(&name, check, actual - check.cost, now),
            }
        }
    }

    /// The shards of these limits, each once, in the order in which they are locked.
    fn shards_of(&self, names: &[LimitName<'_>]) -> SmallVec<[usize; 4]> {
        let mut shards: SmallVec<[usize; 4]> = names.iter().map(|name| self.shard_of(name)).collect();
        shards.sort_unstable();
        shards.dedup();
        shards
    }
}

/// Decides over limits in these shards. `shard_index` returns the index of a limit's shard.
fn decide<S: DerefMut<Target = StoreShard>>(
    shards: &mut [S],
    shard_index: impl Fn(&LimitName<'_>) -> usize,
    checks: &[Check<'_>],
    names: &[LimitName<'_>],
    now: Now,
) -> Decision {
    let mut pending_checks: SmallVec<[PendingCheck<'_>; 2]> = SmallVec::with_capacity(checks.len());
    for (i, check) in checks.iter().enumerate() {
        let lock = shard_index(&names[i]);
        let found = shards[lock].find(&names[i]);
        let (cost, is_repeated) = combined_cost(names, checks, i);
        let state = found.map(|slot| shards[lock].state_at(slot));
        let verdict = read(&shards[lock], state, check, now, cost);
        pending_checks.push(PendingCheck { check, name: names[i], lock, cost, is_repeated, found, verdict });
    }

    let admitted = !pending_checks.iter().any(PendingCheck::denies_request);
    for pending in &mut pending_checks {
        let shard = &mut shards[pending.lock];
        if admitted {
            pending.write(shard, now);
        } else {
            pending.settle_denied(shard, now);
        }
    }
    let time = checks.first().map_or(now.steady, |check| now.of(check.policy));
    let parts = if admitted { receipts(shards, &pending_checks, now, time) } else { None };
    let verdicts = pending_checks.into_iter().map(|pending| pending.verdict).collect();
    Decision { admitted, source: DecisionSource::Store, time, verdicts, parts }
}

/// The receipts of an admitted request, if they differ from the `time` of the decision: checks go by several clocks, or a
/// clock was set back since units of these limits were taken.
fn receipts<S: Deref<Target = StoreShard>>(
    shards: &[S],
    checks: &[PendingCheck<'_>],
    now: Now,
    time: i64,
) -> Option<Box<[Receipt]>> {
    let is_apart = |pending: &PendingCheck<'_>| {
        let own = now.of(pending.check.policy);
        own < shards[pending.lock].latest.of(pending.check.policy)
            || own != time && pending.check.policy.may_refund()
    };
    if !checks.iter().any(is_apart) {
        return None;
    }
    let taken_at = |pending: &PendingCheck<'_>| match pending.verdict.admitted && pending.cost > 0 {
        true => {
            shards[pending.lock].taken_at(&pending.name, pending.check.policy, now.of(pending.check.policy))
        }
        false => time,
    };
    let receipt = |pending| Receipt { source: DecisionSource::Store, time: taken_at(pending) };
    let receipts: SmallVec<[Receipt; 2]> = checks.iter().map(receipt).collect();
    let is_later = receipts.iter().any(|receipt| receipt.time != time);
    is_later.then(|| receipts.into_vec().into_boxed_slice())
}

/// The units of all checks on the limit of check `i`, and whether one of them comes before it.
fn combined_cost(names: &[LimitName<'_>], checks: &[Check<'_>], i: usize) -> (u64, bool) {
    let mut cost = checks[i].cost;
    let mut is_repeated = false;
    for (j, name) in names.iter().enumerate() {
        if j != i && name.is_same_limit(&names[i]) {
            cost = cost.saturating_add(checks[j].cost);
            is_repeated |= j < i;
        }
    }
    (cost, is_repeated)
}

fn read(shard: &StoreShard, state: Option<&LimitState>, check: &Check<'_>, now: Now, cost: u64) -> Verdict {
    let time = now.of(check.policy);
    shard.with_rule(check.policy, time, |rule| match state {
        Some(state) => state.read(rule, time, cost, &check.detail),
        None => LimitState::new(rule.kind).read(rule, time, cost, &check.detail),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        config::model::{self, Algorithm},
        limit::{
            ManualClock, Policy, PolicyId,
            algorithm::{Detail, Member},
        },
    };

    /// A policy of `limit` units per minute.
    fn policy(id: u32, algorithm: Algorithm, limit: u64) -> Policy {
        let keys = vec![model::KeyRecipe(vec![model::KeyPart::Ip])];
        let tiers = vec![model::Rate { limit, window: Duration::from_secs(60) }];
        let config = model::Policy::new("p", algorithm, keys, tiers);
        Policy::new(&config, PolicyId(id))
    }

    fn policies(limit: u64) -> [Policy; 9] {
        let algorithms = [
            Algorithm::SingleCounter,
            Algorithm::FixedWindow,
            Algorithm::MetadataList,
            Algorithm::SlidingWindow { buckets: 10 },
            Algorithm::SlidingLog,
            Algorithm::SlidingCounter,
            Algorithm::Gcra { burst: limit, delay: Duration::ZERO },
            Algorithm::Concurrency,
            Algorithm::Distinct,
        ];
        let mut id = 0;
        algorithms.map(|algorithm| {
            id += 1;
            policy(id, algorithm, limit)
        })
    }

    /// A check with a member that takes the whole limit.
    fn entering<'a>(policy: &'a Policy, identifier: &str, member: Member) -> Check<'a> {
        Check { cost: policy.tiers[0].limit, detail: Detail::Member(member), ..check(policy, identifier) }
    }

    fn check<'a>(policy: &'a Policy, identifier: &str) -> Check<'a> {
        Check { policy, identifier: identifier.into(), cost: 1, detail: Detail::None }
    }

    fn dump(store: &MemoryStore) -> String {
        store.shards.iter().map(|shard| format!("{:?}", shard.lock())).collect()
    }

    #[test]
    fn a_denial_leaves_every_byte_of_every_shard() {
        let (tight, wide) = (policies(2), policies(9));
        let clock = Arc::new(ManualClock::new(0));
        let store = MemoryStore::new(1_000, Arc::clone(&clock) as _);
        for policy in &tight {
            let mut members = 0..;
            let mut enter = |member| store.decide_now(&[entering(policy, "ip:1", member)]).admitted;
            while members.next().is_some_and(&mut enter) {}
        }
        for policy in &wide {
            store.decide_now(&[check(policy, "user:a")]);
        }
        for time in [0, 1_000_000, 59_999_999] {
            clock.set(time);
            let before = dump(&store);
            for tight in &tight {
                let mut checks: Vec<_> = wide.iter().map(|policy| check(policy, "user:a")).collect();
                checks.push(check(&wide[0], "user:new"));
                checks.insert(2, entering(tight, "ip:1", 99));
                assert!(!store.decide_now(&checks).admitted);
            }
            assert_eq!(dump(&store), before);
        }
    }

    #[test]
    fn a_denial_that_becomes_protected_mixes_no_verdicts_up() {
        // One shard, so that protecting one limit moves the other.
        let store = MemoryStore::new(64, Arc::new(ManualClock::new(0)));
        let (generous, strict) = (policy(1, Algorithm::SlidingLog, 9), policy(1, Algorithm::SlidingLog, 2));
        let wide = policy(2, Algorithm::FixedWindow, 7);
        store.decide_now(&[check(&wide, "ip:1")]);
        for _ in 0..3 {
            store.decide_now(&[check(&generous, "ip:1")]);
        }
        let decision = store.decide_now(&[check(&strict, "ip:1"), check(&wide, "ip:1")]);
        let seen: Vec<_> =
            decision.verdicts.iter().map(|verdict| (verdict.limit, verdict.remaining)).collect();
        assert_eq!(seen, [(2, 0), (7, 6)]);
    }

    #[test]
    fn a_lock_that_is_held_outlives_a_flood() {
        let clock = Arc::new(ManualClock::new(0));
        let store = MemoryStore::new(64, Arc::clone(&clock) as _);
        let (lock, other) = (policy(1, Algorithm::Concurrency, 1), policy(2, Algorithm::SingleCounter, 9));
        let enter = |token| {
            store.decide_now(&[Check { detail: Detail::Member(token), ..check(&lock, "ip:1") }]).admitted
        };
        assert!(enter(1) && !enter(2));
        // After the retry_after of the denied request.
        clock.set(2_000_000);
        for i in 0..1_000 {
            store.decide_now(&[check(&other, &format!("ip:{i}"))]);
        }
        assert!(!enter(2), "it is held for a minute");
        assert!(enter(1));
    }
}
