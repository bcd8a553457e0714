//! One worker's connection pool for one upstream: the newest idle connection is checked out first, idle
//! ones expire, and the configured maximum holds for the whole process.
//!
//! hyper-util's `client::pool::cache` was looked at first. It has neither a cap over several caches
//! nor an expiry, and hands connections over under a mutex; all that would be used of it is a `Vec`.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, VecDeque},
    io,
    rc::{Rc, Weak},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use foldhash::fast::RandomState;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{
    sync::{oneshot, watch},
    time::timeout_at,
};

use super::{
    RequestBody, SharedUpstream, UpstreamClient,
    addresses::HeldConnection,
    balance::Balancer,
    connect::{Connected, connect},
    connection::{Connection, Link, PooledConnection},
    http2::{Http2Connection, StreamSlot},
    queue::{ConnectionPermit, ConnectionQueue, Grant, NextRequest},
};
use crate::{config::model::Protocol, tls::find_tls_error};

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
    /// By endpoint: its connections that requests share.
    shared_connections: Vec<RefCell<SharedConnections>>,
    /// The connection that takes no other stream for the sake of other workers, if there is one.
    yielding: RefCell<Weak<Http2Connection>>,
    /// The time of the last [`UpstreamPool::close_expired`]: precise enough for how long a connection is idle.
    now: Cell<Instant>,
    /// Connections of this worker, idle or not. Atomic, because hyper wants what it hands out after an upgrade to be `Send`.
    open: Arc<AtomicUsize>,
    /// By their tickets in the queue: requests of this worker that wait for a connection.
    waiting: Waiting<B>,
    /// Set when no more requests come: connections that are checked in are closed.
    retired: Cell<bool>,
}

/// The connections to one endpoint that requests share.
#[derive(Default)]
struct SharedConnections {
    open: Vec<Rc<Http2Connection>>,
    /// Whether the endpoint is expected to speak HTTP/2.
    is_expected: bool,
    /// The connection that is being opened, if there is one: closed when that has ended, with the reason if it has failed.
    opening: Option<watch::Receiver<Option<ConnectError>>>,
}

struct Idle<B: RequestBody> {
    pooled: PooledConnection<B>,
    since: Instant,
}

/// Why a request got no connection.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ConnectError {
    /// All connections are in use, and the queue of waiting requests is full.
    #[error("all {0} connections to the upstream are in use")]
    Full(usize),
    /// The endpoint could not be reached.
    #[error("{0}")]
    Unreachable(Arc<io::Error>),
    /// The TLS handshake with the endpoint failed.
    #[error("{0}")]
    Handshake(Arc<io::Error>),
    /// The endpoint did not accept a connection in time.
    #[error("it accepted no connection in time")]
    Timeout,
    /// The endpoint accepted a connection, and did not finish the TLS handshake in time.
    #[error("it did not finish the TLS handshake in time")]
    HandshakeTimeout,
}

impl ConnectError {
    pub(super) fn unreachable(error: io::Error) -> Self {
        Self::Unreachable(Arc::new(error))
    }

    pub(super) fn handshake(error: io::Error) -> Self {
        Self::Handshake(Arc::new(error))
    }
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
            shared_connections: weights
                .iter()
                .map(|_| {
                    RefCell::new(SharedConnections {
                        is_expected: shared.config.protocol == Protocol::H2,
                        ..SharedConnections::default()
                    })
                })
                .collect(),
            yielding: RefCell::default(),
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
        let link = match self.take_idle(endpoint) {
            Some(pooled) => Link::Http1(pooled),
            None if self.shared.config.protocol == Protocol::H1 => return None,
            None => self.take_stream(endpoint)?,
        };
        Some(Connection::new(link, self, HeldConnection::new(client), true))
    }

    /// A stream of a connection to `endpoint` that has room: of those the one with the fewest.
    fn take_stream(self: &Rc<Self>, endpoint: usize) -> Option<Link<B>> {
        let mut connections = self.shared_connections[endpoint].borrow_mut();
        connections.open.retain(|connection| self.takes_streams(connection));
        let with_room = connections.open.iter().filter(|connection| connection.has_room());
        let connection = with_room.min_by_key(|connection| connection.streams())?;
        Some(Link::Http2(Box::new(StreamSlot::take(Rc::clone(connection), self))))
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
        let mut opening = None;
        if self.shared.config.protocol != Protocol::H1 {
            match self.join_connection(endpoint, within).await? {
                Joined::Stream(link) => {
                    return Ok(Connection::new(link, self, HeldConnection::new(client), true));
                }
                Joined::Opening(sender) => opening = sender,
            }
        }
        let result = self.open_or_wait(endpoint, client, within, &mut opening).await;
        if let (Some(opening), Err(error)) = (opening, &result) {
            opening.send_replace(Some(error.clone()));
        }
        result
    }

    /// A stream of a connection to `endpoint`, or of one that another request opens. If there is none, the task to open it.
    async fn join_connection(
        self: &Rc<Self>,
        endpoint: usize,
        within: Duration,
    ) -> Result<Joined<B>, ConnectError> {
        let late = tokio::time::Instant::now() + within;
        loop {
            if let Some(link) = self.take_stream(endpoint) {
                return Ok(Joined::Stream(link));
            }
            let under_way = {
                let mut connections = self.shared_connections[endpoint].borrow_mut();
                if !connections.is_expected {
                    return Ok(Joined::Opening(None));
                }
                match connections.opening.clone() {
                    // One handshake at a time: many requests may share its connection.
                    Some(under_way) if under_way.has_changed().is_ok() => under_way,
                    _ => {
                        let (opening, under_way) = watch::channel(None);
                        connections.opening = Some(under_way);
                        return Ok(Joined::Opening(Some(opening)));
                    }
                }
            };
            if let Some(error) = failure(under_way, late).await? {
                return Err(error);
            }
        }
    }

    /// Opens a connection, or waits for one where no permit is left.
    async fn open_or_wait(
        self: &Rc<Self>,
        endpoint: usize,
        client: &Rc<UpstreamClient>,
        within: Duration,
        opening: &mut Option<Opening>,
    ) -> Result<Connection<B>, ConnectError> {
        let permit = match ConnectionQueue::try_acquire(&self.shared) {
            Some(permit) => permit,
            None => {
                // Others need not wait for it.
                *opening = None;
                match self.wait_for_connection(client, within).await? {
                    Acquired::Connection(link) => {
                        return Ok(Connection::new(link, self, HeldConnection::new(client), true));
                    }
                    Acquired::Permit(permit) => permit,
                }
            }
        };
        let held = HeldConnection::new(client);
        // Counted from here on: an endpoint that is slow to accept connections is not idle.
        let _connecting = ConnectingGuard::new(&self.shared, endpoint);
        let opened = self.open(endpoint, permit, within).await;
        match &opened {
            // With TLS 1.3 it may still refuse our certificate: wait for its first answer.
            Ok(Link::Http1(pooled)) if pooled.tls_version > 0 => {}
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
    pub fn request_failed(&self, endpoint: usize, error: &(dyn std::error::Error + 'static)) {
        if matches!(find_tls_error(error), Some(rustls::Error::AlertReceived(_))) {
            self.eject(endpoint, self.shared.describe(endpoint, error));
        }
    }

    fn eject(&self, endpoint: usize, error: String) {
        self.balancer.mark_unreachable(endpoint, Instant::now());
        self.shared.mark_unreachable(endpoint, error);
    }

    async fn open(
        self: &Rc<Self>,
        endpoint: usize,
        permit: ConnectionPermit,
        within: Duration,
    ) -> Result<Link<B>, ConnectError> {
        let late = tokio::time::Instant::now() + within;
        let Connected { io, tls_version, is_http2 } = connect(&self.shared, endpoint, within).await?;
        let io = io.holding((OpenGuard::new(&self.open), permit));
        if self.shared.config.protocol != Protocol::H1 {
            self.shared_connections[endpoint].borrow_mut().is_expected = is_http2;
        }
        if is_http2 {
            let opening = Http2Connection::open(io, endpoint, tls_version, self.now.get());
            let opened = timeout_at(late, opening).await.map_err(|_| ConnectError::Timeout)?;
            let connection = opened.map_err(ConnectError::unreachable)?;
            let link = Link::Http2(Box::new(StreamSlot::take(Rc::clone(&connection), self)));
            if !self.retired.get() {
                self.shared_connections[endpoint].borrow_mut().open.push(Rc::clone(&connection));
                while connection.has_room() && self.offer_stream(&connection) {}
            }
            return Ok(link);
        }
        let (sender, connection) = http1::Builder::new()
            // Measured: to copy a small body behind its head costs less than a vectored write.
            .writev(false)
            .max_buf_size(MAX_BUFFER)
            .handshake(TokioIo::new(io))
            .await
            .map_err(|error| ConnectError::unreachable(io::Error::other(error)))?;
        // The request on it learns of an error from its response future.
        let task = tokio::task::spawn_local(async move { drop(connection.with_upgrades().await) });
        Ok(Link::Http1(PooledConnection { sender, task: task.abort_handle(), endpoint, tls_version }))
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
        self.close_any_idle(); // frees its permit for the wanted endpoint
        self.shared.wanted.notify_waiters();
        let mut late = std::pin::pin!(tokio::time::sleep(within));
        let mut patience = EVICT_AFTER;
        loop {
            tokio::select! {
                biased;
                link = &mut handed_over => return link.map(Acquired::Connection).map_err(|_| full),
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
        if !self.is_current_tls(pooled.tls_version) {
            return; // dropping it closes it
        }
        match self.shared.queue.next_request(self.worker) {
            NextRequest::None => self.keep_idle(pooled),
            NextRequest::Here(ticket) => {
                let waiting = self.waiting.borrow_mut().remove(&ticket);
                if let Some(waiting) = waiting {
                    // Dropping it closes it, and its permit goes to the next one.
                    let _gone = waiting.send(Link::Http1(pooled));
                }
            }
            NextRequest::Elsewhere => pooled.task.abort(),
        }
    }

    /// A stream of `connection` has ended. `is_last`: the connection takes no other one.
    pub(super) fn stream_ended(self: &Rc<Self>, connection: &Rc<Http2Connection>, is_last: bool) {
        connection.give_stream_back(self.now.get());
        if is_last || !self.takes_streams(connection) {
            return self.retire_connection(connection);
        }
        if self.is_kept(connection) && connection.has_room() {
            self.offer_stream(connection);
            let is_idle = connection.streams() == 0;
            if is_idle
                && (self.retired.get() || self.idle_connections() > self.shared.config.idle_connections)
            {
                self.retire_connection(connection);
            }
        }
    }

    /// Gives a stream of `connection`, which has room, to a request that waits. False where none of this worker does.
    fn offer_stream(self: &Rc<Self>, connection: &Rc<Http2Connection>) -> bool {
        match self.shared.queue.next_request(self.worker) {
            NextRequest::None => false,
            NextRequest::Here(ticket) => {
                let waiting = self.waiting.borrow_mut().remove(&ticket);
                if let Some(waiting) = waiting {
                    let stream = StreamSlot::take(Rc::clone(connection), self);
                    // Dropping it gives it to the next one.
                    let _gone = waiting.send(Link::Http2(Box::new(stream)));
                }
                true
            }
            NextRequest::Elsewhere => {
                // A stream can't change threads, but the connection's permit can, once its streams have ended. One
                // connection at a time: streams may last long.
                let is_yielding = self.yielding.borrow().upgrade().is_some();
                if connection.streams() == 0 || !is_yielding {
                    *self.yielding.borrow_mut() = Rc::downgrade(connection);
                    self.retire_connection(connection);
                }
                false
            }
        }
    }

    /// Whether a connection still takes streams.
    fn is_kept(&self, connection: &Rc<Http2Connection>) -> bool {
        let connections = self.shared_connections[connection.endpoint].borrow();
        connections.open.iter().any(|open| Rc::ptr_eq(open, connection))
    }

    /// Closes a connection once its last stream has ended.
    fn retire_connection(&self, connection: &Rc<Http2Connection>) {
        let mut connections = self.shared_connections[connection.endpoint].borrow_mut();
        connections.open.retain(|open| !Rc::ptr_eq(open, connection));
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
        pooled.sender.is_ready() && self.is_current_tls(pooled.tls_version)
    }

    /// Likewise of a connection that requests share.
    fn takes_streams(&self, connection: &Http2Connection) -> bool {
        connection.is_open() && self.is_current_tls(connection.tls_version)
    }

    fn is_current_tls(&self, version: u64) -> bool {
        version == 0 || self.shared.is_current_tls(version)
    }

    /// Closes an idle connection, if there is one.
    fn close_any_idle(&self) -> bool {
        let mut idle = self.idle.borrow_mut();
        if let Some(queue) = idle.iter_mut().find(|queue| !queue.is_empty()) {
            self.idle_count.set(self.idle_count.get() - 1);
            return queue.pop_front().is_some();
        }
        self.shared_connections.iter().any(|connections| {
            let open = &mut connections.borrow_mut().open;
            let idle = open.iter().position(|connection| connection.streams() == 0);
            idle.map(|idle| open.swap_remove(idle)).is_some()
        })
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
        if let Some(idle_before) = now.checked_sub(keep) {
            for connections in &self.shared_connections {
                connections.borrow_mut().open.retain(|connection| {
                    !connection.is_idle_since(idle_before) && self.takes_streams(connection)
                });
            }
        }
    }

    /// Closes idle connections now, and the others once their requests have ended: the configuration no longer has this
    /// upstream, or has replaced it.
    pub fn retire(&self) {
        self.retired.set(true);
        while self.close_any_idle() {}
        for connections in &self.shared_connections {
            // The streams that are open keep theirs.
            connections.borrow_mut().open.clear();
        }
    }

    /// Closes idle connections while requests of other workers wait for a permit. Runs as long as the worker does.
    pub async fn yield_to_others(self: Rc<Self>) {
        loop {
            // Enabled before the check, so that no notification between the two is missed.
            let mut wanted = std::pin::pin!(self.shared.wanted.notified());
            wanted.as_mut().enable();
            while self.shared.queue.waiting_elsewhere(self.worker) > 0 {
                if !self.close_any_idle() {
                    break;
                }
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
        let shared = self.shared_connections.iter().map(|connections| {
            connections.borrow().open.iter().filter(|connection| connection.streams() == 0).count()
        });
        self.idle_count.get() + shared.sum::<usize>()
    }

    /// Connections of this worker with a request in flight.
    pub fn active_connections(&self) -> usize {
        self.open.load(Relaxed).saturating_sub(self.idle_connections())
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
    Connection(Link<B>),
    Permit(ConnectionPermit),
}

/// What a request gets that may share a connection.
enum Joined<B: RequestBody> {
    Stream(Link<B>),
    /// None has room, so it has to open one, and to tell others how that ends. `None`: they do not wait for it.
    Opening(Option<Opening>),
}

/// Tells those that wait for a connection how its opening has failed. Dropped, the opening has ended.
type Opening = watch::Sender<Option<ConnectError>>;

/// How the opening of a connection that is under way fails. `None`: it does not, or it was given up.
async fn failure(
    mut under_way: watch::Receiver<Option<ConnectError>>,
    late: tokio::time::Instant,
) -> Result<Option<ConnectError>, ConnectError> {
    let failed =
        timeout_at(late, under_way.wait_for(Option::is_some)).await.map_err(|_| ConnectError::Timeout)?;
    Ok(failed.ok().and_then(|failed| failed.clone()))
}

/// The requests of a worker that wait, by their tickets.
type Waiting<B> = RefCell<HashMap<u64, oneshot::Sender<Link<B>>, RandomState>>;

/// A request that can be handed a connection, until dropped.
struct WaitingGuard<'a, B: RequestBody> {
    waiting: &'a Waiting<B>,
    ticket: u64,
}

impl<'a, B: RequestBody> WaitingGuard<'a, B> {
    fn new(waiting: &'a Waiting<B>, ticket: u64, sender: oneshot::Sender<Link<B>>) -> Self {
        waiting.borrow_mut().insert(ticket, sender);
        Self { waiting, ticket }
    }
}

impl<B: RequestBody> Drop for WaitingGuard<'_, B> {
    fn drop(&mut self) {
        self.waiting.borrow_mut().remove(&self.ticket);
    }
}
