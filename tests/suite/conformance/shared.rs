//! A real Redis as a subject: one server for all tests, and a prefix of its own for each store.

use std::{
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tollgate::{
    config::model,
    limit::{Breaker, Clock, ManualClock},
    store::redis::{RedisStore, Server},
    telemetry::metrics::StoreMetrics,
};

use super::Subject;
use crate::harness::Redis;

/// Never dropped, and ends with this process.
static SERVER: LazyLock<Redis> = LazyLock::new(Redis::start);

pub(crate) struct Shared;

/// A part of the server.
pub(crate) struct Place {
    server: Server,
    config: model::Redis,
    clock: Arc<ManualClock>,
}

impl Place {
    pub(crate) fn new(clock: Arc<ManualClock>) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let config = model::Redis {
            url: model::Secret::new(SERVER.url()),
            tls: model::RedisTls::default(),
            // Many threads on few cores: it is not the time that is tested.
            timeout: Duration::from_secs(20),
            connections: 1,
            prefix: format!("test{}", NUMBERS.fetch_add(1, Ordering::Relaxed)),
            breaker: model::Breaker { failures: 5, retry_after: Duration::from_secs(1) },
        };
        Self { server: Server::new(&config).unwrap(), config, clock }
    }
}

impl Subject for Shared {
    type Place = Place;
    type Store = RedisStore;

    fn place(clock: Arc<ManualClock>) -> Place {
        Place::new(clock)
    }

    fn store(place: &Place) -> RedisStore {
        let breaker = Arc::new(Breaker::new(place.config.breaker.failures));
        let clock: Arc<dyn Clock> = Arc::clone(&place.clock) as _;
        RedisStore::new(
            place.server.clone(),
            &place.config,
            breaker,
            Arc::new(StoreMetrics::default()),
            Some(clock),
        )
    }
}
