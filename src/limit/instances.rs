//! The number of instances that share the store, and the epoch of their limits.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// How many instances are alive, and how often limits were invalidated. Shared by all workers.
#[derive(Debug)]
pub struct Instances {
    count: AtomicU32,
    sharing: AtomicU32,
    epoch: AtomicU64,
}

/// The time between two invalidations of limits. Anything cached about limits in an earlier epoch is void.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Epoch(pub(super) u64);

impl Instances {
    /// How many instances were alive at the last heartbeat, including this one.
    pub fn count(&self) -> u32 {
        self.count.load(Relaxed)
    }

    /// How many instances to share limits with while the store is away, including this one: at least as many as may be
    /// live.
    pub fn sharing(&self) -> u32 {
        self.sharing.load(Relaxed)
    }

    /// Sets how many instances are live, and how many may be. Both are at least 1.
    pub fn set_count(&self, count: u32, sharing: u32) {
        self.count.store(count.max(1), Relaxed);
        self.sharing.store(sharing.max(count).max(1), Relaxed);
    }

    /// The current epoch, which changes when limits are invalidated, here or elsewhere.
    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Relaxed))
    }

    /// Begins a new epoch, since limits were reset, here or elsewhere.
    pub fn invalidate(&self) {
        self.epoch.fetch_add(1, Relaxed);
    }
}

impl Default for Instances {
    fn default() -> Self {
        Self { count: AtomicU32::new(1), sharing: AtomicU32::new(1), epoch: AtomicU64::new(0) }
    }
}
