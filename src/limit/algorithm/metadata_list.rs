//! `metadata_list`: counts like `single_counter`, and records who made each request, so that the list shows who used up
//! the limit.
//!
//! Every unit is counted, but only the newest `max_entries` are recorded: a limit may be 10⁹, the memory of a key may
//! not.
//!
//! A window may be longer than its entries may be kept. Then an entry is dropped with the [slice](slice()) of time in
//! which it was recorded, so that Redis drops it by expiry.

use std::{collections::VecDeque, sync::Arc};

use compact_str::CompactString;

use super::{Tier, Verdict, single_counter::SingleCounter};
use crate::memory_budget::heap;

/// The record of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Microseconds since the Unix epoch.
    pub time: i64,
    pub user: Option<CompactString>,
    pub method: http::Method,
    pub path: CompactString,
}

/// The number of slices of entries at a time.
pub const SLICES: i64 = 4;

/// The length in microseconds of a slice of entries that may be kept for `retain`: a slice begins at each multiple of
/// it and is dropped `retain` later, so an entry is kept for at least three quarters of `retain`. `None`: the window
/// ends earlier, and all entries with it.
pub fn slice(tier: Tier, retain: i64) -> Option<i64> {
    (retain < tier.window).then_some((retain / SLICES).max(1))
}

/// Whether an entry recorded at `at` is kept at the time `now`.
fn is_kept(slice: Option<i64>, at: i64, now: i64) -> bool {
    slice.is_none_or(|slice| (0..SLICES).contains(&(now.div_euclid(slice) - at.div_euclid(slice))))
}

/// The window's count, and its newest entries.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MetadataList {
    counter: SingleCounter,
    /// Boxed, so that it does not enlarge the other algorithms' state.
    entries: Option<Box<EntryList>>,
}

/// Entries, oldest first, and their bytes on the heap.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct EntryList {
    list: VecDeque<Arc<Entry>>,
    bytes: usize,
}

impl Entry {
    /// Bytes on the heap, with those of its reference counts.
    pub fn heap_bytes(&self) -> usize {
        heap::shared::<Self>() + heap::text(&self.path) + self.user.as_ref().map_or(0, heap::text)
    }
}

impl EntryList {
    fn drop_oldest(&mut self, count: usize) {
        let dropped: usize = self.list.drain(..count).map(|entry| entry.heap_bytes()).sum();
        self.bytes -= dropped;
    }

    /// Drops the entries that may not be kept any more at the time `now`.
    fn expire(&mut self, slice: Option<i64>, now: i64) {
        let expired = self.list.iter().take_while(|entry| !is_kept(slice, entry.time, now)).count();
        self.drop_oldest(expired);
    }

    /// Adds an entry, and drops the oldest beyond `max`.
    fn push(&mut self, entry: &Arc<Entry>, max: usize) {
        self.drop_oldest((self.list.len() + 1).saturating_sub(max));
        self.list.push_back(Arc::clone(entry));
        self.bytes += entry.heap_bytes();
    }

    /// Removes the newest that equals `entry`.
    fn remove(&mut self, entry: &Arc<Entry>) {
        let index = self.list.iter().rposition(|held| held == entry);
        if let Some(removed) = index.and_then(|index| self.list.remove(index)) {
            self.bytes -= removed.heap_bytes();
        }
    }
}

impl MetadataList {
    /// The verdict for a request of `cost` units at the time `now`. Changes nothing.
    pub fn read(&self, tier: Tier, now: i64, cost: u64) -> Verdict {
        self.counter.read(tier, now, cost)
    }

    /// Takes `cost` units that a read has admitted, and records the request's `entry`. Keeps the newest `max_entries`
    /// entries, each for `retain` microseconds at most. Returns whether state from the future was discarded.
    pub fn write(
        &mut self,
        tier: Tier,
        now: i64,
        cost: u64,
        entry: Option<&Arc<Entry>>,
        max_entries: usize,
        retain: i64,
    ) -> bool {
        if self.used(tier, now) == 0 {
            // Frees the memory, too: a long list must not outlive its window.
            self.entries = None;
        }
        if let Some(entries) = &mut self.entries {
            entries.expire(slice(tier, retain), now);
        }
        if let Some(entry) = entry
            && max_entries > 0
        {
            self.entries.get_or_insert_default().push(entry, max_entries);
        }
        self.counter.write(tier, now, cost)
    }

    /// Counts a denied request, up to the limit. The list shows admitted requests only, so it is unchanged. Returns
    /// whether state from the future was discarded.
    pub fn count_denied(&mut self, tier: Tier, now: i64, cost: u64) -> bool {
        if self.used(tier, now) == 0 {
            self.entries = None;
        }
        self.counter.count_denied(tier, now, cost)
    }

    /// Refunds `cost` units that were taken at `at`, if their window has not ended, and removes `entry` from the list.
    pub fn refund(&mut self, tier: Tier, at: i64, cost: u64, entry: Option<&Arc<Entry>>) {
        if let (Some(entries), Some(entry)) = (&mut self.entries, entry) {
            entries.remove(entry);
        }
        // Even if its window is far ahead of the clock, as in Redis.
        self.counter.refund(tier, at, at, cost);
    }

    /// When the window began.
    pub fn start(&self) -> i64 {
        self.counter.start()
    }

    /// Units taken in the window of `now`.
    pub fn used(&self, tier: Tier, now: i64) -> u64 {
        self.counter.used(tier, now)
    }

    /// The entries recorded in the window of `now` that may be kept for `retain` microseconds, oldest first.
    pub fn entries(&self, tier: Tier, now: i64, retain: i64) -> impl Iterator<Item = &Arc<Entry>> {
        let slice = slice(tier, retain);
        self.entries
            .iter()
            .flat_map(|entries| &entries.list)
            .filter(move |entry| self.used(tier, now) > 0 && is_kept(slice, entry.time, now))
    }

    /// How many entries are in memory, including those of a window that has ended.
    pub fn stored_entries(&self) -> usize {
        self.entries.as_ref().map_or(0, |entries| entries.list.len())
    }

    /// Drops the entries; all of them still count.
    pub fn drop_entries(&mut self) {
        self.entries = None;
    }

    /// Bytes on the heap: the list, and its entries.
    pub fn heap_bytes(&self) -> usize {
        self.entries.as_ref().map_or(0, |entries| {
            let list = heap::array::<EntryList>(1) + heap::array::<Arc<Entry>>(entries.list.capacity());
            list + entries.bytes
        })
    }

    /// When the state expires: from then on it counts nothing.
    pub fn expires_at(&self, tier: Tier) -> i64 {
        self.counter.expires_at(tier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIER: Tier = Tier { limit: 4, window: 1_000 };
    /// Not shorter than the window.
    const RETAIN: i64 = 1_000;

    fn entry(time: i64) -> Arc<Entry> {
        Arc::new(Entry { time, user: Some("alice".into()), method: http::Method::GET, path: "/a".into() })
    }

    fn times(state: &MetadataList, now: i64) -> Vec<i64> {
        state.entries(TIER, now, RETAIN).map(|entry| entry.time).collect()
    }

    #[test]
    fn the_list_says_who_filled_it() {
        let mut state = MetadataList::default();
        for now in [100, 200, 300, 400] {
            assert!(state.read(TIER, now, 1).admitted);
            state.write(TIER, now, 1, Some(&entry(now)), 50, RETAIN);
        }
        assert_eq!(state.read(TIER, 1_099, 1).retry_after, Some(1));
        assert_eq!(times(&state, 1_099), [100, 200, 300, 400]);
        assert_eq!(times(&state, 1_100), [0; 0], "the window is over");
    }

    #[test]
    fn a_new_window_begins_an_empty_list() {
        let mut state = MetadataList::default();
        state.write(TIER, 100, 4, Some(&entry(100)), 50, RETAIN);
        state.write(TIER, 1_100, 1, Some(&entry(1_100)), 50, RETAIN);
        assert_eq!(times(&state, 1_100), [1_100]);
        assert_eq!(state.used(TIER, 1_100), 1);
    }

    #[test]
    fn the_newest_are_kept_and_all_are_counted() {
        let mut state = MetadataList::default();
        for now in [100, 200, 300, 400] {
            state.write(TIER, now, 1, Some(&entry(now)), 2, RETAIN);
        }
        assert_eq!(times(&state, 400), [300, 400]);
        assert!(!state.read(TIER, 400, 1).admitted);

        state.write(TIER, 1_100, 1, Some(&entry(1_100)), 0, RETAIN);
        assert_eq!(times(&state, 1_100), [0; 0]);
        assert_eq!(state.used(TIER, 1_100), 1);
    }

    #[test]
    fn a_lowered_keep_takes_effect_at_the_next_entry() {
        let mut state = MetadataList::default();
        for now in [100, 200, 300] {
            state.write(TIER, now, 1, Some(&entry(now)), 50, RETAIN);
        }
        state.write(TIER, 400, 1, Some(&entry(400)), 2, RETAIN);
        assert_eq!(times(&state, 400), [300, 400]);
    }

    #[test]
    fn a_list_more_than_a_window_ahead_is_discarded_with_its_entries() {
        let mut state = MetadataList::default();
        state.write(TIER, 5_000, 4, Some(&entry(5_000)), 50, RETAIN);
        assert!(state.write(TIER, 3_999, 1, Some(&entry(3_999)), 50, RETAIN));
        assert_eq!(times(&state, 3_999), [3_999]);
    }

    #[test]
    fn entries_are_dropped_before_their_window_ends_if_they_may_not_be_kept_as_long() {
        let mut state = MetadataList::default();
        let kept = |state: &MetadataList, now: i64| -> Vec<i64> {
            state.entries(TIER, now, 400).map(|entry| entry.time).collect()
        };
        for now in [100, 199, 200] {
            state.write(TIER, now, 1, Some(&entry(now)), 50, 400);
        }
        assert_eq!(kept(&state, 499), [100, 199, 200]);
        assert_eq!(kept(&state, 500), [200], "a slice is dropped as a whole, 400 after it began");
        assert_eq!(kept(&state, 600), [0; 0]);
        assert_eq!((state.stored_entries(), state.used(TIER, 600)), (3, 3), "all of them count");

        state.write(TIER, 550, 1, Some(&entry(550)), 50, 400);
        assert_eq!((state.stored_entries(), state.used(TIER, 600)), (2, 4), "a write frees the memory");
        assert!(!state.read(TIER, 600, 1).admitted);
    }
}
