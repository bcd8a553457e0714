//! The stores of limits: memory only, or Redis with memory as the fallback.

use std::{sync::Arc, time::Duration};

use super::{reload::ReloadHandles, shared::Shared, start_error::StartError};
use crate::{
    abuse::{self, Archive, Unblock},
    admin::StoreFactsSources,
    config::model::{Config, Redis},
    limit::{
        Clock, GuardShared, GuardedStore, Instances, ShardedStore, SlicedStore, Slices, SteadyClock,
        StoreAdmin,
    },
    peers::{
        Monitor, MonitorConfig,
        records::{RecordArchive, RecordScope},
    },
    store::{
        memory::MemoryStore,
        redis::{RedisStore, Topology},
    },
    telemetry::{
        Event,
        metrics::{BudgetFacts, MemoryFacts, Metrics, StoreFacts},
    },
};

/// Interval of checking the server and its ACL.
const CHECK_EVERY: Duration = Duration::from_secs(30);

/// Builds the store and the archive for each thread that uses them.
pub(super) trait StoreFactory: Clone + Send + 'static {
    type Store: StoreAdmin + 'static;

    /// Creates the store of one thread.
    fn store(&self) -> Self::Store;

    /// Creates a reader of other instances' records.
    fn archive(self) -> impl Archive + 'static;
}

/// The configured store, and its parts that live as long as the process.
pub(super) struct Stores<F> {
    pub(super) factory: F,
    pub(super) memory: Arc<MemoryStore>,
    /// The state of the stores, for the admin port.
    pub(super) facts: StoreFactsSources,
    /// `None` without Redis.
    pub(super) monitor: Option<Monitor>,
    pub(super) reload_handles: Option<ReloadHandles>,
}

impl Stores<MemoryOnly> {
    pub(super) fn memory_only(memory: Arc<MemoryStore>) -> Self {
        let factory = MemoryOnly(Arc::clone(&memory));
        let facts = StoreFactsSources { memory: Box::new(memory_facts(&memory)), shared: None };
        Self { factory, memory, facts, monitor: None, reload_handles: None }
    }
}

impl Stores<Arc<SharedStoreFactory>> {
    /// Redis, with `memory` as the fallback. `retain`: time for which limited clients are listed.
    ///
    /// # Errors
    /// A certificate can't be read, or a thread can't be started.
    pub(super) fn with_redis(
        redis: &Redis,
        retain: Duration,
        memory: Arc<MemoryStore>,
        shared: &Shared,
    ) -> Result<Self, StartError> {
        let (store, monitor) = SharedStoreFactory::open(redis, retain, &memory, shared)?;
        let reload_handles = Some(store.reload_handles());
        let facts = StoreFactsSources {
            memory: Box::new(memory_facts(&memory)),
            shared: Some(Box::new(store.facts(&monitor))),
        };
        Ok(Self { factory: Arc::new(store), memory, facts, monitor: Some(monitor), reload_handles })
    }
}

/// Limits are kept in this process only.
#[derive(Clone)]
pub(super) struct MemoryOnly(Arc<MemoryStore>);

impl StoreFactory for MemoryOnly {
    type Store = Arc<MemoryStore>;

    fn store(&self) -> Arc<MemoryStore> {
        Arc::clone(&self.0)
    }

    fn archive(self) -> impl Archive + 'static {}
}

/// Creates the store in memory.
pub(super) fn memory(config: &Config, shared: &Shared) -> Arc<MemoryStore> {
    let (max_keys, max_bytes) = (config.store.memory.max_keys, shared.budgets.limits);
    let store = Arc::new(MemoryStore::with_budget(max_keys, max_bytes, Arc::new(SteadyClock::new())));
    shared.metrics.memory.watch(memory_facts(&store));
    store
}

/// The state of the store in memory.
fn memory_facts(store: &Arc<MemoryStore>) -> impl Fn() -> MemoryFacts + Send + Sync + use<> {
    let store = Arc::clone(store);
    move || {
        let stats = store.stats();
        MemoryFacts {
            keys: stats.keys as u64,
            bytes: BudgetFacts { held: stats.bytes as u64, budget: stats.max_bytes as u64 },
            evicted: stats.dropped,
            evicted_entries: stats.dropped_entries,
            discarded: stats.discarded,
        }
    }
}

/// The store that instances share. Each thread has its own connection.
pub(super) struct SharedStoreFactory {
    topology: Arc<Topology>,
    config: Redis,
    scope: RecordScope,
    memory: Arc<MemoryStore>,
    guard: GuardShared,
    slices: Arc<Slices>,
    metrics: Arc<Metrics>,
}

impl SharedStoreFactory {
    /// Starts the monitor of Redis, even if the server is unreachable. `retain`: time for which limited clients are
    /// listed.
    ///
    /// # Errors
    /// A certificate can't be read, or a thread can't be started.
    fn open(
        config: &Redis,
        retain: Duration,
        memory: &Arc<MemoryStore>,
        shared: &Shared,
    ) -> Result<(Self, Monitor), StartError> {
        let topology = Topology::open(config)?;
        let guard = GuardShared { instances: Arc::new(Instances::default()), clock: SteadyClock::new() };
        let instance = shared.instance.clone();
        let scope = RecordScope::new(&config.key_prefix(), &instance, retain);
        let monitor = Monitor::spawn(MonitorConfig {
            topology: Arc::clone(&topology),
            redis: config.clone(),
            check_every: CHECK_EVERY,
            instance,
            scope: scope.clone(),
            registry: Arc::clone(&shared.registry),
            bans: Arc::clone(&shared.bans),
            drains: Arc::clone(&shared.drains),
            api_keys: Arc::clone(&shared.api_keys),
            audit: Arc::clone(&shared.audit),
            clock: shared.clock,
            instances: Arc::clone(&guard.instances),
            configuration: Box::new({
                let in_force = Arc::clone(&shared.in_force);
                move || in_force.snapshot().decides.clone()
            }),
            on_unblocked: on_unblocked(memory, shared),
            on_cleared: Box::new(on_cleared(memory, shared)),
        })?;
        let (config, memory, metrics) = (config.clone(), Arc::clone(memory), Arc::clone(&shared.metrics));
        let slices = Arc::new(Slices::new(Arc::clone(&guard.instances)));
        let store = Self { topology, config, scope, memory, guard, slices, metrics };
        let facts = store.facts(&monitor);
        store.metrics.store.watch(move || Some(facts()));
        Ok((store, monitor))
    }

    /// The state of the shared store.
    fn facts(&self, monitor: &Monitor) -> impl Fn() -> StoreFacts + Send + Sync + use<> {
        monitor.facts(Arc::clone(&self.guard.instances))
    }

    fn reload_handles(&self) -> ReloadHandles {
        ReloadHandles { scope: self.scope.clone(), instances: Arc::clone(&self.guard.instances) }
    }
}

impl StoreFactory for Arc<SharedStoreFactory> {
    type Store = ShardedStore<GuardedStore<SlicedStore<RedisStore>, Arc<MemoryStore>>>;

    fn store(&self) -> Self::Store {
        let metrics = self.metrics.store_connection();
        let store = RedisStore::new(Arc::clone(&self.topology), &self.config, metrics, None);
        store.warm_up();
        let slicing = SlicedStore::new(store, Arc::clone(&self.slices), Arc::new(self.guard.clock));
        ShardedStore::new(GuardedStore::new(slicing, Arc::clone(&self.memory), self.guard.clone()))
    }

    fn archive(self) -> impl Archive + 'static {
        let topology = Arc::clone(&self.topology);
        // Connecting, the handshake, and up to three commands.
        let patience = self.config.time_for(5).max(Duration::from_millis(500));
        RecordArchive::new(self.scope.clone(), patience, async move |key: &str| topology.connect(key).await)
    }
}

/// Applies an unblock of another instance here.
fn on_unblocked(memory: &Arc<MemoryStore>, shared: &Shared) -> Box<dyn Fn(&str) + Send> {
    let (memory, in_force) = (Arc::clone(memory), Arc::clone(&shared.in_force));
    let (registry, clock) = (Arc::clone(&shared.registry), shared.clock);
    let events = shared.events.clone();
    Box::new(move |identifier| {
        memory.reset_now(in_force.snapshot().policies(), identifier);
        if let Some(address) = abuse::from_identifier(identifier) {
            // The operator's name is in the shared records.
            let now = clock.now();
            registry.unblock(address, Unblock { time: now, by: String::new() }, now);
            events.publish(|| Event::Unblocked { address: abuse::shown(address).to_string() });
        }
    })
}

/// Clears a limit here that another instance has cleared.
fn on_cleared(memory: &Arc<MemoryStore>, shared: &Shared) -> impl Fn(&str, &str) + Send + use<> {
    let (memory, in_force) = (Arc::clone(memory), Arc::clone(&shared.in_force));
    move |name, identifier| {
        if let Some(policy) = in_force.snapshot().policies().iter().find(|policy| policy.name == name) {
            memory.clear_now(std::slice::from_ref(policy), identifier);
        }
    }
}
