//! [`MemoryStore`]: its shards, and what operators ask of it.

use std::{
    fmt,
    hash::{BuildHasher, Hasher},
    sync::Arc,
};

use parking_lot::Mutex;

use super::shard::{LimitName, Shard, SlotKey};
use crate::limit::{
    Check, ClearedLimit, Clock, Decision, LimitUsage, Policy, PolicyId, Store, StoreAdmin, Taken,
    Unavailable,
    algorithm::{Detail, LimitState, metadata_list::Entry},
};

/// More than the workers of a large machine, so that two seldom contend for one.
const MAX_SHARDS: usize = 256;
/// With fewer keys per shard, one would often be full while others are not.
const MIN_KEYS_PER_SHARD: usize = 64;

/// Limits in memory: at most `max_keys`, and at most as many entries of their lists. Time is the clock's.
pub struct MemoryStore {
    pub(super) clock: Arc<dyn Clock>,
    /// Seeded at random: identifiers come from clients, who must not be able to choose collisions.
    hasher: foldhash::quality::RandomState,
    /// A power of two.
    pub(super) shards: Box<[PaddedShard]>,
}

/// A shard on cache lines of its own.
#[repr(align(128))]
pub(super) struct PaddedShard(Mutex<Shard>);

impl std::ops::Deref for PaddedShard {
    type Target = Mutex<Shard>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// Counts of a memory store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryStats {
    /// Limits with state, including those that have expired and are not swept yet.
    pub keys: usize,
    /// Entries that `metadata_list` holds.
    pub entries: usize,
    /// Limits that were evicted because the store was full.
    pub dropped: u64,
    /// States that were discarded since they lay more than a window ahead of the clock.
    pub discarded: u64,
}

impl MemoryStore {
    /// A store that holds `max_keys` limits, at least 1.
    pub fn new(max_keys: usize, clock: Arc<dyn Clock>) -> Self {
        let max_keys = max_keys.max(1);
        let shards = 1 << (max_keys / MIN_KEYS_PER_SHARD).clamp(1, MAX_SHARDS).ilog2();
        let capacity = |shard| max_keys / shards + usize::from(shard < max_keys % shards);
        Self {
            clock,
            hasher: foldhash::quality::RandomState::default(),
            shards: (0..shards).map(|shard| PaddedShard(Mutex::new(Shard::new(capacity(shard))))).collect(),
        }
    }

    /// Removes expired limits. Visits up to `budget` limits, the same number in every shard, from where the last sweep ended.
    /// Returns how many it removed. Limits are exact without it; it only frees memory. It never blocks a decision for long.
    pub fn sweep(&self, budget: usize) -> usize {
        let now = self.clock.now();
        let each = budget.div_ceil(self.shards.len());
        let sweep = |shard: &PaddedShard| {
            let mut shard = shard.lock();
            let removed = shard.sweep(each, now);
            shard.shrink();
            removed
        };
        self.shards.iter().map(sweep).sum()
    }

    /// Counts of the store, summed over its shards.
    pub fn stats(&self) -> MemoryStats {
        let mut stats = MemoryStats::default();
        for shard in &self.shards {
            let shard = shard.lock();
            stats.keys += shard.len();
            stats.entries += shard.entries();
            stats.dropped += shard.dropped;
            stats.discarded += shard.discarded;
        }
        stats
    }

    /// [`StoreAdmin::peek`], which never has to wait here.
    pub fn peek_now(&self, policy: &Policy, identifier: &str) -> LimitUsage {
        self.with_state(policy, identifier, |state, now| {
            let verdict = state.read(policy.rule(), now, 0, &Detail::None);
            LimitUsage { used: state.used(policy.rule(), verdict.tier, now), verdict }
        })
    }

    /// [`StoreAdmin::entries`], which never has to wait here.
    pub fn entries_now(&self, policy: &Policy, identifier: &str) -> Vec<Arc<Entry>> {
        self.with_state(policy, identifier, |state, now| state.entries(policy.rule(), now))
    }

    /// [`StoreAdmin::reset`], which never has to wait here. It visits every limit, one shard at a time.
    pub fn reset_now(&self, policies: &[Policy], identifier: &str) -> Vec<ClearedLimit> {
        self.forget(&self.shards, policies, |key| is_or_extends(&key.identifier, identifier))
    }

    /// [`StoreAdmin::clear`], which never has to wait here.
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
        let now = self.clock.now();
        let named = |id: PolicyId| policies.iter().flat_map(Policy::variants).find(|policy| policy.id == id);
        let mut cleared = Vec::new();
        for shard in shards {
            shard.lock().remove_where(
                |key| matches(key) && named(key.policy).is_some(),
                |key, slot| {
                    if let Some(policy) = named(key.policy)
                        && slot.state.is_used(policy.rule(), now)
                    {
                        let (policy, identifier) = (policy.name.clone(), key.identifier.to_string());
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
        look: impl FnOnce(&LimitState, i64) -> T,
    ) -> T {
        let now = self.clock.now();
        let name = self.name(policy.id, identifier);
        let shard = self.shards[self.shard_of(&name)].lock();
        match shard.state(&name, shard.find(&name)) {
            Some(state) => look(state, now),
            None => look(&LimitState::new(policy.kind), now),
        }
    }

    pub(super) fn name<'a>(&self, policy: PolicyId, identifier: &'a str) -> LimitName<'a> {
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u32(policy.0);
        hasher.write(identifier.as_bytes());
        LimitName { hash: hasher.finish(), policy, identifier }
    }

    /// Uses bits that the shards' maps do not: they use the lowest and the highest.
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

    async fn refund(&self, taken: &[Taken<'_>]) -> Result<(), Unavailable> {
        self.refund_now(taken);
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
