//! The counters of all workers, and those of the process.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;

use super::{
    BanFacts, ConnectionFacts, EndpointFacts, NodeFacts, PoolMetrics, PoolState, StoreMetrics, StoreTopology,
    ThreadMetrics, TlsFacts, UpstreamTlsFacts, WorkerMetrics,
    bans::BanMetrics,
    generation::{Generations, Names},
    totals::Totals,
};
use crate::config::model::Config;

/// How many bytes are held of those that may be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BudgetFacts {
    pub held: u64,
    pub budget: u64,
}

/// How the memory store stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryFacts {
    /// Limits with state.
    pub keys: u64,
    pub bytes: BudgetFacts,
    /// Limits that had to go because the store was full, since the start.
    pub evicted: u64,
    /// Entries of `metadata_list` that had to go for limits, since the start.
    pub evicted_entries: u64,
    /// States that were forgotten because they lay too far ahead of the clock, since the start.
    pub discarded: u64,
}

/// How the registry of limited clients stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EvidenceFacts {
    /// Limited clients.
    pub clients: u64,
    pub bytes: BudgetFacts,
    /// Clients whose evidence had to go, since the start.
    pub evicted: u64,
}

/// How a store stands that instances share.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreFacts {
    pub topology: StoreTopology,
    /// Its servers, primaries before their replicas.
    pub nodes: Vec<NodeFacts>,
    /// Whether it is not asked at the moment.
    pub breaker_open: bool,
    /// Instances that share it, this one among them.
    pub instances: u32,
    /// What the server says it is: `master` or `slave`. Empty: it was not reached yet.
    pub role: String,
    /// Its version, likewise.
    pub version: String,
    /// Of the last round trip, in microseconds.
    pub latency: Option<u64>,
    /// What an operator should know, in words.
    pub warnings: Vec<String>,
    /// By how many microseconds this instance's clock is ahead of the store's.
    pub clock_offset: Option<i64>,
    /// What this instance tells the others of itself; `None` until it has.
    pub own: Option<InstanceFacts>,
    /// What the other instances tell of themselves.
    pub others: Vec<InstanceFacts>,
}

/// What instances that share a store tell each other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstanceFacts {
    /// By how many microseconds its clock is ahead of the store's.
    pub clock_offset: i64,
    /// The hash of its configuration.
    pub configuration: String,
    pub version: String,
}

type EndpointSource = Box<dyn Fn() -> Vec<EndpointFacts> + Send + Sync>;
type UpstreamTlsSource = Box<dyn Fn() -> Vec<UpstreamTlsFacts> + Send + Sync>;
type ConnectionSource = Box<dyn Fn() -> ConnectionFacts + Send + Sync>;
type TlsSource = Box<dyn Fn() -> Vec<TlsFacts> + Send + Sync>;
type StoreSource = Box<dyn Fn() -> StoreFacts + Send + Sync>;
type MemorySource = Box<dyn Fn() -> MemoryFacts + Send + Sync>;
type EvidenceSource = Box<dyn Fn() -> EvidenceFacts + Send + Sync>;

/// All metrics of the process.
pub struct Metrics {
    /// One a worker.
    pub(super) threads: Vec<Arc<ThreadMetrics>>,
    generations: Mutex<Generations>,
    /// By the names of their upstreams.
    pools: Mutex<Vec<(String, Arc<PoolMetrics>)>>,
    pub(super) bans: BanMetrics,
    memory: OnceLock<MemorySource>,
    evidence: OnceLock<EvidenceSource>,
    store: OnceLock<StoreSource>,
    endpoints: Mutex<Option<EndpointSource>>,
    tls: OnceLock<TlsSource>,
    upstream_tls: Mutex<Option<UpstreamTlsSource>>,
    connections: OnceLock<ConnectionSource>,
    /// One for each connection to the shared store.
    pub(super) store_connections: Mutex<Vec<Arc<StoreMetrics>>>,
    // Rare, and of no one worker: these may be locked.
    /// That took effect, and that failed.
    reloads: [AtomicU64; 2],
    /// Whether the last one failed.
    has_failed_reload: AtomicBool,
    abuse_dropped: AtomicU64,
    abuse_evicted: AtomicU64,
    access_log_dropped: AtomicU64,
    spans_exported: AtomicU64,
    spans_dropped: AtomicU64,
    started: SystemTime,
}

impl Metrics {
    /// Counters for the names of `config`, one set for each of `workers`.
    pub fn new(config: &Config, workers: usize) -> Arc<Self> {
        let threads: Vec<_> = std::iter::repeat_with(Arc::default).take(workers).collect();
        Arc::new(Self {
            generations: Mutex::new(Generations::new(Names::from_config(config), &threads)),
            threads,
            pools: Mutex::default(),
            bans: BanMetrics::new(config),
            memory: OnceLock::new(),
            evidence: OnceLock::new(),
            store: OnceLock::new(),
            endpoints: Mutex::default(),
            tls: OnceLock::new(),
            upstream_tls: Mutex::default(),
            connections: OnceLock::new(),
            store_connections: Mutex::default(),
            reloads: Default::default(),
            has_failed_reload: AtomicBool::new(false),
            abuse_dropped: AtomicU64::new(0),
            abuse_evicted: AtomicU64::new(0),
            access_log_dropped: AtomicU64::new(0),
            spans_exported: AtomicU64::new(0),
            spans_dropped: AtomicU64::new(0),
            started: SystemTime::now(),
        })
    }

    /// Counts by the names of `config` from now on: [`Metrics::worker`] returns counters with its indexes. What was
    /// counted is kept, and requests that began before count on by the last configuration.
    pub fn reconfigure(&self, config: &Config) {
        self.bans.reconfigure(config);
        self.generations.lock().reconfigure(Names::from_config(config), &self.threads);
    }

    /// The set of one worker, by the configuration in force. Only that worker's thread may write to it.
    ///
    /// # Panics
    /// There is no such worker.
    pub fn worker(&self, index: usize) -> Arc<WorkerMetrics> {
        let generations = self.generations.lock();
        #[expect(clippy::expect_used, reason = "said above")]
        Arc::clone(generations.worker(index).expect("a worker of those that there are"))
    }

    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.threads.len()
    }

    /// The gauges of one worker's connections to an upstream. Dropped by it, they count no longer.
    pub fn pool(&self, upstream: &str) -> Arc<PoolMetrics> {
        let pool = Arc::new(PoolMetrics::default());
        let mut pools = self.pools.lock();
        pools.retain(|(_, pool)| Arc::strong_count(pool) > 1);
        pools.push((upstream.to_owned(), Arc::clone(&pool)));
        pool
    }

    /// By name, what was counted under all configurations: first the names of the one in force.
    pub fn totals(&self) -> Totals {
        let mut totals = self.generations.lock().totals();
        // Copied: a reference would make the pool count as in use.
        let mut pools = self.pools.lock();
        pools.retain(|(_, pool)| Arc::strong_count(pool) > 1);
        totals.pools = pools.iter().map(|(name, pool)| (name.clone(), pool.copied())).collect();
        totals
    }

    /// The connections to an upstream, all workers' together.
    pub(super) fn upstream_connections(&self, upstream: &str, state: PoolState) -> u64 {
        let mut pools = self.pools.lock();
        pools.retain(|(_, pool)| Arc::strong_count(pool) > 1);
        let its = pools.iter().filter(|(name, _)| name == upstream);
        its.map(|(_, pool)| pool.connections(state).value()).sum()
    }

    /// Names the source of the memory store's figures. The first call holds.
    pub fn watch_memory(&self, source: impl Fn() -> MemoryFacts + Send + Sync + 'static) {
        let _already = self.memory.set(Box::new(source));
    }

    /// How the memory store stands; zeros as long as it has no source.
    pub fn memory(&self) -> MemoryFacts {
        self.memory.get().map(|source| source()).unwrap_or_default()
    }

    /// Names the source of the figures of evidence. The first call holds.
    pub fn watch_evidence(&self, source: impl Fn() -> EvidenceFacts + Send + Sync + 'static) {
        let _already = self.evidence.set(Box::new(source));
    }

    /// How the registry of limited clients stands; zeros as long as it has no source.
    pub fn evidence(&self) -> EvidenceFacts {
        self.evidence.get().map(|source| source()).unwrap_or_default()
    }

    /// Names the source of the shared store's figures. The first call holds.
    pub fn watch_store(&self, source: impl Fn() -> StoreFacts + Send + Sync + 'static) {
        let _already = self.store.set(Box::new(source));
    }

    /// How the shared store stands; `None` where there is none.
    pub fn store(&self) -> Option<StoreFacts> {
        self.store.get().map(|source| source())
    }

    /// Names the source of how endpoints stand. The last call holds.
    pub fn watch_endpoints(&self, source: impl Fn() -> Vec<EndpointFacts> + Send + Sync + 'static) {
        *self.endpoints.lock() = Some(Box::new(source));
    }

    /// How the endpoints of all upstreams stand.
    pub fn endpoints(&self) -> Vec<EndpointFacts> {
        self.endpoints.lock().as_ref().map(|source| source()).unwrap_or_default()
    }

    /// Names the source of how the TLS of listeners stands. The first call holds.
    pub fn watch_tls(&self, source: impl Fn() -> Vec<TlsFacts> + Send + Sync + 'static) {
        let _already = self.tls.set(Box::new(source));
    }

    /// How the TLS of each listener stands that speaks it, in the configuration's order.
    pub fn tls(&self) -> Vec<TlsFacts> {
        self.tls.get().map(|source| source()).unwrap_or_default()
    }

    /// Names the source of how the TLS to upstreams stands. The last call holds.
    pub fn watch_upstream_tls(&self, source: impl Fn() -> Vec<UpstreamTlsFacts> + Send + Sync + 'static) {
        *self.upstream_tls.lock() = Some(Box::new(source));
    }

    /// How the TLS to each upstream stands that has `https` endpoints.
    pub fn upstream_tls(&self) -> Vec<UpstreamTlsFacts> {
        self.upstream_tls.lock().as_ref().map(|source| source()).unwrap_or_default()
    }

    /// Names the source of how client connections are spread over addresses. The first call holds.
    pub fn watch_connections(&self, source: impl Fn() -> ConnectionFacts + Send + Sync + 'static) {
        let _already = self.connections.set(Box::new(source));
    }

    /// How client connections are spread over addresses.
    pub fn connections(&self) -> ConnectionFacts {
        self.connections.get().map(|source| source()).unwrap_or_default()
    }

    /// The counters of another connection to the shared store. Only one thread may write to them.
    pub fn store_connection(&self) -> Arc<StoreMetrics> {
        let connection = Arc::new(StoreMetrics::default());
        self.store_connections.lock().push(Arc::clone(&connection));
        connection
    }

    /// The configuration was reloaded, or the one in force stayed.
    pub fn record_reload(&self, is_successful: bool) {
        self.reloads[usize::from(!is_successful)].fetch_add(1, Relaxed);
        self.has_failed_reload.store(!is_successful, Relaxed);
    }

    /// How many reloads took effect, and how many failed.
    pub(super) fn reloads(&self) -> [u64; 2] {
        self.reloads.each_ref().map(|count| count.load(Relaxed))
    }

    /// Whether the last reload failed.
    pub(super) fn has_failed_reload(&self) -> bool {
        self.has_failed_reload.load(Relaxed)
    }

    /// Denials that were not recorded.
    pub fn add_abuse_dropped(&self, count: u64) {
        self.abuse_dropped.fetch_add(count, Relaxed);
    }

    /// Limited clients that were forgotten early, to make room for others.
    pub fn add_abuse_evicted(&self, count: u64) {
        self.abuse_evicted.fetch_add(count, Relaxed);
    }

    /// A ban was given: by a rule (`bans.hammering`) or by hand (`ban`).
    pub fn ban_issued(&self, name: &str) {
        self.bans.issue(name);
    }

    /// A ban was not given, or given up, because there were too many.
    pub fn add_ban_dropped(&self) {
        self.bans.dropped.fetch_add(1, Relaxed);
    }

    /// Names the source of how many bans there are. The first call holds.
    pub fn watch_bans(&self, source: impl Fn() -> BanFacts + Send + Sync + 'static) {
        self.bans.watch(source);
    }

    /// Lines of the access log that were not written.
    pub fn add_access_log_dropped(&self, count: u64) {
        self.access_log_dropped.fetch_add(count, Relaxed);
    }

    /// Spans that a collector has taken.
    pub fn add_spans_exported(&self, count: u64) {
        self.spans_exported.fetch_add(count, Relaxed);
    }

    /// Spans that no collector has taken.
    pub fn add_spans_dropped(&self, count: u64) {
        self.spans_dropped.fetch_add(count, Relaxed);
    }

    /// See [`Metrics::add_spans_exported`].
    pub fn spans_exported(&self) -> u64 {
        self.spans_exported.load(Relaxed)
    }

    /// See [`Metrics::add_spans_dropped`].
    pub fn spans_dropped(&self) -> u64 {
        self.spans_dropped.load(Relaxed)
    }

    /// See [`Metrics::add_abuse_dropped`].
    pub fn abuse_dropped(&self) -> u64 {
        self.abuse_dropped.load(Relaxed)
    }

    /// See [`Metrics::add_abuse_evicted`].
    pub fn abuse_evicted(&self) -> u64 {
        self.abuse_evicted.load(Relaxed)
    }

    /// See [`Metrics::add_access_log_dropped`].
    pub fn access_log_dropped(&self) -> u64 {
        self.access_log_dropped.load(Relaxed)
    }

    /// When the process started, since the Unix epoch.
    pub fn started(&self) -> Duration {
        self.started.duration_since(UNIX_EPOCH).unwrap_or_default()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("workers", &self.threads.len()).finish_non_exhaustive()
    }
}
