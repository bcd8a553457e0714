//! What all workers of the process share of one upstream: a client must not see how many there are.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

use tokio::sync::{Notify, Semaphore};

use crate::{config::model, telemetry::metrics::EndpointFacts};

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
    /// How the last attempts to connect went, one an endpoint.
    health: Vec<Health>,
}

/// How an endpoint can be reached.
#[derive(Debug, Default)]
struct Health {
    /// Whether the last attempt failed.
    is_down: AtomicBool,
    /// How often it was put to rest after it could be reached.
    ejections: AtomicU64,
}

impl Shared {
    /// An upstream without connections.
    pub fn new(config: model::Upstream) -> Arc<Self> {
        let permits = config.max_connections.min(Semaphore::MAX_PERMITS);
        Arc::new(Self {
            connections: Arc::new(Semaphore::new(permits)),
            waiting: AtomicUsize::new(0),
            wanted: Notify::new(),
            health: config.endpoints.iter().map(|_| Health::default()).collect(),
            in_flight: config.endpoints.iter().map(|_| AtomicUsize::new(0)).collect(),
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

    /// Requests under way on one endpoint.
    pub fn in_flight(&self, endpoint: usize) -> usize {
        self.in_flight.get(endpoint).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Notes that `endpoint` was reached.
    pub(super) fn reached(&self, endpoint: usize) {
        if let Some(health) = self.health.get(endpoint) {
            // It mostly was before: the line of the cache stays everybody's.
            if health.is_down.load(Ordering::Relaxed) {
                health.is_down.store(false, Ordering::Relaxed);
            }
        }
    }

    /// Notes that `endpoint` could not be reached, and is put to rest.
    pub(super) fn failed(&self, endpoint: usize) {
        if let Some(health) = self.health.get(endpoint)
            && !health.is_down.swap(true, Ordering::Relaxed)
        {
            health.ejections.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether the last attempt to reach `endpoint` went well. One that was never tried is taken to be.
    pub fn is_healthy(&self, endpoint: usize) -> bool {
        self.health.get(endpoint).is_none_or(|health| !health.is_down.load(Ordering::Relaxed))
    }

    /// How often `endpoint` was put to rest since the start.
    pub fn ejections(&self, endpoint: usize) -> u64 {
        self.health.get(endpoint).map_or(0, |health| health.ejections.load(Ordering::Relaxed))
    }

    /// How each endpoint stands.
    pub fn facts(&self) -> Vec<EndpointFacts> {
        let facts = |(index, endpoint): (usize, &model::Endpoint)| EndpointFacts {
            upstream: self.config.name.clone(),
            url: format!("http://{}", endpoint.authority),
            is_healthy: self.is_healthy(index),
            ejections: self.ejections(index),
        };
        self.config.endpoints.iter().enumerate().map(facts).collect()
    }
}
