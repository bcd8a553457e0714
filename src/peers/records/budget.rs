//! The memory budget of records in Redis.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::store::redis::ServerMemory;

/// Records may take one in this many parts of `maxmemory`.
const SHARE: u64 = 4;
/// The budget in bytes on a server without `maxmemory`.
const DEFAULT: u64 = 64 << 20;
/// Above this percentage of `maxmemory`, records make room for limits, before the server evicts anything.
const FULL_PERCENT: u64 = 85;

/// The budget of all records. When it is spent, those that changed longest ago are removed.
#[derive(Debug)]
pub(in crate::peers) struct RecordBudget {
    /// The upper bound; 0 before the server's memory is known.
    share: AtomicU64,
    /// The current budget.
    bytes: AtomicU64,
    /// Bytes used by clients and by users.
    stored: [AtomicU64; 2],
}

/// The budget of each table, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Budgets {
    pub(super) clients: u64,
    pub(super) users: u64,
}

impl RecordBudget {
    pub(super) fn new() -> Self {
        Self { share: AtomicU64::new(0), bytes: AtomicU64::new(DEFAULT), stored: Default::default() }
    }

    /// Adapts the budget to the server's memory.
    pub(in crate::peers) fn update(&self, ServerMemory { limit, used, .. }: ServerMemory) {
        let share = limit.map_or(DEFAULT, |limit| limit / SHARE);
        if self.share.swap(share, Relaxed) != share {
            let mebibytes = share as f64 / f64::from(1 << 20);
            let of = limit.map_or("it has no maxmemory", |_| "a quarter of its maxmemory");
            tracing::info!("records of limited clients may take {mebibytes:.1} MiB of Redis: {of}");
        }
        let full = limit.map_or(u64::MAX, |limit| limit / 100 * FULL_PERCENT);
        let excess = used.unwrap_or(0).saturating_sub(full);
        let stored: u64 = self.stored.iter().map(|bytes| bytes.load(Relaxed)).sum();
        let bytes = if excess == 0 { share } else { share.min(stored.saturating_sub(excess)) };
        self.bytes.store(bytes, Relaxed);
    }

    /// A quarter is for users: made-up names must not push out the clients that sent them.
    pub(super) fn now(&self) -> Budgets {
        let bytes = self.bytes.load(Relaxed);
        Budgets { clients: bytes - bytes / 4, users: bytes / 4 }
    }

    /// Sets the bytes that each table takes.
    pub(super) fn set_stored(&self, clients: Option<u64>, users: Option<u64>) {
        for (stored, bytes) in self.stored.iter().zip([clients, users]) {
            if let Some(bytes) = bytes {
                stored.store(bytes, Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(used: u64, limit: u64) -> ServerMemory {
        ServerMemory { evicted: None, used: Some(used), limit: Some(limit) }
    }

    #[test]
    fn records_have_a_share_of_the_server_or_a_fixed_size() {
        let budget = RecordBudget::new();
        budget.update(ServerMemory::default());
        assert_eq!(budget.now(), Budgets { clients: DEFAULT / 4 * 3, users: DEFAULT / 4 });
        budget.update(memory(10_000, 160_000));
        assert_eq!(budget.now(), Budgets { clients: 30_000, users: 10_000 });
    }

    #[test]
    fn a_server_that_fills_up_takes_the_room_of_records_for_limits() {
        let budget = RecordBudget::new();
        budget.set_stored(Some(30_000), Some(8_000));
        budget.update(memory(136_000, 160_000));
        assert_eq!(budget.now().clients, 30_000);
        budget.update(memory(146_000, 160_000));
        assert_eq!(budget.now(), Budgets { clients: 21_000, users: 7_000 });
        budget.set_stored(Some(0), None);
        budget.update(memory(160_000, 160_000));
        assert_eq!(budget.now(), Budgets { clients: 0, users: 0 });
    }
}
