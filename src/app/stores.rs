//! Where limits are kept: in memory alone, or in Redis with memory for when it is away.

use std::{sync::Arc, time::Duration};

use super::{StartError, reload::Elsewhere};
use crate::{
    abuse::{self, AuditLog, Names, Registry, bans::Bans},
    admin::ActiveConfig,
    config::model::{Config, Redis},
    limit::{Breaker, Clock, GuardShared, GuardedStore, Instances, Policy, SlicedStore, Slices, SystemClock},
    peers::{Monitor, MonitorConfig, records::Scope},
    store::{
        memory::MemoryStore,
        redis::{RedisStore, Server},
    },
    telemetry::{
        Event, Events,
        metrics::{MemoryFacts, Metrics, StoreFacts},
    },
};

/// How often Redis is asked what it is, and what the user may do there.
const CHECK_EVERY: Duration = Duration::from_secs(30);

/// What limits stand on, whichever store it is.
pub(super) struct Ground {
    pub(super) in_force: Arc<ActiveConfig>,
    pub(super) clock: SystemClock,
    pub(super) metrics: Arc<Metrics>,
    pub(super) registry: Arc<Registry>,
    pub(super) bans: Arc<Bans>,
    pub(super) audit: Arc<AuditLog>,
    pub(super) events: Events,
    /// How this instance is told from others.
    pub(super) instance: String,
}

/// What is known of limited clients.
pub(super) fn registry(
    config: &Config,
    policies: &[Policy],
    metrics: &Arc<Metrics>,
    events: &Events,
) -> Registry {
    let registry = Registry::new(policies, config.abuse.retain, Arc::clone(metrics))
        .naming(Names::new(&config.abuse))
        .telling(events.clone());
    if config.store.redis.is_some() { registry } else { registry.alone() }
}

/// The process' own store.
pub(super) fn memory(config: &Config, ground: &Ground) -> Arc<MemoryStore> {
    let max_keys = config.store.memory.max_keys;
    let store = Arc::new(MemoryStore::new(max_keys, Arc::new(ground.clock.clone())));
    ground.metrics.watch_memory(memory_facts(&store));
    store
}

/// How the process' own store stands.
pub(super) fn memory_facts(store: &Arc<MemoryStore>) -> impl Fn() -> MemoryFacts + Send + Sync + use<> {
    let store = Arc::clone(store);
    move || {
        let stats = store.stats();
        MemoryFacts { keys: stats.keys as u64, evicted: stats.dropped, discarded: stats.discarded }
    }
}

/// The store that instances share, for threads to have ends of.
pub(super) struct Shared {
    server: Server,
    config: Redis,
    scope: Scope,
    memory: Arc<MemoryStore>,
    shared: GuardShared,
    slices: Arc<Slices>,
    metrics: Arc<Metrics>,
}

impl Shared {
    /// Starts to keep in touch with Redis, whether it can be reached or not. `retain`: for how long limited
    /// clients stay listed.
    ///
    /// # Errors
    /// A certificate can't be read, a thread can't be started.
    pub(super) fn open(
        config: &Redis,
        retain: Duration,
        memory: &Arc<MemoryStore>,
        ground: &Ground,
    ) -> Result<(Self, Monitor), StartError> {
        let server = Server::new(config)?;
        let shared = GuardShared {
            breaker: Arc::new(Breaker::new(config.breaker.failures)),
            instances: Arc::new(Instances::default()),
            clock: ground.clock.clone(),
        };
        let instance = ground.instance.clone();
        let scope = Scope::new(&config.prefix, &instance, retain);
        let monitor = Monitor::spawn(MonitorConfig {
            server: server.clone(),
            redis: config.clone(),
            check_every: CHECK_EVERY,
            instance,
            scope: scope.clone(),
            registry: Arc::clone(&ground.registry),
            bans: Arc::clone(&ground.bans),
            audit: Arc::clone(&ground.audit),
            clock: ground.clock.clone(),
            breaker: Arc::clone(&shared.breaker),
            instances: Arc::clone(&shared.instances),
            configuration: Box::new({
                let in_force = Arc::clone(&ground.in_force);
                move || in_force.snapshot().decides.clone()
            }),
            on_unblocked: on_unblocked(memory, ground),
            on_cleared: Box::new(on_cleared(memory, ground)),
        })?;
        let (config, memory, metrics) = (config.clone(), Arc::clone(memory), Arc::clone(&ground.metrics));
        let slices = Arc::new(Slices::new(Arc::clone(&shared.instances)));
        let store = Self { server, config, scope, memory, shared, slices, metrics };
        store.metrics.watch_store(store.facts(&monitor));
        Ok((store, monitor))
    }

    /// Whose records of limited clients this instance reads, and where.
    pub(super) fn records(&self) -> (Scope, Server) {
        (self.scope.clone(), self.server.clone())
    }

    /// How it stands.
    pub(super) fn facts(&self, monitor: &Monitor) -> impl Fn() -> StoreFacts + Send + Sync + use<> {
        monitor.facts(Arc::clone(&self.shared.breaker), Arc::clone(&self.shared.instances))
    }

    /// What of it goes by the configuration.
    pub(super) fn elsewhere(&self) -> Elsewhere {
        Elsewhere { scope: self.scope.clone(), instances: Arc::clone(&self.shared.instances) }
    }

    /// An end of it, for the thread that asks.
    pub(super) fn end(&self) -> GuardedStore<SlicedStore<RedisStore>, Arc<MemoryStore>> {
        let breaker = Arc::clone(&self.shared.breaker);
        let store = RedisStore::new(
            self.server.clone(),
            &self.config,
            breaker,
            self.metrics.store_connection(),
            None,
        );
        let slicing = SlicedStore::new(store, Arc::clone(&self.slices), Arc::new(self.shared.clock.clone()));
        GuardedStore::new(slicing, Arc::clone(&self.memory), self.shared.clone())
    }
}

/// What another instance has taken back is taken back here.
fn on_unblocked(memory: &Arc<MemoryStore>, ground: &Ground) -> Box<dyn Fn(&str) + Send> {
    let (memory, in_force) = (Arc::clone(memory), Arc::clone(&ground.in_force));
    let (registry, clock) = (Arc::clone(&ground.registry), ground.clock.clone());
    let events = ground.events.clone();
    Box::new(move |identifier| {
        memory.reset_now(in_force.snapshot().policies(), identifier);
        if let Some(address) = abuse::of_identifier(identifier) {
            registry.forget(address, clock.now());
            events.publish(|| Event::Unblocked { address: abuse::shown(address).to_string() });
        }
    })
}

/// A limit that another instance has cleared is cleared here.
fn on_cleared(memory: &Arc<MemoryStore>, ground: &Ground) -> impl Fn(&str, &str) + Send + use<> {
    let (memory, in_force) = (Arc::clone(memory), Arc::clone(&ground.in_force));
    move |name, identifier| {
        if let Some(policy) = in_force.snapshot().policies().iter().find(|policy| policy.name == name) {
            memory.clear_now(std::slice::from_ref(policy), identifier);
        }
    }
}
