//! A worker's upstreams over one configuration after another: those that stay as they are keep their connections.

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
    upstream::{Shared, Upstream},
};

/// The upstreams of one worker, those that the configuration has no longer among them until their last request has
/// ended.
pub(super) struct Pools {
    /// The worker's number.
    index: usize,
    metrics: Arc<Metrics>,
    pools: RefCell<Vec<Pool>>,
}

struct Pool {
    upstream: Weak<Upstream<RequestBody>>,
    metrics: Arc<PoolMetrics>,
    /// Gives idle connections up for other workers.
    yielding: AbortHandle,
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.yielding.abort();
    }
}

impl Pools {
    /// None yet.
    pub(super) fn new(index: usize, metrics: Arc<Metrics>) -> Self {
        Self { index, metrics, pools: RefCell::default() }
    }

    /// The worker's view of each of `shared`: the one that it has, or a new one. Whichever else it has is retired. To be
    /// called on the worker's thread, in its runtime.
    pub(super) fn adopt(&self, shared: Vec<Arc<Shared>>) -> Vec<Rc<Upstream<RequestBody>>> {
        let mut pools = self.pools.borrow_mut();
        for pool in pools.iter() {
            if let Some(upstream) = pool.upstream.upgrade()
                && !shared.iter().any(|kept| Arc::ptr_eq(kept, upstream.shared()))
            {
                upstream.retire();
                pool.yielding.abort();
            }
        }
        shared
            .into_iter()
            .map(|shared| {
                let mut known = pools.iter().filter_map(|pool| pool.upstream.upgrade());
                known.find(|known| Arc::ptr_eq(known.shared(), &shared)).unwrap_or_else(|| {
                    let (pool, upstream) = self.open(shared);
                    pools.push(pool);
                    upstream
                })
            })
            .collect()
    }

    fn open(&self, shared: Arc<Shared>) -> (Pool, Rc<Upstream<RequestBody>>) {
        let metrics = self.metrics.pool(&shared.config.name);
        let upstream = Upstream::new(shared, self.index);
        let yielding = spawn_local(Rc::clone(&upstream).yield_to_others()).abort_handle();
        (Pool { upstream: Rc::downgrade(&upstream), metrics, yielding }, upstream)
    }

    /// Closes connections that were idle for too long, and counts the others.
    pub(super) fn tick(&self, now: Instant) {
        self.pools.borrow_mut().retain(|pool| {
            let Some(upstream) = pool.upstream.upgrade() else { return false };
            upstream.expire(now);
            for (state, count) in [
                (PoolState::Active, upstream.active_connections()),
                (PoolState::Idle, upstream.idle_connections()),
            ] {
                pool.metrics.connections(state).set(count as u64);
            }
            true
        });
    }
}
