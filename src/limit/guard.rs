//! A store that may be far away, and what stands before it: local denials, the breaker, and what holds while
//! the store can't be asked.

use std::{cell::RefCell, sync::Arc};

use smallvec::SmallVec;

use super::{
    Breaker, Check, Cleared, Clock, Decision, Fleet, Peek, Policy, Receipt, Source, Store, SystemClock,
    Unavailable,
    algorithm::{Kind, Tier, Verdict, metadata_list::Entry},
    denials::Denials,
};
use crate::config::model::OnStoreError;

/// One worker's way to a store `S` that instances share, and to `L`, the process' own, which stands in
/// while it is away.
#[derive(Debug)]
pub struct Guard<S, L> {
    store: S,
    local: L,
    common: Common,
    denials: RefCell<Denials>,
    shares: RefCell<Shares>,
}

/// What all workers of a process share.
#[derive(Debug, Clone)]
pub struct Common {
    /// Those whose checks are decided, by their IDs.
    pub policies: Arc<[Policy]>,
    pub breaker: Arc<Breaker>,
    pub fleet: Arc<Fleet>,
    pub clock: SystemClock,
}

/// The policies and their overrides with an instance's share of their limits, as many as there were when it was last
/// needed.
#[derive(Debug, Default)]
struct Shares {
    instances: u32,
    /// One each of [`Common::policies`]' variants, in their order.
    policies: Vec<Arc<Policy>>,
}

impl<S: Store, L: Store> Guard<S, L> {
    /// Stands before `store`, with `local` for when it is away.
    pub fn new(store: S, local: L, common: Common) -> Self {
        Self { store, local, common, denials: RefCell::default(), shares: RefCell::default() }
    }

    /// What is remembered of the checks, if one of them was denied a moment ago: the others are not held
    /// against their limits.
    fn remembered(&self, checks: &[Check<'_>], now: i64) -> Option<Decision> {
        // Whoever counts what he denies has to be asked each time.
        if checks.iter().any(|check| check.policy.count_denied && !check.policy.is_shadow) {
            return None;
        }
        let mut denials = self.denials.borrow_mut();
        let pardons = self.common.fleet.pardons();
        let verdicts: SmallVec<[Verdict; 2]> = checks
            .iter()
            .map(|check| denials.find(check, pardons, now).unwrap_or(Verdict::UNKNOWN))
            .collect();
        let denied = verdicts.iter().any(|verdict| !verdict.admitted);
        denied.then_some(Decision { admitted: false, source: Source::LocalDenial, time: now, verdicts })
    }

    fn remember(&self, checks: &[Check<'_>], decision: &Decision, asked: i64, pardons: u64) {
        let mut denials = self.denials.borrow_mut();
        for (check, verdict) in checks.iter().zip(&decision.verdicts).filter(|(_, verdict)| !verdict.admitted)
        {
            // Checks of one limit were held against the sum of their costs.
            let same = checks
                .iter()
                .filter(|other| other.policy.id == check.policy.id && other.identifier == check.identifier);
            let cost = same.fold(0_u64, |sum, other| sum.saturating_add(other.cost));
            denials.note(check, cost, *verdict, asked, pardons);
        }
    }

    /// As each policy says in `on_store_error`.
    async fn without_the_store(
        &self,
        checks: &[Check<'_>],
        unavailable: Unavailable,
    ) -> Result<Decision, Unavailable> {
        if checks.iter().any(|check| check.policy.on_store_error == OnStoreError::Deny) {
            return Err(unavailable);
        }
        let is_local = |check: &&Check<'_>| check.policy.on_store_error == OnStoreError::Local;
        let policies: SmallVec<[Arc<Policy>; 2]> =
            checks.iter().filter(is_local).map(|check| self.share(check.policy)).collect();
        let local: SmallVec<[Check<'_>; 2]> =
            checks.iter().filter(is_local).zip(&policies).map(|(check, policy)| of(check, policy)).collect();
        let decision = self.local.decide(&local).await?;
        let mut decided = decision.verdicts.into_iter();
        let verdicts = checks.iter().map(|check| match is_local(&check) {
            true => decided.next().unwrap_or(Verdict::UNKNOWN),
            false => Verdict::UNKNOWN,
        });
        Ok(Decision {
            admitted: decision.admitted,
            source: Source::Fallback,
            time: decision.time,
            verdicts: verdicts.collect(),
        })
    }

    /// A policy with this instance's share of its limits: together, instances admit what one would, but for
    /// the 1 that each admits at least.
    fn share(&self, policy: &Policy) -> Arc<Policy> {
        let instances = self.common.fleet.instances();
        let mut shares = self.shares.borrow_mut();
        let variants = || self.common.policies.iter().flat_map(Policy::variants);
        if shares.instances != instances {
            let policies = variants().map(|policy| shared(policy, instances)).collect();
            *shares = Shares { instances, policies };
        }
        let is_same = |known: &Policy| {
            known.id == policy.id && known.kind == policy.kind && known.tiers == policy.tiers
        };
        let known = variants().zip(&shares.policies).find(|(known, _)| is_same(known));
        known.map_or_else(|| shared(policy, instances), |(_, share)| Arc::clone(share))
    }
}

/// The same check under another policy, which has the same limit.
fn of<'a>(check: &Check<'_>, policy: &'a Policy) -> Check<'a> {
    let (identifier, detail) = (check.identifier.clone(), check.detail.clone());
    Check { policy, identifier, cost: check.cost, detail }
}

/// What passes at once is shared out as what passes in a window is. How many values or requests at a time are one
/// instance's to know: it admits its share of them.
fn shared(policy: &Policy, instances: u32) -> Arc<Policy> {
    let share = |limit: u64| (limit / u64::from(instances.max(1))).max(1);
    let tiers = policy.tiers.iter().map(|tier| Tier { limit: share(tier.limit), ..*tier }).collect();
    let kind = match policy.kind {
        Kind::Gcra { burst, delay } => Kind::Gcra { burst: share(burst), delay },
        other => other,
    };
    Arc::new(Policy { kind, tiers, overrides: Vec::new(), ..policy.clone() })
}

impl<S: Store, L: Store> Store for Guard<S, L> {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Decision, Unavailable> {
        let asked = self.common.clock.now();
        if let Some(decision) = self.remembered(checks, asked) {
            return Ok(decision);
        }
        if self.common.breaker.is_open() {
            return self.without_the_store(checks, Unavailable("the breaker is open".to_owned())).await;
        }
        let pardons = self.common.fleet.pardons();
        match self.store.decide(checks).await {
            Ok(decision) => {
                if !decision.admitted {
                    self.remember(checks, &decision, asked, pardons);
                }
                Ok(decision)
            }
            Err(unavailable) => self.without_the_store(checks, unavailable).await,
        }
    }

    async fn give_back(&self, checks: &[Check<'_>], receipt: Receipt) -> Result<(), Unavailable> {
        match receipt.source {
            Source::Store => self.store.give_back(checks, receipt).await,
            Source::Fallback => {
                let policies: SmallVec<[Arc<Policy>; 2]> =
                    checks.iter().map(|check| self.share(check.policy)).collect();
                let local: SmallVec<[Check<'_>; 2]> =
                    checks.iter().zip(&policies).map(|(check, policy)| of(check, policy)).collect();
                self.local.give_back(&local, receipt).await
            }
            // A denial has taken nothing, and of slices nothing is given back.
            Source::LocalDenial | Source::Slice => Ok(()),
        }
    }

    async fn peek(&self, policy: &Policy, identifier: &str) -> Result<Peek, Unavailable> {
        if !self.common.breaker.is_open()
            && let Ok(peek) = self.store.peek(policy, identifier).await
        {
            return Ok(peek);
        }
        self.local.peek(&self.share(policy), identifier).await
    }

    async fn entries(&self, policy: &Policy, identifier: &str) -> Result<Vec<Arc<Entry>>, Unavailable> {
        if !self.common.breaker.is_open()
            && let Ok(entries) = self.store.entries(policy, identifier).await
        {
            return Ok(entries);
        }
        self.local.entries(policy, identifier).await
    }

    async fn reset(&self, policies: &[Policy], identifier: &str) -> Result<Vec<Cleared>, Unavailable> {
        let mut cleared = self.local.reset(policies, identifier).await?;
        let there = self.store.reset(policies, identifier).await;
        // Now, not before: until the store has forgotten, it denies, and that would be remembered.
        self.common.fleet.pardon();
        cleared.extend(there?);
        cleared.sort_by(|a, b| (&a.policy, &a.identifier).cmp(&(&b.policy, &b.identifier)));
        cleared.dedup();
        Ok(cleared)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        config::model::{self, Algorithm},
        limit::PolicyId,
    };

    #[test]
    fn an_instance_has_its_share_of_limit_and_burst_and_one_at_least() {
        let keys = vec![model::KeyRecipe(vec![model::KeyPart::Ip])];
        let tiers = vec![model::Rate { limit: 10, window: Duration::from_secs(1) }];
        let delay = Duration::from_micros(9);
        let config = model::Policy::new("p", Algorithm::Gcra { burst: 7, delay }, keys, tiers);
        let policy = Policy::new(&config, PolicyId(0));
        for (instances, limit, burst) in [(0, 10, 7), (1, 10, 7), (3, 3, 2), (100, 1, 1)] {
            let share = shared(&policy, instances);
            assert_eq!((share.tiers[0].limit, share.kind), (limit, Kind::Gcra { burst, delay: 9 }));
        }
    }
}
