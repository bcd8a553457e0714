//! [`MemoryStore`]: its shards, and the operators' calls.

use std::{
    fmt,
    hash::{BuildHasher, Hasher},
    sync::Arc,
};

use parking_lot::Mutex;

use super::{
    budget::ByteBudget,
    shard::{Now, Sacrifice, StoreShard},
    slots::{LimitName, SlotKey},
};
use crate::{
    limit::{
        Check, ClearedLimit, Clock, Decision, LimitUsage, Policy, PolicyId, Store, StoreAdmin, Taken,
        Unavailable,
        algorithm::{Detail, Kind, LimitRule, LimitState, metadata_list::Entry},
    },
    memory_budget::FreedBytes,
};

/// More than the workers of a large machine, so that two rarely contend for one.
const MAX_SHARDS: usize = 256;
/// With fewer keys or bytes per shard, one would often be full while others are not.
const MIN_KEYS_PER_SHARD: usize = 64;
const MIN_BYTES_PER_SHARD: usize = 64 << 10;
/// Rounds in which a sweep frees memory above the budget. The rest is left to the next sweep.
const RELEASE_ROUNDS: usize = 4;

/// Limits in memory: at most `max_keys`, at most as many entries of their lists, and about `max_bytes` together. Time
/// is the clock's.
pub struct MemoryStore {
    pub(super) clock: Arc<dyn Clock>,
    /// Seeded at random: identifiers come from clients, who must not be able to choose collisions.
    hasher: foldhash::quality::RandomState,
    /// A power of two.
    pub(super) shards: Box<[PaddedShard]>,
    pub(super) budget: Arc<ByteBudget>,
}

/// A shard on cache lines of its own.
#[repr(align(128))]
pub(super) struct PaddedShard(Mutex<StoreShard>);

impl std::ops::Deref for PaddedShard {
    type Target = Mutex<StoreShard>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// Counts of a memory store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryStats {
    /// Limits with state, including those that have expired and are not swept yet.
    pub keys: usize,
    /// Entries of `metadata_list`.
    pub entries: usize,
    /// Bytes used.
    pub bytes: usize,
    /// The budget in bytes.
    pub max_bytes: usize,
    /// Limits that were evicted because the store was full.
    pub dropped: u64,
    /// Entries of `metadata_list` that were dropped for limits.
    pub dropped_entries: u64,
    /// States that were discarded since they lay more than a window ahead of the clock.
    pub discarded: u64,
}

impl MemoryStore {
    /// A store of up to `max_keys` limits, at least 1, without a byte budget.
    pub fn new(max_keys: usize, clock: Arc<dyn Clock>) -> Self {
        Self::with_budget(max_keys, usize::MAX, clock)
    }

    /// A store of up to `max_keys` limits, at least 1, and about `max_bytes`. Writes may exceed it by a few percent
    /// until the next [`MemoryStore::sweep`].
    pub fn with_budget(max_keys: usize, max_bytes: usize, clock: Arc<dyn Clock>) -> Self {
        let max_keys = max_keys.max(1);
        let most = (max_keys / MIN_KEYS_PER_SHARD).min(max_bytes / MIN_BYTES_PER_SHARD);
        let shards = 1 << most.clamp(1, MAX_SHARDS).ilog2();
        let capacity = |shard| max_keys / shards + usize::from(shard < max_keys % shards);
        let budget = Arc::new(ByteBudget::new(max_bytes));
        let shard = |index| PaddedShard(Mutex::new(StoreShard::new(capacity(index), Arc::clone(&budget))));
        Self {
            clock,
            hasher: foldhash::quality::RandomState::default(),
            shards: (0..shards).map(shard).collect(),
            budget,
        }
    }

    /// Removes expired limits, and frees memory above the budget. Visits up to `budget` limits, the same number in
    /// every shard, starting where the last sweep ended. Returns how many had expired. Decisions are exact without it;
    /// it only frees memory. It never blocks a decision for long.
    pub fn sweep(&self, budget: usize) -> usize {
        let now = self.clock.now();
        let each = budget.div_ceil(self.shards.len());
        let sweep = |shard: &PaddedShard| {
            let mut shard = shard.lock();
            let removed = shard.sweep(each, now);
            shard.shrink();
            removed
        };
        let removed = self.shards.iter().map(sweep).sum();
        self.release_excess();
        removed
    }

    /// Frees memory above the budget, the same in every shard: evidence first, limits at their limit last.
    fn release_excess(&self) {
        for what in Sacrifice::ALL {
            for _ in 0..RELEASE_ROUNDS {
                let each = self.budget.excess().div_ceil(self.shards.len());
                if each == 0 || (what == Sacrifice::Entries && !self.budget.has_entries()) {
                    break;
                }
                self.shards.iter().for_each(|shard| shard.lock().release(each, what));
            }
            // The next sweep drops the remaining entries.
            if self.budget.has_entries() && !self.budget.is_far_exceeded() {
                return;
            }
        }
    }

    /// Counts of the store, summed over its shards.
    pub fn stats(&self) -> MemoryStats {
        let mut stats =
            MemoryStats { bytes: self.budget.held(), max_bytes: self.budget.max(), ..MemoryStats::default() };
        for shard in &self.shards {
            let shard = shard.lock();
            stats.keys += shard.len();
            stats.entries += shard.entries();
            stats.dropped += shard.dropped;
            stats.dropped_entries += shard.dropped_entries;
            stats.discarded += shard.discarded;
        }
        stats
    }

    /// A handle on the memory that it frees.
    pub fn freed_bytes(&self) -> FreedBytes {
        self.budget.freed.clone()
    }

    /// [`StoreAdmin::peek`] without waiting.
    pub fn peek_now(&self, policy: &Policy, identifier: &str) -> LimitUsage {
        self.with_state(policy, identifier, |state, rule, now| {
            let verdict = state.read(rule, now, 0, &Detail::None);
            LimitUsage { used: state.used(rule, verdict.tier, now), verdict }
        })
    }

    /// [`StoreAdmin::entries`] without waiting.
    pub fn entries_now(&self, policy: &Policy, identifier: &str) -> Vec<Arc<Entry>> {
        self.with_state(policy, identifier, |state, rule, now| state.entries(rule, now))
    }

    /// [`StoreAdmin::reset`] without waiting. Visits every limit, one shard at a time.
    pub fn reset_now(&self, policies: &[Policy], identifier: &str) -> Vec<ClearedLimit> {
        self.forget(&self.shards, policies, |key| is_or_extends(&key.identifier, identifier))
    }

    /// [`StoreAdmin::clear`] without waiting.
    pub fn clear_now(&self, policies: &[Policy], identifier: &str) -> Vec<ClearedLimit> {
        let names = policies.iter().flat_map(Policy::variants).map(|policy| self.name(policy.id, identifier));
        let mut shards: Vec<usize> = names.map(|name| self.shard_of(&name)).collect();
        shards.sort_unstable();
        shards.dedup();
        let matches = |key: &SlotKey| key.identifier == identifier;
        let forget = |shard| self.forget(&self.shards[shard..=shard], policies, matches);
        shards.into_iter().flat_map(forget).collect()
    }

    /// Removes, from these shards, the limits of these policies whose key `matches`.
    fn forget(
        &self,
        shards: &[PaddedShard],
        policies: &[Policy],
        matches: impl Fn(&SlotKey) -> bool,
    ) -> Vec<ClearedLimit> {
        let now = self.now(policies.iter().flat_map(Policy::variants));
        let named = |id: PolicyId| policies.iter().flat_map(Policy::variants).find(|policy| policy.id == id);
        let mut cleared = Vec::new();
        for shard in shards {
            shard.lock().remove_where(
                |key| matches(key) && named(key.policy).is_some(),
                |slot| {
                    if let Some(policy) = named(slot.key.policy)
                        && policy.with_rule(now.of(policy), |rule| slot.state.is_used(rule, now.of(policy)))
                    {
                        let (policy, identifier) = (policy.name.clone(), slot.key.identifier.to_string());
                        cleared.push(ClearedLimit { policy, identifier });
                    }
                },
            );
        }
        cleared
    }

    fn with_state<T>(
        &self,
        policy: &Policy,
        identifier: &str,
        look: impl FnOnce(&LimitState, LimitRule<'_>, i64) -> T,
    ) -> T {
        let now = self.now([policy]).of(policy);
        let name = self.name(policy.id, identifier);
        let shard = self.shards[self.shard_of(&name)].lock();
        let state = shard.state(&name, shard.find(&name));
        shard.with_rule(policy, now, |rule| match state {
            Some(state) => look(state, rule, now),
            None => look(&LimitState::new(rule.kind), rule, now),
        })
    }

    /// The time, for checks of these policies.
    pub(super) fn now<'a>(&self, policies: impl IntoIterator<Item = &'a Policy>) -> Now {
        let steady = self.clock.now();
        let has_calendar = policies.into_iter().any(|policy| policy.kind == Kind::CalendarWindow);
        Now { steady, wall: if has_calendar { self.clock.wall() } else { steady } }
    }

    pub(super) fn name<'a>(&self, policy: PolicyId, identifier: &'a str) -> LimitName<'a> {
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u32(policy.0);
        hasher.write(identifier.as_bytes());
        LimitName { hash: hasher.finish(), policy, identifier }
    }

    /// Uses bits that the shards' maps don't use: theirs are the lowest 32.
    pub(super) fn shard_of(&self, name: &LimitName<'_>) -> usize {
        (name.hash >> 32) as usize & (self.shards.len() - 1)
    }
}

/// Whether `identifier` is `whole`, or a composite that begins with it.
fn is_or_extends(identifier: &str, whole: &str) -> bool {
    identifier.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with('+'))
}

impl fmt::Debug for MemoryStore {
    /// The counts; with `{:#?}`, every limit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            return self.shards.iter().try_for_each(|shard| writeln!(f, "{:?}", shard.lock()));
        }
        f.debug_struct("MemoryStore").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Store for MemoryStore {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Decision, Unavailable> {
        Ok(self.decide_now(checks))
    }

    async fn look(&self, checks: &[Check<'_>]) -> Result<Decision, Unavailable> {
        Ok(self.look_now(checks))
    }

    async fn settle(&self, taken: &[Taken<'_>]) -> Result<(), Unavailable> {
        self.settle_now(taken);
        Ok(())
    }
}

impl StoreAdmin for MemoryStore {
    async fn peek(&self, policy: &Policy, identifier: &str) -> Result<LimitUsage, Unavailable> {
        Ok(self.peek_now(policy, identifier))
    }

    async fn entries(&self, policy: &Policy, identifier: &str) -> Result<Vec<Arc<Entry>>, Unavailable> {
        Ok(self.entries_now(policy, identifier))
    }

    async fn reset(&self, policies: &[Policy], identifier: &str) -> Result<Vec<ClearedLimit>, Unavailable> {
        Ok(self.reset_now(policies, identifier))
    }

    async fn clear(&self, policies: &[Policy], identifier: &str) -> Result<Vec<ClearedLimit>, Unavailable> {
        Ok(self.clear_now(policies, identifier))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        config::model::{self, Algorithm},
        limit::{ManualClock, Receipt},
    };

    const ALGORITHMS: [Algorithm; 9] = [
        Algorithm::SingleCounter,
        Algorithm::FixedWindow,
        Algorithm::MetadataList,
        Algorithm::SlidingWindow { buckets: 10 },
        Algorithm::SlidingLog,
        Algorithm::SlidingCounter,
        Algorithm::Gcra { burst: 60, delay: Duration::ZERO },
        Algorithm::Concurrency,
        Algorithm::Distinct,
    ];

    fn policies() -> Vec<Policy> {
        let policy = |(index, algorithm)| {
            let keys = vec![model::KeyRecipe(vec![model::KeyPart::Ip])];
            let tier = model::Rate { limit: 60, window: Duration::from_secs(60) };
            let mut config = model::Policy::new("p", algorithm, keys, vec![tier]);
            config.count_denied = index % 2 == 0;
            Policy::new(&config, PolicyId(index))
        };
        (0..).zip(ALGORITHMS).map(policy).collect()
    }

    /// The store's counts equal those of a walk over all of it, after any writes, refunds, sweeps and evictions.
    #[test]
    fn the_counted_size_is_the_sum_of_all_limits() {
        let policies = policies();
        for max_bytes in [usize::MAX, 300_000, 20_000] {
            let clock = Arc::new(ManualClock::new(0));
            let store = MemoryStore::with_budget(4_000, max_bytes, Arc::clone(&clock) as _);
            let mut random = fastrand::Rng::with_seed(1);
            let mut most = 0;
            for step in 0..30_000 {
                let policy = &policies[random.usize(..policies.len())];
                let name = "x".repeat(random.usize(..60));
                let identifier = format!("ip:{}{name}", random.u32(..700)).into();
                let detail = match policy.kind.description().detail {
                    crate::limit::algorithm::DetailKind::Entry => Detail::Entry(Arc::new(Entry {
                        time: clock.now(),
                        user: Some(name.as_str().into()),
                        method: http::Method::GET,
                        path: "/a".repeat(random.usize(..80)).into(),
                    })),
                    _ => Detail::Member(random.u128(..90)),
                };
                let cost = random.u64(..40);
                let check = Check { policy, identifier, cost, detail };
                let decision = store.decide_now(std::slice::from_ref(&check));
                if decision.admitted && random.u8(..) < 20 {
                    let receipt = Receipt { source: decision.source, time: decision.time };
                    store.settle_now(&Taken::all(&[check], receipt));
                }
                clock.advance(random.i64(..20_000));
                if step % 500 == 0 {
                    store.sweep(random.usize(..4_000));
                    let counted: usize = store.shards.iter().map(|shard| shard.lock().counted_bytes()).sum();
                    assert_eq!(store.stats().bytes, counted);
                    most = most.max(counted);
                }
            }
            assert!(most > max_bytes.min(200_000) * 8 / 10, "{most} of {max_bytes}: too little to be a test");
            assert!(most <= max_bytes.saturating_add(max_bytes / 10), "{most} of {max_bytes}");
            store.reset_now(&policies, "ip:1");
            store.sweep(4_000);
            let counted: usize = store.shards.iter().map(|shard| shard.lock().counted_bytes()).sum();
            assert_eq!(store.stats().bytes, counted);
        }
    }
}
