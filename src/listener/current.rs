//! What a thread serves with at the moment: a worker, until another configuration brings the next.

use std::{
    cell::RefCell,
    rc::{Rc, Weak},
    time::Instant,
};

use hyper::server::conn::http1;
use tokio::sync::{mpsc::UnboundedReceiver, oneshot};

use crate::proxy::{Generation, Worker};

/// Another configuration, for one worker.
pub struct Renewal {
    pub generation: Generation,
    /// Told once new requests go by it.
    pub done: oneshot::Sender<()>,
}

/// The worker that new requests are served with. A request keeps its own until it has ended.
pub(super) struct Current<S> {
    serving: RefCell<Serving<S>>,
    /// Those before it, while requests go by them.
    past: RefCell<Vec<Weak<Worker<S>>>>,
}

struct Serving<S> {
    worker: Rc<Worker<S>>,
    /// For new connections.
    http: Rc<http1::Builder>,
}

impl<S> Serving<S> {
    fn with(worker: Worker<S>) -> Self {
        Self { http: Rc::new(http(&worker)), worker: Rc::new(worker) }
    }
}

impl<S> Current<S> {
    pub(super) fn new(worker: Worker<S>) -> Self {
        Self { serving: RefCell::new(Serving::with(worker)), past: RefCell::default() }
    }

    /// For a request that begins now.
    pub(super) fn worker(&self) -> Rc<Worker<S>> {
        Rc::clone(&self.serving.borrow().worker)
    }

    /// hyper's settings for a connection that begins now.
    pub(super) fn http(&self) -> Rc<http1::Builder> {
        Rc::clone(&self.serving.borrow().http)
    }

    /// Goes by each configuration that comes, until no more can.
    pub(super) async fn renew(self: Rc<Self>, mut renewals: UnboundedReceiver<Renewal>) {
        while let Some(Renewal { generation, done }) = renewals.recv().await {
            let next = Serving::with(self.worker().succeed(generation));
            let last = self.serving.replace(next);
            self.past.borrow_mut().push(Rc::downgrade(&last.worker));
            // Whoever waited may have given up.
            let _gone = done.send(());
        }
    }

    /// See [`Worker::tick`].
    pub(super) fn tick(&self, now: Instant, connections: usize) {
        self.worker().tick(now, connections);
        self.past.borrow_mut().retain(|past| {
            let past = past.upgrade();
            past.iter().for_each(|worker| worker.hand_on());
            past.is_some()
        });
    }
}

/// hyper's settings under this worker's configuration.
fn http<S>(worker: &Worker<S>) -> http1::Builder {
    let limits = &worker.config().client_limits;
    let mut http = http1::Builder::new();
    // Measured: to copy a small body behind its head costs less than a vectored write.
    http.writev(false).max_header_size(limits.header_size).max_buf_size(limits.header_size.max(64 << 10));
    // hyper's own default of 100 costs no allocation; another number does.
    if limits.headers != 100 {
        http.max_headers(limits.headers);
    }
    http
}
