//! One worker's connections to one upstream: lent newest first, kept while they are fresh, and never
//! more in the whole process than the configuration says.
//!
//! hyper-util's `client::pool::cache` was looked at first. It has neither a cap over several caches
//! nor an expiry, and hands connections over under a mutex; what would be left of it is a `Vec`.

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
    RequestBody, Shared, balance::Balancer, connect::connect, connection::Connection, connection::Link,
    io::UpstreamIo,
};

/// One worker's view of one upstream.
pub struct Upstream<B: RequestBody> {
    shared: Arc<Shared>,
    balancer: Balancer,
    /// Idle connections, one queue an endpoint, the freshest at the back.
    idle: RefCell<Vec<VecDeque<Idle<B>>>>,
    idle_count: Cell<usize>,
    /// The time of the last [`Upstream::expire`]: precise enough for how long a connection is idle.
    now: Cell<Instant>,
    /// Connections of this worker, idle or not.
    open: Rc<Cell<usize>>,
    /// Requests of this worker that wait for a connection, the longest waiting in front.
    waiters: RefCell<VecDeque<oneshot::Sender<Link<B>>>>,
    /// Requests of this worker that wait, or have just been handed what they waited for.
    waiting: Cell<usize>,
}

struct Idle<B: RequestBody> {
    link: Link<B>,
    since: Instant,
}

/// Why there is no connection for a request.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// All connections are taken, and as many requests as may wait do so.
    #[error("all {0} connections to the upstream are taken")]
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

impl<B: RequestBody> Upstream<B> {
    /// Worker number `worker`'s view of `shared`.
    pub fn new(shared: Arc<Shared>, worker: usize) -> Rc<Self> {
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
            shared,
        })
    }

    /// The endpoint for the next request: not `avoid`, nor one that could not be reached of late, where
    /// there is another.
    pub fn pick(&self, avoid: Option<usize>, now: Instant) -> usize {
        self.balancer.pick(&self.shared, avoid, now)
    }

    /// A connection to `endpoint` that served a request before and is idle now.
    pub fn idle(self: &Rc<Self>, endpoint: usize) -> Option<Connection<B>> {
        self.take_idle(endpoint).map(|link| Connection::new(link, self, true))
    }

    /// A new connection to `endpoint`. While all connections of the process are taken, whichever another
    /// request gives back will do.
    ///
    /// Waits for its turn, and then for the connection to open: each for `within` at most.
    ///
    /// # Errors
    /// Too many wait already or the wait was in vain, or the endpoint cannot be reached.
    pub async fn connect(
        self: &Rc<Self>,
        endpoint: usize,
        within: Duration,
    ) -> Result<Connection<B>, ConnectError> {
        let permit = match Arc::clone(&self.shared.connections).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => match self.wait_for_turn(within).await? {
                Turn::Link(link) => return Ok(Connection::new(link, self, true)),
                Turn::Permit(permit) => permit,
            },
        };
        // Counted from here on: an endpoint that keeps connections waiting is not an idle one.
        let _connecting = Connecting::begin(&self.shared, endpoint);
        let opened = timeout(within, self.open(endpoint, permit, within)).await;
        match &opened {
            Ok(Ok(_)) => {
                self.balancer.reached(endpoint);
                self.shared.reached(endpoint);
            }
            Ok(Err(_)) | Err(_) => {
                self.balancer.failed(endpoint, Instant::now());
                self.shared.failed(endpoint);
            }
        }
        match opened {
            Ok(Ok(link)) => Ok(Connection::new(link, self, false)),
            Ok(Err(error)) => Err(ConnectError::Unreachable { endpoint, error }),
            Err(_) => Err(ConnectError::Timeout(endpoint)),
        }
    }

    async fn open(
        &self,
        endpoint: usize,
        permit: OwnedSemaphorePermit,
        within: Duration,
    ) -> io::Result<Link<B>> {
        let stream = connect(&self.shared.config.endpoints[endpoint], within).await?;
        let io = TokioIo::new(UpstreamIo::new(stream));
        let (sender, connection) =
        // Measured: to copy a small body behind its head costs less than a vectored write.
            http1::Builder::new().writev(false).handshake(io).await.map_err(io::Error::other)?;
        let open = Open::count(&self.open);
        let task = tokio::task::spawn_local(async move {
            // Whoever sent the request learns of an error from its answer.
            drop(connection.await);
            drop((open, permit));
        });
        Ok(Link { sender, task: task.abort_handle(), endpoint })
    }

    /// Waits for a connection that another request gives back, or for leave to open one.
    async fn wait_for_turn(&self, within: Duration) -> Result<Turn<B>, ConnectError> {
        let cap = self.shared.config.max_connections;
        // The queue is short: as many as there are connections. Behind them the wait would be longer
        // than one answer takes, and a clear refusal serves the client better.
        let _waiting = Queued::enter(&self.shared, &self.waiting, cap).ok_or(ConnectError::Full(cap))?;
        drop(self.take_any_idle()); // its permit becomes free for the endpoint that is wanted
        self.shared.wanted.notify_waiters();
        let mut handed_over = self.queue();
        let late = tokio::time::sleep(within);
        tokio::select! {
            biased;
            Ok(link) = &mut handed_over => Ok(Turn::Link(link)),
            Ok(permit) = Arc::clone(&self.shared.connections).acquire_owned() => {
                handed_over.close();
                match handed_over.try_recv() {
                    // Both at once: the connection is used, the permit goes to the next.
                    Ok(link) => Ok(Turn::Link(link)),
                    Err(_) => Ok(Turn::Permit(permit)),
                }
            }
            () = late => Err(ConnectError::Full(cap)),
        }
    }

    /// Joins the queue of those who wait for a connection of this worker.
    fn queue(&self) -> oneshot::Receiver<Link<B>> {
        let (sender, handed_over) = oneshot::channel();
        let mut waiters = self.waiters.borrow_mut();
        // Those in front that found another way need not be kept.
        while waiters.front().is_some_and(oneshot::Sender::is_closed) {
            waiters.pop_front();
        }
        waiters.push_back(sender);
        handed_over
    }

    /// Takes a connection back that is ready for another request.
    pub(super) fn put_back(&self, mut link: Link<B>) {
        // A connection can't change threads, but its permit can: it goes to whoever has waited longest
        // in any worker. As often as their share says, so that a busy worker does not starve the others.
        let (here, elsewhere) = (self.waiting.get(), self.waiting_elsewhere());
        if elsewhere > 0 && fastrand::usize(..here + elsewhere) < elsewhere {
            link.task.abort();
            return;
        }
        loop {
            let Some(waiter) = self.waiters.borrow_mut().pop_front() else { break };
            match waiter.send(link) {
                Ok(()) => return,
                Err(returned) => link = returned, // that one has gone away
            }
        }
        let full = self.idle_count.get() >= self.shared.config.idle_connections;
        if full || elsewhere > 0 {
            return; // and it is closed
        }
        self.idle_count.set(self.idle_count.get() + 1);
        let endpoint = link.endpoint;
        self.idle.borrow_mut()[endpoint].push_back(Idle { link, since: self.now.get() });
    }

    fn take_idle(&self, endpoint: usize) -> Option<Link<B>> {
        let mut idle = self.idle.borrow_mut();
        let queue = &mut idle[endpoint];
        while let Some(Idle { link, .. }) = queue.pop_back() {
            self.idle_count.set(self.idle_count.get() - 1);
            if link.sender.is_ready() {
                return Some(link);
            }
        }
        None
    }

    fn take_any_idle(&self) -> Option<Link<B>> {
        let mut idle = self.idle.borrow_mut();
        let queue = idle.iter_mut().find(|queue| !queue.is_empty())?;
        self.idle_count.set(self.idle_count.get() - 1);
        queue.pop_front().map(|idle| idle.link)
    }

    /// Closes connections that were idle for longer than the configuration says, or that the upstream
    /// closed. Called now and then.
    pub fn expire(&self, now: Instant) {
        self.now.set(now);
        let keep = self.shared.config.timeouts.idle;
        let mut kept = 0;
        for queue in self.idle.borrow_mut().iter_mut() {
            queue.retain(|idle| {
                now.saturating_duration_since(idle.since) < keep && idle.link.sender.is_ready()
            });
            kept += queue.len();
        }
        self.idle_count.set(kept);
    }

    /// Requests of other workers that wait for a connection.
    fn waiting_elsewhere(&self) -> usize {
        self.shared.waiting.load(Ordering::Relaxed).saturating_sub(self.waiting.get())
    }

    /// Gives idle connections up whenever a worker waits for one. Runs as long as the worker does.
    pub async fn yield_to_others(self: Rc<Self>) {
        loop {
            // Enabled before the look, so that no call between the two is missed.
            let mut wanted = std::pin::pin!(self.shared.wanted.notified());
            wanted.as_mut().enable();
            while self.waiting_elsewhere() > self.shared.connections.available_permits() {
                let Some(link) = self.take_any_idle() else { break };
                drop(link);
                tokio::task::yield_now().await;
            }
            wanted.await;
        }
    }
}

impl<B: RequestBody> Upstream<B> {
    /// Whether there is more than one endpoint.
    pub fn has_others(&self) -> bool {
        self.shared.config.endpoints.len() > 1
    }

    /// What all workers share of it.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Idle connections of this worker.
    pub fn idle_connections(&self) -> usize {
        self.idle_count.get()
    }

    /// Connections of this worker on which a request is under way.
    pub fn active_connections(&self) -> usize {
        self.open.get().saturating_sub(self.idle_count.get())
    }
}

/// Counts an open connection until it is dropped.
struct Open(Rc<Cell<usize>>);

impl Open {
    fn count(open: &Rc<Cell<usize>>) -> Self {
        open.set(open.get() + 1);
        Self(Rc::clone(open))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Counts a connection that is being opened as a request under way, until it is dropped.
struct Connecting<'a> {
    shared: &'a Shared,
    endpoint: usize,
}

impl<'a> Connecting<'a> {
    fn begin(shared: &'a Shared, endpoint: usize) -> Self {
        shared.begin(endpoint);
        Self { shared, endpoint }
    }
}

impl Drop for Connecting<'_> {
    fn drop(&mut self) {
        self.shared.end(self.endpoint);
    }
}

enum Turn<B: RequestBody> {
    Link(Link<B>),
    Permit(OwnedSemaphorePermit),
}

/// Counts a request that waits until it is dropped.
struct Queued<'a> {
    shared: &'a Shared,
    here: &'a Cell<usize>,
}

impl<'a> Queued<'a> {
    fn enter(shared: &'a Shared, here: &'a Cell<usize>, cap: usize) -> Option<Self> {
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

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
        self.here.set(self.here.get() - 1);
    }
}
