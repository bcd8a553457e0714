//! The bytes that all shards hold together, and how many they may.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::memory_budget::FreedBytes;

/// Counts what shards take from the heap and give back. A shard tells it what has changed, which is nothing for most
/// decisions.
#[derive(Debug)]
pub(super) struct ByteBudget {
    max: usize,
    held: AtomicUsize,
    /// Entries of lists in all shards, which are given up before any limit.
    entries: AtomicUsize,
    pub(super) freed: FreedBytes,
}

impl ByteBudget {
    pub(super) fn new(max: usize) -> Self {
        Self { max, held: AtomicUsize::new(0), entries: AtomicUsize::new(0), freed: FreedBytes::default() }
    }

    pub(super) fn max(&self) -> usize {
        self.max
    }

    pub(super) fn held(&self) -> usize {
        self.held.load(Relaxed)
    }

    /// What took `before` bytes takes `after`.
    pub(super) fn change(&self, before: usize, after: usize) {
        if after >= before {
            self.held.fetch_add(after - before, Relaxed);
        } else {
            self.held.fetch_sub(before - after, Relaxed);
            self.freed.add(before - after);
        }
    }

    /// There were `before` entries of some lists, and there are `after`.
    pub(super) fn change_entries(&self, before: usize, after: usize) {
        if after >= before {
            self.entries.fetch_add(after - before, Relaxed);
        } else {
            self.entries.fetch_sub(before - after, Relaxed);
        }
    }

    /// Whether any shard has entries.
    pub(super) fn has_entries(&self) -> bool {
        self.entries.load(Relaxed) > 0
    }

    /// Bytes held beyond the budget.
    pub(super) fn excess(&self) -> usize {
        self.held().saturating_sub(self.max)
    }

    /// Whether so many more bytes fit, or will after the next sweep, since there are entries to give up.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let most = if self.has_entries() { self.max + self.tolerance() } else { self.max };
        self.held().saturating_add(bytes) <= most
    }

    /// Whether there is something to give up at once, and not with the next sweep.
    pub(super) fn is_exceeded(&self) -> bool {
        !self.has_room(0)
    }

    /// By how much it may be exceeded until the next sweep.
    fn tolerance(&self) -> usize {
        (self.max / 32).min(usize::MAX - self.max)
    }

    /// Whether there is room for evidence: half of the budget is for limits. When entries are given up, their blocks lie
    /// scattered among others: what they took stays resident until the last of their neighbours is gone.
    pub(super) fn has_room_for_entries(&self) -> bool {
        self.held() < self.max / 2
    }

    /// Whether it is exceeded by so much that it cannot wait for the next sweep.
    pub(super) fn is_far_exceeded(&self) -> bool {
        self.excess() > self.tolerance()
    }

    /// The most units of a log, 8 bytes each: one limit may take an eighth of the budget.
    pub(super) fn max_log_units(&self) -> u64 {
        (self.max / 8 / size_of::<i64>()).max(1) as u64
    }
}
