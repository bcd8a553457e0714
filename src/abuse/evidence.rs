//! The last records of one policy at one address.

use std::{collections::HashMap, sync::Arc};

use compact_str::CompactString;

use crate::limit::algorithm::metadata_list::Entry;

/// What counts the owners of an entry.
const COUNTED: usize = 2 * size_of::<usize>();

/// At most `keep` records, each for `retain` microseconds, oldest first.
///
/// When it is full, the record to go is the oldest of the user with the most: a flood by one user never
/// hides the others behind the address.
#[derive(Debug, Clone, Default)]
pub(super) struct Kept(Vec<Arc<Entry>>);

/// What a policy says of its records.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) keep: usize,
    /// Microseconds.
    pub(super) retain: i64,
}

impl Kept {
    /// Adds a record, unless it has expired or is there already.
    pub(super) fn insert(&mut self, entry: &Arc<Entry>, bounds: Bounds, now: i64) {
        if bounds.keep == 0 || expired(entry, bounds, now) {
            return;
        }
        if self.at(entry.time).any(|record| Arc::ptr_eq(record, entry)) {
            return;
        }
        let after = self.0.partition_point(|record| record.time <= entry.time);
        if self.0.is_empty() {
            // Most addresses have one.
            self.0.reserve_exact(1);
        }
        self.0.insert(after, Arc::clone(entry));
        while self.0.len() > bounds.keep {
            self.shrink();
        }
    }

    /// Adds the records of another instance, but for those that equal one of these: both were told of the
    /// same request then, by the list of a limit that they share.
    pub(super) fn merge(&mut self, other: &Self, bounds: Bounds, now: i64) {
        let known = |entry: &Arc<Entry>| self.at(entry.time).any(|record| record == entry);
        let new: Vec<_> = other.0.iter().filter(|entry| !known(entry)).cloned().collect();
        for entry in &new {
            self.insert(entry, bounds, now);
        }
    }

    /// Forgets what is as old as `retain`.
    pub(super) fn expire(&mut self, bounds: Bounds, now: i64) {
        let count = self.0.partition_point(|record| expired(record, bounds, now));
        self.0.drain(..count);
    }

    /// About how much memory it takes, itself left out.
    pub(super) fn bytes(&self) -> usize {
        let heap = |text: &CompactString| if text.is_heap_allocated() { text.capacity() } else { 0 };
        let entry = |entry: &Arc<Entry>| heap(&entry.path) + entry.user.as_ref().map_or(0, heap);
        let each = COUNTED + size_of::<Entry>();
        self.0.capacity() * size_of::<Arc<Entry>>()
            + self.0.len() * each
            + self.0.iter().map(entry).sum::<usize>()
    }

    /// Oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.0.iter()
    }

    /// The records of this time.
    fn at(&self, time: i64) -> impl Iterator<Item = &Arc<Entry>> {
        let from = self.0.partition_point(|record| record.time < time);
        self.0[from..].iter().take_while(move |record| record.time == time)
    }

    fn shrink(&mut self) {
        let mut counts = HashMap::<_, usize, foldhash::fast::RandomState>::default();
        for record in &self.0 {
            *counts.entry(record.user.as_deref()).or_default() += 1;
        }
        let most = counts.values().copied().max();
        let oldest = self.0.iter().position(|record| counts.get(&record.user.as_deref()).copied() == most);
        if let Some(oldest) = oldest {
            self.0.remove(oldest);
        }
    }
}

fn expired(entry: &Entry, bounds: Bounds, now: i64) -> bool {
    entry.time.saturating_add(bounds.retain) <= now
}

#[cfg(test)]
mod tests {
    use super::{super::testing::entry, *};

    const BOUNDS: Bounds = Bounds { keep: 4, retain: 100 };

    fn told(kept: &Kept) -> Vec<(i64, &str)> {
        kept.iter().map(|record| (record.time, record.user.as_deref().unwrap_or("-"))).collect()
    }

    #[test]
    fn a_flood_by_one_user_hides_nobody() {
        let mut kept = Kept::default();
        kept.insert(&entry(1, "bob"), BOUNDS, 10);
        kept.insert(&entry(2, "eve"), BOUNDS, 10);
        for time in 3..50 {
            kept.insert(&entry(time, "acme"), BOUNDS, 50);
        }
        assert_eq!(told(&kept), [(1, "bob"), (2, "eve"), (48, "acme"), (49, "acme")]);
    }

    #[test]
    fn the_same_record_is_kept_once() {
        let mut kept = Kept::default();
        let (first, second) = (entry(1, "bob"), entry(1, "bob"));
        for record in [&first, &second, &first, &second] {
            kept.insert(record, BOUNDS, 10);
        }
        assert_eq!(kept.iter().count(), 2);
    }

    #[test]
    fn what_two_instances_were_told_of_is_kept_once() {
        let list = |entries: &[(i64, &str)]| {
            let mut kept = Kept::default();
            entries.iter().for_each(|&(time, user)| kept.insert(&entry(time, user), BOUNDS, 10));
            kept
        };
        let mut kept = list(&[(1, "bob"), (3, "acme"), (3, "acme")]);
        kept.merge(&list(&[(1, "bob"), (2, "eve"), (3, "acme"), (3, "bob")]), BOUNDS, 10);
        assert_eq!(told(&kept), [(2, "eve"), (3, "acme"), (3, "acme"), (3, "bob")]);
    }

    #[test]
    fn late_records_find_their_place_and_old_ones_go() {
        let mut kept = Kept::default();
        for time in [7, 3, 5] {
            kept.insert(&entry(time, "bob"), BOUNDS, 10);
        }
        assert_eq!(told(&kept), [(3, "bob"), (5, "bob"), (7, "bob")]);
        kept.expire(BOUNDS, 105);
        assert_eq!(told(&kept), [(7, "bob")]);
        kept.insert(&entry(4, "bob"), BOUNDS, 105);
        assert_eq!(told(&kept), [(7, "bob")]);
    }

    #[test]
    fn nothing_is_kept_where_none_is_wanted() {
        let mut kept = Kept::default();
        kept.insert(&entry(1, "bob"), Bounds { keep: 0, retain: 100 }, 1);
        assert_eq!(kept.iter().count(), 0);
    }
}
