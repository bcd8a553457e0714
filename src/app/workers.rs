//! The workers' threads.

use std::{io, net::TcpListener, num::NonZeroUsize, sync::Arc, thread};

use tokio::{
    runtime::{self, LocalOptions},
    sync::{mpsc, watch},
};

use crate::{
    config::model::Workers,
    limit::StoreAdmin,
    listener::{self, BoundListener, ConnectionLimit, Lifecycle, WorkerLiveness, WorkerUpdate},
    proxy::WorkerParts,
};

/// Transposes sockets a listener into sockets a worker.
pub(super) fn sockets(bound: Vec<BoundListener>, workers: usize) -> Vec<Vec<TcpListener>> {
    let mut all: Vec<Vec<TcpListener>> = (0..workers).map(|_| Vec::new()).collect();
    for listener in bound {
        for (worker, socket) in all.iter_mut().zip(listener.sockets) {
            worker.push(socket);
        }
    }
    all
}

/// Where a worker serves, and how long.
pub(super) struct Shift {
    pub(super) sockets: Vec<TcpListener>,
    pub(super) slots: Arc<ConnectionLimit>,
    pub(super) phase: watch::Receiver<Lifecycle>,
    pub(super) pulse: WorkerLiveness,
}

/// Starts a worker's thread, and waits until it has its runtime. `working` is dropped when it ends.
pub(super) fn spawn<S: StoreAdmin + 'static>(
    parts: WorkerParts<S>,
    renewals: mpsc::UnboundedReceiver<WorkerUpdate>,
    shift: Shift,
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
        let Shift { sockets, slots, phase, pulse } = shift;
        let run = listener::run(parts, renewals, sockets, slots, phase, pulse);
        if let Err(error) = runtime.block_on(run) {
            tracing::error!("worker {index} can't listen: {error}");
        }
        drop(working);
    };
    thread::Builder::new().name(format!("worker-{index}")).spawn(work)?;
    started.recv().unwrap_or_else(|_| Err(io::Error::other("the thread ended at once")))
}

pub(super) fn count(workers: Workers) -> usize {
    match workers {
        // Knows affinity and cgroup quotas.
        Workers::Auto => thread::available_parallelism().map_or(1, NonZeroUsize::get),
        Workers::Count(count) => count,
    }
}
