//! One shard of the limits: a dense map that keeps limits at their limit apart from the others.

use std::sync::Arc;

use compact_str::CompactString;

use super::{
    budget::ByteBudget,
    slots::{LimitName, Slot, SlotKey, Slots},
};
use crate::{
    limit::{
        Check, Policy,
        algorithm::{Kind, LimitRule, LimitState, Tier, Verdict},
    },
    memory_budget::heap,
};

/// Slots swept per insert. More than one, so that expired slots are removed faster than new ones are added.
const SWEPT_PER_INSERT: usize = 2;
/// Slots swept in a full shard, in search of an expired one.
const SWEPT_WHEN_FULL: usize = 16;
/// Slots compared for eviction: the one with the least rank is dropped.
const EVICTION_CANDIDATES: usize = 8;
/// Most limits that a write evicts, or lists whose entries it drops, while the budget is exceeded.
const EVICTED_PER_WRITE: usize = 2;
/// The same for a sweep, under one lock.
const RELEASED_PER_LOCK: usize = 256;
/// A shard may have this many slots regardless of the budget.
const MIN_SLOTS: usize = 8;
/// The rank of a limit whose units were all used a moment ago.
const USED_UP: i64 = i64::MAX;

/// The least bound of a shard's entries, so that a small store has evidence, too.
const MIN_ENTRIES: usize = 64;

/// How long a window of the calendar is kept after its end: if wall time was wrong for a moment, the window has not ended,
/// and must not begin again.
const KEPT_FOR: i64 = 86_400_000_000;

/// The time by both clocks of a store, in microseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Now {
    /// For durations.
    pub(super) steady: i64,
    /// For windows of the calendar. Only right if a policy has such.
    pub(super) wall: i64,
}

impl Now {
    /// The time by the clock of this policy.
    pub(super) fn of(self, policy: &Policy) -> i64 {
        if policy.kind == Kind::CalendarWindow { self.wall } else { self.steady }
    }

    /// When the state of a limit of this policy expires, by the steady clock.
    fn expiry(self, policy: &Policy, rule: LimitRule<'_>, state: &LimitState) -> i64 {
        let expires_at = state.expires_at(rule, policy.slowest_tier());
        match policy.kind {
            Kind::CalendarWindow => {
                expires_at.saturating_sub(self.wall).saturating_add(self.steady).saturating_add(KEPT_FOR)
            }
            _ => expires_at,
        }
    }
}

/// The parts that a shard may drop to free memory, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sacrifice {
    /// The entries of `metadata_list`, which are evidence. All of them still count.
    Entries,
    /// Limits with units left, the least used first.
    Available,
    /// Limits at their limit, too, those that are free again soonest first.
    Exhausted,
}

impl Sacrifice {
    pub(super) const ALL: [Self; 3] = [Self::Entries, Self::Available, Self::Exhausted];
}

/// The limits of one shard: at most `capacity`, and at most as many entries of `metadata_list`, since the lists could
/// grow without bound otherwise. All of it counts against the budget of all shards.
///
/// Slots at their limit are before all others. A full shard evicts the others first, without a search, so that an
/// attacker with many addresses can't flush its own denial.
#[derive(Debug)]
pub(super) struct StoreShard {
    slots: Slots,
    /// Slots that the map has memory for.
    room: usize,
    /// Whether slots were removed since the last allocation: gaps in the table may have doubled it.
    has_gaps: bool,
    /// The number of slots at their limit, which are protected: `slots[..at_limit]`.
    at_limit: usize,
    /// At least 1.
    capacity: usize,
    /// Entries of all lists, including those that have expired and are not swept yet.
    entries: usize,
    /// The slot at which the sweep continues.
    sweep_position: usize,
    /// The slot at which the search for entries to drop continues.
    entries_position: usize,
    /// Limits that were evicted to make room.
    pub(super) dropped: u64,
    /// Entries that were dropped to make room.
    pub(super) dropped_entries: u64,
    /// States that were discarded since they lay too far ahead of the clock.
    pub(super) discarded: u64,
    /// The latest times at which limits were written.
    pub(super) latest: Now,
    budget: Arc<ByteBudget>,
}

impl StoreShard {
    pub(super) fn new(capacity: usize, budget: Arc<ByteBudget>) -> Self {
        Self {
            slots: Slots::default(),
            room: 0,
            has_gaps: false,
            at_limit: 0,
            capacity: capacity.min(Slots::MAX),
            entries: 0,
            sweep_position: 0,
            entries_position: 0,
            dropped: 0,
            dropped_entries: 0,
            discarded: 0,
            latest: Now { steady: i64::MIN, wall: i64::MIN },
            budget,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn entries(&self) -> usize {
        self.entries
    }

    /// The index of the limit's slot. Any write may move it.
    pub(super) fn find(&self, name: &LimitName<'_>) -> Option<usize> {
        self.slots.find(name)
    }

    /// The state of the limit whose slot has this index.
    pub(super) fn state_at(&self, index: usize) -> &LimitState {
        &self.slots[index].state
    }

    /// The state of a limit that was `found` before other writes of the same request.
    pub(super) fn state(&self, name: &LimitName<'_>, found: Option<usize>) -> Option<&LimitState> {
        self.locate(name, found).map(|index| self.state_at(index))
    }

    /// Calls `decide` with the policy's rule as it applies here. A `sliding_log` may take an eighth of the budget: a
    /// larger limit is lowered, since a log that has lost units would admit too many.
    pub(super) fn with_rule<T>(
        &self,
        policy: &Policy,
        now: i64,
        decide: impl FnOnce(LimitRule<'_>) -> T,
    ) -> T {
        with_rule(policy, now, self.budget.max_log_units(), decide)
    }

    /// When units of a limit were taken that were taken `now`: see [`LimitState::taken_at`].
    pub(super) fn taken_at(&self, name: &LimitName<'_>, policy: &Policy, now: i64) -> i64 {
        let Some(index) = self.find(name) else { return now };
        self.with_rule(policy, now, |rule| self.state_at(index).taken_at(rule, now))
    }

    /// Takes `cost` units that a read with this `verdict` has admitted. `found`: the slot's index at the read.
    pub(super) fn write(
        &mut self,
        name: &LimitName<'_>,
        found: Option<usize>,
        check: &Check<'_>,
        now: Now,
        cost: u64,
        verdict: &Verdict,
    ) {
        let policy = check.policy;
        self.note_write(policy, now);
        let index = self.locate(name, found).unwrap_or_else(|| self.insert(name, policy, now));
        let slot = &mut self.slots[index];
        let (entries, bytes) = (slot.state.stored_entries(), slot.state.heap_bytes());
        let mut keep = policy.record.keep;
        if matches!(slot.state, LimitState::MetadataList(_)) {
            // If no room is left, a list may still replace its own entries.
            let has_room = self.budget.has_room_for_entries();
            let room = self.capacity.max(MIN_ENTRIES).saturating_sub(self.entries - entries);
            keep = keep.min(if has_room { room } else { entries });
        }
        let discards = policy.with_rule(now.of(policy), |rule| {
            let discards = slot.state.write(rule, now.of(policy), cost, &check.detail, keep);
            slot.expires_at = now.expiry(policy, rule, &slot.state);
            discards
        });
        let stored = slot.state.stored_entries();
        let grown = slot.state.heap_bytes();
        self.discarded += u64::from(discards);
        self.count_entries(entries, stored);
        self.update_protection(index, policy, now, verdict);
        self.settle(name, now, bytes, grown);
    }

    /// Counts `cost` units that were denied. `found`: the slot's index at the read.
    pub(super) fn count_denied(
        &mut self,
        name: &LimitName<'_>,
        found: Option<usize>,
        policy: &Policy,
        now: Now,
        cost: u64,
    ) {
        self.note_write(policy, now);
        let index = self.locate(name, found).unwrap_or_else(|| self.insert(name, policy, now));
        let max_log_units = self.budget.max_log_units();
        let slot = &mut self.slots[index];
        let (entries, bytes) = (slot.state.stored_entries(), slot.state.heap_bytes());
        let discards = with_rule(policy, now.of(policy), max_log_units, |rule| {
            let discards = slot.state.count_denied(rule, now.of(policy), cost);
            slot.expires_at = now.expiry(policy, rule, &slot.state);
            discards
        });
        self.discarded += u64::from(discards);
        let stored = slot.state.stored_entries();
        let grown = slot.state.heap_bytes();
        self.count_entries(entries, stored);
        self.settle(name, now, bytes, grown);
    }

    fn note_write(&mut self, policy: &Policy, now: Now) {
        let latest = match policy.kind {
            Kind::CalendarWindow => &mut self.latest.wall,
            _ => &mut self.latest.steady,
        };
        *latest = now.of(policy).max(*latest);
    }

    /// Copies the slot of this name from `other`, if there is one.
    pub(super) fn copy_slot(&mut self, other: &Self, name: &LimitName<'_>) {
        self.latest = other.latest;
        if let Some(index) = other.find(name)
            && self.find(name).is_none()
        {
            let slot = &other.slots[index];
            self.slots.push(slot.clone());
            self.count_entries(0, slot.state.stored_entries());
            self.budget.change(0, heap_bytes(slot));
        }
    }

    /// Takes `cost` units more for `check`, even past the limit, but of each tier at most one limit.
    pub(super) fn charge(&mut self, name: &LimitName<'_>, check: &Check<'_>, cost: u64, now: Now) {
        let cost = check.policy.tiers.iter().map(|tier| tier.limit).max().unwrap_or_default().min(cost);
        let (found, time) = (self.find(name), now.of(check.policy));
        let verdict = self.with_rule(check.policy, time, |rule| match found {
            Some(index) => self.state_at(index).read(rule, time, cost, &check.detail),
            None => LimitState::new(rule.kind).read(rule, time, cost, &check.detail),
        });
        self.write(name, found, check, now, cost, &verdict);
        // The limit may be used up by now, and is protected then.
        let Some(index) = self.find(name) else { return };
        let verdict = self
            .with_rule(check.policy, time, |rule| self.state_at(index).read(rule, time, 0, &check.detail));
        self.update_protection(index, check.policy, now, &verdict);
    }

    /// Refunds `cost` units of those that `check` took at the time `at`.
    pub(super) fn refund(&mut self, name: &LimitName<'_>, check: &Check<'_>, cost: u64, now: Now, at: i64) {
        let Some(index) = self.find(name) else { return };
        self.note_write(check.policy, now);
        check
            .policy
            .with_rule(now.of(check.policy), |rule| self.refund_at(index, rule, check, cost, now, at));
    }

    fn refund_at(
        &mut self,
        index: usize,
        rule: LimitRule<'_>,
        check: &Check<'_>,
        cost: u64,
        now: Now,
        at: i64,
    ) {
        let slot = &mut self.slots[index];
        let (entries, bytes) = (slot.state.stored_entries(), slot.state.heap_bytes());
        let time = now.of(check.policy);
        let was_used = slot.state.is_used(rule, time);
        slot.state.refund(rule, time, at, cost, &check.detail);
        self.budget.change(bytes, slot.state.heap_bytes());
        let (stored, is_used) = (slot.state.stored_entries(), slot.state.is_used(rule, time));
        self.count_entries(entries, stored);
        if is_used {
            let slot = &mut self.slots[index];
            slot.expires_at = now.expiry(check.policy, rule, &slot.state);
            let verdict = slot.state.read(rule, time, 0, &check.detail);
            self.update_protection(index, check.policy, now, &verdict);
        } else if was_used {
            self.remove(index);
        }
        // Otherwise nothing was refunded. The state may still count by an override's limits, so it is kept.
    }

    /// Protects a limit that was read at its limit, if its last write has not: the limit may have been lowered since.
    /// The state does not change.
    pub(super) fn protect(
        &mut self,
        name: &LimitName<'_>,
        found: Option<usize>,
        policy: &Policy,
        now: Now,
        verdict: &Verdict,
    ) {
        if let Some(index) = self.locate(name, found)
            && index >= self.at_limit
        {
            self.update_protection(index, policy, now, verdict);
        }
    }

    /// The current index of a slot that was `found` before other writes of the same request.
    fn locate(&self, name: &LimitName<'_>, found: Option<usize>) -> Option<usize> {
        match self.slots.get(found?) {
            Some(slot) if name.matches(&slot.key) => found,
            _ => self.find(name),
        }
    }

    /// Protects the slot from eviction if its limit has nothing remaining; else ends its protection.
    fn update_protection(&mut self, index: usize, policy: &Policy, now: Now, verdict: &Verdict) {
        let is_at_limit = verdict.remaining == 0;
        let slot = &mut self.slots[index];
        if is_at_limit {
            slot.rank = match slot.state {
                // The end of a lease can't be predicted, and `reset` is only a time to retry: protected until it
                // expires.
                LimitState::Concurrency(_) => slot.expires_at,
                _ => now.steady.saturating_add(verdict.reset),
            };
            if index >= self.at_limit {
                self.slots.swap(index, self.at_limit);
                self.at_limit += 1;
            }
        } else {
            slot.rank = match policy.tiers.len() {
                1 => share_rank(verdict.limit.saturating_sub(verdict.remaining), verdict.limit),
                // The verdict is that of the tier with the fewest units left.
                _ => policy.with_rule(now.of(policy), |rule| {
                    let ranks = rule.tiers.iter().enumerate();
                    let ranks = ranks.map(|(tier, Tier { limit, .. })| {
                        share_rank(slot.state.used(rule, tier, now.of(policy)), *limit)
                    });
                    ranks.max().unwrap_or_default()
                }),
            };
            if index < self.at_limit {
                self.unprotect(index);
            }
        }
    }

    fn unprotect(&mut self, index: usize) {
        self.at_limit -= 1;
        self.slots.swap(index, self.at_limit);
    }

    fn insert(&mut self, name: &LimitName<'_>, policy: &Policy, now: Now) -> usize {
        self.sweep(SWEPT_PER_INSERT, now.steady);
        let len = self.slots.len();
        let is_full = |shard: &Self| len >= shard.capacity || (len >= shard.room && !shard.may_grow());
        if is_full(self) && self.sweep(SWEPT_WHEN_FULL, now.steady) == 0 {
            let mut gives_entries = len < self.capacity;
            while gives_entries && is_full(self) {
                gives_entries = self.drop_entries(None);
            }
            if is_full(self) {
                self.evict(Sacrifice::Exhausted, None);
            }
        }
        self.grow();
        let identifier = CompactString::new(name.identifier);
        self.budget.change(0, heap::text(&identifier));
        let key = SlotKey { identifier, policy: name.policy, hash: name.hash as u32 };
        self.slots.push(Slot::new(key, LimitState::new(policy.kind)))
    }

    /// Slots by which the map grows: half as many as it has, up to the capacity, so that no memory is unused.
    fn growth(&self) -> usize {
        let len = self.slots.len();
        (len / 2).max(8).min(self.capacity.saturating_sub(len).max(1))
    }

    /// Whether the budget has room for a larger map. The first slots are always allowed.
    fn may_grow(&self) -> bool {
        let len = self.slots.len();
        let grown = map_bytes(len + self.growth(), self.has_gaps);
        len < MIN_SLOTS || self.budget.has_room(grown - map_bytes(self.room, self.has_gaps))
    }

    fn grow(&mut self) {
        if self.slots.len() >= self.room {
            let growth = self.growth();
            self.slots.reserve_exact(growth);
            self.count_map(self.slots.len() + growth, self.has_gaps);
        }
    }

    fn count_entries(&mut self, before: usize, after: usize) {
        if before != after {
            self.entries = self.entries - before + after;
            self.budget.change_entries(before, after);
        }
    }

    /// Counts a change of a state's heap from `before` to `after` bytes, and evicts if that exceeds the budget.
    fn settle(&mut self, name: &LimitName<'_>, now: Now, before: usize, after: usize) {
        if before == after {
            return;
        }
        self.budget.change(before, after);
        if after > before && self.budget.is_exceeded() && self.sweep(SWEPT_WHEN_FULL, now.steady) == 0 {
            for _ in 0..EVICTED_PER_WRITE {
                // If no others are left, the written limit is kept: the next sweep takes from the other shards.
                let written = self.find(name);
                let last = match self.budget.is_far_exceeded() {
                    true => Sacrifice::Exhausted,
                    false => Sacrifice::Available,
                };
                if !self.budget.is_exceeded() || !(self.drop_entries(written) || self.evict(last, written)) {
                    break;
                }
            }
        }
    }

    /// Evicts a limit other than `spared`: the one with the least rank among a few candidates. Those at their limit are
    /// candidates only if there are no others and `last` allows it. Returns false if there is none.
    fn evict(&mut self, last: Sacrifice, spared: Option<usize>) -> bool {
        let len = self.slots.len();
        let rest = self.at_limit..len;
        let has_rest = rest.clone().any(|index| Some(index) != spared);
        let among = match last {
            _ if has_rest => rest,
            Sacrifice::Exhausted => 0..len,
            _ => return false,
        };
        // Spread over all slots: neighbours are of about the same age.
        let spread =
            |i: usize| (self.sweep_position + i * among.len() / EVICTION_CANDIDATES) % among.len().max(1);
        let candidates = (0..EVICTION_CANDIDATES)
            .map(|i| among.start + spread(i))
            .filter(|index| *index < len && Some(*index) != spared);
        let rank = |index: &usize| (self.slots[*index].rank, self.slots[*index].expires_at);
        let Some(index) = candidates.min_by_key(rank) else { return false };
        self.remove(index);
        self.dropped += 1;
        true
    }

    /// Drops the entries of one list other than `spared`. Returns false if there is none.
    fn drop_entries(&mut self, spared: Option<usize>) -> bool {
        if self.entries == 0 {
            return false;
        }
        let len = self.slots.len();
        for _ in 0..len {
            self.entries_position = (self.entries_position + 1) % len;
            let Some(slot) = self.slots.get_mut(self.entries_position) else { continue };
            let entries = slot.state.stored_entries();
            if entries > 0 && Some(self.entries_position) != spared {
                let bytes = slot.state.heap_bytes();
                slot.state.drop_entries();
                self.budget.change(bytes, slot.state.heap_bytes());
                self.count_entries(entries, 0);
                self.dropped_entries += entries as u64;
                return true;
            }
        }
        false
    }

    /// Frees about `bytes`, by sacrifices up to `what`. Evicts a few hundred limits at most, so that no decision waits
    /// for long.
    pub(super) fn release(&mut self, bytes: usize, what: Sacrifice) {
        let (mut freed, mut visited) = (0, 0);
        while freed < bytes && visited < RELEASED_PER_LOCK {
            let (held, len) = (self.budget.held(), self.slots.len());
            let is_any = match what {
                Sacrifice::Entries => self.drop_entries(None),
                _ => self.evict(what, None),
            };
            if !is_any {
                break;
            }
            freed += held.saturating_sub(self.budget.held()) + (len - self.slots.len()) * SLOT_BYTES;
            visited += 1;
        }
        if self.room > self.slots.len() + self.slots.len() / 8 {
            self.shrink_to(self.slots.len());
        }
    }

    /// Visits up to `budget` slots, and removes the ones that have expired by the steady clock. Returns how many it removed.
    pub(super) fn sweep(&mut self, budget: usize, now: i64) -> usize {
        let before = self.slots.len();
        for _ in 0..budget.min(before) {
            if self.sweep_position >= self.slots.len() {
                self.sweep_position = 0;
            }
            // A slot that is removed or unprotected is replaced by another, which is visited next.
            match self.slots.get_mut(self.sweep_position) {
                None => break,
                Some(slot) if slot.expires_at <= now => self.remove(self.sweep_position),
                Some(slot) if self.sweep_position < self.at_limit && slot.rank <= now => {
                    slot.rank = USED_UP;
                    self.unprotect(self.sweep_position);
                }
                Some(_) => self.sweep_position += 1,
            }
        }
        before - self.slots.len()
    }

    /// Releases memory after a flood.
    pub(super) fn shrink(&mut self) {
        if self.slots.len() < self.room / 4 {
            self.shrink_to(self.slots.len() * 2);
        }
    }

    fn shrink_to(&mut self, capacity: usize) {
        self.slots.shrink_to(capacity);
        self.count_map(capacity, false);
    }

    /// Sets the number of slots that the map has memory for.
    fn count_map(&mut self, room: usize, has_gaps: bool) {
        self.budget.change(map_bytes(self.room, self.has_gaps), map_bytes(room, has_gaps));
        (self.room, self.has_gaps) = (room, has_gaps);
    }

    /// Removes the slots whose key `matches`, after passing each to `removed`.
    pub(super) fn remove_where(
        &mut self,
        matches: impl Fn(&SlotKey) -> bool,
        mut removed: impl FnMut(&Slot),
    ) {
        // From the end, since a removal only moves slots after it.
        for index in (0..self.slots.len()).rev() {
            let slot = &self.slots[index];
            if matches(&slot.key) {
                removed(slot);
                self.remove(index);
            }
        }
    }

    fn remove(&mut self, mut index: usize) {
        if index < self.at_limit {
            self.unprotect(index);
            index = self.at_limit;
        }
        if let Some(slot) = self.slots.swap_remove(index) {
            self.count_entries(slot.state.stored_entries(), 0);
            self.budget.change(heap_bytes(&slot), 0);
            if !self.has_gaps {
                self.count_map(self.room, true);
            }
        }
    }

    /// The content, counted slot by slot.
    #[cfg(test)]
    pub(super) fn counted_bytes(&self) -> usize {
        map_bytes(self.room, self.has_gaps) + self.slots.iter().map(heap_bytes).sum::<usize>()
    }
}

/// The rank of a share of a limit: 0 for more than a half, -1 for more than a quarter, and so on. Limits that are about
/// equally used are ranked by their expiry: after an eviction, the one with the longer window admits too much for longer.
fn share_rank(used: u64, limit: u64) -> i64 {
    let parts = limit.checked_div(used).unwrap_or(u64::MAX).max(1);
    -i64::from(parts.ilog2())
}

/// Bytes of a slot in the map.
const SLOT_BYTES: usize = size_of::<Slot>();

/// Bytes of a map with room for `room` slots: a list of them, and a table of their indexes.
fn map_bytes(room: usize, has_gaps: bool) -> usize {
    let table = heap::hash_table(room, size_of::<u32>());
    heap::block(room * SLOT_BYTES) + if has_gaps { 2 * table } else { table }
}

/// Heap bytes of a slot, without its place in the map.
fn heap_bytes(slot: &Slot) -> usize {
    heap::text(&slot.key.identifier) + slot.state.heap_bytes()
}

/// [`StoreShard::with_rule`]
fn with_rule<T>(policy: &Policy, now: i64, max_log_units: u64, decide: impl FnOnce(LimitRule<'_>) -> T) -> T {
    policy.with_rule(now, |rule| match rule {
        LimitRule { kind: Kind::SlidingLog, tiers: [tier], .. } if tier.limit > max_log_units => {
            decide(LimitRule { tiers: &[Tier { limit: max_log_units, ..*tier }], ..rule })
        }
        rule => decide(rule),
    })
}
