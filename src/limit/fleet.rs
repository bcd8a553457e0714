//! What an instance knows of the others that share its store.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// How many instances live, and how often limits were taken back. Shared by all workers.
#[derive(Debug)]
pub struct Fleet {
    instances: AtomicU32,
    pardons: AtomicU64,
}

impl Fleet {
    /// How many instances lived when the store was last asked, this one among them.
    pub fn instances(&self) -> u32 {
        self.instances.load(Relaxed)
    }

    /// Notes how many live: at least this one.
    pub fn set_instances(&self, count: u32) {
        self.instances.store(count.max(1), Relaxed);
    }

    /// Changes whenever limits were taken back, here or elsewhere: what was remembered of denials before
    /// holds no longer.
    pub fn pardons(&self) -> u64 {
        self.pardons.load(Relaxed)
    }

    /// Notes that limits were taken back.
    pub fn pardon(&self) {
        self.pardons.fetch_add(1, Relaxed);
    }
}

impl Default for Fleet {
    fn default() -> Self {
        Self { instances: AtomicU32::new(1), pardons: AtomicU64::new(0) }
    }
}
