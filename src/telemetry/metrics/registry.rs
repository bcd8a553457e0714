//! The registry of metrics: the counters of all workers and of the process, and the sources of gauges.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;

use super::{
    AlertFacts, BanFacts, ConnectionFacts, EndpointFacts, KeptHistoryFacts, KeySetFacts, NodeFacts,
    PoolMetrics, PoolState, StoreMetrics, StoreTopology, ThreadMetrics, TlsFacts, UpstreamTlsFacts,
    WorkerMetrics, bans::BanMetrics, generation::Generations, names::MetricNames, totals::Totals,
};
use crate::config::model::Config;

/// Bytes in use, and their upper bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BudgetFacts {
    pub held: u64,
    pub budget: u64,
}

/// The state of the memory store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryFacts {
    /// Limits with state.
    pub keys: u64,
    pub bytes: BudgetFacts,
    /// Limits evicted because the store was full, since the start.
    pub evicted: u64,
    /// Entries of `metadata_list` evicted to make room for limits, since the start.
    pub evicted_entries: u64,
    /// States dropped because they were too far ahead of the clock, since the start.
    pub discarded: u64,
}

/// The state of the registry of limited clients.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EvidenceFacts {
    /// Limited clients.
    pub clients: u64,
    pub bytes: BudgetFacts,
    /// Clients whose evidence was evicted, since the start.
    pub evicted: u64,
}

/// The state of a store that instances share.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreFacts {
    pub topology: StoreTopology,
    /// Its servers, primaries before their replicas.
    pub nodes: Vec<NodeFacts>,
    /// Whether the circuit breaker is open: no decision is sent.
    pub breaker_open: bool,
    /// Instances that share it, including this one.
    pub instances: u32,
    /// How many instances share the limits while it is away.
    pub sharing: u32,
    /// The role that the server reports: `master` or `slave`. Empty until it was reached.
    pub role: String,
    /// Its version. Empty until it was reached.
    pub version: String,
    /// Time of the last round trip, in microseconds.
    pub latency: Option<u64>,
    /// Warnings for the operator.
    pub warnings: Vec<String>,
    /// Microseconds that this instance's clock is ahead of the store's.
    pub clock_offset: Option<i64>,
    /// The facts that this instance publishes; `None` until it has.
    pub own: Option<InstanceFacts>,
    /// The facts that other instances publish.
    pub others: Vec<InstanceFacts>,
}

/// The facts that an instance publishes to the others of its store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstanceFacts {
    /// Microseconds that its clock is ahead of the store's.
    pub clock_offset: i64,
    /// The hash of its configuration.
    pub configuration: String,
    pub version: String,
}

/// A source of facts that another part of the process provides.
#[derive(Default)]
pub struct FactSource<T>(Mutex<Option<Arc<dyn Fn() -> T + Send + Sync>>>);

impl<T: Default> FactSource<T> {
    /// Sets the source; it replaces a previous one.
    pub fn watch(&self, source: impl Fn() -> T + Send + Sync + 'static) {
        *self.0.lock() = Some(Arc::new(source));
    }

    /// The current facts; the default without a source.
    pub fn read(&self) -> T {
        let source = self.0.lock().clone();
        source.map(|source| source()).unwrap_or_default()
    }
}

/// All metrics of the process.
pub struct Metrics {
    /// One for each worker.
    pub(super) threads: Vec<Arc<ThreadMetrics>>,
    generations: Mutex<Generations>,
    /// By the names of their upstreams.
    pools: Mutex<Vec<(String, Arc<PoolMetrics>)>>,
    pub(super) bans: BanMetrics,
    pub active_bans: FactSource<BanFacts>,
    pub memory: FactSource<MemoryFacts>,
    pub evidence: FactSource<EvidenceFacts>,
    /// `None` without a shared store.
    pub store: FactSource<Option<StoreFacts>>,
    /// The endpoints of all upstreams.
    pub endpoints: FactSource<Vec<EndpointFacts>>,
    /// The listeners that use TLS, in the configuration's order.
    pub tls: FactSource<Vec<TlsFacts>>,
    /// The upstreams that have `https` endpoints.
    pub upstream_tls: FactSource<Vec<UpstreamTlsFacts>>,
    /// The key sets of the providers of tokens.
    pub key_sets: FactSource<Vec<KeySetFacts>>,
    /// Why the API keys of the file are older than its contents, if they are.
    pub keys_file_error: FactSource<Option<String>>,
    /// The history that is kept in a database.
    pub kept_history: FactSource<KeptHistoryFacts>,
    pub alerts: FactSource<AlertFacts>,
    /// How many incidents of each kind go on.
    pub incidents: FactSource<Vec<(&'static str, u64)>>,
    pub connections: FactSource<ConnectionFacts>,
    /// One for each connection to the shared store.
    pub(super) store_connections: Mutex<Vec<Arc<StoreMetrics>>>,
    // Rare, and not of one worker: locked instructions do not matter here.
    /// Successes, then failures.
    reloads: [AtomicU64; 2],
    /// Whether the last one failed.
    has_failed_reload: AtomicBool,
    abuse_dropped: AtomicU64,
    peaks_dropped: AtomicU64,
    abuse_evicted: AtomicU64,
    access_log_dropped: AtomicU64,
    spans_exported: AtomicU64,
    spans_dropped: AtomicU64,
    started: SystemTime,
}

impl Metrics {
    /// Creates counters for the names of `config`, one set for each of `workers`.
    pub fn new(config: &Config, workers: usize) -> Arc<Self> {
        let threads: Vec<_> = std::iter::repeat_with(Arc::default).take(workers).collect();
        let names = MetricNames::from_config(config);
        Arc::new(Self {
            bans: BanMetrics::new(&names.bans),
            generations: Mutex::new(Generations::new(names, &threads)),
            threads,
            pools: Mutex::default(),
            active_bans: FactSource::default(),
            memory: FactSource::default(),
            evidence: FactSource::default(),
            store: FactSource::default(),
            endpoints: FactSource::default(),
            tls: FactSource::default(),
            upstream_tls: FactSource::default(),
            key_sets: FactSource::default(),
            keys_file_error: FactSource::default(),
            kept_history: FactSource::default(),
            alerts: FactSource::default(),
            incidents: FactSource::default(),
            connections: FactSource::default(),
            store_connections: Mutex::default(),
            reloads: Default::default(),
            has_failed_reload: AtomicBool::new(false),
            abuse_dropped: AtomicU64::new(0),
            peaks_dropped: AtomicU64::new(0),
            abuse_evicted: AtomicU64::new(0),
            access_log_dropped: AtomicU64::new(0),
            spans_exported: AtomicU64::new(0),
            spans_dropped: AtomicU64::new(0),
            started: SystemTime::now(),
        })
    }

    /// Counts by the names of `config` from now on: [`Metrics::worker`] returns counters with its indexes. Past counts
    /// are kept; requests in flight still count by the previous configuration.
    pub fn reconfigure(&self, config: &Config) {
        let names = MetricNames::from_config(config);
        self.bans.reconfigure(&names.bans);
        self.generations.lock().reconfigure(names, &self.threads);
    }

    /// The counters of one worker, by the configuration in force. Only that worker's thread may write to them.
    ///
    /// # Panics
    /// `index` is not below [`Metrics::workers`].
    pub fn worker(&self, index: usize) -> Arc<WorkerMetrics> {
        let generations = self.generations.lock();
        #[expect(clippy::expect_used, reason = "documented above")]
        Arc::clone(generations.worker(index).expect("an index below the number of workers"))
    }

    /// The number of workers.
    pub fn workers(&self) -> usize {
        self.threads.len()
    }

    /// Creates the gauges of one worker's connections to an upstream. They count until the worker drops them.
    pub fn pool(&self, upstream: &str) -> Arc<PoolMetrics> {
        let pool = Arc::new(PoolMetrics::default());
        let mut pools = self.pools.lock();
        pools.retain(|(_, pool)| Arc::strong_count(pool) > 1);
        pools.push((upstream.to_owned(), Arc::clone(&pool)));
        pool
    }

    /// The counts under all configurations, by name; the names in force come first.
    pub fn totals(&self) -> Totals {
        let mut totals = self.generations.lock().totals();
        // Copied: a reference would make the pool count as in use.
        let mut pools = self.pools.lock();
        pools.retain(|(_, pool)| Arc::strong_count(pool) > 1);
        totals.pools = pools.iter().map(|(name, pool)| (name.clone(), pool.copied())).collect();
        totals
    }

    /// The connections of all workers to an upstream.
    pub(super) fn upstream_connections(&self, upstream: &str, state: PoolState) -> u64 {
        let mut pools = self.pools.lock();
        pools.retain(|(_, pool)| Arc::strong_count(pool) > 1);
        let its = pools.iter().filter(|(name, _)| name == upstream);
        its.map(|(_, pool)| pool.connections(state).value()).sum()
    }

    /// Creates the counters of one more connection to the shared store. Only one thread may write to them.
    pub fn store_connection(&self) -> Arc<StoreMetrics> {
        let connection = Arc::new(StoreMetrics::default());
        self.store_connections.lock().push(Arc::clone(&connection));
        connection
    }

    /// Counts a reload of the configuration.
    pub fn record_reload(&self, is_successful: bool) {
        self.reloads[usize::from(!is_successful)].fetch_add(1, Relaxed);
        self.has_failed_reload.store(!is_successful, Relaxed);
    }

    /// Successful and failed reloads.
    pub(super) fn reloads(&self) -> [u64; 2] {
        self.reloads.each_ref().map(|count| count.load(Relaxed))
    }

    /// Whether the last reload failed.
    pub(super) fn has_failed_reload(&self) -> bool {
        self.has_failed_reload.load(Relaxed)
    }

    /// Counts decisions on keys that are missing from their peaks.
    pub fn add_peaks_dropped(&self, count: u64) {
        self.peaks_dropped.fetch_add(count, Relaxed);
    }

    /// Counts denials that were not recorded.
    pub fn add_abuse_dropped(&self, count: u64) {
        self.abuse_dropped.fetch_add(count, Relaxed);
    }

    /// Counts limited clients that were dropped early to make room for others.
    pub fn add_abuse_evicted(&self, count: u64) {
        self.abuse_evicted.fetch_add(count, Relaxed);
    }

    /// Counts a ban that was issued: by a rule (`bans.hammering`) or an operator (`ban`).
    pub fn ban_issued(&self, name: &str) {
        self.bans.issue(name);
    }

    /// Counts a ban that was not issued or was dropped because there were too many.
    pub fn add_ban_dropped(&self) {
        self.bans.dropped.fetch_add(1, Relaxed);
    }

    /// Counts lines of the access log that were not written.
    pub fn add_access_log_dropped(&self, count: u64) {
        self.access_log_dropped.fetch_add(count, Relaxed);
    }

    /// Counts spans that the collector accepted.
    pub fn add_spans_exported(&self, count: u64) {
        self.spans_exported.fetch_add(count, Relaxed);
    }

    /// Counts spans that the collector did not accept.
    pub fn add_spans_dropped(&self, count: u64) {
        self.spans_dropped.fetch_add(count, Relaxed);
    }

    pub fn spans_exported(&self) -> u64 {
        self.spans_exported.load(Relaxed)
    }

    pub fn spans_dropped(&self) -> u64 {
        self.spans_dropped.load(Relaxed)
    }

    pub fn peaks_dropped(&self) -> u64 {
        self.peaks_dropped.load(Relaxed)
    }

    pub fn abuse_dropped(&self) -> u64 {
        self.abuse_dropped.load(Relaxed)
    }

    pub fn abuse_evicted(&self) -> u64 {
        self.abuse_evicted.load(Relaxed)
    }

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
