//! Everything that one worker needs to serve requests.

use std::{
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    body_memory::BodyMemory,
    client::{ClientConnection, ClientInfo, Transport},
    connection_state::ConnectionState,
    open_exchanges::OpenExchanges,
    peer::Peer,
    request_body::RequestBody,
    request_buffering::BodyRoom,
    reservation::{LeaseTokens, PendingReservations},
    rules::Rules,
    upstream_pools::UpstreamPools,
    worker_telemetry::{WorkerSinks, WorkerTelemetry},
};
use crate::{
    abuse::{
        Recorder,
        bans::{BanTable, OffenseRecorder},
    },
    alerts::AlertWatch,
    config::model::Config,
    history::HistoryRecorder,
    limit::WallClock,
    memory_budget::Reclaimer,
    peaks::PeakRecorder,
    telemetry::{
        access_log::WorkerLog,
        diagnostics::TrafficSampler,
        metrics::{Metrics, WorkerMetrics},
        traces::Tracer,
    },
    upstream::{SharedUpstream, UpstreamPool},
};

/// How long a worker without requests goes without a tick: with idle connections to upstreams, which may expire, and
/// without any.
const REST_WITH_CONNECTIONS: Duration = Duration::from_secs(1);
const REST: Duration = Duration::from_secs(10);

/// The parts that a worker gets once, when its thread starts.
pub struct WorkerParts<S> {
    /// The worker's number, from 0.
    pub index: usize,
    /// Makes the worker's end of the store, on its own thread.
    pub store: Box<dyn FnOnce() -> S + Send>,
    /// Counts its connections to upstreams.
    pub metrics: Arc<Metrics>,
    /// The worker's end of the access log.
    pub access_log: WorkerLog,
    /// The worker's end of the traces; `None`: requests are not traced.
    pub tracer: Option<Tracer>,
    /// Counters for the diagnostics.
    pub sampler: TrafficSampler,
    /// The bans in force.
    pub bans: Arc<BanTable>,
    /// The process' memory for bodies that are read before a decision.
    pub body_memory: Arc<BodyMemory>,
    /// The process' clock.
    pub clock: WallClock,
    /// Returns memory of this thread that other threads freed.
    pub reclaimer: Reclaimer,
    /// The first configuration.
    pub config: WorkerConfig,
}

/// The parts that a worker gets with each configuration.
pub struct WorkerConfig {
    /// The rules for requests.
    pub rules: Arc<Rules>,
    /// The upstreams, in the configuration's order. An unchanged one is shared with the previous configuration.
    pub upstreams: Vec<Arc<SharedUpstream>>,
    /// The worker's counters.
    pub metrics: Arc<WorkerMetrics>,
    /// The worker's end of the abuse records.
    pub recorder: Recorder,
    /// The worker's end of the samples of peaks.
    pub peaks: PeakRecorder,
    /// The worker's end of the history; `None`: none is kept.
    pub history: Option<HistoryRecorder>,
    /// The worker's end of the alerts; `None`: there are none.
    pub alerts: Option<AlertWatch>,
}

/// One worker under one configuration: everything that a request needs, in one thread. A request keeps its worker
/// until it ends.
pub struct Worker<S> {
    pub(super) rules: Arc<Rules>,
    pub(super) store: Rc<S>,
    pub(super) tokens: Rc<LeaseTokens>,
    pub(super) reservations: Rc<PendingReservations>,
    pub(super) open_exchanges: Rc<OpenExchanges>,
    pub(super) body_room: Rc<BodyRoom>,
    pub(super) body_memory: Arc<BodyMemory>,
    pub(super) upstreams: Vec<Rc<UpstreamPool<RequestBody>>>,
    pub(super) sampler: Rc<TrafficSampler>,
    pub(super) recorder: Recorder,
    pub(super) peaks: PeakRecorder,
    pub(super) alerts: Option<AlertWatch>,
    pub(super) bans: Arc<BanTable>,
    pub(super) offenses: Rc<OffenseRecorder>,
    pub(super) telemetry: Rc<WorkerTelemetry>,
    pools: Rc<UpstreamPools>,
    reclaimer: Rc<Reclaimer>,
    /// The number of previous configurations of the thread.
    generation: u64,
}

impl<S> Worker<S> {
    /// A thread's first worker. To be called on that thread, in its runtime.
    pub fn new(parts: WorkerParts<S>) -> Self {
        let WorkerParts {
            index,
            store,
            metrics,
            access_log,
            tracer,
            sampler,
            bans,
            body_memory,
            clock,
            reclaimer,
            config,
        } = parts;
        let pools = Rc::new(UpstreamPools::new(index, metrics));
        let sinks = WorkerSinks { access_log: Rc::new(access_log), history: config.history, tracer, clock };
        Self {
            store: Rc::new(store()),
            tokens: Rc::new(LeaseTokens::new()),
            reservations: Rc::default(),
            open_exchanges: Rc::default(),
            body_room: Rc::default(),
            body_memory,
            upstreams: pools.adopt(config.upstreams),
            sampler: Rc::new(sampler),
            recorder: config.recorder,
            peaks: config.peaks,
            alerts: config.alerts,
            offenses: Rc::new(OffenseRecorder::new(Arc::clone(&bans))),
            bans,
            telemetry: Rc::new(WorkerTelemetry::new(&config.rules, config.metrics, sinks)),
            rules: config.rules,
            pools,
            reclaimer: Rc::new(reclaimer),
            generation: 0,
        }
    }

    /// The next worker of the same thread, under another configuration. It shares the store, so that reservations
    /// made under this worker are released in the same store, and keeps the connections to unchanged upstreams.
    pub fn reconfigured(&self, config: WorkerConfig) -> Self {
        let WorkerConfig { rules, upstreams, metrics, recorder, peaks, history, alerts } = config;
        let access_log = Rc::clone(&self.telemetry.access_log);
        access_log.reconfigure(rules.config.access_log.format, rules.config.access_log.sample);
        let (tracer, clock) = (self.telemetry.tracer.clone(), self.telemetry.clock);
        let sinks = WorkerSinks { access_log, history, tracer, clock };
        Self {
            store: Rc::clone(&self.store),
            tokens: Rc::clone(&self.tokens),
            reservations: Rc::clone(&self.reservations),
            open_exchanges: Rc::clone(&self.open_exchanges),
            body_room: Rc::clone(&self.body_room),
            body_memory: Arc::clone(&self.body_memory),
            upstreams: self.pools.adopt(upstreams),
            sampler: Rc::clone(&self.sampler),
            recorder,
            peaks,
            alerts,
            bans: Arc::clone(&self.bans),
            offenses: Rc::clone(&self.offenses),
            telemetry: Rc::new(WorkerTelemetry::new(&rules, metrics, sinks)),
            rules,
            pools: Rc::clone(&self.pools),
            reclaimer: Rc::clone(&self.reclaimer),
            generation: self.generation + 1,
        }
    }

    /// The client of a connection that was accepted.
    pub fn accepted(&self, transport: Transport, state: Rc<ConnectionState>) -> ClientConnection {
        ClientConnection::new(&self.rules, self.generation, transport, state)
    }

    /// The client of a request, under this configuration.
    pub fn client(&self, connection: &ClientConnection) -> Rc<ClientInfo> {
        connection.info(&self.rules, self.generation)
    }

    /// The client of a request that shares its connection with others.
    pub fn client_of_stream(
        &self,
        connection: &ClientConnection,
        stream: Rc<ConnectionState>,
    ) -> Rc<ClientInfo> {
        Rc::new(self.client(connection).of_stream(stream))
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.rules.config
    }

    /// Whether `peer` is a trusted proxy.
    pub fn trusts(&self, peer: Peer) -> bool {
        self.rules.is_trusted_proxy(peer)
    }

    /// The worker's counters.
    pub fn metrics(&self) -> &WorkerMetrics {
        &self.telemetry.metrics
    }

    /// Flushes the worker's counters and records, and closes connections that were idle for too long. Called a few
    /// times per second, with the number of open client connections. Returns how long the next call may wait if no
    /// connection of a client is busy; `None`: it is needed soon.
    pub fn tick(&self, now: Instant, connections: usize) -> Option<Duration> {
        self.flush_records();
        self.offenses.flush();
        self.sampler.flush();
        self.telemetry.access_log.flush();
        self.metrics().thread().connections().set(connections as u64);
        let open = self.pools.tick(now);
        self.close_banned_exchanges(now);
        self.reclaimer.tick();
        let is_busy = open.active > 0 || self.reservations.are_pending() || self.reclaimer.is_collecting();
        (!is_busy).then_some(if open.idle > 0 { REST_WITH_CONNECTIONS } else { REST })
    }

    /// Flushes the abuse records, the peaks and the sums of the history. Called as often for a worker whose configuration is no longer in force.
    pub fn flush_records(&self) {
        self.recorder.flush();
        self.peaks.flush();
        if let Some(history) = &self.telemetry.history {
            history.flush();
        }
    }

    /// Closes all tunnels in order, and each tunnel that is opened from now on.
    pub fn drain_tunnels(&self) {
        self.open_exchanges.drain();
    }

    /// Ready once all reservations are released, or after a second. Called when the last request has ended.
    pub async fn drain_reservations(&self) {
        self.reservations.drained().await;
    }
}
