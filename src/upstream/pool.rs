//! One worker's connection pool for one upstream: the newest idle connection is checked out first, idle
//! ones expire, and the configured maximum holds for the whole process.
//!
//! hyper-util's `client::pool::cache` was looked at first. It has neither a cap over several caches
//! nor an expiry, and hands connections over under a mutex; all that would be used of it is a `Vec`.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    io,
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{
    sync::{OwnedSemaphorePermit, oneshot},
    time::timeout,
};

use super::{
    RequestBody, SharedUpstream,
    balance::Balancer,
    connection::{Connection, PooledConnection, connect},
    io::UpstreamIo,
};

/// What is read of an answer at once, and so what a client that does not read it makes the proxy hold, twice: here and on its way
/// to the client. hyper's own default is 408 KiB. The head of an answer has to fit in.
const MAX_BUFFER: usize = 64 << 10;

/// One worker's connections to one upstream.
pub struct UpstreamPool<B: RequestBody> {
    shared: Arc<SharedUpstream>,
    balancer: Balancer,
    /// Idle connections, one queue an endpoint, the freshest at the back.
    idle: RefCell<Vec<VecDeque<Idle<B>>>>,
    idle_count: Cell<usize>,
    /// The time of the last [`UpstreamPool::close_expired`]: precise enough for how long a connection is idle.
    now: Cell<Instant>,
    /// Connections of this worker, idle or not.
    open: Rc<Cell<usize>>,
    /// Requests of this worker that wait for a connection, the longest waiting in front.
    waiters: RefCell<VecDeque<oneshot::Sender<PooledConnection<B>>>>,
    /// Requests of this worker that wait for a connection, or have just been handed one.
    waiting: Cell<usize>,
    /// Set when no more requests come: connections that are checked in are closed.
    retired: Cell<bool>,
}

struct Idle<B: RequestBody> {
    pooled: PooledConnection<B>,
    since: Instant,
}

/// Why a request got no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// All connections are in use, and the queue of waiting requests is full.
    #[error("all {0} connections to the upstream are in use")]
    Full(usize),
    /// The endpoint of this index could not be reached.
    #[error("endpoint {endpoint}: {error}")]
    Unreachable {
        /// Index of the endpoint.
        endpoint: usize,
        /// Why.
        error: io::Error,
    },
    /// The endpoint of this index did not take a connection in time.
    #[error("endpoint {0}: no connection in time")]
    Timeout(usize),
}

impl<B: RequestBody> UpstreamPool<B> {
    /// The pool of worker number `worker` for `shared`.
    pub fn new(shared: Arc<SharedUpstream>, worker: usize) -> Rc<Self> {
        let weights: Vec<u32> = shared.config.endpoints.iter().map(|endpoint| endpoint.weight).collect();
        let idle = weights.iter().map(|_| VecDeque::new()).collect();
        Rc::new(Self {
            balancer: Balancer::new(&weights, worker),
            idle: RefCell::new(idle),
            idle_count: Cell::new(0),
            now: Cell::new(Instant::now()),
            open: Rc::default(),
            waiters: RefCell::new(VecDeque::new()),
            waiting: Cell::new(0),
            retired: Cell::new(false),
            shared,
        })
    }

    /// The endpoint for the next request: not `avoid`, nor one that could not be reached recently, where
    /// there is another.
    pub fn pick(&self, avoid: Option<usize>, now: Instant) -> usize {
        self.balancer.pick(&self.shared, avoid, now)
    }

    /// Checks out an idle connection to `endpoint`, if there is one.
    pub fn checkout(self: &Rc<Self>, endpoint: usize) -> Option<Connection<B>> {
        self.take_idle(endpoint).map(|pooled| Connection::new(pooled, self, true))
    }

    /// Opens a connection to `endpoint`. While the process has no permit left, takes the next connection
    /// that another request checks in, whatever its endpoint.
    ///
    /// Waits for a permit, and then for the connection to open: each for `within` at most.
    ///
    /// # Errors
    /// The queue is full, the wait timed out, or the endpoint cannot be reached.
    pub async fn connect(
        self: &Rc<Self>,
        endpoint: usize,
        within: Duration,
    ) -> Result<Connection<B>, ConnectError> {
        let permit = match Arc::clone(&self.shared.connections).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => match self.wait_for_connection(within).await? {
                Acquired::Connection(pooled) => return Ok(Connection::new(pooled, self, true)),
                Acquired::Permit(permit) => permit,
            },
        };
        // Counted from here on: an endpoint that is slow to accept connections is not idle.
        let _connecting = ConnectingGuard::new(&self.shared, endpoint);
        let opened = timeout(within, self.open(endpoint, permit, within)).await;
        match &opened {
            Ok(Ok(_)) => {
                self.balancer.mark_reachable(endpoint);
                self.shared.mark_reachable(endpoint);
            }
            Ok(Err(_)) | Err(_) => {
                self.balancer.mark_unreachable(endpoint, Instant::now());
                self.shared.mark_unreachable(endpoint);
            }
        }
        match opened {
            Ok(Ok(pooled)) => Ok(Connection::new(pooled, self, false)),
            Ok(Err(error)) => Err(ConnectError::Unreachable { endpoint, error }),
            Err(_) => Err(ConnectError::Timeout(endpoint)),
        }
    }

    async fn open(
        &self,
        endpoint: usize,
        permit: OwnedSemaphorePermit,
        within: Duration,
    ) -> io::Result<PooledConnection<B>> {
        let stream = connect(&self.shared.config.endpoints[endpoint], within).await?;
        let io = TokioIo::new(UpstreamIo::new(stream));
        let (sender, connection) = http1::Builder::new()
            // Measured: to copy a small body behind its head costs less than a vectored write.
            .writev(false)
            .max_buf_size(MAX_BUFFER)
            .handshake(io)
            .await
            .map_err(io::Error::other)?;
        let open = OpenGuard::new(&self.open);
        let task = tokio::task::spawn_local(async move {
            // The request on it learns of an error from its response future.
            drop(connection.await);
            drop((open, permit));
        });
        Ok(PooledConnection { sender, task: task.abort_handle(), endpoint })
    }

    /// Waits for a connection that another request checks in, or for a permit to open one.
    async fn wait_for_connection(&self, within: Duration) -> Result<Acquired<B>, ConnectError> {
        let cap = self.shared.config.max_connections;
        // The queue is as long as there are connections. A longer one would mean waiting for more than
        // one answer, and a clear refusal serves the client better.
        let _waiting = WaitingGuard::new(&self.shared, &self.waiting, cap).ok_or(ConnectError::Full(cap))?;
        drop(self.take_any_idle()); // frees its permit for the wanted endpoint
        self.shared.wanted.notify_waiters();
        let mut handed_over = self.queue();
        let late = tokio::time::sleep(within);
        tokio::select! {
            biased;
            Ok(pooled) = &mut handed_over => Ok(Acquired::Connection(pooled)),
            Ok(permit) = Arc::clone(&self.shared.connections).acquire_owned() => {
                handed_over.close();
                match handed_over.try_recv() {
                    // Both at once: use the connection and release the permit.
                    Ok(pooled) => Ok(Acquired::Connection(pooled)),
                    Err(_) => Ok(Acquired::Permit(permit)),
                }
            }
            () = late => Err(ConnectError::Full(cap)),
        }
    }

    /// Joins the queue of requests that wait for a connection of this worker.
    fn queue(&self) -> oneshot::Receiver<PooledConnection<B>> {
        let (sender, handed_over) = oneshot::channel();
        let mut waiters = self.waiters.borrow_mut();
        // Drop the waiters in front that no longer wait.
        while waiters.front().is_some_and(oneshot::Sender::is_closed) {
            waiters.pop_front();
        }
        waiters.push_back(sender);
        handed_over
    }

    /// Takes back a connection that is ready for another request.
    pub(super) fn check_in(&self, mut pooled: PooledConnection<B>) {
        // A connection can't change threads, but its permit can: it goes to the request that has waited
        // longest in any worker. Do so in proportion to the waiters, so that a busy worker does not starve
        // the others.
        let (here, elsewhere) = (self.waiting.get(), self.waiting_elsewhere());
        if elsewhere > 0 && fastrand::usize(..here + elsewhere) < elsewhere {
            pooled.task.abort();
            return;
        }
        loop {
            let Some(waiter) = self.waiters.borrow_mut().pop_front() else { break };
            match waiter.send(pooled) {
                Ok(()) => return,
                Err(returned) => pooled = returned, // the waiter is gone
            }
        }
        let full = self.idle_count.get() >= self.shared.config.idle_connections;
        if full || elsewhere > 0 || self.retired.get() {
            return; // dropping it closes it
        }
        self.idle_count.set(self.idle_count.get() + 1);
        let endpoint = pooled.endpoint;
        self.idle.borrow_mut()[endpoint].push_back(Idle { pooled, since: self.now.get() });
    }

    fn take_idle(&self, endpoint: usize) -> Option<PooledConnection<B>> {
        let mut idle = self.idle.borrow_mut();
        let queue = &mut idle[endpoint];
        while let Some(Idle { pooled, .. }) = queue.pop_back() {
            self.idle_count.set(self.idle_count.get() - 1);
            if pooled.sender.is_ready() {
                return Some(pooled);
            }
        }
        None
    }

    fn take_any_idle(&self) -> Option<PooledConnection<B>> {
        let mut idle = self.idle.borrow_mut();
        let queue = idle.iter_mut().find(|queue| !queue.is_empty())?;
        self.idle_count.set(self.idle_count.get() - 1);
        queue.pop_front().map(|idle| idle.pooled)
    }

    /// Closes connections that were idle for longer than configured, or that the upstream closed. Called
    /// periodically.
    pub fn close_expired(&self, now: Instant) {
        self.now.set(now);
        let keep = self.shared.config.timeouts.idle;
        let mut kept = 0;
        for queue in self.idle.borrow_mut().iter_mut() {
            queue.retain(|idle| {
                now.saturating_duration_since(idle.since) < keep && idle.pooled.sender.is_ready()
            });
            kept += queue.len();
        }
        self.idle_count.set(kept);
    }

    /// Closes idle connections now, and the others once their requests have ended: the configuration no longer has this
    /// upstream, or has replaced it.
    pub fn retire(&self) {
        self.retired.set(true);
        while let Some(pooled) = self.take_any_idle() {
            drop(pooled);
        }
    }

    /// Requests of other workers that wait for a connection.
    fn waiting_elsewhere(&self) -> usize {
        self.shared.waiting.load(Ordering::Relaxed).saturating_sub(self.waiting.get())
    }

    /// Closes idle connections while requests of other workers wait for a permit. Runs as long as the worker does.
    pub async fn yield_to_others(self: Rc<Self>) {
        loop {
            // Enabled before the check, so that no notification between the two is missed.
            let mut wanted = std::pin::pin!(self.shared.wanted.notified());
            wanted.as_mut().enable();
            while self.waiting_elsewhere() > self.shared.connections.available_permits() {
                let Some(pooled) = self.take_any_idle() else { break };
                drop(pooled);
                tokio::task::yield_now().await;
            }
            wanted.await;
        }
    }
}

impl<B: RequestBody> UpstreamPool<B> {
    /// Whether there is more than one endpoint.
    pub fn has_other_endpoints(&self) -> bool {
        self.shared.config.endpoints.len() > 1
    }

    /// The state that all workers share.
    pub fn shared(&self) -> &Arc<SharedUpstream> {
        &self.shared
    }

    /// Idle connections of this worker.
    pub fn idle_connections(&self) -> usize {
        self.idle_count.get()
    }

    /// Connections of this worker with a request in flight.
    pub fn active_connections(&self) -> usize {
        self.open.get().saturating_sub(self.idle_count.get())
    }
}

/// Counts an open connection until dropped.
struct OpenGuard(Rc<Cell<usize>>);

impl OpenGuard {
    fn new(open: &Rc<Cell<usize>>) -> Self {
        open.set(open.get() + 1);
        Self(Rc::clone(open))
    }
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Counts a connection that is being opened as a request in flight, until dropped.
struct ConnectingGuard<'a> {
    shared: &'a SharedUpstream,
    endpoint: usize,
}

impl<'a> ConnectingGuard<'a> {
    fn new(shared: &'a SharedUpstream, endpoint: usize) -> Self {
        shared.request_started(endpoint);
        Self { shared, endpoint }
    }
}

impl Drop for ConnectingGuard<'_> {
    fn drop(&mut self) {
        self.shared.request_ended(self.endpoint);
    }
}

/// What a request that waited was given.
enum Acquired<B: RequestBody> {
    Connection(PooledConnection<B>),
    Permit(OwnedSemaphorePermit),
}

/// Counts a waiting request until dropped.
struct WaitingGuard<'a> {
    shared: &'a SharedUpstream,
    here: &'a Cell<usize>,
}

impl<'a> WaitingGuard<'a> {
    fn new(shared: &'a SharedUpstream, here: &'a Cell<usize>, cap: usize) -> Option<Self> {
        shared
            .waiting
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |waiting| {
                (waiting < cap).then_some(waiting + 1)
            })
            .ok()?;
        here.set(here.get() + 1);
        Some(Self { shared, here })
    }
}

impl Drop for WaitingGuard<'_> {
    fn drop(&mut self) {
        self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
        self.here.set(self.here.get() - 1);
    }
}
