//! What all workers of the process share of one upstream: a client must not see how many there are.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use tokio::sync::{Notify, Semaphore};

use crate::config::model;

/// One upstream, as the whole process sees it.
#[derive(Debug)]
pub struct Shared {
    /// Its configuration.
    pub config: model::Upstream,
    /// One permit a connection, open or idle.
    pub(super) connections: Arc<Semaphore>,
    /// Requests that wait for a connection because all permits are taken.
    pub(super) waiting: AtomicUsize,
    /// Told when a request begins to wait, so that workers give idle connections up for it.
    pub(super) wanted: Notify,
    /// Requests under way, one counter an endpoint.
    in_flight: Vec<AtomicUsize>,
    /// Whether the last connection that any worker tried to make could not be made, by endpoint.
    unreachable: Vec<AtomicBool>,
}

impl Shared {
    /// An upstream without connections.
    pub fn new(config: model::Upstream) -> Arc<Self> {
        let permits = config.max_connections.min(Semaphore::MAX_PERMITS);
        Arc::new(Self {
            connections: Arc::new(Semaphore::new(permits)),
            waiting: AtomicUsize::new(0),
            wanted: Notify::new(),
            in_flight: config.endpoints.iter().map(|_| AtomicUsize::new(0)).collect(),
            unreachable: config.endpoints.iter().map(|_| AtomicBool::new(false)).collect(),
            config,
        })
    }

    /// A request to `endpoint` begins; [`Shared::end`] follows.
    pub(super) fn begin(&self, endpoint: usize) {
        self.in_flight[endpoint].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end(&self, endpoint: usize) {
        self.in_flight[endpoint].fetch_sub(1, Ordering::Relaxed);
    }

    /// Notes whether a connection to `endpoint` could be made.
    pub(super) fn reached(&self, endpoint: usize, reached: bool) {
        if let Some(unreachable) = self.unreachable.get(endpoint) {
            unreachable.store(!reached, Ordering::Relaxed);
        }
    }

    /// Whether the last connection to `endpoint` that was tried could be made; true before one was.
    pub fn is_reachable(&self, endpoint: usize) -> bool {
        self.unreachable.get(endpoint).is_none_or(|unreachable| !unreachable.load(Ordering::Relaxed))
    }

    /// Requests under way on one endpoint.
    pub fn in_flight(&self, endpoint: usize) -> usize {
        self.in_flight.get(endpoint).map_or(0, |count| count.load(Ordering::Relaxed))
    }
}
