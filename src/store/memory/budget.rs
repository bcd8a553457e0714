//! The byte budget that all shards share.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::memory_budget::FreedBytes;

/// Counts the heap bytes of all shards. Shards report changes only, and most decisions change nothing.
#[derive(Debug)]
pub(super) struct ByteBudget {
    max: usize,
    held: AtomicUsize,
    /// Entries of lists in all shards. They are dropped before any limit.
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

    /// Reports that a value of `before` bytes now takes `after`.
    pub(super) fn change(&self, before: usize, after: usize) {
        if after >= before {
            self.held.fetch_add(after - before, Relaxed);
        } else {
            self.held.fetch_sub(before - after, Relaxed);
            self.freed.add(before - after);
        }
    }

    /// Reports that some lists with `before` entries now have `after`.
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

    /// Bytes used above the budget.
    pub(super) fn excess(&self) -> usize {
        self.held().saturating_sub(self.max)
    }

    /// Whether `bytes` more fit, now or after the next sweep, which can drop entries.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let most = if self.has_entries() { self.max + self.tolerance() } else { self.max };
        self.held().saturating_add(bytes) <= most
    }

    /// Whether a write must free memory now, before the next sweep.
    pub(super) fn is_exceeded(&self) -> bool {
        !self.has_room(0)
    }

    /// Bytes by which the budget may be exceeded until the next sweep.
    fn tolerance(&self) -> usize {
        (self.max / 32).min(usize::MAX - self.max)
    }

    /// Whether there is room for evidence: half of the budget is for limits. Dropped entries leave their blocks
    /// scattered among others: their memory stays resident until the last neighbour is freed.
    pub(super) fn has_room_for_entries(&self) -> bool {
        self.held() < self.max / 2
    }

    /// Whether the budget is exceeded too far to wait for the next sweep.
    pub(super) fn is_far_exceeded(&self) -> bool {
        self.excess() > self.tolerance()
    }

    /// The most units of a log, 8 bytes each: one limit may take an eighth of the budget.
    pub(super) fn max_log_units(&self) -> u64 {
        (self.max / 8 / size_of::<i64>()).max(1) as u64
    }
}
