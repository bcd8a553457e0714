//! The outer layer of a worker's store: splits a request whose limits are on several nodes of a cluster.
//!
//! No call decides atomically over limits of several nodes. So the checks are decided shard by shard, each atomically.
//! If one shard denies, the units of the others are refunded. Until then other requests see too many units as taken,
//! never too few: a cluster may deny too much for the length of a round trip, and never admits too much. A denial is
//! valid even if other shards are away.
//!
//! A flood from one address must not use up the limits of the users that it names. So the client's address is decided
//! first, and the other shards only if it is admitted, all at once. While the address is far from its limits, all
//! shards are called at once.

use std::{cell::RefCell, sync::Arc, time::Instant};

use futures_util::future::join_all;
use smallvec::SmallVec;

use super::{
    Check, ClearedLimit, Decision, DecisionSource, LimitUsage, Policy, Receipt, Store, StoreAdmin, Taken,
    Unavailable,
    address_room::AddressRoom,
    algorithm::{Verdict, metadata_list::Entry},
};

/// The prefix of identifiers by the client's address.
const ADDRESS: &str = "ip:";

/// Wraps a store that decides together over checks of one shard only. If there is only one shard, it adds nothing.
#[derive(Debug)]
pub struct ShardedStore<S> {
    store: S,
    room: RefCell<AddressRoom>,
}

/// The indices of checks that are decided together.
type Group = SmallVec<[usize; 2]>;

/// The result of one shard.
struct ShardResult {
    group: Group,
    result: Result<Decision, Unavailable>,
}

impl ShardResult {
    fn is_admitted(&self) -> bool {
        self.result.as_ref().is_ok_and(|decision| decision.admitted)
    }

    fn is_denied(&self) -> bool {
        self.result.as_ref().is_ok_and(|decision| !decision.admitted)
    }
}

impl<S: Store> ShardedStore<S> {
    /// Wraps `store`.
    pub fn new(store: S) -> Self {
        Self { store, room: RefCell::new(AddressRoom::new()) }
    }

    async fn decide_apart(&self, checks: &[Check<'_>]) -> Result<Decision, Unavailable> {
        if let Some(denial) = self.store.known_denial(checks) {
            return Ok(denial);
        }
        let groups = self.groups(checks);
        if groups.len() == 1 {
            match self.store.decide(checks).await {
                Err(Unavailable::Moving) => {}
                result => return result,
            }
        }
        let parts = self.decide_groups(checks, groups).await;
        self.merge(checks, parts).await
    }

    /// The checks by shard, the client's address first.
    fn groups(&self, checks: &[Check<'_>]) -> SmallVec<[Group; 2]> {
        let mut groups: SmallVec<[(u32, Group); 2]> = SmallVec::new();
        for (index, check) in checks.iter().enumerate() {
            let shard = self.store.shard(check);
            match groups.iter_mut().find(|(known, _)| *known == shard) {
                Some((_, group)) => group.push(index),
                None => groups.push((shard, Group::from_slice(&[index]))),
            }
        }
        let has_address = |group: &Group| group.iter().any(|&index| is_by_address(&checks[index]));
        if let Some(first) = groups.iter().position(|(_, group)| has_address(group)) {
            groups.swap(0, first);
        }
        groups.into_iter().map(|(_, group)| group).collect()
    }

    /// Decides over groups of checks, until one denies.
    async fn decide_groups(&self, checks: &[Check<'_>], groups: SmallVec<[Group; 2]>) -> Vec<ShardResult> {
        let mut parts = Vec::with_capacity(groups.len());
        let mut rest = groups;
        let by_address = || checks.iter().filter(|check| is_by_address(check));
        let begins_with_address =
            rest.first().is_some_and(|group| group.iter().any(|&index| is_by_address(&checks[index])));
        let asked = Instant::now();
        if rest.len() > 1 && begins_with_address && !self.room.borrow_mut().take(by_address(), asked) {
            let first = rest.remove(0);
            parts.extend(self.decide_group(checks, first).await);
            self.note_room(checks, &parts, asked);
            if parts.iter().any(ShardResult::is_denied) {
                return parts;
            }
            if !parts.iter().all(ShardResult::is_admitted) {
                // The request fails, unless another shard denies it. A look takes nothing.
                parts.extend(self.look_at(checks, rest).await.into_iter().filter(ShardResult::is_denied));
                return parts;
            }
            parts.extend(self.decide_at_once(checks, rest).await);
        } else {
            parts.extend(self.decide_at_once(checks, rest).await);
            self.note_room(checks, &parts, asked);
        }
        parts
    }

    async fn decide_at_once(&self, checks: &[Check<'_>], groups: SmallVec<[Group; 2]>) -> Vec<ShardResult> {
        let asked = groups.into_iter().map(|group| self.decide_group(checks, group));
        join_all(asked).await.into_iter().flatten().collect()
    }

    /// Records how far the address is from its limits, by decisions of the store, which was called at the time `asked`.
    fn note_room(&self, checks: &[Check<'_>], parts: &[ShardResult], asked: Instant) {
        let mut room = self.room.borrow_mut();
        for ShardResult { group, result } in parts {
            let of_store = result.as_ref().ok().filter(|decision| decision.source == DecisionSource::Store);
            for (nth, check) in group.iter().map(|&index| &checks[index]).enumerate() {
                if is_by_address(check) {
                    let verdict = of_store.and_then(|decision| decision.verdicts.get(nth));
                    room.note(check, verdict.unwrap_or(&Verdict::UNKNOWN), asked);
                }
            }
        }
    }

    /// Decides over checks of one shard: together, or one by one while their slot is being moved.
    async fn decide_group(&self, checks: &[Check<'_>], group: Group) -> SmallVec<[ShardResult; 1]> {
        let result = self.store.decide(&select(checks, &group)).await;
        if !matches!(result, Err(Unavailable::Moving)) || group.len() == 1 {
            return SmallVec::from_iter([ShardResult { group, result }]);
        }
        let (by_address, others): (Group, Group) =
            group.into_iter().partition(|&index| is_by_address(&checks[index]));
        let mut parts = SmallVec::new();
        for index in by_address.into_iter().chain(others) {
            let group = Group::from_slice(&[index]);
            let result = self.store.decide(&select(checks, &group)).await;
            let part = ShardResult { group, result };
            let is_admitted = part.is_admitted();
            parts.push(part);
            if !is_admitted {
                break;
            }
        }
        parts
    }

    /// The results of [`Store::look`] on groups of checks.
    async fn look_at(&self, checks: &[Check<'_>], groups: SmallVec<[Group; 2]>) -> Vec<ShardResult> {
        let looks = groups.into_iter().map(|group| async {
            match self.store.look(&select(checks, &group)).await {
                Err(Unavailable::Moving) if group.len() > 1 => {
                    let each = group.iter().map(|&index| async move {
                        let group = Group::from_slice(&[index]);
                        ShardResult { result: self.store.look(&select(checks, &group)).await, group }
                    });
                    join_all(each).await
                }
                result => vec![ShardResult { group, result }],
            }
        });
        join_all(looks).await.into_iter().flatten().collect()
    }

    /// Merges all parts into one decision. Units that some of them took are refunded if another denies.
    async fn merge(&self, checks: &[Check<'_>], parts: Vec<ShardResult>) -> Result<Decision, Unavailable> {
        let admitted = parts.iter().all(ShardResult::is_admitted);
        if !admitted {
            self.refund_parts(checks, &parts).await;
        }
        // Nothing is known about checks that were not decided, and nothing was taken.
        let not_asked = Receipt { source: DecisionSource::LocalDenial, time: 0 };
        let mut receipts = vec![not_asked; checks.len()].into_boxed_slice();
        let mut verdicts: SmallVec<[Verdict; 2]> = SmallVec::from_elem(Verdict::UNKNOWN, checks.len());
        let mut deciding: Option<Receipt> = None;
        let is_denied = parts.iter().any(ShardResult::is_denied);
        for ShardResult { group, result } in parts {
            let decision = match result {
                Ok(decision) => decision,
                Err(_) if is_denied => {
                    // Leases may still have been taken: the code that releases them has to know.
                    group.iter().for_each(|&index| receipts[index].source = DecisionSource::Fallback);
                    continue;
                }
                Err(unavailable) => return Err(unavailable),
            };
            for (nth, index) in group.into_iter().enumerate() {
                let verdict = decision.verdicts.get(nth).copied().unwrap_or(Verdict::UNKNOWN);
                let cost = if decision.admitted && !admitted { checks[index].cost } else { 0 };
                verdicts[index] = after_refund(verdict, cost);
                receipts[index] = decision.receipt(nth);
            }
            let receipt = Receipt { source: decision.source, time: decision.time };
            let decides = match deciding {
                None => true,
                // A part that denies decides, or else one whose shard was away.
                Some(known) if admitted => {
                    known.source != DecisionSource::Fallback
                        && matches!(receipt.source, DecisionSource::Fallback | DecisionSource::Store)
                }
                Some(_) => !decision.admitted,
            };
            if decides {
                deciding = Some(receipt);
            }
        }
        let Receipt { source, time } = deciding.unwrap_or(not_asked);
        Ok(Decision { admitted, source, time, verdicts, parts: Some(receipts) })
    }

    /// Refunds the taken units once: an unconfirmed refund may have been done.
    async fn refund_parts(&self, checks: &[Check<'_>], parts: &[ShardResult]) {
        let admitted = parts.iter().filter_map(|part| {
            let decision = part.result.as_ref().ok().filter(|decision| decision.admitted)?;
            Some((&part.group, decision))
        });
        let taken = admitted.flat_map(|(group, decision)| {
            let each = group.iter().zip(&decision.verdicts).enumerate();
            each.filter(|(_, (index, verdict))| has_taken(&checks[**index], verdict))
                .map(|(nth, (&index, _))| Taken::refunded(checks[index].clone(), decision.receipt(nth)))
        });
        let taken: SmallVec<[Taken<'_>; 2]> = taken.collect();
        if taken.is_empty() {
            return;
        }
        if let Err(error) = self.settle(&taken).await {
            tracing::debug!(%error, "can't refund what another shard has denied: it expires instead");
        }
    }
}

fn is_by_address(check: &Check<'_>) -> bool {
    check.identifier.starts_with(ADDRESS)
}

fn select<'a>(checks: &[Check<'a>], group: &[usize]) -> SmallVec<[Check<'a>; 2]> {
    group.iter().map(|&index| checks[index].clone()).collect()
}

/// Whether an admitted check took something that a refund can give back.
fn has_taken(check: &Check<'_>, verdict: &Verdict) -> bool {
    verdict.admitted && *verdict != Verdict::UNKNOWN && check.cost > 0 && !verdict.renews
}

/// The verdict of a check whose units were refunded.
fn after_refund(verdict: Verdict, cost: u64) -> Verdict {
    if verdict == Verdict::UNKNOWN {
        return verdict;
    }
    Verdict { remaining: verdict.remaining.saturating_add(cost).min(verdict.limit), ..verdict }
}

impl<S: Store> Store for ShardedStore<S> {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Decision, Unavailable> {
        if checks.len() < 2 || !self.store.is_sharded() {
            return self.store.decide(checks).await;
        }
        // Boxed, so that it does not enlarge the futures of all other requests.
        Box::pin(self.decide_apart(checks)).await
    }

    async fn look(&self, checks: &[Check<'_>]) -> Result<Decision, Unavailable> {
        if checks.len() < 2 || !self.store.is_sharded() {
            return self.store.look(checks).await;
        }
        let groups = self.groups(checks);
        if groups.len() == 1 {
            match self.store.look(checks).await {
                Err(Unavailable::Moving) => {}
                result => return result,
            }
        }
        let parts = self.look_at(checks, groups).await;
        let admitted = parts.iter().all(ShardResult::is_admitted);
        let mut verdicts: SmallVec<[Verdict; 2]> = SmallVec::from_elem(Verdict::UNKNOWN, checks.len());
        let (mut source, mut time) = (DecisionSource::Store, 0);
        // Nothing is known about checks whose shard was away.
        let away = Receipt { source: DecisionSource::Fallback, time: 0 };
        let mut receipts = vec![away; checks.len()].into_boxed_slice();
        let is_denied = parts.iter().any(ShardResult::is_denied);
        for ShardResult { group, result } in parts {
            let decision = match result {
                Ok(decision) => decision,
                Err(_) if is_denied => continue,
                Err(unavailable) => return Err(unavailable),
            };
            group.iter().enumerate().for_each(|(nth, &index)| receipts[index] = decision.receipt(nth));
            for (index, verdict) in group.into_iter().zip(decision.verdicts) {
                let cost = if decision.admitted && !admitted { checks[index].cost } else { 0 };
                verdicts[index] = after_refund(verdict, cost);
            }
            time = time.max(decision.time);
            if decision.source == DecisionSource::Fallback {
                source = DecisionSource::Fallback;
            }
        }
        Ok(Decision { admitted, source, time, verdicts, parts: Some(receipts) })
    }

    async fn settle(&self, taken: &[Taken<'_>]) -> Result<(), Unavailable> {
        if taken.len() < 2 || !self.store.is_sharded() {
            return self.store.settle(taken).await;
        }
        // One by one: settlements of several checks are rare, and each is redirected by itself while slots are being moved.
        let settled =
            join_all(taken.iter().map(|taken| self.store.settle(std::slice::from_ref(taken)))).await;
        settled.into_iter().collect()
    }

    fn shard(&self, check: &Check<'_>) -> u32 {
        self.store.shard(check)
    }

    fn is_sharded(&self) -> bool {
        self.store.is_sharded()
    }

    fn known_denial(&self, checks: &[Check<'_>]) -> Option<Decision> {
        self.store.known_denial(checks)
    }

    fn must_finish(&self, checks: &[Check<'_>]) -> bool {
        checks.len() > 1 && self.store.is_sharded()
    }
}

impl<S: StoreAdmin> StoreAdmin for ShardedStore<S> {
    async fn peek(&self, policy: &Policy, identifier: &str) -> Result<LimitUsage, Unavailable> {
        self.store.peek(policy, identifier).await
    }

    async fn entries(&self, policy: &Policy, identifier: &str) -> Result<Vec<Arc<Entry>>, Unavailable> {
        self.store.entries(policy, identifier).await
    }

    async fn reset(&self, policies: &[Policy], identifier: &str) -> Result<Vec<ClearedLimit>, Unavailable> {
        self.store.reset(policies, identifier).await
    }

    async fn clear(&self, policies: &[Policy], identifier: &str) -> Result<Vec<ClearedLimit>, Unavailable> {
        self.store.clear(policies, identifier).await
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, time::Duration};

    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::{
        config::model::{self, Algorithm, KeyPart, KeyRecipe, Rate},
        limit::{ManualClock, PolicyId, algorithm::Detail},
        store::memory::MemoryStore,
    };

    const IDENTIFIERS: [&str; 5] = ["ip:1", "ip:2", "user:a", "user:b", "ip:1+path:/a"];

    /// A memory store whose shards are kinds of identifiers. It decides over one shard at a time.
    struct ShardedMemory {
        memory: MemoryStore,
        asked: Cell<usize>,
        /// A shard that is away.
        away: Cell<Option<u32>>,
        /// Whether keys are on several nodes, so that each check must be sent alone.
        is_moving: Cell<bool>,
    }

    impl ShardedMemory {
        fn check(&self, checks: &[Check<'_>]) -> Result<(), Unavailable> {
            self.asked.set(self.asked.get() + 1);
            let shards: Vec<u32> = checks.iter().map(|check| self.shard(check)).collect();
            assert!(shards.windows(2).all(|pair| pair[0] == pair[1]), "{checks:?}");
            match () {
                () if self.is_moving.get() && checks.len() > 1 => Err(Unavailable::Moving),
                () if self.away.get().is_some_and(|away| shards.contains(&away)) => Err(Unavailable::Timeout),
                () => Ok(()),
            }
        }
    }

    impl Store for ShardedMemory {
        async fn decide(&self, checks: &[Check<'_>]) -> Result<Decision, Unavailable> {
            self.check(checks)?;
            self.memory.decide(checks).await
        }

        async fn look(&self, checks: &[Check<'_>]) -> Result<Decision, Unavailable> {
            self.check(checks)?;
            self.memory.look(checks).await
        }

        async fn settle(&self, taken: &[Taken<'_>]) -> Result<(), Unavailable> {
            self.memory.settle(taken).await
        }

        fn shard(&self, check: &Check<'_>) -> u32 {
            check.identifier.bytes().take_while(|byte| *byte != b'+').map(u32::from).sum()
        }

        fn is_sharded(&self) -> bool {
            true
        }
    }

    fn sharded(clock: &Arc<ManualClock>) -> ShardedStore<ShardedMemory> {
        let memory = MemoryStore::new(1_000, Arc::clone(clock) as _);
        ShardedStore::new(ShardedMemory {
            memory,
            asked: Cell::new(0),
            away: Cell::new(None),
            is_moving: Cell::new(false),
        })
    }

    fn policy(id: u32, algorithm: Algorithm, limit: u64) -> Policy {
        let tiers = vec![Rate { limit, window: Duration::from_secs(60) }];
        let config = model::Policy::new("p", algorithm, vec![KeyRecipe(vec![KeyPart::Ip])], tiers);
        Policy::new(&config, PolicyId(id))
    }

    const ALGORITHMS: [Algorithm; 9] = [
        Algorithm::SingleCounter,
        Algorithm::FixedWindow,
        Algorithm::SlidingLog,
        Algorithm::MetadataList,
        Algorithm::SlidingCounter,
        Algorithm::Gcra { burst: 3, delay: Duration::ZERO },
        Algorithm::SlidingWindow { buckets: 10 },
        Algorithm::Concurrency,
        Algorithm::Distinct,
    ];

    fn check<'a>(policy: &'a Policy, identifier: &str, member: u128) -> Check<'a> {
        Check { policy, identifier: identifier.into(), cost: 1, detail: Detail::Member(member) }
    }

    /// Runs a future that never waits: the stores here are in memory.
    fn now<T>(future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        match future.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
            std::task::Poll::Ready(output) => output,
            std::task::Poll::Pending => unreachable!("memory never waits"),
        }
    }

    fn used(store: &ShardedStore<ShardedMemory>, policy: &Policy, identifier: &str) -> u64 {
        store.store.memory.peek_now(policy, identifier).used
    }

    #[test]
    fn a_request_that_another_shard_denies_is_refunded() {
        for algorithm in ALGORITHMS {
            let clock = Arc::new(ManualClock::new(1_800_000_000_000_000));
            let (store, policies) =
                (sharded(&clock), [policy(1, algorithm, 3), policy(2, Algorithm::FixedWindow, 1)]);
            let decide = |member| {
                let checks = [check(&policies[0], "ip:1", member), check(&policies[1], "user:a", member)];
                now(store.decide(&checks)).unwrap()
            };
            assert!(decide(1).admitted, "{algorithm:?}");
            let denied = decide(2);
            assert!(!denied.admitted && denied.verdicts[0].admitted && !denied.verdicts[1].admitted);
            assert_eq!(used(&store, &policies[0], "ip:1"), 1, "{algorithm:?}");
            assert_eq!((denied.verdicts[0].remaining, denied.source), (2, DecisionSource::Store));
        }
    }

    #[test]
    fn an_address_that_is_denied_takes_nothing_of_others() {
        let clock = Arc::new(ManualClock::new(1_800_000_000_000_000));
        let (store, policy) = (sharded(&clock), policy(1, Algorithm::SlidingLog, 1));
        let checks = [check(&policy, "user:a", 1), check(&policy, "ip:1", 1)];
        assert!(now(store.decide(&checks)).unwrap().admitted);
        store.store.asked.set(0);
        let checks = [check(&policy, "user:b", 1), check(&policy, "ip:1", 1)];
        let denied = now(store.decide(&checks)).unwrap();
        assert_eq!((denied.admitted, denied.verdicts[0]), (false, Verdict::UNKNOWN));
        assert_eq!((store.store.asked.get(), used(&store, &policy, "user:b")), (1, 0), "it was not asked");
    }

    #[test]
    fn while_its_address_is_far_from_its_limits_all_shards_are_asked_at_once() {
        let clock = Arc::new(ManualClock::new(1_800_000_000_000_000));
        let (store, wide, tight) =
            (sharded(&clock), policy(1, Algorithm::FixedWindow, 5), policy(2, Algorithm::FixedWindow, 2));
        let decide = |user: &str| {
            store.store.asked.set(0);
            let checks = [check(&tight, user, 1), check(&wide, "ip:1", 1)];
            (now(store.decide(&checks)).unwrap().admitted, store.store.asked.get())
        };
        assert_eq!(decide("user:a"), (true, 2), "one after the other: nothing is known of the address");
        // Elsewhere, the rest is used up at once.
        for _ in 0..4 {
            assert!(now(store.store.memory.decide(&[check(&wide, "ip:1", 1)])).unwrap().admitted);
        }
        assert_eq!(decide("user:b"), (false, 2), "it was far from its limit");
        assert_eq!(used(&store, &tight, "user:b"), 0, "what the other has taken is refunded");
        assert_eq!(decide("user:b"), (false, 1), "the address comes first");
        assert_eq!((used(&store, &wide, "ip:1"), used(&store, &tight, "user:a")), (5, 1));
    }

    #[test]
    fn an_address_that_is_denied_is_asked_first_while_its_slot_moves() {
        let clock = Arc::new(ManualClock::new(1_800_000_000_000_000));
        let (store, policy) = (sharded(&clock), policy(1, Algorithm::SlidingLog, 1));
        // In one shard.
        let [user, address] = ["user:a", "ip:mmm"].map(|identifier| check(&policy, identifier, 1));
        assert_eq!(store.shard(&user), store.shard(&address));
        assert!(now(store.decide(std::slice::from_ref(&address))).unwrap().admitted);
        store.store.is_moving.set(true);
        store.store.asked.set(0);
        assert!(!now(store.decide(&[user, address])).unwrap().admitted);
        // Both times together, and then the address.
        assert_eq!((store.store.asked.get(), used(&store, &policy, "user:a")), (3, 0));
    }

    #[test]
    fn a_member_that_is_counted_already_stays_counted() {
        let clock = Arc::new(ManualClock::new(1_800_000_000_000_000));
        let store = sharded(&clock);
        let (values, full) = (policy(1, Algorithm::Distinct, 3), policy(2, Algorithm::FixedWindow, 1));
        assert!(now(store.decide(&[check(&values, "ip:1", 7)])).unwrap().admitted);
        assert!(now(store.decide(&[check(&full, "user:a", 0)])).unwrap().admitted);
        let denied = now(store.decide(&[check(&values, "ip:1", 7), check(&full, "user:a", 0)])).unwrap();
        assert!(!denied.admitted);
        assert_eq!(used(&store, &values, "ip:1"), 1);
    }

    #[test]
    fn a_shard_that_is_away_leaves_nothing_taken_elsewhere() {
        let clock = Arc::new(ManualClock::new(1_800_000_000_000_000));
        let (store, policy) = (sharded(&clock), policy(1, Algorithm::FixedWindow, 5));
        let checks = [check(&policy, "ip:1", 0), check(&policy, "user:a", 0)];
        store.store.away.set(Some(store.shard(&checks[1])));
        assert_eq!(now(store.decide(&checks)), Err(Unavailable::Timeout));
        assert_eq!(used(&store, &policy, "ip:1"), 0);
    }

    #[test]
    fn a_denial_stands_though_another_shard_is_away() {
        let clock = Arc::new(ManualClock::new(1_800_000_000_000_000));
        let (store, wide, tight) =
            (sharded(&clock), policy(1, Algorithm::FixedWindow, 5), policy(2, Algorithm::FixedWindow, 1));
        assert!(now(store.decide(&[check(&tight, "user:a", 0)])).unwrap().admitted);
        let checks = [check(&wide, "ip:1", 0), check(&tight, "user:a", 0), check(&wide, "user:b", 0)];
        // The address that is away is called with the others, and then, since nothing is known about it any more,
        // before them.
        for away in ["user:b", "ip:1", "ip:1"] {
            store.store.away.set(Some(store.shard(&check(&wide, away, 0))));
            for (denied, parts) in [(now(store.decide(&checks)), true), (now(store.look(&checks)), false)] {
                let denied = denied.unwrap();
                assert_eq!((denied.admitted, denied.source), (false, DecisionSource::Store), "{away}");
                assert!(!denied.verdicts[1].admitted);
                let is_unknown = |index: &usize| denied.verdicts[*index] == Verdict::UNKNOWN;
                let unknown: Vec<_> =
                    (0..3).filter(is_unknown).map(|index| &*checks[index].identifier).collect();
                assert!(unknown.contains(&away), "{unknown:?}");
                if parts {
                    let index = checks.iter().position(|check| check.identifier == away).unwrap();
                    assert_eq!(denied.receipt(index).source, DecisionSource::Fallback, "leases are released");
                }
            }
            let used = ["ip:1", "user:b"].map(|identifier| used(&store, &wide, identifier));
            assert_eq!((used, store.store.memory.peek_now(&tight, "user:a").used), ([0, 0], 1), "{away}");
        }
        // Without a denial, it is the failure that counts, and nothing is taken.
        let checks = [check(&wide, "ip:1", 0), check(&wide, "user:b", 0)];
        assert_eq!(now(store.decide(&checks)), Err(Unavailable::Timeout));
        assert_eq!(now(store.look(&checks)), Err(Unavailable::Timeout));
        assert_eq!(used(&store, &wide, "user:b"), 0);
    }

    /// For each check, a policy, an identifier and a member; and whether keys are on several nodes.
    type Request = (Vec<(usize, usize, u128)>, bool);

    /// Requests of up to four checks.
    fn requests() -> impl Strategy<Value = Vec<Request>> {
        // Values of `distinct` that are seen again become the newest, even if the request is denied.
        let check = (0..8_usize, 0..IDENTIFIERS.len(), 0..1_000_u128);
        vec((vec(check, 1..5), any::<bool>()), 1..60)
    }

    proptest! {
        /// Successive requests are decided as by one store with all limits.
        #[test]
        fn requests_are_decided_as_by_one_store(requests in requests()) {
            let clock = Arc::new(ManualClock::new(1_800_000_000_000_000));
            let (store, whole) = (sharded(&clock), MemoryStore::new(1_000, Arc::clone(&clock) as _));
            let policies: Vec<Policy> =
                (0..).zip(ALGORITHMS).map(|(id, algorithm)| policy(id, algorithm, 4)).collect();
            for (number, (request, is_moving)) in requests.iter().enumerate() {
                clock.set(1_800_000_000_000_000 + number as i64 * 1_000_000);
                store.store.is_moving.set(*is_moving);
                let mut checks: Vec<Check<'_>> = Vec::new();
                for &(policy, identifier, member) in request {
                    let check = check(&policies[policy], IDENTIFIERS[identifier], member * 1_000 + number as u128);
                    let is_new = |known: &Check<'_>| {
                        (known.policy.id, &known.identifier) != (check.policy.id, &check.identifier)
                    };
                    if checks.iter().all(is_new) {
                        checks.push(check);
                    }
                }
                let (apart, together) = (now(store.decide(&checks)).unwrap(), whole.decide_now(&checks));
                prop_assert_eq!(apart.admitted, together.admitted, "{:?}", checks);
                for policy in &policies {
                    for identifier in IDENTIFIERS {
                        let together = whole.peek_now(policy, identifier).used;
                        prop_assert_eq!(used(&store, policy, identifier), together, "{} {:?}", identifier, policy.kind);
                    }
                }
            }
        }
    }
}
