//! A set of members, each with a time: the state of `distinct` and `concurrency`.

use std::collections::{BTreeMap, BTreeSet};

use super::Member;
use crate::memory_budget::heap;

/// A larger set is indexed by trees.
const MAX_LIST: usize = 32;
/// An indexed set that shrinks to this many members becomes a list again. Far below [`MAX_LIST`], so that a set does
/// not switch back and forth.
const MAX_SHRUNK_LIST: usize = 8;

/// Members, each once, ordered by time.
#[derive(Debug, Clone)]
pub(super) enum Members {
    /// Most sets have few members. Sorted by time, searched linearly.
    List(Vec<(i64, Member)>),
    Indexed(Box<Index>),
}

/// The members by value and by time, so that neither lookup scans.
#[derive(Debug, Clone, Default)]
pub(super) struct Index {
    times: BTreeMap<Member, i64>,
    order: BTreeSet<(i64, Member)>,
}

impl Members {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::List(list) => list.len(),
            Self::Indexed(index) => index.order.len(),
        }
    }

    /// Bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        // An entry of each tree: 24 bytes, and 32 where they are aligned as one.
        const INDEXED: usize = heap::tree_entry(24) + heap::tree_entry(32);
        match self {
            Self::List(list) => heap::array::<(i64, Member)>(list.capacity()),
            Self::Indexed(index) => heap::array::<Index>(1) + index.order.len() * INDEXED,
        }
    }

    pub(super) fn time_of(&self, member: Member) -> Option<i64> {
        match self {
            Self::List(list) => list.iter().find(|(_, known)| *known == member).map(|(time, _)| *time),
            Self::Indexed(index) => index.times.get(&member).copied(),
        }
    }

    /// The newest time.
    pub(super) fn newest(&self) -> Option<i64> {
        match self {
            Self::List(list) => list.last().map(|(time, _)| *time),
            Self::Indexed(index) => index.order.last().map(|(time, _)| *time),
        }
    }

    /// The members whose time is after `time`, oldest first.
    pub(super) fn after(&self, time: i64) -> Box<dyn Iterator<Item = (i64, Member)> + '_> {
        match self {
            Self::List(list) => {
                Box::new(list[list.partition_point(|(other, _)| *other <= time)..].iter().copied())
            }
            Self::Indexed(index) => Box::new(
                index.order.range((time, Member::MAX)..).copied().filter(move |(other, _)| *other > time),
            ),
        }
    }

    /// Counts the members with a time after `time` and not after `last`. Counts the others and subtracts them: the next
    /// write removes those, so they are few.
    pub(super) fn count_between(&self, time: i64, last: i64) -> u64 {
        let outside = match self {
            Self::List(list) => list.iter().filter(|(other, _)| *other <= time || *other > last).count(),
            Self::Indexed(index) => {
                let newest_first = index.order.iter().rev().take_while(|(other, _)| *other > last);
                let oldest_first =
                    index.order.iter().take_while(|(other, _)| *other <= time && *other <= last);
                newest_first.count() + oldest_first.count()
            }
        };
        (self.len() - outside) as u64
    }

    /// Adds a member, or changes its time.
    pub(super) fn set(&mut self, member: Member, time: i64) {
        self.remove(member);
        match self {
            Self::List(list) if list.len() < MAX_LIST => {
                list.insert(list.partition_point(|other| *other < (time, member)), (time, member));
            }
            Self::List(list) => {
                let mut index = Index::default();
                for &(time, member) in list.iter().chain(&[(time, member)]) {
                    index.insert(time, member);
                }
                *self = Self::Indexed(Box::new(index));
            }
            Self::Indexed(index) => index.insert(time, member),
        }
    }

    pub(super) fn remove(&mut self, member: Member) {
        match self {
            Self::List(list) => list.retain(|(_, known)| *known != member),
            Self::Indexed(index) => {
                if let Some(time) = index.times.remove(&member) {
                    index.order.remove(&(time, member));
                }
            }
        }
    }

    /// Removes the members that [`Members::count_between`] does not count.
    pub(super) fn retain_between(&mut self, time: i64, last: i64) {
        match self {
            Self::List(list) => list.retain(|(other, _)| *other > time && *other <= last),
            Self::Indexed(index) => {
                while let Some(&oldest) = index.order.first().filter(|(other, _)| *other <= time) {
                    index.remove(oldest);
                }
                while let Some(&newest) = index.order.last().filter(|(other, _)| *other > last) {
                    index.remove(newest);
                }
                if index.order.len() <= MAX_SHRUNK_LIST {
                    *self = Self::List(index.order.iter().copied().collect());
                }
            }
        }
    }
}

impl Index {
    fn insert(&mut self, time: i64, member: Member) {
        self.times.insert(member, time);
        self.order.insert((time, member));
    }

    fn remove(&mut self, (time, member): (i64, Member)) {
        self.times.remove(&member);
        self.order.remove(&(time, member));
    }
}

impl Default for Members {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

/// Equal members are equal sets, whether listed or indexed.
impl PartialEq for Members {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len()
            && self.after(i64::MIN).eq(other.after(i64::MIN))
            && self.count_between(i64::MIN, i64::MAX) == other.count_between(i64::MIN, i64::MAX)
    }
}

impl Eq for Members {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asserts that both forms agree with a plain list.
    fn agrees(members: &Members, mut expected: Vec<(i64, Member)>) {
        expected.sort_unstable();
        assert_eq!(members.len(), expected.len());
        assert_eq!(members.newest(), expected.last().map(|(time, _)| *time));
        for cut in [-1, 0, 5, 50, 99, 1_000] {
            let after: Vec<_> = expected.iter().copied().filter(|(time, _)| *time > cut).collect();
            assert_eq!(members.after(cut).collect::<Vec<_>>(), after);
            let between = after.iter().filter(|(time, _)| *time <= 60).count() as u64;
            assert_eq!(members.count_between(cut, 60), between, "after {cut}");
        }
        for &(time, member) in &expected {
            assert_eq!(members.time_of(member), Some(time));
        }
        assert_eq!(members.time_of(7_777), None);
    }

    #[test]
    fn few_and_many_are_the_same() {
        let (mut members, mut expected) = (Members::default(), Vec::new());
        for i in 0..100_i64 {
            let (time, member) = (i * 37 % 100, Member::from(i.unsigned_abs() % 70));
            members.set(member, time);
            expected.retain(|(_, known)| *known != member);
            expected.push((time, member));
            agrees(&members, expected.clone());
        }
        assert!(matches!(members, Members::Indexed(_)));
        for i in 0..70 {
            members.remove(i * 3 % 70);
            expected.retain(|(_, known)| *known != i * 3 % 70);
            agrees(&members, expected.clone());
            if i == 40 {
                members.retain_between(5, 60);
                expected.retain(|(time, _)| *time > 5 && *time <= 60);
                agrees(&members, expected.clone());
            }
        }
        assert_eq!(members.len(), 0);
    }

    #[test]
    fn a_crowd_of_long_ago_holds_no_memory() {
        let mut members = Members::default();
        for i in 0..10_000 {
            members.set(i, 100);
        }
        members.set(1, 300);
        members.retain_between(200, i64::MAX);
        assert!(matches!(&members, Members::List(list) if list.capacity() <= MAX_LIST), "{members:?}");
        assert_eq!(members.time_of(1), Some(300));
    }
}
