//! The workers: threads with their own sockets and runtimes.

use std::{io, num::NonZeroUsize, sync::Arc, thread, time::Duration};

use tokio::{
    runtime::{self, LocalOptions},
    sync::{mpsc, oneshot, watch},
    time::timeout,
};

use crate::{
    config::model,
    limit::StoreAdmin,
    listener::{
        self, BoundListener, ConnectionTable, ConnectionTableHandle, Evictions, Lifecycle, ListeningSocket,
        LivenessMonitor, TlsContexts, WorkerLiveness, WorkerUpdate,
    },
    proxy::{self, WorkerParts},
};

/// Maximum time for workers to apply a new configuration. They do so between two tasks, and no request delays them.
const HANDOVER: Duration = Duration::from_secs(5);

/// The configured number of workers.
pub(super) fn count(workers: model::Workers) -> usize {
    match workers {
        // Respects affinity and cgroup quotas.
        model::Workers::Auto => thread::available_parallelism().map_or(1, NonZeroUsize::get),
        model::Workers::Count(count) => count,
    }
}

/// All workers.
pub(super) struct WorkerThreads {
    /// The client connections of all workers.
    connections: Arc<ConnectionTable>,
    liveness: LivenessMonitor,
    lifecycle: watch::Sender<Lifecycle>,
    /// Closed once the last worker has ended; nothing is ever sent.
    ended: mpsc::Receiver<()>,
    /// Sends each worker a new configuration.
    updates: Vec<mpsc::UnboundedSender<WorkerUpdate>>,
}

impl WorkerThreads {
    /// Starts a worker for each of the evictions. Each listener has its index in the configuration. `parts` builds the
    /// parts of the worker with this index.
    ///
    /// # Errors
    /// A thread or a runtime can't be started, or there are too many open files.
    pub(super) fn start<S: StoreAdmin + 'static>(
        listeners: Vec<(usize, BoundListener)>,
        tls: &TlsContexts,
        (connections, evictions): (Arc<ConnectionTable>, Vec<Evictions>),
        parts: impl Fn(usize) -> WorkerParts<S>,
    ) -> io::Result<Self> {
        let sockets = sockets_by_worker(listeners, evictions.len())?;
        let liveness = LivenessMonitor::new(sockets.len());
        let (lifecycle, watched) = watch::channel(Lifecycle::Serving);
        let (working, ended) = mpsc::channel(1);
        let mut update_senders = Vec::with_capacity(sockets.len());
        let each = sockets.into_iter().zip(evictions).zip(liveness.each());
        for (index, ((sockets, evictions), liveness)) in each.enumerate() {
            let (updates, received) = mpsc::unbounded_channel();
            let context = ListenerContext {
                sockets,
                tls: tls.clone(),
                connections: ConnectionTableHandle { table: Arc::clone(&connections), evictions },
                lifecycle: watched.clone(),
                liveness,
            };
            spawn(parts(index), received, context, working.clone())?;
            update_senders.push(updates);
        }
        Ok(Self { connections, liveness, lifecycle, ended, updates: update_senders })
    }

    pub(super) fn count(&self) -> usize {
        self.updates.len()
    }

    /// Open client connections.
    pub(super) fn connections(&self) -> usize {
        self.connections.open()
    }

    /// Open connections are kept, even if the limits are lower.
    pub(super) fn set_connection_limits(&self, limits: &model::ClientLimits) {
        self.connections.set_limits(limits);
    }

    /// Whether every worker has made progress since this last returned true.
    pub(super) fn all_alive(&mut self) -> bool {
        self.liveness.all_alive()
    }

    /// Ready if a worker was busy since the last call, or once one is; false: when all workers have ended. Cancel-safe.
    pub(super) async fn busy(&mut self) -> bool {
        tokio::select! {
            () = self.liveness.busy() => true,
            _closed = self.ended.recv() => false,
        }
    }

    pub(super) fn enter(&self, lifecycle: Lifecycle) {
        self.lifecycle.send_replace(lifecycle);
    }

    /// Completes when all workers have ended.
    pub(super) async fn ended(&mut self) {
        let _closed = self.ended.recv().await;
    }

    /// Sends each worker the new configuration that `config` builds for its index, and waits until new requests use it.
    pub(super) async fn hand_over(&self, config: impl Fn(usize) -> proxy::WorkerConfig) {
        let mut waiting = Vec::new();
        for (index, updates) in self.updates.iter().enumerate() {
            let (applied, renewed) = oneshot::channel();
            if updates.send(WorkerUpdate { config: config(index), applied }).is_ok() {
                waiting.push(renewed);
            }
        }
        let all = futures_util::future::join_all(waiting);
        if timeout(HANDOVER, all).await.is_err() {
            tracing::warn!("a worker is slow to apply the new configuration");
        }
    }
}

/// The sockets of each worker, for all listeners.
fn sockets_by_worker(
    listeners: Vec<(usize, BoundListener)>,
    workers: usize,
) -> io::Result<Vec<Vec<ListeningSocket>>> {
    let mut all: Vec<Vec<ListeningSocket>> = (0..workers).map(|_| Vec::new()).collect();
    for (listener, bound) in listeners {
        for (worker, sockets) in all.iter_mut().zip(bound.deal(workers)?) {
            worker.extend(sockets.into_iter().map(|socket| ListeningSocket { listener, socket }));
        }
    }
    Ok(all)
}

/// The sockets of a worker, and its references to shared state.
struct ListenerContext {
    sockets: Vec<ListeningSocket>,
    tls: TlsContexts,
    connections: ConnectionTableHandle,
    lifecycle: watch::Receiver<Lifecycle>,
    liveness: WorkerLiveness,
}

/// Starts the thread of a worker and waits for its runtime. The thread drops `working` when it ends.
fn spawn<S: StoreAdmin + 'static>(
    parts: WorkerParts<S>,
    updates: mpsc::UnboundedReceiver<WorkerUpdate>,
    context: ListenerContext,
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
        let ListenerContext { sockets, tls, connections, lifecycle, liveness } = context;
        let run = listener::run(parts, updates, sockets, tls, connections, lifecycle, liveness);
        if let Err(error) = runtime.block_on(run) {
            tracing::error!("worker {index} can't start listening: {error}");
        }
        drop(working);
    };
    thread::Builder::new().name(format!("worker-{index}")).spawn(work)?;
    started.recv().unwrap_or_else(|_| Err(io::Error::other("the thread ended right away")))
}
