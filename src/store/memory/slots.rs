//! A dense map from the names of limits to their slots, which takes few bytes for each: there are millions.

use hashbrown::HashTable;

use crate::limit::{PolicyId, algorithm::LimitState};
use compact_str::CompactString;

/// The name of a limit in a request, with its hash.
#[derive(Debug, Clone, Copy)]
pub(super) struct LimitName<'a> {
    pub(super) hash: u64,
    pub(super) policy: PolicyId,
    pub(super) identifier: &'a str,
}

impl LimitName<'_> {
    /// Whether `key` has this name.
    pub(super) fn matches(&self, key: &SlotKey) -> bool {
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
    /// The lowest bits of the name's hash.
    pub(super) hash: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) key: SlotKey,
    pub(super) state: LimitState,
    /// When the state expires: from then on it counts nothing.
    pub(super) expires_at: i64,
    /// The least rank is evicted first; of equal ranks, the slot that expires first. Of a slot at its limit: when units
    /// are free again. Of any other: the share of the limit that is used, since so much more would be admitted after an
    /// eviction: units of several policies can't be compared. A flood of new keys evicts its own, which are used once.
    /// Ranks of the two kinds are not compared with each other.
    pub(super) rank: i64,
}

impl Slot {
    pub(super) fn new(key: SlotKey, state: LimitState) -> Self {
        Self { key, state, expires_at: i64::MIN, rank: 0 }
    }
}

/// Slots in a list, and a table that finds their indexes in it. A name carries its hash, so there is no hasher. Indexes
/// and kept hashes have 32 bits: half as much as in a common map.
#[derive(Debug, Default)]
pub(super) struct Slots {
    list: Vec<Slot>,
    table: HashTable<u32>,
}

impl Slots {
    /// The most slots that a map can have.
    pub(super) const MAX: usize = u32::MAX as usize;

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.list.iter()
    }

    pub(super) fn get(&self, index: usize) -> Option<&Slot> {
        self.list.get(index)
    }

    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Slot> {
        self.list.get_mut(index)
    }

    pub(super) fn find(&self, name: &LimitName<'_>) -> Option<usize> {
        let is_named = |index: &u32| name.matches(&self.list[*index as usize].key);
        self.table.find(spread(name.hash as u32), is_named).map(|index| *index as usize)
    }

    /// Adds a slot whose name is not in the map, and returns its index. There are fewer than [`Slots::MAX`].
    pub(super) fn push(&mut self, slot: Slot) -> usize {
        let index = self.list.len();
        let hash = spread(slot.key.hash);
        self.list.push(slot);
        self.table.insert_unique(hash, index as u32, |index| spread(self.list[*index as usize].key.hash));
        index
    }

    pub(super) fn swap(&mut self, a: usize, b: usize) {
        if a == b {
            return;
        }
        let hashes = [a, b].map(|index| spread(self.list[index].key.hash));
        let is_either = |nth: usize, index: &u32| *index as usize == [a, b][nth];
        if let [Some(of_a), Some(of_b)] = self.table.get_disjoint_mut(hashes, is_either) {
            std::mem::swap(of_a, of_b);
        }
        self.list.swap(a, b);
    }

    /// Removes a slot, whose index the last one takes.
    pub(super) fn swap_remove(&mut self, index: usize) -> Option<Slot> {
        let last = self.list.len().checked_sub(1)?;
        let hash = spread(self.list.get(index)?.key.hash);
        self.swap(index, last);
        if let Ok(entry) = self.table.find_entry(hash, |at| *at as usize == last) {
            entry.remove();
        }
        self.list.pop()
    }

    /// Makes room for exactly so many more slots, if there is less.
    pub(super) fn reserve_exact(&mut self, more: usize) {
        self.table.reserve(more, |index| spread(self.list[*index as usize].key.hash));
        self.list.reserve_exact(more);
    }

    pub(super) fn shrink_to(&mut self, room: usize) {
        self.table.shrink_to(room, |index| spread(self.list[*index as usize].key.hash));
        self.list.shrink_to(room);
    }
}

/// A hash for the table, which uses the lowest and the highest bits.
fn spread(hash: u32) -> u64 {
    (u64::from(hash) << 32) | u64::from(hash)
}

impl std::ops::Index<usize> for Slots {
    type Output = Slot;

    fn index(&self, index: usize) -> &Slot {
        &self.list[index]
    }
}

impl std::ops::IndexMut<usize> for Slots {
    fn index_mut(&mut self, index: usize) -> &mut Slot {
        &mut self.list[index]
    }
}

#[cfg(test)]
mod tests {
    use compact_str::{CompactString, format_compact};

    use super::*;
    use crate::limit::{
        PolicyId,
        algorithm::{Kind, LimitState},
    };

    #[test]
    fn a_slot_is_small() {
        assert!(size_of::<Slot>() <= 80, "{} bytes", size_of::<Slot>());
    }

    /// A few hashes only, so that many names share one.
    fn name(identifier: &str) -> LimitName<'_> {
        let hash = identifier.bytes().map(u64::from).sum::<u64>() % 7 * 0x1234_5678_9abc_def1;
        LimitName { hash, policy: PolicyId(1), identifier }
    }

    #[test]
    fn a_slot_is_found_whatever_was_added_moved_and_removed() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut slots = Slots::default();
        let mut identifiers: Vec<CompactString> = Vec::new();
        for step in 0..4_000 {
            let any = random.usize(..identifiers.len().max(1));
            match random.u8(..8) {
                0..4 => {
                    let identifier = format_compact!("ip:{step}");
                    let LimitName { hash, policy, .. } = name(&identifier);
                    let key = SlotKey { identifier: identifier.clone(), policy, hash: hash as u32 };
                    let slot = Slot::new(key, LimitState::new(Kind::FixedWindow));
                    assert_eq!(slots.push(slot), identifiers.len());
                    identifiers.push(identifier);
                }
                4 if !identifiers.is_empty() => {
                    slots.swap(any, 0);
                    identifiers.swap(any, 0);
                }
                5 | 6 if !identifiers.is_empty() => {
                    let removed = slots.swap_remove(any).map(|slot| slot.key.identifier);
                    assert_eq!(removed, Some(identifiers.swap_remove(any)));
                }
                _ => slots.shrink_to(identifiers.len()),
            }
            if step % 50 == 0 {
                let found: Vec<_> = identifiers.iter().map(|of| slots.find(&name(of))).collect();
                assert_eq!(found, (0..identifiers.len()).map(Some).collect::<Vec<_>>());
                assert_eq!((slots.len(), slots.find(&name("ip:none"))), (identifiers.len(), None));
            }
        }
    }
}
