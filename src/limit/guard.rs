//! A store that may be far away, and what stands before it: local denials, the breaker, and what holds while
//! the store can't be asked.

use std::{cell::RefCell, collections::HashMap, sync::Arc};

use smallvec::SmallVec;

use super::{
    Breaker, Check, Cleared, Clock, Decision, Fleet, Peek, Policy, PolicyId, Receipt, Source, Store,
    StoreAdmin, SystemClock, Unavailable,
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
    pub breaker: Arc<Breaker>,
    pub fleet: Arc<Fleet>,
    pub clock: SystemClock,
}

/// Policies and overrides with an instance's share of their limits, as many instances as there were when it was last
/// needed, and since limits were last taken back: a new configuration leaves none of an old one's behind.
#[derive(Debug, Default)]
struct Shares {
    instances: u32,
    pardons: u64,
    /// By what its share was made of.
    policies: HashMap<Basis, Arc<Policy>>,
}

/// What of a policy its share and the decisions by it depend on.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Basis {
    id: PolicyId,
    kind: Kind,
    tiers: SmallVec<[Tier; 2]>,
    lowest: u64,
    is_shadow: bool,
    count_denied: bool,
}

impl Basis {
    fn of(policy: &Policy) -> Self {
        let Policy { id, kind, lowest, is_shadow, count_denied, .. } = *policy;
        Self { id, kind, tiers: SmallVec::from_slice(&policy.tiers), lowest, is_shadow, count_denied }
    }
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

    /// As each policy says in `on_store_error`. `ask`: what is asked of the process' own store.
    async fn without_the_store(
        &self,
        checks: &[Check<'_>],
        unavailable: Unavailable,
        ask: impl AsyncFnOnce(&L, &[Check<'_>]) -> Result<Decision, Unavailable>,
    ) -> Result<Decision, Unavailable> {
        // A shadow policy denies nobody, with the store or without it.
        let denies = |policy: &Policy| policy.on_store_error == OnStoreError::Deny && !policy.is_shadow;
        if checks.iter().any(|check| denies(check.policy)) {
            return Err(unavailable);
        }
        let is_local = |check: &&Check<'_>| check.policy.on_store_error == OnStoreError::Local;
        let policies: SmallVec<[Arc<Policy>; 2]> =
            checks.iter().filter(is_local).map(|check| self.share(check.policy)).collect();
        let local: SmallVec<[Check<'_>; 2]> = checks
            .iter()
            .filter(is_local)
            .zip(&policies)
            .map(|(check, policy)| under(check, policy))
            .collect();
        let decision = ask(&self.local, &local).await?;
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

    /// What was forgotten `here` and `there`, once.
    fn pardoned(
        &self,
        here: Vec<Cleared>,
        there: Result<Vec<Cleared>, Unavailable>,
    ) -> Result<Vec<Cleared>, Unavailable> {
        // Now, not before: until the store has forgotten, it denies, and that would be remembered.
        self.common.fleet.pardon();
        let mut cleared = here;
        cleared.extend(there?);
        cleared.sort_by(|a, b| (&a.policy, &a.identifier).cmp(&(&b.policy, &b.identifier)));
        cleared.dedup();
        Ok(cleared)
    }

    /// A policy with this instance's share of its limits: together, instances admit what one would, but for
    /// the 1 that each admits at least.
    fn share(&self, policy: &Policy) -> Arc<Policy> {
        let (instances, pardons) = (self.common.fleet.instances(), self.common.fleet.pardons());
        let mut shares = self.shares.borrow_mut();
        if (shares.instances, shares.pardons) != (instances, pardons) {
            *shares = Shares { instances, pardons, policies: HashMap::new() };
        }
        let share = shares.policies.entry(Basis::of(policy)).or_insert_with(|| shared(policy, instances));
        Arc::clone(share)
    }
}

fn is_open() -> Unavailable {
    Unavailable("the breaker is open".to_owned())
}

/// The same check, held against `policy`: an instance's share of its own.
fn under<'a>(check: &Check<'_>, policy: &'a Policy) -> Check<'a> {
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
    let lowest = share(policy.lowest);
    Arc::new(Policy { kind, tiers, lowest, overrides: Vec::new(), ..policy.clone() })
}

impl<S: Store, L: Store> Store for Guard<S, L> {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Decision, Unavailable> {
        let asked = self.common.clock.now();
        if let Some(decision) = self.remembered(checks, asked) {
            return Ok(decision);
        }
        if self.common.breaker.is_open() {
            return self.without_the_store(checks, is_open(), L::decide).await;
        }
        let pardons = self.common.fleet.pardons();
        match self.store.decide(checks).await {
            Ok(decision) => {
                if !decision.admitted {
                    self.remember(checks, &decision, asked, pardons);
                }
                Ok(decision)
            }
            Err(unavailable) => self.without_the_store(checks, unavailable, L::decide).await,
        }
    }

    /// Of what workers remember of denials nothing is known here. It says what the store said to them.
    async fn look(&self, checks: &[Check<'_>]) -> Result<Decision, Unavailable> {
        if self.common.breaker.is_open() {
            return self.without_the_store(checks, is_open(), L::look).await;
        }
        match self.store.look(checks).await {
            Err(unavailable) => self.without_the_store(checks, unavailable, L::look).await,
            decided => decided,
        }
    }

    async fn refund(&self, checks: &[Check<'_>], receipt: Receipt) -> Result<(), Unavailable> {
        match receipt.source {
            Source::Store => self.store.refund(checks, receipt).await,
            Source::Fallback => {
                let policies: SmallVec<[Arc<Policy>; 2]> =
                    checks.iter().map(|check| self.share(check.policy)).collect();
                let local: SmallVec<[Check<'_>; 2]> =
                    checks.iter().zip(&policies).map(|(check, policy)| under(check, policy)).collect();
                self.local.refund(&local, receipt).await
            }
            // A denial has taken nothing, and of slices nothing is refunded.
            Source::LocalDenial | Source::Slice => Ok(()),
        }
    }
}

impl<S: StoreAdmin, L: StoreAdmin> StoreAdmin for Guard<S, L> {
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
        let here = self.local.reset(policies, identifier).await?;
        self.pardoned(here, self.store.reset(policies, identifier).await)
    }

    async fn clear(&self, policies: &[Policy], identifier: &str) -> Result<Vec<Cleared>, Unavailable> {
        let here = self.local.clear(policies, identifier).await?;
        self.pardoned(here, self.store.clear(policies, identifier).await)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        config::model::{self, Algorithm, Condition, KeyPart, KeyRecipe, Override, Rate},
        limit::{PolicyId, algorithm::Detail},
        store::memory::MemoryStore,
    };

    fn rate(limit: u64) -> Rate {
        Rate { limit, window: Duration::from_secs(60) }
    }

    fn policy(algorithm: Algorithm, limit: u64, others: u64) -> Policy {
        let condition = Condition::User("acme".to_owned());
        let other = Override { condition, tiers: vec![rate(others)], algorithm };
        let config = model::Policy {
            overrides: vec![other],
            ..model::Policy::new("p", algorithm, vec![KeyRecipe(vec![KeyPart::Ip])], vec![rate(limit)])
        };
        Policy::all([&config]).remove(0)
    }

    fn guard(instances: u32) -> Guard<MemoryStore, MemoryStore> {
        let store = || MemoryStore::new(100, Arc::new(SystemClock::new()));
        let common =
            Common { breaker: Arc::new(Breaker::new(1)), fleet: Arc::default(), clock: SystemClock::new() };
        common.fleet.set_instances(instances);
        Guard::new(store(), store(), common)
    }

    #[test]
    fn each_variant_has_its_own_share() {
        for algorithm in [
            Algorithm::FixedWindow,
            Algorithm::Concurrency,
            Algorithm::Distinct,
            Algorithm::Gcra { burst: 40, delay: Duration::ZERO },
        ] {
            let policy = policy(algorithm, 10, 100);
            let guard = guard(3);
            let limits: Vec<u64> =
                policy.variants().map(|variant| guard.share(variant).tiers[0].limit).collect();
            assert_eq!(limits, [3, 33], "{algorithm:?}");
            if let Kind::Gcra { burst, .. } = guard.share(&policy).kind {
                assert_eq!(burst, 13);
            }
            guard.common.fleet.set_instances(1_000);
            assert_eq!(guard.share(&policy).tiers[0].limit, 1, "there is always one");
        }
    }

    /// Runs what never waits: the stores here are memory.
    fn now<T>(future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        match future.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
            std::task::Poll::Ready(output) => output,
            std::task::Poll::Pending => unreachable!("memory never waits"),
        }
    }

    #[test]
    fn what_stands_in_for_the_store_takes_back_what_it_gave() {
        let policy = policy(Algorithm::Concurrency, 4, 8);
        let guard = guard(2);
        assert!(guard.common.breaker.failed(), "the store is away");
        let check = |token| Check {
            policy: &policy,
            identifier: "ip:1".into(),
            cost: 1,
            detail: Detail::Member(token),
        };
        let decide = |token| now(guard.decide(&[check(token)])).unwrap();
        assert_eq!([1, 2, 3].map(|token| decide(token).admitted), [true, true, false]);
        let taken = decide(1);
        assert_eq!((taken.admitted, taken.source), (true, Source::Fallback), "it is renewed");
        now(guard.refund(&[check(1)], taken.receipt())).unwrap();
        assert!(decide(3).admitted);
    }

    #[test]
    fn without_the_store_a_shadow_policy_that_would_deny_stands_in_nobody_s_way() {
        let watched = Policy {
            is_shadow: true,
            on_store_error: OnStoreError::Deny,
            ..policy(Algorithm::SingleCounter, 1, 9)
        };
        let real = Policy { is_shadow: false, id: PolicyId(9), ..watched.clone() };
        let guard = guard(1);
        assert!(guard.common.breaker.failed(), "the store is away");
        let check = |policy| Check { policy, identifier: "ip:1".into(), cost: 1, detail: Detail::None };
        for _ in 0..3 {
            let decision = now(guard.decide(&[check(&watched)])).unwrap();
            assert_eq!((decision.admitted, decision.source), (true, Source::Fallback));
        }
        assert!(now(guard.decide(&[check(&watched), check(&real)])).is_err(), "the other denies");
    }

    #[test]
    fn a_request_that_counts_its_denials_is_not_denied_from_memory() {
        let plain = policy(Algorithm::SingleCounter, 1, 9);
        let counting = Policy { count_denied: true, id: PolicyId(9), ..plain.clone() };
        let guard = guard(1);
        let check = |policy| Check { policy, identifier: "ip:1".into(), cost: 1, detail: Detail::None };
        let source = |checks: &[Check<'_>]| now(guard.decide(checks)).unwrap().source;
        assert_eq!(
            [(); 3].map(|()| source(&[check(&plain)])),
            [Source::Store, Source::Store, Source::LocalDenial]
        );
        assert_eq!(source(&[check(&plain), check(&counting)]), Source::Store);
    }

    #[test]
    fn an_instance_has_its_share_of_limit_and_burst_and_one_at_least() {
        let keys = vec![KeyRecipe(vec![KeyPart::Ip])];
        let tiers = vec![Rate { limit: 10, window: Duration::from_secs(1) }];
        let delay = Duration::from_micros(9);
        let config = model::Policy::new("p", Algorithm::Gcra { burst: 7, delay }, keys, tiers);
        let policy = Policy::new(&config, PolicyId(0));
        for (instances, limit, burst) in [(0, 10, 7), (1, 10, 7), (3, 3, 2), (100, 1, 1)] {
            let share = shared(&policy, instances);
            assert_eq!((share.tiers[0].limit, share.kind), (limit, Kind::Gcra { burst, delay: 9 }));
        }
    }
}
