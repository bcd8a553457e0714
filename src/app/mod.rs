//! The composition root: builds everything, starts it, ends it. A checklist, not a place for logic.

mod bans;
mod difference;
mod generation;
mod reload;
mod stores;
mod workers;

use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use tokio::sync::{mpsc, watch};

use crate::{
    abuse::{Archive, Collector, bans::Bans},
    admin::{self, ActiveConfig, AdminHandle, Readiness, ReloadRequest, StoreFactsSources},
    config::model::{AccessLogFormat, Config},
    identity::UnusableKeys,
    limit::{Clock, Policy, PolicyIds, StoreAdmin, SystemClock},
    listener::{BindError, BoundListener, ConnectionLimit, Lifecycle, LivenessMonitor},
    peers::{Monitor, records::RecordArchive},
    proxy::WorkerParts,
    store::{memory::MemoryStore, redis::ServerError},
    telemetry::{
        Events,
        access_log::{AccessLog, OpenError},
        diagnostics::{Diagnostics, Timing},
        metrics::Metrics,
        traces::{self, Traces},
    },
};
use generation::Generation;
use reload::Elsewhere;
use stores::{Ground, Shared};

pub use crate::listener::InheritedSockets;
pub use reload::Loaded;

/// How often a worker hands on what it has gathered.
const TICK: Duration = Duration::from_millis(100);
/// Limits looked at a tick to see whether they are over.
const SWEEP: usize = 20_000;
/// How long workers may take to break off what runs, and to give back what it holds.
const BREAK_OFF: Duration = Duration::from_secs(2);
/// How long the last lines of the access log may take to be written.
const LAST_LINES: Duration = Duration::from_secs(2);

/// Why Tollgate did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A port can't be listened on.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The access log can't be written.
    #[error(transparent)]
    AccessLog(#[from] OpenError),
    /// A file that Redis takes can't be read.
    #[error(transparent)]
    Redis(#[from] ServerError),
    /// Traces can't be sent.
    #[error(transparent)]
    Traces(#[from] traces::OpenError),
    /// The keys of a token can't be read.
    #[error(transparent)]
    Keys(#[from] UnusableKeys),
    /// A name can't be sent in a field.
    #[error("a policy or reply_headers.via has a name that no field may hold: {0}")]
    Name(#[from] http::header::InvalidHeaderValue),
    /// The system has no thread or runtime left.
    #[error("can't start a thread: {0}")]
    Thread(#[from] io::Error),
}

/// A running Tollgate.
pub struct App {
    /// Where clients are served, with the real ports.
    pub addresses: Vec<SocketAddr>,
    parts: reload::Parts,
    reload_requests: Option<mpsc::Receiver<ReloadRequest>>,
    memory: Arc<MemoryStore>,
    bans: Arc<Bans>,
    /// Where instances share their limits.
    monitor: Option<Monitor>,
    slots: Arc<ConnectionLimit>,
    pulses: LivenessMonitor,
    access_log: AccessLog,
    traces: Option<Traces>,
    readiness: Arc<Readiness>,
    phase: watch::Sender<Lifecycle>,
    ended: mpsc::Receiver<()>,
    admin: AdminHandle,
}

/// Builds everything and starts it. Where a socket was inherited for an address, none is bound. `warnings`: what of
/// the configuration may not be meant, for the admin port to tell.
///
/// # Errors
/// A port is taken, a file can't be opened, a thread can't be started; nothing runs then.
pub fn start(config: Config, warnings: Vec<String>, inherited: InheritedSockets) -> Result<App, StartError> {
    raise_descriptor_limit();
    let clock = SystemClock::new();
    let mut ids = PolicyIds::default();
    let policies: Arc<[Policy]> = ids.policies(config.policies.iter().map(Arc::as_ref)).into();
    let metrics = Metrics::new(&config, workers::count(config.workers));
    let events = Events::new();
    let registry = stores::registry(&config, &policies, &metrics, &events);
    let registry = Arc::new(registry.with_names(&bans::names(&config)));
    let generation = Generation::new(config, policies, None)?;
    let config = Arc::clone(&generation.config);
    let in_force = Arc::new(ActiveConfig::new(generation.snapshot(warnings, clock.now())));
    // A new one at each start: what an instance wrote before is another's to it.
    let instance = format!("{:016x}", fastrand::u64(..));
    let (bans, audit) = bans::open(&instance, &clock, &events, &metrics, config.store.redis.is_some());
    let ground = Ground { instance, in_force, clock, metrics, registry, bans, audit, events };
    let memory = stores::memory(&config, &ground);
    let memory_facts = Box::new(stores::memory_facts(&memory));
    match &config.store.redis {
        None => {
            let facts = StoreFactsSources { memory: memory_facts, shared: None };
            let end = Arc::clone(&memory);
            launch(
                (generation, ids),
                inherited,
                ground,
                (memory, facts),
                None,
                move || Arc::clone(&end),
                || (),
            )
        }
        Some(redis) => {
            let (shared, monitor) = Shared::open(redis, config.abuse.retain, &memory, &ground)?;
            let (scope, server) = shared.records();
            let archive = move || RecordArchive::new(scope, async move || server.open_connection().await);
            let facts =
                StoreFactsSources { memory: memory_facts, shared: Some(Box::new(shared.facts(&monitor))) };
            let far = Some((monitor, shared.elsewhere()));
            let shared = Arc::new(shared);
            launch((generation, ids), inherited, ground, (memory, facts), far, move || shared.end(), archive)
        }
    }
}

/// Starts whatever asks the store, each thread with an end of its own, which `end` makes. `archive` makes what
/// the admin port reads the records of other instances from.
fn launch<S: StoreAdmin + 'static, A: Archive + 'static>(
    (generation, ids): (Generation, PolicyIds),
    mut inherited: InheritedSockets,
    ground: Ground,
    (memory, store_facts): (Arc<MemoryStore>, StoreFactsSources),
    far: Option<(Monitor, Elsewhere)>,
    end: impl Fn() -> S + Clone + Send + 'static,
    archive: impl FnOnce() -> A + Send + 'static,
) -> Result<App, StartError> {
    let Ground { in_force, clock, metrics, registry, bans, audit, events, instance } = ground;
    let config = Arc::clone(&generation.config);
    let (monitor, elsewhere) = far.unzip();
    let workers = metrics.workers();

    let configured: Vec<SocketAddr> = config.listeners.iter().map(|listener| listener.address).collect();
    inherited.retain(&[configured.as_slice(), &[config.admin.address]].concat());
    let admin_socket = inherited.or_bind(config.admin.address, 1)?;
    let bound = configured
        .into_iter()
        .map(|address| inherited.or_bind(address, workers))
        .collect::<Result<Vec<_>, _>>()?;
    let addresses: Vec<SocketAddr> = bound.iter().map(|bound| bound.address).collect();

    let access_log = AccessLog::open(&config.access_log, Arc::clone(&metrics))?;
    let traces = Traces::open(&config, instance, Arc::clone(&metrics))?;
    let diagnostics =
        Diagnostics::spawn(&config, Arc::clone(&metrics), events.clone(), Timing::from_environment())?;
    let collector = Collector::spawn(Arc::clone(&registry), clock.clone(), Arc::clone(&metrics))?;
    generation.watch_endpoints(&metrics);
    let slots = ConnectionLimit::new(config.client_limits.connections);
    let pulses = LivenessMonitor::new(workers);
    let (phase, watched) = watch::channel(Lifecycle::Serving);
    let (working, ended) = mpsc::channel(1);

    let readiness = Arc::new(Readiness::default());
    let (reloads, reload_requests) = admin::Reloads::channel();
    let state = admin::AdminState {
        token: config.admin.token.clone(),
        registry: Arc::clone(&registry),
        bans: Arc::clone(&bans),
        audit: Arc::clone(&audit),
        in_force: Arc::clone(&in_force),
        reloads,
        metrics: Arc::clone(&metrics),
        readiness: Arc::clone(&readiness),
        events: events.clone(),
        warnings: diagnostics.warnings(),
        clock: Arc::new(clock.clone()),
        facts: admin::ProcessFacts {
            listeners: addresses.clone(),
            workers,
            started: i64::try_from(metrics.started().as_micros()).unwrap_or(i64::MAX),
        },
        store_facts,
    };
    let wrong_tokens = Arc::new(MemoryStore::new(admin::WRONG_TOKEN_KEYS, Arc::new(clock.clone())));
    let backends = admin::Backends { store: end.clone(), archive, wrong_tokens };
    let admin = admin::spawn(only(admin_socket)?, state, backends)?;

    // Last of all, so that no client is let in where anything else can't start.
    let is_logged = config.access_log.format != AccessLogFormat::Off;
    let mut parts = reload::Parts {
        ids,
        generation,
        in_force,
        metrics: Arc::clone(&metrics),
        registry,
        collector,
        slots: Arc::clone(&slots),
        audit,
        events,
        clock: clock.clone(),
        renewals: Vec::with_capacity(workers),
        elsewhere,
        diagnostics,
        is_logged,
    };
    for ((index, sockets), pulse) in
        workers::sockets(bound, workers).into_iter().enumerate().zip(pulses.each())
    {
        let worker = WorkerParts {
            index,
            store: Box::new(end.clone()),
            metrics: Arc::clone(&metrics),
            access_log: access_log.worker(),
            tracer: traces.as_ref().map(Traces::tracer),
            sampler: parts.diagnostics.sampler(),
            bans: Arc::clone(&bans),
            clock: clock.clone(),
            config: parts.of_worker(&parts.generation, index),
        };
        let (renewals, received) = mpsc::unbounded_channel();
        let shift = workers::Shift { sockets, slots: Arc::clone(&slots), phase: watched.clone(), pulse };
        workers::spawn(worker, received, shift, working.clone())?;
        parts.renewals.push(renewals);
    }
    readiness.enter(admin::ProcessPhase::Ready);

    for address in &addresses {
        tracing::info!(%address, workers, "serving clients");
    }
    tracing::info!(address = %admin.address(), "admin port");
    Ok(App {
        addresses,
        parts,
        reload_requests: Some(reload_requests),
        memory,
        bans,
        monitor,
        slots,
        pulses,
        access_log,
        traces,
        readiness,
        phase,
        ended,
        admin,
    })
}

impl App {
    /// Where operators are.
    pub fn admin(&self) -> SocketAddr {
        self.admin.address()
    }

    /// Open client connections.
    pub fn connections(&self) -> usize {
        self.slots.open()
    }

    /// Opens the access log anew, after its file was moved away.
    pub fn reopen_access_log(&self) {
        self.access_log.reopen();
    }

    /// Ready after a while, in which limits that are over were looked for. False if all workers have
    /// ended, which they do not do unasked.
    pub async fn housekeeping(&mut self) -> bool {
        let working = tokio::time::timeout(TICK, self.workers_ended()).await.is_err();
        self.memory.sweep(SWEEP);
        self.bans.tend();
        working
    }

    /// Whether every worker has given a sign of life since this was last true; they do some ten times a
    /// second.
    pub fn workers_go_on(&mut self) -> bool {
        self.pulses.all_alive()
    }

    /// Ready once all workers have ended.
    async fn workers_ended(&mut self) {
        // Nothing is ever sent: the last worker's end closes the channel.
        let _closed = self.ended.recv().await;
    }

    /// Takes no more connections, and closes those on which nothing runs.
    pub fn drain(&self) {
        self.readiness.enter(admin::ProcessPhase::Draining);
        self.phase.send_replace(Lifecycle::Draining);
    }

    /// How long requests may run on (`shutdown.drain`).
    pub fn drain_limit(&self) -> Duration {
        self.parts.generation.config.shutdown.drain
    }

    /// Waits until the last request has ended, for `shutdown.drain` at most. Says whether it has.
    pub async fn drained(&mut self) -> bool {
        tokio::time::timeout(self.drain_limit(), self.workers_ended()).await.is_ok()
    }

    /// Breaks off what still runs, and waits until what it held of limits is given back, as far as it can be: two seconds
    /// at most.
    pub async fn break_off(&mut self) {
        self.phase.send_replace(Lifecycle::Ending);
        if tokio::time::timeout(BREAK_OFF, self.workers_ended()).await.is_err() {
            tracing::warn!("some workers do not end");
        }
    }

    /// Ends what is left, and writes the last lines of the access log.
    pub fn close(self) {
        if !self.access_log.close(LAST_LINES) {
            tracing::warn!("the last lines of the access log could not be written");
        }
        if !self.traces.is_none_or(Traces::close) {
            tracing::warn!("the last spans could not be sent");
        }
        self.admin.stop();
        if let Some(monitor) = self.monitor {
            monitor.stop();
        }
    }
}

fn only(bound: BoundListener) -> io::Result<TcpListener> {
    bound.sockets.into_iter().next().ok_or_else(|| io::Error::other("no socket was bound"))
}

/// A connection costs a descriptor, a proxied one two. The soft limit is often 1,024; what the
/// administrator set is the hard one.
fn raise_descriptor_limit() {
    if let Err(error) = rlimit::increase_nofile_limit(u64::MAX) {
        tracing::warn!("can't raise the limit of open files: {error}");
    }
}
