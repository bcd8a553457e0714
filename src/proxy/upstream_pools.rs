//! A worker's connection pools over successive configurations: unchanged upstreams keep their connections.

use std::{
    cell::RefCell,
    rc::{Rc, Weak},
    sync::Arc,
    time::Instant,
};

use tokio::task::{AbortHandle, spawn_local};

use super::request_body::RequestBody;
use crate::{
    telemetry::metrics::{Metrics, PoolMetrics, PoolState},
    upstream::{SharedUpstream, UpstreamPool},
};

/// The connection pools of one worker, including those of upstreams that the configuration no longer has, until their
/// last request has ended.
pub(super) struct UpstreamPools {
    /// The worker's number.
    index: usize,
    metrics: Arc<Metrics>,
    pools: RefCell<Vec<PoolEntry>>,
}

struct PoolEntry {
    pool: Weak<UpstreamPool<RequestBody>>,
    metrics: Arc<PoolMetrics>,
    /// The task that closes idle connections for other workers.
    yielding: AbortHandle,
}

/// The connections of one worker to all upstreams.
#[derive(Debug, Default)]
pub(super) struct OpenConnections {
    pub(super) active: usize,
    pub(super) idle: usize,
}

impl Drop for PoolEntry {
    fn drop(&mut self) {
        self.yielding.abort();
    }
}

impl UpstreamPools {
    /// The pools of worker number `index`: none yet.
    pub(super) fn new(index: usize, metrics: Arc<Metrics>) -> Self {
        Self { index, metrics, pools: RefCell::default() }
    }

    /// The pool of each of `shared`: the worker's existing one, or a new one. All others are retired. To be called on
    /// the worker's thread, in its runtime.
    pub(super) fn adopt(&self, shared: Vec<Arc<SharedUpstream>>) -> Vec<Rc<UpstreamPool<RequestBody>>> {
        let mut pools = self.pools.borrow_mut();
        for entry in pools.iter() {
            if let Some(pool) = entry.pool.upgrade()
                && !shared.iter().any(|kept| Arc::ptr_eq(kept, pool.shared()))
            {
                pool.retire();
                entry.yielding.abort();
            }
        }
        shared
            .into_iter()
            .map(|shared| {
                let mut existing = pools.iter().filter_map(|entry| entry.pool.upgrade());
                existing.find(|pool| Arc::ptr_eq(pool.shared(), &shared)).unwrap_or_else(|| {
                    let (entry, pool) = self.open(shared);
                    pools.push(entry);
                    pool
                })
            })
            .collect()
    }

    fn open(&self, shared: Arc<SharedUpstream>) -> (PoolEntry, Rc<UpstreamPool<RequestBody>>) {
        let metrics = self.metrics.pool(&shared.config.name);
        let pool = UpstreamPool::new(shared, self.index);
        let yielding = spawn_local(Rc::clone(&pool).yield_to_others()).abort_handle();
        (PoolEntry { pool: Rc::downgrade(&pool), metrics, yielding }, pool)
    }

    /// Closes connections that were idle for too long, and counts the others.
    pub(super) fn tick(&self, now: Instant) -> OpenConnections {
        let mut open = OpenConnections::default();
        self.pools.borrow_mut().retain(|entry| {
            let Some(pool) = entry.pool.upgrade() else { return false };
            pool.close_expired(now);
            let (active, idle) = (pool.active_connections(), pool.idle_connections());
            for (state, count) in [(PoolState::Active, active), (PoolState::Idle, idle)] {
                entry.metrics.connections(state).set(count as u64);
            }
            open.active += active;
            open.idle += idle;
            true
        });
        open
    }
}
