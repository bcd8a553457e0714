//! Starts everything: sockets, telemetry, stores, the admin port, workers.

use std::{io, net::TcpListener, sync::Arc, thread, time::Duration};

use tokio::runtime::{self, LocalOptions};

use super::{
    InheritedSockets,
    generation::Generation,
    reload::Reloader,
    running::{App, Housekeeping},
    shared::Shared,
    start_error::StartError,
    stores::{self, StoreFactory, Stores},
    workers::{self, WorkerThreads},
};
use crate::{
    abuse::Collector,
    admin::{self, ActiveConfig, Readiness, StoreFactsSources},
    api_keys::{ApiKeys, KeyStore, data_file::DataFile},
    changes::Changes,
    config::model::{AccessLogFormat, Config, ListenAddress},
    history::History,
    limit::{Policy, PolicyIds, SteadyClock, WallClock},
    listener::{
        BoundListener, ConnectionTable, ListenSocket, ListeningSockets, SessionKeys, SocketRole, TlsContexts,
    },
    memory_budget::Reclaimer,
    peaks::PeakCollector,
    proxy::WorkerParts,
    store::memory::MemoryStore,
    telemetry::{
        Events,
        access_log::AccessLogHandle,
        diagnostics::{Diagnostics, Timing},
        metrics::Metrics,
        traces::Traces,
    },
    upstream::{self, DrainTable, monitor_health},
};

/// Interval of checking certificate files for changes.
const CERTIFICATE_INTERVAL: Duration = Duration::from_secs(1);

/// Builds and starts everything. Inherited sockets are used instead of binding their addresses, and clients can resume
/// the TLS `sessions` of an old process. The admin port shows the `warnings` about the configuration.
///
/// # Errors
/// A port is in use, a file can't be opened, or a thread can't be started. No client was served.
pub fn start(
    config: Config,
    warnings: Vec<String>,
    inherited: InheritedSockets,
    sessions: &[SessionKeys],
) -> Result<App, StartError> {
    raise_descriptor_limit();
    let workers = workers::count(config.workers);
    let sockets = Sockets::bind(&config, workers, inherited)?;
    let metrics = Metrics::new(&config, workers);
    let mut ids = PolicyIds::default();
    let policies: Arc<[Policy]> = ids.of_config(&config).into();
    let events = Events::new();
    let drains = Arc::new(DrainTable::new(events.clone(), config.store.redis.is_some()));
    let (api_keys, key_data) = open_api_keys(&config)?;
    let generation = Generation::new(config, policies, drains, Arc::clone(&api_keys), None)?;
    generation.enter_keys()?;
    generation.continue_sessions(sessions);
    let history = generation.config.history.as_ref().map(|history| {
        let metrics = Arc::downgrade(&metrics);
        History::start(history, WallClock, move || metrics.upgrade()?.store.read()?.clock_offset)
    });
    let shared = Shared::new(&generation, metrics, events, warnings, history.transpose()?)?;
    shared.keep_history();
    shared.watch_alerts();
    let config = Arc::clone(&generation.config);
    let memory = stores::memory(&config, &shared);
    match &config.store.redis {
        None => launch(sockets, workers, shared, generation, ids, Stores::memory_only(memory), key_data),
        Some(redis) => {
            let stores = Stores::with_redis(redis, config.abuse.retain, memory, &shared)?;
            launch(sockets, workers, shared, generation, ids, stores, key_data)
        }
    }
}

/// The API keys without the ones of their file; and, without Redis, the file for keys that are made.
fn open_api_keys(config: &Config) -> Result<(Arc<ApiKeys>, Option<DataFile>), StartError> {
    let settings = config.api_keys.as_ref().filter(|settings| settings.store);
    let store = match (settings, &config.store.redis) {
        (None, _) => KeyStore::None,
        (Some(_), Some(_)) => KeyStore::Redis,
        (Some(_), None) => KeyStore::DataFile,
    };
    let keys = Arc::new(ApiKeys::new(store));
    let data = settings.filter(|_| store == KeyStore::DataFile);
    let data = data.map(|settings| DataFile::open(&settings.data, &keys)).transpose()?;
    Ok((keys, data))
}

/// Starts everything that uses the store. Workers start last, so that no client is served if anything else fails.
fn launch<F: StoreFactory>(
    sockets: Sockets,
    workers: usize,
    shared: Shared,
    generation: Generation,
    ids: PolicyIds,
    stores: Stores<F>,
    key_data: Option<DataFile>,
) -> Result<App, StartError> {
    let config = Arc::clone(&generation.config);
    let (addresses, listeners) = (sockets.addresses(), sockets.by_listener());
    let telemetry = Telemetry::start(&config, &shared)?;
    let collector =
        Collector::spawn(Arc::clone(&shared.registry), shared.clock, Arc::clone(&shared.metrics))?;
    let peaks = PeakCollector::spawn(shared.clock, Arc::clone(&shared.metrics))?;
    generation.watch_sources(&shared.metrics);
    shared.metrics.keys_file_error.watch({
        let keys = Arc::clone(&shared.api_keys);
        move || keys.file_error()
    });

    let readiness = Arc::new(Readiness::default());
    let (reloads, reload_requests) = admin::ReloadSender::channel();
    let state = admin_state(&config, &shared, &telemetry, &readiness, reloads, &addresses, stores.facts);
    let (store, archive) = (stores.factory.clone(), stores.factory.clone());
    let backends = admin::Backends {
        store: move || store.store(),
        archive: move || archive.archive(),
        wrong_tokens: Arc::new(MemoryStore::new(admin::WRONG_TOKEN_KEYS, Arc::new(SteadyClock::new()))),
    };
    let admin = admin::spawn(sockets.admin, state, backends)?;

    let tls = TlsContexts::new(generation.tls.clone());
    watch_certificates(&tls, &shared.in_force)?;
    watch_health(&shared.in_force)?;
    upstream::keep_up({
        let in_force = Arc::clone(&shared.in_force);
        move || {
            let in_force = in_force.snapshot();
            (in_force.upstreams.clone(), in_force.rules.config().resolver.clone())
        }
    })?;
    shared.metrics.tls.watch({
        let (tls, addresses) = (tls.clone(), listeners);
        move || tls.facts(&addresses)
    });
    let descriptors = rlimit::Resource::NOFILE.get_soft().ok();
    let (connections, evictions) = ConnectionTable::new(&config.client_limits, workers, descriptors);
    shared.metrics.connections.watch({
        let connections = Arc::clone(&connections);
        move || connections.facts()
    });
    let connections = (connections, evictions);
    let workers = WorkerThreads::start(sockets.clients, &tls, connections, |index| WorkerParts {
        index,
        store: Box::new({
            let factory = stores.factory.clone();
            move || factory.store()
        }),
        metrics: Arc::clone(&shared.metrics),
        access_log: telemetry.access_log.worker(),
        tracer: telemetry.traces.as_ref().map(Traces::tracer),
        sampler: telemetry.diagnostics.sampler(),
        bans: Arc::clone(&shared.bans),
        body_memory: Arc::clone(&shared.body_memory),
        clock: shared.clock,
        reclaimer: Reclaimer::new(vec![stores.memory.freed_bytes(), shared.registry.freed_bytes()]),
        config: generation.for_worker(index, &shared, &collector, &peaks),
    })?;
    readiness.enter(admin::ProcessPhase::Ready);

    for address in &addresses {
        tracing::info!(%address, workers = workers.count(), "Tollgate is serving clients at {address}");
    }
    let address = admin.address();
    tracing::info!(%address, "the admin port is at {address}");
    Ok(App {
        addresses,
        listening: sockets.listening,
        reloader: Reloader {
            ids,
            generation,
            shared,
            collector,
            peaks,
            diagnostics: telemetry.diagnostics,
            store: stores.reload_handles,
            has_access_log: config.access_log.format != AccessLogFormat::Off,
            tls,
        },
        reload_requests: Some(reload_requests),
        memory: stores.memory,
        monitor: stores.monitor,
        key_data,
        workers,
        housekeeping: Housekeeping::new(),
        access_log: telemetry.access_log,
        traces: telemetry.traces,
        readiness,
        admin,
    })
}

/// The bound sockets.
struct Sockets {
    /// One for each address, with the index of its listener in the configuration.
    clients: Vec<(usize, BoundListener)>,
    admin: TcpListener,
    /// Duplicates of all of them, for a process that takes over.
    listening: ListeningSockets,
}

impl Sockets {
    fn bind(config: &Config, workers: usize, mut inherited: InheritedSockets) -> Result<Self, StartError> {
        let listeners = config.listeners.iter().enumerate();
        let each = listeners.flat_map(|(index, listener)| listener.addresses.iter().map(move |a| (index, a)));
        let admin = (SocketRole::Admin, ListenAddress::Tcp(config.admin.address));
        let all = each.clone().map(|(_, address)| (SocketRole::Clients, address.clone()));
        inherited.retain(&all.chain([admin.clone()]).collect::<Vec<_>>());
        let mut listening = ListeningSockets::default();
        let mut bind = |role, address: &ListenAddress, count| -> Result<_, StartError> {
            let is_managed = inherited.is_managed(role, address);
            let bound = inherited.or_bind(role, address, count)?;
            listening.add(role, address.to_string(), &bound.sockets, is_managed)?;
            // systemd manages the file of a socket that it passed.
            if let ListenAddress::Unix(socket) = address
                && !is_managed
            {
                listening.add_file(&socket.path);
            }
            Ok(bound)
        };
        let admin = bind(admin.0, &admin.1, 1)?;
        let bind_clients = |(index, address)| Ok((index, bind(SocketRole::Clients, address, workers)?));
        let clients = each.map(bind_clients).collect::<Result<_, StartError>>()?;
        let admin = admin.deal(1)?.into_iter().flatten().find_map(|socket| match socket {
            ListenSocket::Tcp(socket) => Some(socket),
            ListenSocket::Unix(_) => None,
        });
        let admin = admin.ok_or_else(|| io::Error::other("no listening socket was bound"))?;
        Ok(Self { clients, admin, listening })
    }

    /// The addresses where clients are served, with the actual ports.
    fn addresses(&self) -> Vec<ListenAddress> {
        self.clients.iter().map(|(_, bound)| bound.address.clone()).collect()
    }

    /// The bound addresses of each listener.
    fn by_listener(&self) -> Vec<Vec<String>> {
        let count = self.clients.iter().map(|(listener, _)| listener + 1).max().unwrap_or_default();
        let mut listeners = vec![Vec::new(); count];
        for (listener, bound) in &self.clients {
            if let Some(addresses) = listeners.get_mut(*listener) {
                addresses.push(bound.address.to_string());
            }
        }
        listeners
    }
}

/// Access log, traces and diagnostics.
struct Telemetry {
    access_log: AccessLogHandle,
    traces: Option<Traces>,
    diagnostics: Diagnostics,
}

impl Telemetry {
    fn start(config: &Config, shared: &Shared) -> Result<Self, StartError> {
        let access_log = AccessLogHandle::open(&config.access_log, Arc::clone(&shared.metrics))?;
        let traces = Traces::open(config, shared.instance.clone(), Arc::clone(&shared.metrics))?;
        let (metrics, events) = (Arc::clone(&shared.metrics), shared.events.clone());
        let diagnostics = Diagnostics::spawn(config, metrics, events, Timing::from_environment())?;
        Ok(Self { access_log, traces, diagnostics })
    }
}

fn admin_state(
    config: &Config,
    shared: &Shared,
    telemetry: &Telemetry,
    readiness: &Arc<Readiness>,
    reloads: admin::ReloadSender,
    addresses: &[ListenAddress],
    store_facts: StoreFactsSources,
) -> admin::AdminState {
    admin::AdminState {
        token: config.admin.token.clone(),
        registry: Arc::clone(&shared.registry),
        bans: Arc::clone(&shared.bans),
        api_keys: Arc::clone(&shared.api_keys),
        drains: Arc::clone(&shared.drains),
        audit: Arc::clone(&shared.audit),
        history: shared.history.clone(),
        alerts: shared.alerts.clone(),
        active_config: Arc::clone(&shared.in_force),
        reloads,
        metrics: Arc::clone(&shared.metrics),
        readiness: Arc::clone(readiness),
        events: shared.events.clone(),
        warnings: telemetry.diagnostics.warnings(),
        clock: Arc::new(shared.clock),
        facts: admin::ProcessFacts {
            listeners: addresses.to_vec(),
            workers: shared.metrics.workers(),
            started: i64::try_from(shared.metrics.started().as_micros()).unwrap_or(i64::MAX),
            available_memory: shared.budgets.available.as_ref().map(|available| available.bytes),
        },
        store_facts,
    }
}

/// Reloads certificate files whenever they change, until the process ends.
fn watch_certificates(tls: &TlsContexts, in_force: &Arc<ActiveConfig>) -> io::Result<()> {
    let (tls, in_force) = (tls.clone(), Arc::clone(in_force));
    let runtime = runtime::Builder::new_current_thread().build()?;
    let mut changes = Changes::new();
    let watch = move || {
        loop {
            let upstreams = in_force.snapshot().upstreams.clone();
            if tls.all().is_empty() && !upstreams.iter().any(|upstream| upstream.has_files()) {
                runtime.block_on(changes.next());
            }
            thread::sleep(CERTIFICATE_INTERVAL);
            tls.reload_changed_files();
            upstreams.iter().for_each(|upstream| upstream.reload_changed_files());
        }
    };
    thread::Builder::new().name("certificates".into()).spawn(watch)?;
    Ok(())
}

/// Probes the hosts of the upstreams in force, until the process ends.
fn watch_health(in_force: &Arc<ActiveConfig>) -> io::Result<()> {
    let in_force = Arc::clone(in_force);
    let watch = move || {
        let mut runtime = runtime::Builder::new_current_thread();
        let runtime = match runtime.enable_all().build_local(LocalOptions::default()) {
            Ok(runtime) => runtime,
            Err(error) => return tracing::error!("health checks can't start: {error}"),
        };
        runtime.block_on(monitor_health(move || in_force.snapshot().upstreams.clone()));
    };
    thread::Builder::new().name("health".into()).spawn(watch)?;
    Ok(())
}

/// Raises the soft limit, which is often 1,024, to the hard limit, which the administrator sets.
fn raise_descriptor_limit() {
    if let Err(error) = rlimit::increase_nofile_limit(u64::MAX) {
        tracing::warn!("the limit of open files can't be raised: {error}");
    }
}
