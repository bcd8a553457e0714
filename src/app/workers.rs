//! The workers' threads.

use std::{io, net::TcpListener, num::NonZeroUsize, rc::Rc, sync::Arc, thread};

use tokio::{
    runtime::{self, LocalOptions},
    sync::{mpsc, watch},
};

use crate::{
    config::model::Workers,
    limit::Store,
    listener::{self, Bound, Phase, Pulse, Slots},
    proxy::{Parts, Worker},
};

/// Transposes sockets a listener into sockets a worker.
pub(super) fn sockets(bound: Vec<Bound>, workers: usize) -> Vec<Vec<TcpListener>> {
    let mut all: Vec<Vec<TcpListener>> = (0..workers).map(|_| Vec::new()).collect();
    for listener in bound {
        for (worker, socket) in all.iter_mut().zip(listener.sockets) {
            worker.push(socket);
        }
    }
    all
}

/// Starts a worker's thread, and waits until it has its runtime. `working` is dropped when it ends.
pub(super) fn spawn<S: Store + 'static>(
    parts: Parts<S>,
    sockets: Vec<TcpListener>,
    slots: Arc<Slots>,
    phase: watch::Receiver<Phase>,
    pulse: Pulse,
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
        if let Err(error) = runtime.block_on(listener::run(worker, sockets, slots, phase, pulse)) {
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
