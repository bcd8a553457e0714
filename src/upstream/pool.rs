//! One worker's connection pool for one upstream: the newest idle connection is checked out first, idle
//! ones expire, and the configured maximum holds for the whole process.
//!
//! hyper-util's `client::pool::cache` was looked at first. It has neither a cap over several caches
//! nor an expiry, and hands connections over under a mutex; all that would be used of it is a `Vec`.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, VecDeque},
    io,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use foldhash::fast::RandomState;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::sync::oneshot;

use super::{
    RequestBody, SharedUpstream, UpstreamClient,
    addresses::HeldConnection,
    balance::Balancer,
    connect::{Connected, connect},
    connection::{Connection, PooledConnection},
    queue::{ConnectionPermit, ConnectionQueue, Grant, NextRequest},
};
use crate::tls::find_tls_error;

/// What is read of an answer at once, and so what a client that does not read it makes the proxy hold, twice: here and on its way
/// to the client. hyper's own default is 408 KiB. The head of an answer has to fit in.
const MAX_BUFFER: usize = 64 << 10;

/// How long a request waits for a connection that others have no use for before it has a slow request broken off, and
/// then how long for that one's.
const EVICT_AFTER: Duration = Duration::from_millis(10);
const EVICT_EVERY: Duration = Duration::from_millis(50);

/// One worker's connections to one upstream.
pub struct UpstreamPool<B: RequestBody> {
    shared: Arc<SharedUpstream>,
    /// The worker's number.
    worker: usize,
    balancer: Balancer,
    /// Idle connections, one queue an endpoint, the freshest at the back.
    idle: RefCell<Vec<VecDeque<Idle<B>>>>,
    idle_count: Cell<usize>,
    /// The time of the last [`UpstreamPool::close_expired`]: precise enough for how long a connection is idle.
    now: Cell<Instant>,
    /// Connections of this worker, idle or not. Atomic, because hyper wants what it hands out after an upgrade to be `Send`.
    open: Arc<AtomicUsize>,
    /// By their tickets in the queue: requests of this worker that wait for a connection.
    waiting: Waiting<B>,
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
    /// The endpoint could not be reached.
    #[error("{0}")]
    Unreachable(io::Error),
    /// The TLS handshake with the endpoint failed.
    #[error("{0}")]
    Handshake(io::Error),
    /// The endpoint did not accept a connection in time.
    #[error("it accepted no connection in time")]
    Timeout,
    /// The endpoint accepted a connection, and did not finish the TLS handshake in time.
    #[error("it did not finish the TLS handshake in time")]
    HandshakeTimeout,
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
            open: Arc::default(),
            waiting: RefCell::default(),
            retired: Cell::new(false),
            shared,
            worker,
        })
    }

    /// The endpoint for the next request: not `avoid`, nor one that could not be reached recently, where
    /// there is another.
    pub fn pick(&self, avoid: Option<usize>, now: Instant) -> usize {
        self.balancer.pick(&self.shared, avoid, now)
    }

    /// Checks out an idle connection to `endpoint` for a request of `client`, if there is one.
    pub fn checkout(self: &Rc<Self>, endpoint: usize, client: &Rc<UpstreamClient>) -> Option<Connection<B>> {
        self.take_idle(endpoint)
            .map(|pooled| Connection::new(pooled, self, HeldConnection::new(client), true))
    }

    /// Opens a connection to `endpoint` for a request of `client`. While the process has no permit left, takes the next connection
    /// that another request checks in, whatever its endpoint.
    ///
    /// Waits for a permit, and then for the connection to open: each for `within` at most.
    ///
    /// # Errors
    /// The queue is full, the wait timed out, or the endpoint cannot be reached.
    pub async fn connect(
        self: &Rc<Self>,
        endpoint: usize,
        client: &Rc<UpstreamClient>,
        within: Duration,
    ) -> Result<Connection<B>, ConnectError> {
        let permit = match ConnectionQueue::try_acquire(&self.shared) {
            Some(permit) => permit,
            None => match self.wait_for_connection(client, within).await? {
                Acquired::Connection(pooled) => {
                    return Ok(Connection::new(pooled, self, HeldConnection::new(client), true));
                }
                Acquired::Permit(permit) => permit,
            },
        };
        let held = HeldConnection::new(client);
        // Counted from here on: an endpoint that is slow to accept connections is not idle.
        let _connecting = ConnectingGuard::new(&self.shared, endpoint);
        let opened = self.open(endpoint, permit, within).await;
        match &opened {
            // With TLS 1.3 it may still refuse our certificate: wait for its first answer.
            Ok(pooled) if pooled.tls_version > 0 => {}
            Ok(_) => {
                self.balancer.mark_reachable(endpoint);
                self.shared.mark_reachable(endpoint);
            }
            Err(error) => self.eject(endpoint, self.shared.describe_connect_error(endpoint, error)),
        }
        Ok(Connection::new(opened?, self, held, false))
    }

    /// Notes that the request on a new connection to `endpoint` was not answered. Where the endpoint has ended TLS with an
    /// alert, it is as unreachable as if that had come in the handshake: with TLS 1.3, it is told of our certificate after ours
    /// has ended.
    pub fn request_failed(&self, endpoint: usize, error: &hyper::Error) {
        if matches!(find_tls_error(error), Some(rustls::Error::AlertReceived(_))) {
            self.eject(endpoint, self.shared.describe(endpoint, error));
        }
    }

    fn eject(&self, endpoint: usize, error: String) {
        self.balancer.mark_unreachable(endpoint, Instant::now());
        self.shared.mark_unreachable(endpoint, error);
    }

    async fn open(
        &self,
        endpoint: usize,
        permit: ConnectionPermit,
        within: Duration,
    ) -> Result<PooledConnection<B>, ConnectError> {
        let Connected { io, tls_version } = connect(&self.shared, endpoint, within).await?;
        let io = io.holding((OpenGuard::new(&self.open), permit));
        let (sender, connection) = http1::Builder::new()
            // Measured: to copy a small body behind its head costs less than a vectored write.
            .writev(false)
            .max_buf_size(MAX_BUFFER)
            .handshake(TokioIo::new(io))
            .await
            .map_err(|error| ConnectError::Unreachable(io::Error::other(error)))?;
        // The request on it learns of an error from its response future.
        let task = tokio::task::spawn_local(async move { drop(connection.with_upgrades().await) });
        Ok(PooledConnection { sender, task: task.abort_handle(), endpoint, tls_version })
    }

    /// Waits for a connection that another request checks in, or for a permit to open one.
    async fn wait_for_connection(
        &self,
        client: &UpstreamClient,
        within: Duration,
    ) -> Result<Acquired<B>, ConnectError> {
        let full = ConnectError::Full(self.shared.config.max_connections);
        let Some(mut place) = ConnectionQueue::join(&self.shared, &client.address, self.worker) else {
            return Err(full);
        };
        let (sender, mut handed_over) = oneshot::channel();
        let _waiting = WaitingGuard::new(&self.waiting, place.ticket, sender);
        drop(self.take_any_idle()); // frees its permit for the wanted endpoint
        self.shared.wanted.notify_waiters();
        let mut late = std::pin::pin!(tokio::time::sleep(within));
        let mut patience = EVICT_AFTER;
        loop {
            tokio::select! {
                biased;
                pooled = &mut handed_over => return pooled.map(Acquired::Connection).map_err(|_| full),
                grant = &mut place.granted => match grant {
                    Ok(Grant::Permit(permit)) => return Ok(Acquired::Permit(permit)),
                    Ok(Grant::Displaced) | Err(_) => return Err(full),
                },
                () = &mut late => return Err(full),
                () = tokio::time::sleep(patience) => {
                    self.shared.addresses.evict_for(&client.address, place.ahead, Instant::now());
                    patience = EVICT_EVERY;
                }
            }
        }
    }

    /// Takes back a connection that is ready for another request.
    pub(super) fn check_in(&self, pooled: PooledConnection<B>) {
        if !self.has_current_tls(&pooled) {
            return; // dropping it closes it
        }
        match self.shared.queue.next_request(self.worker) {
            NextRequest::None => self.keep_idle(pooled),
            NextRequest::Here(ticket) => {
                if let Some(waiting) = self.waiting.borrow_mut().remove(&ticket) {
                    // Dropping it closes it, and its permit goes to the next one.
                    let _gone = waiting.send(pooled);
                }
            }
            NextRequest::Elsewhere => pooled.task.abort(),
        }
    }

    fn keep_idle(&self, pooled: PooledConnection<B>) {
        if self.idle_count.get() >= self.shared.config.idle_connections || self.retired.get() {
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
            if self.is_usable(&pooled) {
                return Some(pooled);
            }
        }
        None
    }

    /// Whether a connection may get another request: the upstream has not closed it, and the TLS settings that it was opened
    /// under still hold.
    fn is_usable(&self, pooled: &PooledConnection<B>) -> bool {
        pooled.sender.is_ready() && self.has_current_tls(pooled)
    }

    fn has_current_tls(&self, pooled: &PooledConnection<B>) -> bool {
        pooled.tls_version == 0 || self.shared.is_current_tls(pooled.tls_version)
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
                now.saturating_duration_since(idle.since) < keep && self.is_usable(&idle.pooled)
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

    /// Closes idle connections while requests of other workers wait for a permit. Runs as long as the worker does.
    pub async fn yield_to_others(self: Rc<Self>) {
        loop {
            // Enabled before the check, so that no notification between the two is missed.
            let mut wanted = std::pin::pin!(self.shared.wanted.notified());
            wanted.as_mut().enable();
            while self.shared.queue.waiting_elsewhere(self.worker) > 0 {
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
        self.open.load(Relaxed).saturating_sub(self.idle_count.get())
    }
}

/// Counts an open connection until dropped.
#[derive(Debug)]
pub(super) struct OpenGuard(Arc<AtomicUsize>);

impl OpenGuard {
    fn new(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Relaxed);
        Self(Arc::clone(open))
    }
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
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
    Permit(ConnectionPermit),
}

/// The requests of a worker that wait, by their tickets.
type Waiting<B> = RefCell<HashMap<u64, oneshot::Sender<PooledConnection<B>>, RandomState>>;

/// A request that can be handed a connection, until dropped.
struct WaitingGuard<'a, B> {
    waiting: &'a Waiting<B>,
    ticket: u64,
}

impl<'a, B> WaitingGuard<'a, B> {
    fn new(waiting: &'a Waiting<B>, ticket: u64, sender: oneshot::Sender<PooledConnection<B>>) -> Self {
        waiting.borrow_mut().insert(ticket, sender);
        Self { waiting, ticket }
    }
}

impl<B> Drop for WaitingGuard<'_, B> {
    fn drop(&mut self) {
        self.waiting.borrow_mut().remove(&self.ticket);
    }
}
