//! Local denials: a worker's cache of recent denials, so that a flood does not reach the store.

use std::collections::VecDeque;

use compact_str::CompactString;
use indexmap::{Equivalent, IndexMap};
use smallvec::SmallVec;

use super::{
    Check, Epoch, Policy, PolicyId,
    algorithm::{Kind, Member, Tier, Verdict},
};

/// How long a denial is cached at most, in microseconds. Bounds the effect of a lost invalidation message.
pub(super) const MAX_AGE: i64 = 1_000_000;
/// Most cached denials. A new one replaces the oldest.
const MAX_DENIALS: usize = 10_000;

/// The denials of the last second. Belongs to one worker.
#[derive(Debug)]
pub(super) struct LocalDenials {
    /// How long a denial is cached at most, in microseconds.
    max_age: i64,
    by_limit: IndexMap<DeniedLimit, LocalDenial, foldhash::fast::RandomState>,
    /// When each was inserted, oldest first. A denial that was inserted twice is listed twice.
    insertions: VecDeque<(i64, DeniedLimit)>,
    /// The epoch in which they were inserted.
    epoch: Epoch,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct DeniedLimit {
    policy: PolicyId,
    identifier: CompactString,
    /// `distinct`: the value that was denied. Another value may be admitted.
    member: Member,
    /// The denied units. Fewer may be admitted, and more may have to wait longer: the store decides over them.
    cost: u64,
}

#[derive(PartialEq, Eq, Hash)]
struct DeniedLimitRef<'a> {
    policy: PolicyId,
    identifier: &'a str,
    member: Member,
    cost: u64,
}

impl<'a> DeniedLimitRef<'a> {
    fn new(check: &'a Check<'_>, cost: u64) -> Self {
        let member = match check.policy.kind {
            Kind::Distinct => check.detail.member(),
            _ => 0,
        };
        Self { policy: check.policy.id, identifier: &check.identifier, member, cost }
    }
}

impl Equivalent<DeniedLimit> for DeniedLimitRef<'_> {
    fn equivalent(&self, limit: &DeniedLimit) -> bool {
        self.policy == limit.policy
            && self.identifier == limit.identifier
            && self.member == limit.member
            && self.cost == limit.cost
    }
}

#[derive(Debug)]
struct LocalDenial {
    verdict: Verdict,
    /// The rule of the denial: an override has the same identifiers as its policy, and other limits.
    kind: Kind,
    tiers: SmallVec<[Tier; 1]>,
    /// When the store's decision arrived, in microseconds. The store decided earlier, so times that count from here
    /// never end too early.
    decided: i64,
    /// When the store must decide again.
    until: i64,
}

impl LocalDenials {
    /// `max_age`: how long a denial is cached at most, in microseconds; [`MAX_AGE`] or less.
    pub(super) fn new(max_age: i64) -> Self {
        let (by_limit, insertions) = (IndexMap::default(), VecDeque::new());
        Self { max_age, by_limit, insertions, epoch: Epoch::default() }
    }

    /// The cached denial of `check`, as the store would return it at the time `now`. `epoch`: see
    /// [`Instances::epoch`](super::Instances::epoch).
    pub(super) fn find(&mut self, check: &Check<'_>, epoch: Epoch, now: i64) -> Option<Verdict> {
        if self.by_limit.is_empty() {
            return None;
        }
        if self.epoch != epoch {
            self.clear();
            return None;
        }
        if !is_cacheable(check.policy) {
            return None;
        }
        let denial = self.by_limit.get(&DeniedLimitRef::new(check, check.cost))?;
        if denial.kind != check.policy.kind || *denial.tiers != *check.policy.tiers {
            return None;
        }
        if now >= denial.until || now < denial.decided {
            return None;
        }
        let passed = now - denial.decided;
        Some(Verdict {
            reset: (denial.verdict.reset - passed).max(0),
            retry_after: denial.verdict.retry_after.map(|after| (after - passed).max(0)),
            ..denial.verdict
        })
    }

    /// Caches the store's `verdict`, which denied `cost` units of a check's limit. The times are those of the call of
    /// the store and of its return.
    pub(super) fn insert(
        &mut self,
        check: &Check<'_>,
        cost: u64,
        verdict: Verdict,
        (asked, decided): (i64, i64),
        epoch: Epoch,
    ) {
        if !is_cacheable(check.policy) {
            return;
        }
        if self.epoch != epoch {
            self.clear();
            self.epoch = epoch;
        }
        self.expire(decided);
        // An invalidation may have been sent, and lost, since the store was called.
        let latest = asked.saturating_add(self.max_age);
        let until = verdict.retry_after.map_or(latest, |after| decided.saturating_add(after).min(latest));
        let DeniedLimitRef { policy, member, .. } = DeniedLimitRef::new(check, cost);
        let limit = DeniedLimit { policy, identifier: check.identifier.clone(), member, cost };
        let (kind, tiers) = (check.policy.kind, SmallVec::from_slice(&check.policy.tiers));
        let denial = LocalDenial { verdict, kind, tiers, decided, until };
        self.insertions.push_back((decided, limit.clone()));
        self.by_limit.insert(limit, denial);
    }

    /// Removes old denials, and makes room for one more.
    fn expire(&mut self, now: i64) {
        while let Some((inserted, limit)) = self.insertions.front() {
            if self.insertions.len() < MAX_DENIALS && inserted.saturating_add(MAX_AGE) > now {
                break;
            }
            if self.by_limit.get(limit).is_some_and(|denial| denial.decided == *inserted) {
                self.by_limit.swap_remove(limit);
            }
            self.insertions.pop_front();
        }
    }

    fn clear(&mut self) {
        self.by_limit.clear();
        self.insertions.clear();
    }
}

/// Whether denials by this policy may be cached. False if units may be refunded at any time, if each denied request
/// must be counted, if a request may be delayed instead, or if the policy is a shadow.
fn is_cacheable(policy: &Policy) -> bool {
    let waits = matches!(policy.kind, Kind::Gcra { delay: 1.., .. });
    !policy.is_shadow && !policy.may_refund() && !policy.count_denied && !waits
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        config::model,
        limit::{Policy, algorithm::Detail},
    };

    fn policy() -> Policy {
        let keys = vec![model::KeyRecipe(vec![model::KeyPart::Ip])];
        let tiers = vec![model::Rate { limit: 5, window: Duration::from_secs(60) }];
        let config = model::Policy::new("login", model::Algorithm::SingleCounter, keys, tiers);
        Policy::new(&config, PolicyId(7))
    }

    fn check<'a>(policy: &'a Policy, identifier: &str, cost: u64) -> Check<'a> {
        Check { policy, identifier: identifier.into(), cost, detail: Detail::None }
    }

    fn denied(retry_after: Option<i64>) -> Verdict {
        Verdict {
            admitted: false,
            tier: 0,
            limit: 5,
            remaining: 1,
            reset: 3_000_000,
            retry_after,
            delay: 0,
            renews: false,
        }
    }

    #[test]
    fn a_denial_holds_for_the_same_limit_and_as_much_until_its_time() {
        let policy = policy();
        let other = Policy { id: PolicyId(8), ..policy.clone() };
        let mut denials = LocalDenials::new(MAX_AGE);
        denials.insert(&check(&policy, "ip:1", 2), 2, denied(Some(400_000)), (500, 1_000), Epoch(0));

        let found = denials.find(&check(&policy, "ip:1", 2), Epoch(0), 101_000).unwrap();
        assert_eq!((found.admitted, found.remaining), (false, 1));
        assert_eq!((found.reset, found.retry_after), (2_900_000, Some(300_000)));

        for (what, check, now) in [
            ("less", check(&policy, "ip:1", 1), 1_000),
            ("more, which may have to wait longer", check(&policy, "ip:1", 3), 1_000),
            ("another identifier", check(&policy, "ip:10", 2), 1_000),
            ("another policy", check(&other, "ip:1", 2), 1_000),
            ("the time has come", check(&policy, "ip:1", 2), 401_000),
            ("before it was decided", check(&policy, "ip:1", 2), 999),
        ] {
            assert_eq!(denials.find(&check, Epoch(0), now), None, "{what}");
        }
        assert!(denials.find(&check(&policy, "ip:1", 2), Epoch(0), 400_999).is_some());
    }

    #[test]
    fn denials_of_several_costs_are_kept_beside_each_other() {
        let policy = policy();
        let mut denials = LocalDenials::new(MAX_AGE);
        for (cost, after) in [(2, 300_000), (5, 900_000)] {
            denials.insert(
                &check(&policy, "ip:1", cost),
                cost,
                denied(Some(after)),
                (0, cost as i64),
                Epoch(0),
            );
        }
        let waits = |denials: &mut LocalDenials, cost| {
            denials.find(&check(&policy, "ip:1", cost), Epoch(0), 5).and_then(|found| found.retry_after)
        };
        assert_eq!(
            [1, 2, 3, 5, 6].map(|cost| waits(&mut denials, cost)),
            [None, Some(299_997), None, Some(900_000), None]
        );
    }

    #[test]
    fn a_denial_ends_no_earlier_than_its_limit_frees_whenever_the_store_decided() {
        let policy = policy();
        let (asked, decided, after) = (10_000, 60_000, 400_000);
        let mut denials = LocalDenials::new(MAX_AGE);
        let times = (asked, decided);
        denials.insert(&check(&policy, "ip:1", 1), 1, denied(Some(after)), times, Epoch(0));
        for now in [decided, decided + 1, decided + after - 1] {
            let found = denials.find(&check(&policy, "ip:1", 1), Epoch(0), now).unwrap();
            // The store may have decided as late as it returned.
            assert_eq!(now + found.retry_after.unwrap(), decided + after, "at {now}");
        }
        assert!(denials.find(&check(&policy, "ip:1", 1), Epoch(0), decided + after).is_none());
        denials.insert(&check(&policy, "ip:1", 1), 1, denied(Some(60 * MAX_AGE)), times, Epoch(0));
        assert!(denials.find(&check(&policy, "ip:1", 1), Epoch(0), asked + MAX_AGE - 1).is_some());
        assert!(denials.find(&check(&policy, "ip:1", 1), Epoch(0), asked + MAX_AGE).is_none());
    }

    #[test]
    fn no_denial_holds_for_longer_than_a_second() {
        let policy = policy();
        for retry_after in [None, Some(60_000_000)] {
            let mut denials = LocalDenials::new(MAX_AGE);
            denials.insert(&check(&policy, "ip:1", 1), 1, denied(retry_after), (0, 0), Epoch(0));
            assert!(denials.find(&check(&policy, "ip:1", 1), Epoch(0), 999_999).is_some());
            assert!(denials.find(&check(&policy, "ip:1", 1), Epoch(0), 1_000_000).is_none());
        }
    }

    #[test]
    fn an_invalidation_clears_them_all() {
        let policy = policy();
        let mut denials = LocalDenials::new(MAX_AGE);
        denials.insert(&check(&policy, "ip:1", 1), 1, denied(None), (0, 0), Epoch(0));
        assert!(denials.find(&check(&policy, "ip:1", 1), Epoch(1), 1).is_none());
        assert!(denials.find(&check(&policy, "ip:1", 1), Epoch(1), 1).is_none(), "for good");
        denials.insert(&check(&policy, "ip:1", 1), 1, denied(None), (2, 2), Epoch(2));
        assert!(denials.find(&check(&policy, "ip:1", 1), Epoch(2), 3).is_some());
    }

    #[test]
    fn however_many_addresses_there_are_memory_is_bounded() {
        let policy = policy();
        let mut denials = LocalDenials::new(MAX_AGE);
        for i in 0..3 * MAX_DENIALS as i64 {
            denials.insert(&check(&policy, &format!("ip:{i}"), 1), 1, denied(None), (i, i), Epoch(0));
        }
        assert!(denials.by_limit.len() <= MAX_DENIALS && denials.insertions.len() <= MAX_DENIALS);
        denials.insert(&check(&policy, "ip:1", 1), 1, denied(None), (10_000_000, 10_000_000), Epoch(0));
        assert_eq!((denials.by_limit.len(), denials.insertions.len()), (1, 1), "the old ones are forgotten");
    }

    #[test]
    fn denials_that_may_end_at_any_time_are_not_remembered() {
        let plain = policy();
        let gcra = |delay| Policy { kind: Kind::Gcra { burst: 5, delay }, ..plain.clone() };
        let statuses = model::Statuses(vec![401..=401]);
        let counted = model::CountedResponses { statuses, grpc_statuses: Vec::new() };
        for (what, policy, remembered) in [
            ("a plain one", plain.clone(), true),
            ("no delay", gcra(0), true),
            ("delay", gcra(1), false),
            ("shadow", Policy { is_shadow: true, ..plain.clone() }, false),
            ("count", Policy { count: Some(counted), ..plain.clone() }, false),
            ("count_denied", Policy { count_denied: true, ..plain.clone() }, false),
            ("concurrency", Policy { kind: Kind::Concurrency, ..plain.clone() }, false),
        ] {
            let mut denials = LocalDenials::new(MAX_AGE);
            denials.insert(&check(&policy, "ip:1", 1), 1, denied(None), (0, 0), Epoch(0));
            assert_eq!(denials.find(&check(&policy, "ip:1", 1), Epoch(0), 1).is_some(), remembered, "{what}");
            // Nor is a check denied by the denial of another check on the same limit.
            denials.insert(&check(&plain, "ip:1", 1), 1, denied(None), (0, 0), Epoch(0));
            let same = policy.kind == plain.kind && remembered;
            assert_eq!(denials.find(&check(&policy, "ip:1", 1), Epoch(0), 1).is_some(), same, "{what}");
        }
    }

    #[test]
    fn a_denial_holds_for_the_same_limits_only() {
        let policy = policy();
        let generous = Policy { tiers: vec![Tier { limit: 50, window: 60_000_000 }], ..policy.clone() };
        let mut denials = LocalDenials::new(MAX_AGE);
        denials.insert(&check(&policy, "ip:1", 1), 1, denied(None), (0, 0), Epoch(0));
        assert_eq!(denials.find(&check(&generous, "ip:1", 1), Epoch(0), 1), None);
        assert!(denials.find(&check(&policy, "ip:1", 1), Epoch(0), 1).is_some());
    }

    #[test]
    fn a_denied_value_says_nothing_of_others() {
        let policy = Policy { kind: Kind::Distinct, ..policy() };
        let of = |member| Check { detail: Detail::Member(member), ..check(&policy, "ip:1", 1) };
        let mut denials = LocalDenials::new(MAX_AGE);
        denials.insert(&of(21), 1, denied(None), (0, 0), Epoch(0));
        assert!(denials.find(&of(21), Epoch(0), 1).is_some());
        assert_eq!(denials.find(&of(20), Epoch(0), 1), None);
    }
}
