//! The last records of one policy at one address.

use std::{collections::HashMap, sync::Arc};

use super::super::UserNaming;
use crate::{limit::algorithm::metadata_list::Entry, memory_budget::heap};

/// The maximum that a policy may keep.
pub(super) const MAX_KEEP: usize = 1_000;

/// At most `keep` records, each for `retain` microseconds, oldest first.
///
/// When it is full, the oldest record of the user with the most records is dropped: a flood by one user never hides
/// the others behind the address.
#[derive(Debug, Clone, Default)]
pub(super) struct RecordBuffer(Vec<Arc<Entry>>);

/// The limits of a policy's records.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordBounds {
    pub(super) keep: usize,
    /// Microseconds.
    pub(super) retain: i64,
}

impl RecordBuffer {
    /// Adds a record, unless it has expired. Until [`RecordBuffer::trim`], there may be twice as many.
    pub(super) fn insert(&mut self, entry: &Arc<Entry>, bounds: RecordBounds, now: i64) {
        if bounds.keep == 0 || expired(entry, bounds, now) {
            return;
        }
        let after = self.0.partition_point(|record| record.time <= entry.time);
        if self.0.is_empty() {
            // Most addresses have one.
            self.0.reserve_exact(1);
        }
        self.0.insert(after, Arc::clone(entry));
        // Not one by one: finding one record to drop takes as long as finding them all.
        if self.0.len() >= 2 * bounds.keep {
            self.trim(bounds);
        }
    }

    /// Drops excess records, after some were added.
    pub(super) fn trim(&mut self, bounds: RecordBounds) {
        if self.0.len() > bounds.keep {
            self.shrink(bounds.keep);
        }
    }

    /// Adds records of another instance, or of a list, except for known ones: both instances may have read the same
    /// request from the list of a shared limit, and one instance may read a list twice.
    pub(super) fn merge<'a>(
        &mut self,
        others: impl Iterator<Item = &'a Arc<Entry>>,
        bounds: RecordBounds,
        now: i64,
    ) {
        let known = |entry: &Arc<Entry>| self.at_time(entry.time).any(|record| record == entry);
        let new: Vec<_> = others.filter(|entry| !known(entry)).cloned().collect();
        for entry in &new {
            self.insert(entry, bounds, now);
        }
        self.trim(bounds);
    }

    /// Masks users' names.
    pub(super) fn mask(&mut self, names: &UserNaming) {
        self.0.iter_mut().for_each(|entry| *entry = names.mask_entry(entry).0);
    }

    /// Removes the records that `other` has as well.
    pub(super) fn remove_known(&mut self, other: &Self) {
        self.0.retain(|entry| !other.at_time(entry.time).any(|record| record == entry));
    }

    /// When the first of the records expires.
    pub(super) fn ends(&self, bounds: RecordBounds) -> Option<i64> {
        self.0.first().map(|record| record.time.saturating_add(bounds.retain))
    }

    /// Removes records as old as `retain`.
    pub(super) fn expire(&mut self, bounds: RecordBounds, now: i64) {
        let count = self.0.partition_point(|record| expired(record, bounds, now));
        self.0.drain(..count);
        if self.0.is_empty() {
            self.0 = Vec::new();
        }
    }

    /// Bytes on the heap.
    pub(super) fn bytes(&self) -> usize {
        heap::array::<Arc<Entry>>(self.0.capacity())
            + self.0.iter().map(|entry| entry.heap_bytes()).sum::<usize>()
    }

    /// Oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.0.iter()
    }

    /// The records of this time.
    fn at_time(&self, time: i64) -> impl Iterator<Item = &Arc<Entry>> {
        let from = self.0.partition_point(|record| record.time < time);
        self.0[from..].iter().take_while(move |record| record.time == time)
    }

    /// Equivalent to dropping the oldest record of the user with the most records, until the rest fits.
    fn shrink(&mut self, keep: usize) {
        let mut counts = HashMap::<_, usize, foldhash::fast::RandomState>::default();
        for record in &self.0 {
            *counts.entry(record.user.clone()).or_default() += 1;
        }
        let share = share(counts.values().copied().collect(), keep);
        // First cut every user down to one above the share; then drop the oldest of those one above it.
        self.0.retain(|record| {
            let Some(count) = counts.get_mut(&record.user) else { return true };
            let stays = *count <= share + 1;
            *count -= usize::from(!stays);
            stays
        });
        let mut excess = self.0.len().saturating_sub(keep);
        self.0.retain(|record| {
            let Some(count) = counts.get_mut(&record.user) else { return true };
            let stays = excess == 0 || *count <= share;
            *count -= usize::from(!stays);
            excess -= usize::from(!stays);
            stays
        });
    }
}

/// The largest number of records per user with which all users fit into `keep`.
fn share(mut counts: Vec<usize>, keep: usize) -> usize {
    counts.sort_unstable();
    let (mut left, mut users) = (keep, counts.len());
    for count in counts {
        if count * users > left {
            return left / users;
        }
        left -= count;
        users -= 1;
    }
    keep
}

fn expired(entry: &Entry, bounds: RecordBounds, now: i64) -> bool {
    entry.time.saturating_add(bounds.retain) <= now
}

#[cfg(test)]
mod tests {
    use super::{super::super::testing::entry, *};

    const BOUNDS: RecordBounds = RecordBounds { keep: 4, retain: 100 };

    fn listed(buffer: &RecordBuffer) -> Vec<(i64, &str)> {
        buffer.iter().map(|record| (record.time, record.user.as_deref().unwrap_or("-"))).collect()
    }

    #[test]
    fn a_flood_by_one_user_keeps_the_others_records() {
        let mut buffer = RecordBuffer::default();
        buffer.insert(&entry(1, "bob"), BOUNDS, 10);
        buffer.insert(&entry(2, "eve"), BOUNDS, 10);
        for time in 3..50 {
            buffer.insert(&entry(time, "acme"), BOUNDS, 50);
        }
        buffer.trim(BOUNDS);
        assert_eq!(listed(&buffer), [(1, "bob"), (2, "eve"), (48, "acme"), (49, "acme")]);
    }

    #[test]
    fn all_at_once_is_as_one_by_one() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..200 {
            let entries: Vec<_> =
                (0..random.i64(0..40)).map(|time| entry(time, &random.u8(0..6).to_string())).collect();
            let (mut at_once, mut slowly) = (RecordBuffer::default(), entries.clone());
            entries
                .iter()
                .for_each(|entry| at_once.insert(entry, RecordBounds { keep: 40, retain: 100 }, 40));
            let keep = random.usize(1..12);
            at_once.trim(RecordBounds { keep, retain: 100 });
            while slowly.len() > keep {
                let count = |entry: &Entry| slowly.iter().filter(|other| other.user == entry.user).count();
                let most = slowly.iter().map(|entry| count(entry)).max();
                let oldest = slowly.iter().position(|entry| Some(count(entry)) == most).unwrap();
                slowly.remove(oldest);
            }
            assert_eq!(at_once.0, slowly);
        }
    }

    #[test]
    fn a_list_that_is_read_twice_is_kept_once() {
        let mut buffer = RecordBuffer::default();
        // Two equal requests in one microsecond are two.
        let list = || [entry(1, "bob"), entry(1, "bob"), entry(2, "eve")];
        for _ in 0..2 {
            buffer.merge(list().iter(), BOUNDS, 10);
        }
        assert_eq!(listed(&buffer), [(1, "bob"), (1, "bob"), (2, "eve")]);
    }

    #[test]
    fn a_record_that_two_instances_share_is_kept_once() {
        let list = |entries: &[(i64, &str)]| {
            let mut buffer = RecordBuffer::default();
            entries.iter().for_each(|&(time, user)| buffer.insert(&entry(time, user), BOUNDS, 10));
            buffer
        };
        let mut buffer = list(&[(1, "bob"), (3, "acme"), (3, "acme")]);
        let other = list(&[(1, "bob"), (2, "eve"), (3, "acme"), (3, "bob")]);
        buffer.merge(other.iter(), BOUNDS, 10);
        assert_eq!(listed(&buffer), [(2, "eve"), (3, "acme"), (3, "acme"), (3, "bob")]);
    }

    #[test]
    fn late_records_find_their_place_and_old_ones_go() {
        let mut buffer = RecordBuffer::default();
        for time in [7, 3, 5] {
            buffer.insert(&entry(time, "bob"), BOUNDS, 10);
        }
        assert_eq!(listed(&buffer), [(3, "bob"), (5, "bob"), (7, "bob")]);
        buffer.expire(BOUNDS, 105);
        assert_eq!(listed(&buffer), [(7, "bob")]);
        buffer.insert(&entry(4, "bob"), BOUNDS, 105);
        assert_eq!(listed(&buffer), [(7, "bob")]);
    }

    #[test]
    fn keep_zero_keeps_nothing() {
        let mut buffer = RecordBuffer::default();
        buffer.insert(&entry(1, "bob"), RecordBounds { keep: 0, retain: 100 }, 1);
        assert_eq!(buffer.iter().count(), 0);
    }
}
