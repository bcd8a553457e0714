//! The keys of the file and of the store, by ID and by hash. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
};

use compact_str::CompactString;
use foldhash::HashMap;
use smallvec::SmallVec;

use super::{ApiKey, KeyHash, KeyState};

/// Records looked at under one lock.
const SOME: usize = 500;

/// All keys.
#[derive(Debug, Clone, Default)]
pub(super) struct ApiKeySet {
    by_hash: HashMap<KeyHash, Holders>,
    file: BTreeMap<CompactString, Arc<ApiKey>>,
    stored: BTreeMap<CompactString, Arc<ApiKey>>,
}

/// The keys that have a hash, the one that holds first.
type Holders = SmallVec<[Arc<ApiKey>; 1]>;

impl ApiKeySet {
    pub(super) fn by_hash(&self, hash: &KeyHash) -> Option<&Arc<ApiKey>> {
        self.by_hash.get(hash)?.first()
    }

    /// The record with this ID: the file's, if both have one.
    pub(super) fn get(&self, id: &str) -> Option<&Arc<ApiKey>> {
        self.file.get(id).or_else(|| self.stored.get(id))
    }

    pub(super) fn stored(&self, id: &str) -> Option<&Arc<ApiKey>> {
        self.stored.get(id)
    }

    /// The keys of the file.
    pub(super) fn file(&self) -> impl Iterator<Item = &Arc<ApiKey>> {
        self.file.values()
    }

    pub(super) fn is_in_file(&self, id: &str) -> bool {
        self.file.contains_key(id)
    }

    /// The number of keys in the file, and in the store.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.file.len(), self.stored.len())
    }

    /// Another key that has one of the hashes of this one, or had it before it was revoked or deleted.
    pub(super) fn other_holder(&self, key: &ApiKey) -> Option<&Arc<ApiKey>> {
        let holders = key.secrets.iter().filter_map(|secret| self.by_hash.get(&secret.hash));
        holders.flatten().find(|holder| holder.id != key.id)
    }

    /// Some records after this ID, in the order of their IDs. The second is the last ID that was looked at, if there
    /// are more.
    pub(super) fn some_after(&self, after: Option<&str>) -> (Vec<Arc<ApiKey>>, Option<CompactString>) {
        let of_file = range(&self.file, after).take(SOME);
        let of_store = range(&self.stored, after).take(SOME);
        let mut both: BTreeMap<&CompactString, &Arc<ApiKey>> = of_store.collect();
        both.extend(of_file);
        let some: Vec<Arc<ApiKey>> = both.into_values().take(SOME).cloned().collect();
        let last = (some.len() == SOME).then(|| some.last().map(|key| key.id.clone())).flatten();
        (some, last)
    }

    /// As [`ApiKeySet::some_after`], of the store alone.
    pub(super) fn some_stored_after(&self, after: Option<&str>) -> (Vec<Arc<ApiKey>>, Option<CompactString>) {
        let some: Vec<Arc<ApiKey>> =
            range(&self.stored, after).take(SOME).map(|(_, key)| Arc::clone(key)).collect();
        let last = (some.len() == SOME).then(|| some.last().map(|key| key.id.clone())).flatten();
        (some, last)
    }

    /// These keys with another file.
    pub(super) fn with_file(&self, keys: Vec<Arc<ApiKey>>) -> Self {
        let file = keys.into_iter().map(|key| (key.id.clone(), key)).collect();
        let mut fresh = Self { by_hash: HashMap::default(), file, stored: self.stored.clone() };
        fresh.by_hash.reserve(fresh.file.len() + fresh.stored.len());
        let all: Vec<Arc<ApiKey>> = fresh.file.values().chain(fresh.stored.values()).cloned().collect();
        all.iter().for_each(|key| fresh.index(key));
        fresh
    }

    /// The IDs of the keys in use of the store that a key of the file hides, by its ID or by a hash.
    pub(super) fn hidden(&self) -> Vec<CompactString> {
        let in_file = self.file.values();
        let by_id = in_file.clone().filter_map(|key| self.stored.get(&key.id));
        let hashes = in_file.flat_map(|key| &key.secrets);
        let by_hash =
            hashes.filter_map(|secret| self.by_hash.get(&secret.hash)).flat_map(|holders| &holders[1..]);
        let active = by_id.chain(by_hash).filter(|key| key.state == KeyState::Active);
        active.map(|key| key.id.clone()).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Puts a record into the store. Returns the one that it replaces.
    pub(super) fn put_stored(&mut self, key: &Arc<ApiKey>) -> Option<Arc<ApiKey>> {
        let replaced = self.remove_stored(&key.id);
        self.stored.insert(key.id.clone(), Arc::clone(key));
        self.index(key);
        replaced
    }

    pub(super) fn remove_stored(&mut self, id: &str) -> Option<Arc<ApiKey>> {
        let removed = self.stored.remove(id)?;
        for secret in &removed.secrets {
            if let Some(holders) = self.by_hash.get_mut(&secret.hash) {
                holders.retain(|holder| !Arc::ptr_eq(holder, &removed));
                if holders.is_empty() {
                    self.by_hash.remove(&secret.hash);
                }
            }
        }
        Some(removed)
    }

    /// Makes a key known by its hashes. One of the store that has the ID of one of the file is not.
    fn index(&mut self, key: &Arc<ApiKey>) {
        let in_file = |key: &Arc<ApiKey>| self.file.get(&key.id).is_some_and(|known| Arc::ptr_eq(known, key));
        if self.file.contains_key(&key.id) && !in_file(key) {
            return;
        }
        for secret in &key.secrets {
            let holders = self.by_hash.entry(secret.hash).or_default();
            holders.push(Arc::clone(key));
            // The order does not depend on who came first: all instances find the same key. A tombstone goes first, so
            // that a revoked secret is not valid as one of another key.
            holders.sort_by_cached_key(|key| {
                (!in_file(key), key.state == KeyState::Active, key.created, key.id.clone())
            });
        }
    }
}

fn range<'k>(
    keys: &'k BTreeMap<CompactString, Arc<ApiKey>>,
    after: Option<&str>,
) -> impl Iterator<Item = (&'k CompactString, &'k Arc<ApiKey>)> {
    let from = after.map_or(Bound::Unbounded, |after| Bound::Excluded(CompactString::from(after)));
    keys.range((from, Bound::Unbounded))
}
