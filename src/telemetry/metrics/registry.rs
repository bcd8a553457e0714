//! The counters of all workers, and those of the process.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;

use super::{BanFacts, StoreMetrics, WorkerMetrics, bans::BanMetrics};
use crate::config::model::Config;

/// How the memory store stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryFacts {
    /// Limits with state.
    pub keys: u64,
    /// Limits that had to go because the store was full, since the start.
    pub evicted: u64,
    /// States that were forgotten because they lay too far ahead of the clock, since the start.
    pub discarded: u64,
}

/// How a store stands that instances share.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreFacts {
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

/// How an endpoint of an upstream stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndpointFacts {
    pub upstream: String,
    /// `http://127.0.0.1:3000`
    pub url: String,
    /// Whether it could be reached the last time that it was tried.
    pub is_healthy: bool,
    /// How often it was put to rest since the start.
    pub ejections: u64,
}

type EndpointSource = Box<dyn Fn() -> Vec<EndpointFacts> + Send + Sync>;
type StoreSource = Box<dyn Fn() -> StoreFacts + Send + Sync>;
type MemorySource = Box<dyn Fn() -> MemoryFacts + Send + Sync>;

/// Everything that is counted. One a process.
pub struct Metrics {
    pub(super) routes: Vec<String>,
    pub(super) policies: Vec<String>,
    pub(super) upstreams: Vec<String>,
    pub(super) workers: Vec<Arc<WorkerMetrics>>,
    pub(super) bans: BanMetrics,
    memory: OnceLock<MemorySource>,
    store: OnceLock<StoreSource>,
    endpoints: Mutex<Option<EndpointSource>>,
    /// The ways to it.
    pub(super) ways: Mutex<Vec<Arc<StoreMetrics>>>,
    // Rare, and of no one worker: these may be locked.
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
        let routes: Vec<_> = config.routes.iter().map(|route| route.name.clone()).collect();
        let policies: Vec<_> = config.policies.iter().map(|policy| policy.name.clone()).collect();
        let upstreams: Vec<_> = config.upstreams.iter().map(|upstream| upstream.name.clone()).collect();
        let bans = BanMetrics::new(config);
        let set =
            || Arc::new(WorkerMetrics::new(routes.len(), policies.len(), upstreams.len(), bans.names.len()));
        Arc::new(Self {
            workers: std::iter::repeat_with(set).take(workers).collect(),
            routes,
            policies,
            upstreams,
            bans,
            memory: OnceLock::new(),
            store: OnceLock::new(),
            endpoints: Mutex::default(),
            ways: Mutex::default(),
            abuse_dropped: AtomicU64::new(0),
            abuse_evicted: AtomicU64::new(0),
            access_log_dropped: AtomicU64::new(0),
            spans_exported: AtomicU64::new(0),
            spans_dropped: AtomicU64::new(0),
            started: SystemTime::now(),
        })
    }

    /// The set of one worker. Only that worker's thread may write to it.
    ///
    /// # Panics
    /// There is no such worker.
    pub fn worker(&self, index: usize) -> Arc<WorkerMetrics> {
        Arc::clone(&self.workers[index])
    }

    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Names the source of the memory store's figures. The first call holds.
    pub fn watch_memory(&self, source: impl Fn() -> MemoryFacts + Send + Sync + 'static) {
        let _already = self.memory.set(Box::new(source));
    }

    /// How the memory store stands; zeros as long as nobody watches it.
    pub fn memory(&self) -> MemoryFacts {
        self.memory.get().map(|source| source()).unwrap_or_default()
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

    /// The counters of another way to the shared store. Only one thread may write to them.
    pub fn way(&self) -> Arc<StoreMetrics> {
        let way = Arc::new(StoreMetrics::default());
        self.ways.lock().push(Arc::clone(&way));
        way
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
        f.debug_struct("Metrics").field("workers", &self.workers.len()).finish_non_exhaustive()
    }
}
