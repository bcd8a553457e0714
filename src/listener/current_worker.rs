//! The worker of a thread, replaced whenever the configuration changes.

use std::{
    cell::RefCell,
    rc::{Rc, Weak},
    time::{Duration, Instant},
};

use hyper::server::conn::http1;
use tokio::sync::{mpsc::UnboundedReceiver, oneshot};

use crate::proxy::{Worker, WorkerConfig};

/// A new configuration for one worker's thread.
pub struct WorkerUpdate {
    pub config: WorkerConfig,
    /// Notified once the configuration applies to new requests.
    pub applied: oneshot::Sender<()>,
}

/// The worker that serves new requests. A request keeps its worker until it has ended.
pub(super) struct CurrentWorker<S> {
    active: RefCell<ActiveWorker<S>>,
    /// Previous workers that still have requests in flight.
    past: RefCell<Vec<Weak<Worker<S>>>>,
}

struct ActiveWorker<S> {
    worker: Rc<Worker<S>>,
    /// hyper's settings for new connections.
    http: Rc<http1::Builder>,
}

impl<S> ActiveWorker<S> {
    fn new(worker: Worker<S>) -> Self {
        Self { http: Rc::new(http(&worker)), worker: Rc::new(worker) }
    }
}

impl<S> CurrentWorker<S> {
    pub(super) fn new(worker: Worker<S>) -> Self {
        Self { active: RefCell::new(ActiveWorker::new(worker)), past: RefCell::default() }
    }

    /// The worker for a request that begins now.
    pub(super) fn worker(&self) -> Rc<Worker<S>> {
        Rc::clone(&self.active.borrow().worker)
    }

    /// hyper's settings for a connection that begins now.
    pub(super) fn http(&self) -> Rc<http1::Builder> {
        Rc::clone(&self.active.borrow().http)
    }

    /// Applies each update, until the channel is closed.
    pub(super) async fn apply_updates(self: Rc<Self>, mut updates: UnboundedReceiver<WorkerUpdate>) {
        while let Some(WorkerUpdate { config, applied }) = updates.recv().await {
            let next = ActiveWorker::new(self.worker().reconfigured(config));
            let last = self.active.replace(next);
            self.past.borrow_mut().push(Rc::downgrade(&last.worker));
            // The sender of the update may have stopped waiting.
            let _gone = applied.send(());
        }
    }

    /// See [`Worker::tick`].
    pub(super) fn tick(&self, now: Instant, connections: usize) -> Option<Duration> {
        let rest = self.worker().tick(now, connections);
        let mut past = self.past.borrow_mut();
        past.retain(|past| {
            let past = past.upgrade();
            past.iter().for_each(|worker| worker.flush_records());
            past.is_some()
        });
        rest.filter(|_| past.is_empty())
    }
}

/// hyper's settings under this worker's configuration.
fn http<S>(worker: &Worker<S>) -> http1::Builder {
    let limits = &worker.config().client_limits;
    let mut http = http1::Builder::new();
    // Measured: copying a small body behind its head costs less than a vectored write.
    http.writev(false).max_header_size(limits.header_size).max_buf_size(limits.header_size.max(64 << 10));
    // hyper's own default of 100 costs no allocation; another number does.
    if limits.headers != 100 {
        http.max_headers(limits.headers);
    }
    http
}
