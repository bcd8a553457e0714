//! `metadata_list`: counts like `single_counter`, and records who made each request, so that the list shows who used up
//! the limit.
//!
//! Every unit is counted, but only the newest `max_entries` are recorded: a limit may be 10⁹, the memory of a key may
//! not.
//!
//! A window may be longer than its entries may be kept. Then an entry is dropped with the [slice](slice()) of time in
//! which it was recorded, so that Redis drops it by expiry.

use std::collections::VecDeque;

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

/// Entries, oldest first, in two buffers: a list that is dropped leaves no holes between others, which would keep the
/// allocator's pages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct EntryList {
    heads: VecDeque<EntryHead>,
    /// Each entry's user and path.
    texts: VecDeque<u8>,
}

/// An entry without its texts, and their lengths.
#[derive(Debug, Clone, PartialEq, Eq)]
struct EntryHead {
    time: i64,
    method: http::Method,
    user: Option<u32>,
    path: u32,
}

impl Entry {
    /// Bytes on the heap, with those of its reference counts.
    pub fn heap_bytes(&self) -> usize {
        heap::shared::<Self>() + heap::text(&self.path) + self.user.as_ref().map_or(0, heap::text)
    }
}

impl EntryHead {
    fn new(entry: &Entry) -> Self {
        let Entry { time, user, method, path } = entry;
        let user = user.as_ref().map(|user| user.len() as u32);
        Self { time: *time, method: method.clone(), user, path: path.len() as u32 }
    }

    fn text_bytes(&self) -> usize {
        (self.user.unwrap_or(0) + self.path) as usize
    }
}

impl EntryList {
    fn drop_oldest(&mut self, count: usize) {
        let texts: usize = self.heads.drain(..count).map(|head| head.text_bytes()).sum();
        self.texts.drain(..texts);
    }

    /// Drops the entries that may not be kept any more at the time `now`.
    fn expire(&mut self, slice: Option<i64>, now: i64) {
        let expired = self.heads.iter().take_while(|head| !is_kept(slice, head.time, now)).count();
        self.drop_oldest(expired);
    }

    /// Adds an entry, and drops the oldest beyond `max`.
    fn push(&mut self, entry: &Entry, max: usize) {
        self.drop_oldest((self.heads.len() + 1).saturating_sub(max));
        let head = EntryHead::new(entry);
        reserve(&mut self.texts, head.text_bytes());
        self.texts.extend(entry.user.as_deref().unwrap_or_default().as_bytes());
        self.texts.extend(entry.path.as_bytes());
        reserve(&mut self.heads, 1);
        self.heads.push_back(head);
    }

    /// Removes the newest that equals `entry`.
    fn remove(&mut self, entry: &Entry) {
        let head = EntryHead::new(entry);
        let mut end = self.texts.len();
        for index in (0..self.heads.len()).rev() {
            let start = end - self.heads[index].text_bytes();
            if self.heads[index] == head && self.entry(&head, start) == *entry {
                self.heads.remove(index);
                self.texts.drain(start..end);
                return;
            }
            end = start;
        }
    }

    fn iter(&self) -> impl Iterator<Item = Entry> {
        let mut start = 0;
        self.heads.iter().map(move |head| {
            let entry = self.entry(head, start);
            start += head.text_bytes();
            entry
        })
    }

    /// The entry whose texts begin at `start`.
    fn entry(&self, head: &EntryHead, start: usize) -> Entry {
        let text = |start: usize, length: u32| {
            let bytes: Vec<u8> = self.texts.range(start..start + length as usize).copied().collect();
            CompactString::from_utf8_lossy(&bytes)
        };
        let user = head.user.map(|length| text(start, length));
        let path = text(start + head.user.unwrap_or(0) as usize, head.path);
        Entry { time: head.time, user, method: head.method.clone(), path }
    }
}

/// Makes room for `more`: a quarter more than is needed, since lists are many.
fn reserve<T>(list: &mut VecDeque<T>, more: usize) {
    if list.capacity() - list.len() < more {
        list.reserve_exact(more + list.len() / 4);
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
        entry: Option<&Entry>,
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
    pub fn refund(&mut self, tier: Tier, at: i64, cost: u64, entry: Option<&Entry>) {
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
    pub fn entries(&self, tier: Tier, now: i64, retain: i64) -> impl Iterator<Item = Entry> {
        let slice = slice(tier, retain);
        self.entries
            .iter()
            .flat_map(|entries| entries.iter())
            .filter(move |entry| self.used(tier, now) > 0 && is_kept(slice, entry.time, now))
    }

    /// How many entries are in memory, including those of a window that has ended.
    pub fn stored_entries(&self) -> usize {
        self.entries.as_ref().map_or(0, |entries| entries.heads.len())
    }

    /// Drops the entries; all of them still count.
    pub fn drop_entries(&mut self) {
        self.entries = None;
    }

    /// Bytes on the heap: the list, and its entries.
    pub fn heap_bytes(&self) -> usize {
        self.entries.as_ref().map_or(0, |entries| {
            heap::array::<EntryList>(1)
                + heap::array::<EntryHead>(entries.heads.capacity())
                + heap::array::<u8>(entries.texts.capacity())
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

    fn entry(time: i64) -> Entry {
        Entry { time, user: Some("alice".into()), method: http::Method::GET, path: "/a".into() }
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
    fn entries_of_any_length_come_back_as_they_were_written() {
        let mut random = fastrand::Rng::with_seed(1);
        let (mut list, mut expected) = (EntryList::default(), Vec::<Entry>::new());
        for time in 0..2_000 {
            let text = |length: usize| CompactString::from("ä/".repeat(length));
            let user = random.bool().then(|| text(random.usize(..20)));
            let method = [http::Method::GET, "PURGE".parse().unwrap()][random.usize(..2)].clone();
            let entry = Entry { time: time / 3, user, method, path: text(random.usize(..40)) };
            let keep = random.usize(1..50);
            expected.drain(..(expected.len() + 1).saturating_sub(keep));
            expected.push(entry.clone());
            list.push(&entry, keep);
            if random.u8(..) < 64 {
                let index = random.usize(..expected.len());
                let removed = expected[index].clone();
                expected.remove(expected.iter().rposition(|entry| *entry == removed).unwrap());
                list.remove(&removed);
            }
            list.remove(&Entry { time: -1, ..entry });
            assert!(list.iter().eq(expected.iter().cloned()), "{list:?} is not {expected:?}");
        }
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
