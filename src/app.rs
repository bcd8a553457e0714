//! The composition root: builds everything, starts it, ends it. A checklist, not a place for logic.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    num::NonZeroUsize,
    rc::Rc,
    sync::Arc,
    thread,
    time::Duration,
};

use sha2::{Digest, Sha256};

use tokio::{
    runtime::{self, LocalOptions},
    sync::{mpsc, watch},
};

use crate::{
    abuse::{Collector, Registry},
    admin::{self, AdminHandle, Readiness},
    config::model::{Config, Workers},
    limit::{Clock, Policy, PolicyId, SystemClock},
    listener::{self, BindError, Bound, Phase, Slots},
    proxy::{Parts, Quotas, Via, Worker},
    store::memory::MemoryStore,
    telemetry::{
        access_log::{AccessLog, OpenError},
        metrics::{MemoryFacts, Metrics},
    },
    upstream::Shared,
};

/// How often a worker hands on what it has gathered.
const TICK: Duration = Duration::from_millis(100);
/// Limits looked at a tick to see whether they are over.
const SWEEP: usize = 20_000;
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
    config: Arc<Config>,
    store: Arc<MemoryStore>,
    slots: Arc<Slots>,
    access_log: AccessLog,
    readiness: Arc<Readiness>,
    phase: watch::Sender<Phase>,
    ended: mpsc::Receiver<()>,
    admin: AdminHandle,
    _collector: Collector,
}

/// Builds everything and starts it.
///
/// # Errors
/// A port is taken, a file can't be opened, a thread can't be started; nothing runs then.
pub fn start(config: Config) -> Result<App, StartError> {
    raise_descriptor_limit();
    let config = Arc::new(config);
    let workers = worker_count(config.workers);

    let admin_socket = listener::bind(config.admin.address, 1)?;
    let bound =
        config.listeners.iter().map(|l| listener::bind(l.address, workers)).collect::<Result<Vec<_>, _>>()?;
    let addresses: Vec<SocketAddr> = bound.iter().map(|bound| bound.address).collect();

    let clock = SystemClock::new();
    let policies: Arc<[Policy]> =
        (0..).zip(&config.policies).map(|(id, policy)| Policy::new(policy, PolicyId(id))).collect();
    let store = Arc::new(MemoryStore::new(config.store.memory.max_keys, Arc::new(clock.clone())));
    let metrics = Metrics::new(&config, workers);
    let access_log = AccessLog::open(&config.access_log, Arc::clone(&metrics))?;
    let registry = Arc::new(Registry::new(&policies, config.abuse.retain, Arc::clone(&metrics)));
    let collector = Collector::spawn(Arc::clone(&registry), clock.clone(), Arc::clone(&metrics))?;
    let upstreams: Vec<Arc<Shared>> = config.upstreams.iter().cloned().map(Shared::new).collect();
    let slots = Slots::new(config.client_limits.connections);
    let (phase, watched) = watch::channel(Phase::Serving);
    let (working, ended) = mpsc::channel(1);

    let gauge = Arc::clone(&store);
    metrics.watch_memory(move || {
        let stats = gauge.stats();
        MemoryFacts { keys: stats.keys as u64, evicted: stats.dropped, discarded: stats.discarded }
    });
    let readiness = Arc::new(Readiness::default());
    let state = admin::State {
        token: config.admin.token.clone(),
        registry,
        policies: Arc::clone(&policies),
        metrics: Arc::clone(&metrics),
        readiness: Arc::clone(&readiness),
        clock: Arc::new(clock.clone()),
        ipv6_prefix: config.client_address.ipv6_prefix,
        facts: admin::Facts {
            configuration_hash: fingerprint(&config),
            configuration_loaded: clock.now(),
            listeners: addresses.clone(),
            warnings: Vec::new(),
        },
    };
    let admin_store = Arc::clone(&store);
    let admin = admin::spawn(only(admin_socket)?, state, move || admin_store, || ())?;

    // Last of all, so that no client is let in where anything else can't start.
    let quotas = Arc::new(Quotas::new(&policies)?);
    let via = Via::new(&config.reply_headers.via)?;
    for (index, sockets) in per_worker(bound, workers).into_iter().enumerate() {
        let worker_store = Arc::clone(&store);
        let parts = Parts {
            index,
            config: Arc::clone(&config),
            policies: Arc::clone(&policies),
            store: Box::new(move || worker_store),
            upstreams: upstreams.clone(),
            metrics: metrics.worker(index),
            access_log: access_log.worker(),
            recorder: collector.recorder(),
            clock: clock.clone(),
            quotas: Arc::clone(&quotas),
            via: via.clone(),
        };
        spawn_worker(parts, sockets, Arc::clone(&slots), watched.clone(), working.clone())?;
    }
    readiness.enter(admin::Phase::Ready);

    for address in &addresses {
        tracing::info!(%address, workers, "serving clients");
    }
    tracing::info!(address = %admin.address(), "admin port");
    Ok(App {
        addresses,
        config,
        store,
        slots,
        access_log,
        readiness,
        phase,
        ended,
        admin,
        _collector: collector,
    })
}

impl App {
    /// Where operators are.
    pub fn admin(&self) -> SocketAddr {
        self.admin.address()
    }

    /// Open client connections.
    pub fn connections(&self) -> usize {
        self.slots.taken()
    }

    /// Opens the access log anew, after its file was moved away.
    pub fn reopen_access_log(&self) {
        self.access_log.reopen();
    }

    /// Ready after a while, in which limits that are over were looked for. False if all workers have
    /// ended, which they do not do unasked.
    pub async fn housekeeping(&mut self) -> bool {
        let working = tokio::time::timeout(TICK, self.workers_ended()).await.is_err();
        self.store.sweep(SWEEP);
        working
    }

    /// Ready once all workers have ended.
    async fn workers_ended(&mut self) {
        // Nothing is ever sent: the last worker's end closes the channel.
        let _closed = self.ended.recv().await;
    }

    /// Takes no more connections, and closes those on which nothing runs.
    pub fn drain(&self) {
        self.readiness.enter(admin::Phase::Draining);
        self.phase.send_replace(Phase::Draining);
    }

    /// Waits until the last request has ended, for `shutdown.drain` at most. Says whether it has.
    pub async fn drained(&mut self) -> bool {
        let limit = self.config.shutdown.drain;
        tokio::time::timeout(limit, self.workers_ended()).await.is_ok()
    }

    /// Ends what is left, and writes the last lines of the access log.
    pub fn close(self) {
        if !self.access_log.close(LAST_LINES) {
            tracing::warn!("the last lines of the access log could not be written");
        }
        self.admin.stop();
    }
}

/// Transposes sockets a listener into sockets a worker.
fn per_worker(bound: Vec<Bound>, workers: usize) -> Vec<Vec<TcpListener>> {
    let mut all: Vec<Vec<TcpListener>> = (0..workers).map(|_| Vec::new()).collect();
    for listener in bound {
        for (worker, socket) in all.iter_mut().zip(listener.sockets) {
            worker.push(socket);
        }
    }
    all
}

fn only(bound: Bound) -> io::Result<TcpListener> {
    bound.sockets.into_iter().next().ok_or_else(|| io::Error::other("no socket was bound"))
}

/// Starts a worker's thread, and waits until it has its runtime. `working` is dropped when it ends.
fn spawn_worker(
    parts: Parts<Arc<MemoryStore>>,
    sockets: Vec<TcpListener>,
    slots: Arc<Slots>,
    phase: watch::Receiver<Phase>,
    working: mpsc::Sender<()>,
) -> io::Result<()> {
    let index = parts.index;
    let (report, started) = std::sync::mpsc::sync_channel(1);
    let work = move || {
        let runtime =
            runtime::Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => return drop(report.send(Err(error))),
        };
        drop(report.send(Ok(())));
        let worker = Rc::new(Worker::new(parts));
        if let Err(error) = runtime.block_on(listener::run(worker, sockets, slots, phase)) {
            tracing::error!("worker {index} can't listen: {error}");
        }
        drop(working);
    };
    thread::Builder::new().name(format!("worker-{index}")).spawn(work)?;
    started.recv().unwrap_or_else(|_| Err(io::Error::other("the thread ended at once")))
}

fn worker_count(workers: Workers) -> usize {
    match workers {
        // Knows affinity and cgroup quotas.
        Workers::Auto => thread::available_parallelism().map_or(1, NonZeroUsize::get),
        Workers::Count(count) => count,
    }
}

/// A connection costs a descriptor, a proxied one two. The soft limit is often 1,024; what the
/// administrator set is the hard one.
fn raise_descriptor_limit() {
    if let Err(error) = rlimit::increase_nofile_limit(u64::MAX) {
        tracing::warn!("can't raise the limit of open files: {error}");
    }
}

/// Tells two configurations apart; what is secret is masked before.
fn fingerprint(config: &Config) -> String {
    let hash = Sha256::digest(format!("{config:?}"));
    hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}
