//! One shard of the limits: a dense map that keeps limits at their limit apart from the others.

use compact_str::CompactString;
use indexmap::{
    IndexMap,
    map::raw_entry_v1::{RawEntryApiV1, RawEntryMut},
};

use crate::limit::{
    Check, Policy, PolicyId,
    algorithm::{LimitState, Verdict},
};

/// Slots swept per insert. More than one, so that expired slots are removed faster than new ones come.
const SWEPT_PER_INSERT: usize = 2;
/// Slots swept in a full shard, in search of an expired one.
const SWEPT_WHEN_FULL: usize = 16;
/// Slots compared for eviction: the one that expires first is dropped.
const EVICTION_CANDIDATES: usize = 8;

/// The least number of entries that a shard may keep, so that a small store has evidence, too.
const MIN_ENTRIES: usize = 64;

/// The name of a limit in a request, with its hash.
#[derive(Debug, Clone, Copy)]
pub(super) struct LimitName<'a> {
    pub(super) hash: u64,
    pub(super) policy: PolicyId,
    pub(super) identifier: &'a str,
}

impl LimitName<'_> {
    /// Whether `key` has this name.
    fn matches(&self, key: &SlotKey) -> bool {
        self.policy == key.policy && self.identifier == key.identifier
    }

    pub(super) fn is_same_limit(&self, other: &LimitName<'_>) -> bool {
        self.hash == other.hash && self.policy == other.policy && self.identifier == other.identifier
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SlotKey {
    pub(super) identifier: CompactString,
    pub(super) policy: PolicyId,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) state: LimitState,
    /// When the state expires: from then on it counts nothing.
    pub(super) expires_at: i64,
    /// When units are free again, if the slot is among those at their limit.
    frees_at: i64,
}

/// The limits of one shard: at most `capacity`, and at most as many entries of `metadata_list`. The entries are bounded, too,
/// since otherwise the lists could grow without a limit too many.
///
/// The slots at their limit stand before all others. A full shard evicts the others first, without a search: an attacker with
/// ever new addresses can't flush its own denial.
#[derive(Debug)]
pub(super) struct Shard {
    /// Names carry their hash, so the map needs no hasher.
    slots: IndexMap<SlotKey, Slot, ()>,
    /// How many slots are known to be at their limit: `slots[..at_limit]`, the protected ones.
    at_limit: usize,
    /// At least 1.
    capacity: usize,
    /// Entries of all lists, including those that have expired and are not swept yet.
    entries: usize,
    /// The slot at which the sweep continues.
    sweep_position: usize,
    /// Limits that were evicted to make room.
    pub(super) dropped: u64,
    /// States that were discarded since they lay too far ahead of the clock.
    pub(super) discarded: u64,
}

impl Shard {
    pub(super) fn new(capacity: usize) -> Self {
        let slots = IndexMap::with_hasher(());
        Self { slots, at_limit: 0, capacity, entries: 0, sweep_position: 0, dropped: 0, discarded: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn entries(&self) -> usize {
        self.entries
    }

    /// The index of the limit's slot. Any write may move it.
    pub(super) fn find(&self, name: &LimitName<'_>) -> Option<usize> {
        self.slots.raw_entry_v1().index_from_hash(name.hash, |key| name.matches(key))
    }

    /// The state of a limit that was `found` before other writes of the same request.
    pub(super) fn state(&self, name: &LimitName<'_>, found: Option<usize>) -> Option<&LimitState> {
        self.locate(name, found).map(|index| &self.slots[index].state)
    }

    /// Takes `cost` units that the read with this `verdict` has admitted. `found`: the slot's index at the read.
    pub(super) fn write(
        &mut self,
        name: &LimitName<'_>,
        found: Option<usize>,
        check: &Check<'_>,
        now: i64,
        cost: u64,
        verdict: &Verdict,
    ) {
        let policy = check.policy;
        let index = self.locate(name, found).unwrap_or_else(|| self.insert(name, policy, now));
        let slot = &mut self.slots[index];
        let before = slot.state.stored_entries();
        // If no room is left, a list may still replace its own entries.
        let room = self.capacity.max(MIN_ENTRIES).saturating_sub(self.entries - before);
        let keep = policy.record.keep.min(room);
        let discards = slot.state.write(policy.rule(), now, cost, &check.detail, keep);
        self.entries = self.entries - before + slot.state.stored_entries();
        slot.expires_at = slot.state.expires_at(policy.rule(), policy.slowest_tier());
        self.discarded += u64::from(discards);
        self.update_protection(index, now, verdict);
    }

    /// Counts `cost` units that were denied. `found`: the slot's index at the read.
    pub(super) fn count_denied(
        &mut self,
        name: &LimitName<'_>,
        found: Option<usize>,
        policy: &Policy,
        now: i64,
        cost: u64,
    ) {
        let index = self.locate(name, found).unwrap_or_else(|| self.insert(name, policy, now));
        let slot = &mut self.slots[index];
        let before = slot.state.stored_entries();
        self.discarded += u64::from(slot.state.count_denied(policy.rule(), now, cost));
        self.entries = self.entries - before + slot.state.stored_entries();
        slot.expires_at = slot.state.expires_at(policy.rule(), policy.slowest_tier());
    }

    /// Copies the slot of this name from `other`, if there is one.
    pub(super) fn copy_slot(&mut self, other: &Self, name: &LimitName<'_>) {
        let Some((key, slot)) = other.find(name).and_then(|index| other.slots.get_index(index)) else {
            return;
        };
        if let RawEntryMut::Vacant(vacant) =
            self.slots.raw_entry_mut_v1().from_hash(name.hash, |key| name.matches(key))
        {
            vacant.insert_hashed_nocheck(name.hash, key.clone(), slot.clone());
            self.entries += slot.state.stored_entries();
        }
    }

    /// Refunds what `check` took at the time `at`.
    pub(super) fn refund(&mut self, name: &LimitName<'_>, check: &Check<'_>, now: i64, at: i64) {
        let Some(index) = self.find(name) else { return };
        let (rule, slot) = (check.policy.rule(), &mut self.slots[index]);
        let before = slot.state.stored_entries();
        let was_used = slot.state.is_used(rule, now);
        slot.state.refund(rule, now, at, check.cost, &check.detail);
        self.entries = self.entries - before + slot.state.stored_entries();
        if slot.state.is_used(rule, now) {
            slot.expires_at = slot.state.expires_at(rule, check.policy.slowest_tier());
            let verdict = slot.state.read(rule, now, 0, &check.detail);
            self.update_protection(index, now, &verdict);
        } else if was_used {
            self.remove(index);
        }
        // Otherwise nothing was refunded. By an override's limits the state may still count, so it stays.
    }

    /// Protects a limit that was read at its limit. Its last write has done so already, unless the limit was lowered since.
    /// The state does not change.
    pub(super) fn protect(
        &mut self,
        name: &LimitName<'_>,
        found: Option<usize>,
        now: i64,
        verdict: &Verdict,
    ) {
        if let Some(index) = self.locate(name, found)
            && index >= self.at_limit
        {
            self.update_protection(index, now, verdict);
        }
    }

    /// The current index of a slot that was `found` before other writes of the same request.
    fn locate(&self, name: &LimitName<'_>, found: Option<usize>) -> Option<usize> {
        match self.slots.get_index(found?) {
            Some((key, _)) if name.matches(key) => found,
            _ => self.find(name),
        }
    }

    /// Protects the slot from eviction if its limit has nothing remaining; else ends its protection.
    fn update_protection(&mut self, index: usize, now: i64, verdict: &Verdict) {
        let is_at_limit = verdict.remaining == 0;
        if is_at_limit {
            let slot = &mut self.slots[index];
            slot.frees_at = match slot.state {
                // The end of a lease can't be predicted, and `reset` is only when to retry: protect it until it expires.
                LimitState::Concurrency(_) => slot.expires_at,
                _ => now.saturating_add(verdict.reset),
            };
            if index >= self.at_limit {
                self.slots.swap_indices(index, self.at_limit);
                self.at_limit += 1;
            }
        } else if index < self.at_limit {
            self.unprotect(index);
        }
    }

    fn unprotect(&mut self, index: usize) {
        self.at_limit -= 1;
        self.slots.swap_indices(index, self.at_limit);
    }

    fn insert(&mut self, name: &LimitName<'_>, policy: &Policy, now: i64) -> usize {
        self.sweep(SWEPT_PER_INSERT, now);
        if self.slots.len() >= self.capacity {
            self.make_room(now);
        }
        self.grow();
        match self.slots.raw_entry_mut_v1().from_hash(name.hash, |key| name.matches(key)) {
            RawEntryMut::Occupied(slot) => slot.index(),
            RawEntryMut::Vacant(slot) => {
                let index = slot.index();
                let key = SlotKey { identifier: CompactString::new(name.identifier), policy: name.policy };
                let state =
                    Slot { state: LimitState::new(policy.kind), expires_at: i64::MIN, frees_at: i64::MIN };
                slot.insert_hashed_nocheck(name.hash, key, state);
                index
            }
        }
    }

    /// Doubles the map, but never beyond the capacity, so that no memory is idle.
    fn grow(&mut self) {
        let len = self.slots.len();
        if len == self.slots.capacity() {
            self.slots.reserve_exact(len.max(8).min(self.capacity.saturating_sub(len).max(1)));
        }
    }

    /// Removes at least one slot of a full shard: an expired one; else one that is not protected; else any. Of the latter two,
    /// among a few candidates the one that expires first.
    fn make_room(&mut self, now: i64) {
        if self.sweep(SWEPT_WHEN_FULL, now) > 0 {
            return;
        }
        let len = self.slots.len();
        let first = if self.at_limit < len { self.at_limit } else { 0 };
        let candidates =
            (0..EVICTION_CANDIDATES).map(|i| first + (self.sweep_position + i) % (len - first).max(1));
        if let Some(index) = candidates.min_by_key(|&index| self.slots[index].expires_at) {
            self.remove(index);
            self.dropped += 1;
        }
    }

    /// Visits up to `budget` slots, and removes the expired ones. Returns how many it removed.
    pub(super) fn sweep(&mut self, budget: usize, now: i64) -> usize {
        let before = self.slots.len();
        for _ in 0..budget.min(before) {
            if self.sweep_position >= self.slots.len() {
                self.sweep_position = 0;
            }
            // A slot that is removed or unprotected is replaced by another, which is visited next.
            match self.slots.get_index(self.sweep_position) {
                None => break,
                Some((_, slot)) if slot.expires_at <= now => self.remove(self.sweep_position),
                Some((_, slot)) if self.sweep_position < self.at_limit && slot.frees_at <= now => {
                    self.unprotect(self.sweep_position);
                }
                Some(_) => self.sweep_position += 1,
            }
        }
        before - self.slots.len()
    }

    /// Releases memory after a flood.
    pub(super) fn shrink(&mut self) {
        if self.slots.len() < self.slots.capacity() / 4 {
            self.slots.shrink_to(self.slots.len() * 2);
        }
    }

    /// Removes the slots whose key `matches`, after passing each to `removed`.
    pub(super) fn remove_where(
        &mut self,
        matches: impl Fn(&SlotKey) -> bool,
        mut removed: impl FnMut(&SlotKey, &Slot),
    ) {
        // From the end, since a removal only moves slots after it.
        for index in (0..self.slots.len()).rev() {
            if let Some((key, slot)) = self.slots.get_index(index)
                && matches(key)
            {
                removed(key, slot);
                self.remove(index);
            }
        }
    }

    fn remove(&mut self, mut index: usize) {
        if index < self.at_limit {
            self.unprotect(index);
            index = self.at_limit;
        }
        if let Some((_, slot)) = self.slots.swap_remove_index(index) {
            self.entries -= slot.state.stored_entries();
        }
    }
}
