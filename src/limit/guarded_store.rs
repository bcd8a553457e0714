//! The layer of a worker's store with local denials, and with the fallback while the shared store is away.

use std::{cell::RefCell, collections::HashMap, sync::Arc};

use smallvec::SmallVec;

use super::{
    Check, ClearedLimit, Clock, Decision, DecisionSource, Epoch, Instances, LimitUsage, Policy, PolicyId,
    SteadyClock, Store, StoreAdmin, Taken, Unavailable,
    algorithm::{Kind, Tier, Verdict, metadata_list::Entry},
    denials::{LocalDenials, MAX_AGE},
};
use crate::config::model::OnStoreError;

/// One worker's handle to a store `S` that instances share. `L`, the process's own store, replaces `S` while it is
/// away. The worker's actual type is `GuardedStore<SlicedStore<RedisStore>, Arc<MemoryStore>>`.
#[derive(Debug)]
pub struct GuardedStore<S, L, C = SteadyClock> {
    store: S,
    local: L,
    shared: GuardShared<C>,
    denials: RefCell<LocalDenials>,
    shares: RefCell<InstanceShares>,
}

/// How long a denial is cached if stores are sharded, in microseconds: units of another request, which denied this one,
/// may be refunded a moment later.
const MAX_AGE_SHARDED: i64 = 200_000;

/// The parts of a [`GuardedStore`] that all workers of a process share.
#[derive(Debug, Clone)]
pub struct GuardShared<C = SteadyClock> {
    pub instances: Arc<Instances>,
    pub clock: C,
}

/// A cache of policies and overrides with this instance's share of their limits. It is valid for one number of
/// instances and one epoch. A new configuration begins an epoch, so that no old share survives.
#[derive(Debug, Default)]
struct InstanceShares {
    count: u32,
    epoch: Epoch,
    /// By the part of the policy that the share was computed from.
    policies: HashMap<ShareKey, Arc<Policy>>,
}

/// The part of a policy that its share, and the decisions by that share, depend on.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ShareKey {
    id: PolicyId,
    kind: Kind,
    tiers: SmallVec<[Tier; 2]>,
    lowest_limit: u64,
    max_cost: u64,
    is_shadow: bool,
    count_denied: bool,
}

impl ShareKey {
    fn new(policy: &Policy) -> Self {
        let Policy { id, kind, lowest_limit, max_cost, is_shadow, count_denied, .. } = *policy;
        let tiers = SmallVec::from_slice(&policy.tiers);
        Self { id, kind, tiers, lowest_limit, max_cost, is_shadow, count_denied }
    }
}

impl<S: Store, L: Store, C: Clock> GuardedStore<S, L, C> {
    /// Guards `store`. `local` decides while it is away.
    pub fn new(store: S, local: L, shared: GuardShared<C>) -> Self {
        let max_age = if store.is_sharded() { MAX_AGE_SHARDED } else { MAX_AGE };
        let denials = RefCell::new(LocalDenials::new(max_age));
        Self { store, local, shared, denials, shares: RefCell::default() }
    }

    /// A denial from the cache, if one of the checks was denied a moment ago. The other checks are not decided.
    fn local_denial(&self, checks: &[Check<'_>], now: i64) -> Option<Decision> {
        // A policy that counts denied requests must reach the store each time.
        if checks.iter().any(|check| check.policy.count_denied && !check.policy.is_shadow) {
            return None;
        }
        let mut denials = self.denials.borrow_mut();
        let epoch = self.shared.instances.epoch();
        let verdicts: SmallVec<[Verdict; 2]> =
            checks.iter().map(|check| denials.find(check, epoch, now).unwrap_or(Verdict::UNKNOWN)).collect();
        let denied = verdicts.iter().any(|verdict| !verdict.admitted);
        denied.then_some(Decision {
            admitted: false,
            source: DecisionSource::LocalDenial,
            time: now,
            verdicts,
            parts: None,
        })
    }

    fn remember_denials(&self, checks: &[Check<'_>], decision: &Decision, asked: i64, epoch: Epoch) {
        let mut denials = self.denials.borrow_mut();
        let times = (asked, self.shared.clock.now());
        for (check, verdict) in checks.iter().zip(&decision.verdicts).filter(|(_, verdict)| !verdict.admitted)
        {
            // The store decided checks of one limit by the sum of their costs.
            let same = checks
                .iter()
                .filter(|other| other.policy.id == check.policy.id && other.identifier == check.identifier);
            let cost = same.fold(0_u64, |sum, other| sum.saturating_add(other.cost));
            denials.insert(check, cost, *verdict, times, epoch);
        }
    }

    /// Decides by each policy's `on_store_error`. `ask`: the call to the process's own store.
    async fn fall_back(
        &self,
        checks: &[Check<'_>],
        unavailable: Unavailable,
        ask: impl AsyncFnOnce(&L, &[Check<'_>]) -> Result<Decision, Unavailable>,
    ) -> Result<Decision, Unavailable> {
        let is_local = |check: &&Check<'_>| check.policy.on_store_error == OnStoreError::Local;
        let policies: SmallVec<[Arc<Policy>; 2]> =
            checks.iter().filter(is_local).map(|check| self.instance_share(check.policy)).collect();
        let local: SmallVec<[Check<'_>; 2]> = checks
            .iter()
            .filter(is_local)
            .zip(&policies)
            .map(|(check, policy)| with_policy(check, policy))
            .collect();
        let decision = if checks.iter().any(|check| check.policy.fails_without_store()) {
            // The request takes nothing. It fails, unless a limit is known to deny it.
            let decision = self.local.look(&local).await?;
            if decision.admitted {
                return Err(unavailable);
            }
            decision
        } else {
            ask(&self.local, &local).await?
        };
        let mut decided = decision.verdicts.into_iter();
        let verdicts = checks.iter().map(|check| match is_local(&check) {
            true => decided.next().unwrap_or(Verdict::UNKNOWN),
            false => Verdict::UNKNOWN,
        });
        Ok(Decision {
            admitted: decision.admitted,
            source: DecisionSource::Fallback,
            time: decision.time,
            verdicts: verdicts.collect(),
            parts: None,
        })
    }

    /// Begins a new epoch. Returns the limits cleared `here` and `there`, without duplicates.
    fn invalidate_after(
        &self,
        here: Vec<ClearedLimit>,
        there: Result<Vec<ClearedLimit>, Unavailable>,
    ) -> Result<Vec<ClearedLimit>, Unavailable> {
        // After the store has cleared the limits, not before: until then it denies, and the denial would be cached.
        self.shared.instances.invalidate();
        let mut cleared = here;
        match there {
            Ok(there) => cleared.extend(there),
            Err(unavailable) if cleared.is_empty() => return Err(unavailable),
            Err(unavailable) => return Err(Unavailable::ClearedHere(Box::new((cleared, unavailable)))),
        }
        cleared.sort_by(|a, b| (&a.policy, &a.identifier).cmp(&(&b.policy, &b.identifier)));
        cleared.dedup();
        Ok(cleared)
    }

    /// The policy with this instance's share of its limits. All instances together admit as much as one would, except
    /// that each admits at least one request.
    fn instance_share(&self, policy: &Policy) -> Arc<Policy> {
        let (count, epoch) = (self.shared.instances.sharing(), self.shared.instances.epoch());
        let mut shares = self.shares.borrow_mut();
        if (shares.count, shares.epoch) != (count, epoch) {
            *shares = InstanceShares { count, epoch, policies: HashMap::new() };
        }
        let share = shares.policies.entry(ShareKey::new(policy)).or_insert_with(|| with_share(policy, count));
        Arc::clone(share)
    }
}

/// The same check with `policy`, an instance's share of its own. A reservation is never more than that.
fn with_policy<'a>(check: &Check<'_>, policy: &'a Policy) -> Check<'a> {
    let (identifier, detail) = (check.identifier.clone(), check.detail.clone());
    let cost = match check.policy.cost.of_response() {
        Some(_) => check.cost.min(policy.most_admissible()),
        None => check.cost,
    };
    Check { policy, identifier, cost, detail }
}

/// The policy with its limits divided by the number of instances, each at least the highest cost of a request, which
/// would be denied until the store is back otherwise. A `gcra` burst is divided, too, and so are the limits of
/// `distinct` and `concurrency`.
fn with_share(policy: &Policy, instances: u32) -> Arc<Policy> {
    let share = |limit: u64| (limit / u64::from(instances.max(1))).max(policy.max_cost.min(limit)).max(1);
    let tiers = policy.tiers.iter().map(|tier| Tier { limit: share(tier.limit), ..*tier }).collect();
    let kind = match policy.kind {
        Kind::Gcra { burst, delay } => Kind::Gcra { burst: share(burst), delay },
        other => other,
    };
    let lowest_limit = share(policy.lowest_limit);
    Arc::new(Policy { kind, tiers, lowest_limit, overrides: Vec::new(), ..policy.clone() })
}

impl<S: Store, L: Store, C: Clock> Store for GuardedStore<S, L, C> {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Decision, Unavailable> {
        let asked = self.shared.clock.now();
        if let Some(decision) = self.local_denial(checks, asked) {
            return Ok(decision);
        }
        let epoch = self.shared.instances.epoch();
        match self.store.decide(checks).await {
            Ok(decision) => {
                if !decision.admitted {
                    self.remember_denials(checks, &decision, asked, epoch);
                }
                Ok(decision)
            }
            Err(Unavailable::Moving) if checks.len() > 1 => Err(Unavailable::Moving),
            Err(unavailable) => self.fall_back(checks, unavailable, L::decide).await,
        }
    }

    /// Ignores the workers' cached denials: returns the decision of the store itself.
    async fn look(&self, checks: &[Check<'_>]) -> Result<Decision, Unavailable> {
        match self.store.look(checks).await {
            Err(Unavailable::Moving) if checks.len() > 1 => Err(Unavailable::Moving),
            Err(unavailable) => self.fall_back(checks, unavailable, L::look).await,
            decided => decided,
        }
    }

    async fn settle(&self, taken: &[Taken<'_>]) -> Result<(), Unavailable> {
        // Decisions of one request may be from both, if its checks were decided apart.
        let is_local = |taken: &&Taken<'_>| taken.receipt.source == DecisionSource::Fallback;
        if taken.iter().any(|taken| is_local(&taken)) {
            let local: SmallVec<[&Taken<'_>; 2]> = taken.iter().filter(is_local).collect();
            let policies: SmallVec<[Arc<Policy>; 2]> =
                local.iter().map(|taken| self.instance_share(taken.check.policy)).collect();
            let local: SmallVec<[Taken<'_>; 2]> = local
                .iter()
                .zip(&policies)
                .map(|(taken, policy)| Taken {
                    check: with_policy(&taken.check, policy),
                    ..Taken::clone(taken)
                })
                .collect();
            self.local.settle(&local).await?;
        }
        // A local denial took nothing.
        let is_shared =
            |taken: &Taken<'_>| matches!(taken.receipt.source, DecisionSource::Store | DecisionSource::Slice);
        if taken.iter().all(is_shared) {
            return self.store.settle(taken).await;
        }
        let shared: SmallVec<[Taken<'_>; 2]> =
            taken.iter().filter(|taken| is_shared(taken)).cloned().collect();
        if shared.is_empty() { Ok(()) } else { self.store.settle(&shared).await }
    }

    fn shard(&self, check: &Check<'_>) -> u32 {
        self.store.shard(check)
    }

    fn is_sharded(&self) -> bool {
        self.store.is_sharded()
    }

    fn known_denial(&self, checks: &[Check<'_>]) -> Option<Decision> {
        self.local_denial(checks, self.shared.clock.now())
    }
}

impl<S: StoreAdmin, L: StoreAdmin, C: Clock> StoreAdmin for GuardedStore<S, L, C> {
    async fn peek(&self, policy: &Policy, identifier: &str) -> Result<LimitUsage, Unavailable> {
        if let Ok(peek) = self.store.peek(policy, identifier).await {
            return Ok(peek);
        }
        self.local.peek(&self.instance_share(policy), identifier).await
    }

    async fn entries(&self, policy: &Policy, identifier: &str) -> Result<Vec<Arc<Entry>>, Unavailable> {
        if let Ok(entries) = self.store.entries(policy, identifier).await {
            return Ok(entries);
        }
        self.local.entries(policy, identifier).await
    }

    async fn reset(&self, policies: &[Policy], identifier: &str) -> Result<Vec<ClearedLimit>, Unavailable> {
        let here = self.local.reset(policies, identifier).await?;
        self.invalidate_after(here, self.store.reset(policies, identifier).await)
    }

    async fn clear(&self, policies: &[Policy], identifier: &str) -> Result<Vec<ClearedLimit>, Unavailable> {
        let here = self.local.clear(policies, identifier).await?;
        self.invalidate_after(here, self.store.clear(policies, identifier).await)
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, time::Duration};

    use super::*;
    use crate::{
        config::model::{self, Algorithm, Condition, Cost, KeyPart, KeyRecipe, Override, Rate},
        limit::{PolicyId, PolicyIds, algorithm::Detail},
        store::memory::MemoryStore,
        telemetry,
    };

    fn rate(limit: u64) -> Rate {
        Rate { limit, window: Duration::from_secs(60) }
    }

    fn policy(algorithm: Algorithm, limit: u64, others: u64) -> Policy {
        Policy::all([&of_two(algorithm, limit, others)]).remove(0)
    }

    /// With a limit, and an override with one of `others`.
    fn of_two(algorithm: Algorithm, limit: u64, others: u64) -> model::Policy {
        let condition = Condition::User("acme".to_owned());
        let other = Override { condition, tiers: vec![rate(others).into()], algorithm };
        model::Policy {
            overrides: vec![other],
            ..model::Policy::new("p", algorithm, vec![KeyRecipe(vec![KeyPart::Ip])], vec![rate(limit)])
        }
    }

    /// A store that can be away.
    struct Switched {
        store: MemoryStore,
        is_away: Cell<bool>,
    }

    impl Switched {
        fn check(&self) -> Result<&MemoryStore, Unavailable> {
            if self.is_away.get() { Err(Unavailable::BreakerOpen) } else { Ok(&self.store) }
        }
    }

    impl Store for Switched {
        async fn decide(&self, checks: &[Check<'_>]) -> Result<Decision, Unavailable> {
            self.check()?.decide(checks).await
        }

        async fn look(&self, checks: &[Check<'_>]) -> Result<Decision, Unavailable> {
            self.check()?.look(checks).await
        }

        async fn settle(&self, taken: &[Taken<'_>]) -> Result<(), Unavailable> {
            self.check()?.settle(taken).await
        }
    }

    fn guard(instances: u32) -> GuardedStore<Switched, MemoryStore> {
        let store = || MemoryStore::new(100, Arc::new(SteadyClock::new()));
        let shared = GuardShared { instances: Arc::default(), clock: SteadyClock::new() };
        shared.instances.set_count(instances, instances);
        GuardedStore::new(Switched { store: store(), is_away: Cell::new(false) }, store(), shared)
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
                policy.variants().map(|variant| guard.instance_share(variant).tiers[0].limit).collect();
            assert_eq!(limits, [3, 33], "{algorithm:?}");
            if let Kind::Gcra { burst, .. } = guard.instance_share(&policy).kind {
                assert_eq!(burst, 13);
            }
            guard.shared.instances.set_count(1_000, 1_000);
            assert_eq!(guard.instance_share(&policy).tiers[0].limit, 1, "there is always one");
        }
    }

    #[test]
    fn a_share_admits_a_request_whatever_it_costs() {
        let share = |cost, prices: &[Option<u64>]| {
            let mut config = telemetry::testing::config();
            let priced = |&price: &Option<u64>| model::Route {
                policies: vec![model::RoutePolicy { policy: 0, price }],
                ..config.routes[0].clone()
            };
            config.routes = prices.iter().map(priced).collect();
            config.policies =
                vec![Arc::new(model::Policy { cost, ..of_two(Algorithm::FixedWindow, 100, 30) })];
            let policy = PolicyIds::default().of_config(&config).remove(0);
            let guard = guard(40);
            let limit = |variant| guard.instance_share(variant).tiers[0].limit;
            policy.variants().map(limit).collect::<Vec<_>>()
        };
        let by_header = |max| Cost::Header { name: http::HeaderName::from_static("x-cost"), default: 1, max };
        for prices in [&[][..], &[None]] {
            assert_eq!(share(Cost::Fixed(1), prices), [2, 1]);
            assert_eq!(share(Cost::Fixed(5), prices), [5, 5]);
            assert_eq!(share(by_header(50), prices), [50, 30], "never more than the limit itself");
        }
        assert_eq!(share(Cost::Fixed(1), &[None, Some(20), Some(3)]), [20, 20], "the dearest route");
        assert_eq!(share(Cost::Fixed(5), &[Some(4)]), [4, 4], "no request pays the policy's own cost");
        assert_eq!(share(Cost::Fixed(5), &[Some(4), None]), [5, 5]);
        assert_eq!(share(by_header(50), &[Some(4)]), [4, 4]);
    }

    /// Runs a future that never waits: the stores here are in memory.
    fn now<T>(future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        match future.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
            std::task::Poll::Ready(output) => output,
            std::task::Poll::Pending => unreachable!("memory never waits"),
        }
    }

    #[test]
    fn the_fallback_takes_back_the_leases_that_it_gave() {
        let policy = policy(Algorithm::Concurrency, 4, 8);
        let guard = guard(2);
        guard.store.is_away.set(true);
        let check = |token| Check {
            policy: &policy,
            identifier: "ip:1".into(),
            cost: 1,
            detail: Detail::Member(token),
        };
        let decide = |token| now(guard.decide(&[check(token)])).unwrap();
        assert_eq!([1, 2, 3].map(|token| decide(token).admitted), [true, true, false]);
        let taken = decide(1);
        assert_eq!((taken.admitted, taken.source), (true, DecisionSource::Fallback), "it is renewed");
        now(guard.settle(&Taken::all(&[check(1)], taken.receipt(0)))).unwrap();
        assert!(decide(3).admitted);
    }

    #[test]
    fn without_the_store_a_shadow_policy_that_would_deny_never_denies() {
        let watched = Policy {
            is_shadow: true,
            on_store_error: OnStoreError::Deny,
            ..policy(Algorithm::SingleCounter, 1, 9)
        };
        let real = Policy { is_shadow: false, id: PolicyId(9), ..watched.clone() };
        let guard = guard(1);
        guard.store.is_away.set(true);
        let check = |policy| Check { policy, identifier: "ip:1".into(), cost: 1, detail: Detail::None };
        for _ in 0..3 {
            let decision = now(guard.decide(&[check(&watched)])).unwrap();
            assert_eq!((decision.admitted, decision.source), (true, DecisionSource::Fallback));
        }
        assert!(now(guard.decide(&[check(&watched), check(&real)])).is_err(), "the other denies");
    }

    #[test]
    fn without_the_store_a_denial_goes_before_a_failure() {
        let local = policy(Algorithm::SingleCounter, 1, 9);
        let closed = Policy { on_store_error: OnStoreError::Deny, id: PolicyId(9), ..local.clone() };
        let guard = guard(1);
        guard.store.is_away.set(true);
        let check = |policy| Check { policy, identifier: "ip:1".into(), cost: 1, detail: Detail::None };
        let both = [check(&closed), check(&local)];
        assert_eq!(now(guard.decide(&both)), Err(Unavailable::BreakerOpen));
        assert!(now(guard.decide(&both[1..])).unwrap().admitted, "nothing was taken");
        for decision in [now(guard.decide(&both)), now(guard.look(&both))] {
            let decision = decision.unwrap();
            assert_eq!((decision.admitted, decision.source), (false, DecisionSource::Fallback));
            assert_eq!(decision.verdicts[0], Verdict::UNKNOWN);
            assert!(!decision.verdicts[1].admitted);
        }
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
            [DecisionSource::Store, DecisionSource::Store, DecisionSource::LocalDenial]
        );
        assert_eq!(source(&[check(&plain), check(&counting)]), DecisionSource::Store);
    }

    #[test]
    fn an_instance_has_its_share_of_limit_and_burst_and_one_at_least() {
        let keys = vec![KeyRecipe(vec![KeyPart::Ip])];
        let tiers = vec![Rate { limit: 10, window: Duration::from_secs(1) }];
        let delay = Duration::from_micros(9);
        let config = model::Policy::new("p", Algorithm::Gcra { burst: 7, delay }, keys, tiers);
        let policy = Policy::new(&config, PolicyId(0));
        for (instances, limit, burst) in [(0, 10, 7), (1, 10, 7), (3, 3, 2), (100, 1, 1)] {
            let share = with_share(&policy, instances);
            assert_eq!((share.tiers[0].limit, share.kind), (limit, Kind::Gcra { burst, delay: 9 }));
        }
    }
}
