//! One worker's connection pool for one upstream: the newest idle connection is checked out first, idle
//! ones expire, and the configured maximum holds for the whole process.
//!
//! hyper-util's `client::pool::cache` was looked at first. It has neither a cap over several caches
//! nor an expiry, and hands connections over under a mutex; all that would be used of it is a `Vec`.

mod host_pool;
mod sharing;

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
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
use tokio::{sync::oneshot, time::timeout_at};

pub use self::host_pool::HostPool;
use self::sharing::{Joined, Opening};
use super::{
    ConnectError, Host, HostChoice, RequestBody, SharedUpstream, UpstreamClient,
    addresses::{AddressHold, HeldConnection},
    balance::Balancer,
    connect::{Connected, connect},
    connection::{Connection, Link, PooledConnection},
    hosts::HostsSnapshot,
    http2::{Http2Connection, StreamNeeds},
    queue::{ConnectionPermit, ConnectionQueue, Grant, NextRequest},
    retry_budget::RetryBudget,
};
use crate::{config::model::Protocol, tls::find_tls_error};

/// What is read of an answer at once, and so what a client that does not read it makes the proxy hold, twice: here and on its way
/// to the client. hyper's own default is 408 KiB. The head of an answer has to fit in.
pub(super) const MAX_BUFFER: usize = 64 << 10;

/// How long a request waits for a connection that others have no use for before it has a slow request broken off, and
/// then how long for that one's.
const EVICT_AFTER: Duration = Duration::from_millis(10);
const EVICT_EVERY: Duration = Duration::from_millis(50);

/// One worker's connections to one upstream.
pub struct UpstreamPool<B: RequestBody> {
    shared: Arc<SharedUpstream>,
    /// The worker's number.
    worker: usize,
    hosts: RefCell<HostPools<B>>,
    /// Idle connections that no request shares, to all hosts.
    idle_count: Rc<Cell<usize>>,
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
    retry_budget: RetryBudget,
}

/// A worker's view of the hosts, which follows that of [`SharedUpstream`].
struct HostPools<B: RequestBody> {
    /// Of the hosts that it shows.
    version: u64,
    pools: Vec<Rc<HostPool<B>>>,
    /// Chooses among the hosts, in the order of `pools`.
    balancer: Balancer,
}

impl<B: RequestBody> UpstreamPool<B> {
    /// The pool of worker number `worker` for `shared`.
    pub fn new(shared: Arc<SharedUpstream>, worker: usize) -> Rc<Self> {
        let idle_count = Rc::default();
        let HostsSnapshot { version, hosts } = shared.hosts_snapshot();
        let pools = hosts.iter().map(|host| HostPool::new(Arc::clone(host), &shared, &idle_count)).collect();
        let balancer = Balancer::new(hosts, &shared.config, worker);
        Rc::new(Self {
            hosts: RefCell::new(HostPools { version, pools, balancer }),
            idle_count,
            yielding: RefCell::default(),
            now: Cell::new(Instant::now()),
            open: Arc::default(),
            waiting: RefCell::default(),
            retired: Cell::new(false),
            retry_budget: RetryBudget::new(Instant::now()),
            shared,
            worker,
        })
    }

    /// The host for the next request: none that it has tried, nor one that could not be reached recently, where there is
    /// another. `None`: all are drained.
    pub fn pick(&self, choice: &HostChoice<'_>, now: Instant) -> Option<Rc<HostPool<B>>> {
        self.follow_hosts();
        let hosts = self.hosts.borrow();
        if hosts.pools.is_empty() {
            return None;
        }
        loop {
            let picked = &hosts.pools[hosts.balancer.pick(choice, now)];
            // If another request finds out just now whether it can be reached again, it is left out from here on.
            if picked.host.state.admits(now, choice.within) {
                return Some(Rc::clone(picked));
            }
        }
    }

    /// Sees to it that the view shows the hosts as they are now. Those that stay keep their connections; those of the others
    /// are closed as soon as no request is on them.
    fn follow_hosts(&self) {
        if self.shared.hosts_version() != self.hosts.borrow().version {
            self.renew_hosts();
        }
    }

    #[cold]
    fn renew_hosts(&self) {
        let HostsSnapshot { version, hosts } = self.shared.hosts_snapshot();
        let known = std::mem::take(&mut self.hosts.borrow_mut().pools).into_iter();
        let mut known: HashMap<_, _, RandomState> =
            known.map(|pool| (Arc::as_ptr(&pool.host), pool)).collect();
        let pool = |host: &Arc<Host>| {
            let known = known.remove(&Arc::as_ptr(host));
            known.unwrap_or_else(|| HostPool::new(Arc::clone(host), &self.shared, &self.idle_count))
        };
        let pools = hosts.iter().map(pool).collect();
        let balancer = Balancer::new(hosts, &self.shared.config, self.worker);
        *self.hosts.borrow_mut() = HostPools { version, pools, balancer };
        known.values().for_each(|gone| gone.retire());
        if self.retired.get() {
            self.retire();
        }
    }

    /// Checks out an idle connection to `host` for a request of `client`, if there is one.
    pub fn checkout(
        self: &Rc<Self>,
        host: &Rc<HostPool<B>>,
        client: &Rc<UpstreamClient>,
        needs: StreamNeeds,
    ) -> Option<Connection<B>> {
        let link = match host.take_idle() {
            Some(pooled) => Link::Http1(pooled),
            None if self.shared.config.protocol == Protocol::H1 => return None,
            None => self.take_stream(host, needs)?,
        };
        Some(Connection::new(link, host, self, HeldConnection::new(client), true))
    }

    /// Opens a connection to `host` for a request of `client`. While the process has no permit left, takes the next connection
    /// that another request checks in, whatever its host unless requests are tied to hosts.
    ///
    /// Waits for a permit, and then for the connection to open: each for as long as `choice` says at most. If `host` was
    /// drained by then, another one takes its place.
    ///
    /// # Errors
    /// The queue is full, the wait timed out, or the host cannot be reached.
    pub async fn connect(
        self: &Rc<Self>,
        host: &mut Rc<HostPool<B>>,
        client: &Rc<UpstreamClient>,
        choice: &HostChoice<'_>,
        needs: StreamNeeds,
    ) -> Result<Connection<B>, ConnectError> {
        let mut opening = None;
        if self.shared.config.protocol != Protocol::H1 {
            match self.join_connection(host, needs, choice.within).await? {
                Joined::Stream(link) => {
                    return Ok(Connection::new(link, host, self, HeldConnection::new(client), true));
                }
                Joined::Opening(sender) => opening = sender,
            }
        }
        let permit = match ConnectionQueue::try_acquire(&self.shared) {
            Some(permit) => permit,
            None => {
                // Others need not wait for it.
                opening = None;
                if let Some(link) = self.take_any_stream(host, needs) {
                    return Ok(Connection::new(link, host, self, HeldConnection::new(client), true));
                }
                match self.wait_for_connection(host, client, needs, choice.within).await? {
                    Acquired::Connection((link, host)) => {
                        return Ok(Connection::new(link, &host, self, HeldConnection::new(client), true));
                    }
                    Acquired::Permit(permit) => permit,
                }
            }
        };
        // It may have been drained while the request waited.
        self.follow_hosts();
        if host.is_retired() {
            *host = self.pick(choice, Instant::now()).ok_or(ConnectError::NoHost)?;
            // Those that wait for it wait for a connection to the other one.
            opening = None;
        }
        let (sender, opened) = oneshot::channel();
        let (pool, opened_for) = (Rc::clone(self), (Rc::clone(host), AddressHold::new(client)));
        tokio::task::spawn_local(pool.open_for_request(
            opened_for,
            permit,
            (needs, choice.within),
            opening,
            sender,
        ));
        // It is dropped without an answer where the worker ends.
        let (link, hold) = opened.await.unwrap_or(Err(ConnectError::Timeout))?;
        Ok(Connection::new(link, host, self, HeldConnection::holding(hold), false))
    }

    /// Opens a connection for a request that waits for it as `waiting`. Runs in a task of its own: the request may end before, and
    /// must not take the attempt with it. An endpoint that takes longer than clients wait is connected to all the same, for the
    /// requests to come, and one that can't be reached is found to be so.
    async fn open_for_request(
        self: Rc<Self>,
        (host, hold): (Rc<HostPool<B>>, AddressHold),
        permit: ConnectionPermit,
        (needs, within): (StreamNeeds, Duration),
        opening: Option<Opening>,
        waiting: oneshot::Sender<Result<(Link<B>, AddressHold), ConnectError>>,
    ) {
        // A host that is slow to accept connections is not idle.
        let connecting = ConnectingGuard::new(&host);
        let opened = self.open(&host, permit, needs, within).await;
        match &opened {
            // With TLS 1.3 it may still refuse our certificate: wait for its first answer.
            Ok(Link::Http1(pooled)) if pooled.tls_version > 0 => {}
            Ok(_) => self.shared.connected(&host),
            Err(error) => {
                self.shared.not_connected(&host, error);
                if let Some(opening) = opening {
                    opening.send_replace(Some(error.clone()));
                }
            }
        }
        drop(connecting);
        // A stream that nobody has waited for is given back as it is dropped.
        if let Err(Ok((Link::Http1(pooled), _))) = waiting.send(opened.map(|link| (link, hold))) {
            self.check_in(pooled, &host);
        }
    }

    /// Notes that the request on a new connection to `host` was not answered. Where the host has ended TLS with an alert, it
    /// is as unreachable as if that had come in the handshake: with TLS 1.3, it is told of our certificate after ours has
    /// ended.
    pub fn request_failed(&self, host: &Host, error: &(dyn std::error::Error + 'static)) {
        if matches!(find_tls_error(error), Some(rustls::Error::AlertReceived(_))) {
            self.shared.unreachable(host, self.shared.describe(host, error), Instant::now());
        }
    }

    async fn open(
        self: &Rc<Self>,
        host: &Rc<HostPool<B>>,
        permit: ConnectionPermit,
        needs: StreamNeeds,
        within: Duration,
    ) -> Result<Link<B>, ConnectError> {
        let late = tokio::time::Instant::now() + within;
        let Connected { io, tls_version, is_http2 } = connect(&self.shared, host, within).await?;
        let io = io.holding((OpenGuard::new(&self.open), permit));
        if self.shared.config.protocol != Protocol::H1 {
            host.shared.borrow_mut().is_expected = is_http2;
        }
        if is_http2 {
            let opening = Http2Connection::open(io, tls_version, needs, self.now.get());
            let opened = timeout_at(late, opening).await.map_err(|_| ConnectError::Timeout)?;
            let connection = opened.map_err(ConnectError::from_io)?;
            return Ok(self.share(&connection, host));
        }
        let received = io.received();
        let (sender, connection) = http1::Builder::new()
            // Measured: to copy a small body behind its head costs less than a vectored write.
            .writev(false)
            .max_buf_size(MAX_BUFFER)
            .handshake(TokioIo::new(io))
            .await
            .map_err(|error| ConnectError::from_io(io::Error::other(error)))?;
        // The request on it learns of an error from its response future.
        let task = tokio::task::spawn_local(async move { drop(connection.with_upgrades().await) });
        Ok(Link::Http1(PooledConnection { sender, task: task.abort_handle(), tls_version, received }))
    }

    /// Waits for a connection that another request checks in, or for a permit to open one.
    async fn wait_for_connection(
        &self,
        host: &Rc<HostPool<B>>,
        client: &UpstreamClient,
        needs: StreamNeeds,
        within: Duration,
    ) -> Result<Acquired<B>, ConnectError> {
        let full = ConnectError::Full(self.shared.config.max_connections);
        let Some(mut place) = ConnectionQueue::join(&self.shared, &client.address, self.worker) else {
            return Err(full);
        };
        let (sender, mut handed_over) = oneshot::channel();
        let waiting = WaitingRequest { sender, host: Rc::clone(host), needs };
        let _waiting = WaitingGuard::new(&self.waiting, place.ticket, waiting);
        self.close_any_idle(); // frees its permit for the wanted host
        self.shared.wanted.notify_waiters();
        let mut late = std::pin::pin!(tokio::time::sleep(within));
        let mut patience = EVICT_AFTER;
        loop {
            tokio::select! {
                biased;
                handed = &mut handed_over => return handed.map(Acquired::Connection).map_err(|_| full),
                grant = &mut place.granted => match grant {
                    Ok(Grant::Permit(permit)) => return Ok(Acquired::Permit(permit)),
                    Ok(Grant::Displaced) | Err(_) => return Err(full),
                },
                () = &mut late => return Err(full),
                () = tokio::time::sleep(patience) => {
                    let waiting = self.shared.queue.waiting();
                    self.shared.addresses.evict_for(&client.address, place.ahead, waiting, Instant::now());
                    patience = EVICT_EVERY;
                }
            }
        }
    }

    /// Takes back a connection to `host` that is ready for another request.
    pub(super) fn check_in(&self, pooled: PooledConnection<B>, host: &Rc<HostPool<B>>) {
        // A request that waits must not get one to a host that has been drained meanwhile.
        self.follow_hosts();
        if !host.is_current_tls(pooled.tls_version) || host.is_retired() {
            return; // dropping it closes it
        }
        match self.next_request(host, |_| true) {
            NextRequest::None => host.keep_idle(pooled, self.now.get()),
            NextRequest::Here(ticket) => {
                let waiting = self.waiting.borrow_mut().remove(&ticket);
                if let Some(waiting) = waiting {
                    // Dropping it closes it, and its permit goes to the next one.
                    let _gone = waiting.sender.send((Link::Http1(pooled), Rc::clone(host)));
                }
            }
            NextRequest::Elsewhere => pooled.task.abort(),
        }
    }

    /// Who gets a connection to `host`, which `serves` those with these needs. Where requests are tied to hosts, one that waits for
    /// another has no use for it.
    fn next_request(&self, host: &Rc<HostPool<B>>, serves: impl Fn(StreamNeeds) -> bool) -> NextRequest {
        let are_tied = self.shared.config.ties_requests();
        let may_use = |ticket: u64| {
            let waiting = self.waiting.borrow();
            waiting
                .get(&ticket)
                .is_none_or(|waiting| serves(waiting.needs) && (!are_tied || Rc::ptr_eq(&waiting.host, host)))
        };
        self.shared.queue.next_request(self.worker, may_use)
    }

    /// Closes an idle connection, if there is one.
    fn close_any_idle(&self) -> bool {
        self.hosts.borrow().pools.iter().any(|pool| pool.close_any_idle())
    }

    /// Closes connections that were idle for longer than configured, that the upstream closed, or whose host is gone. Called
    /// periodically.
    pub fn close_expired(&self, now: Instant) {
        self.now.set(now);
        self.follow_hosts();
        let idle_before = now.checked_sub(self.shared.config.timeouts.idle);
        self.hosts.borrow().pools.iter().for_each(|pool| pool.close_expired(idle_before));
    }

    /// Closes idle connections now, and the others once their requests have ended: the configuration no longer has this
    /// upstream, or has replaced it.
    pub fn retire(&self) {
        self.retired.set(true);
        self.hosts.borrow().pools.iter().for_each(|pool| pool.retire());
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
    /// Whether there is more than one host.
    pub fn has_other_hosts(&self) -> bool {
        self.hosts.borrow().pools.len() > 1
    }

    /// The state that all workers share.
    pub fn shared(&self) -> &Arc<SharedUpstream> {
        &self.shared
    }

    /// How many of its requests may be tried again.
    pub fn retry_budget(&self) -> &RetryBudget {
        &self.retry_budget
    }

    /// Idle connections of this worker.
    pub fn idle_connections(&self) -> usize {
        let shared: usize = self.hosts.borrow().pools.iter().map(|pool| pool.idle_shared()).sum();
        self.idle_count.get() + shared
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
struct ConnectingGuard<'a>(&'a Host);

impl<'a> ConnectingGuard<'a> {
    fn new(host: &'a Host) -> Self {
        host.state.request_started();
        Self(host)
    }
}

impl Drop for ConnectingGuard<'_> {
    fn drop(&mut self) {
        self.0.state.request_ended();
    }
}

/// What a request that waited was given.
enum Acquired<B: RequestBody> {
    Connection(HandedOver<B>),
    Permit(ConnectionPermit),
}

/// A connection or a stream that is handed over to a request that waits, and its host.
type HandedOver<B> = (Link<B>, Rc<HostPool<B>>);

/// The requests of a worker that wait, by their tickets.
type Waiting<B> = RefCell<HashMap<u64, WaitingRequest<B>, RandomState>>;

/// A request that waits for a connection.
struct WaitingRequest<B: RequestBody> {
    /// Hands it one.
    sender: oneshot::Sender<HandedOver<B>>,
    /// Where it was to go.
    host: Rc<HostPool<B>>,
    needs: StreamNeeds,
}

/// A request that can be handed a connection, until dropped.
struct WaitingGuard<'a, B: RequestBody> {
    waiting: &'a Waiting<B>,
    ticket: u64,
}

impl<'a, B: RequestBody> WaitingGuard<'a, B> {
    fn new(waiting: &'a Waiting<B>, ticket: u64, request: WaitingRequest<B>) -> Self {
        waiting.borrow_mut().insert(ticket, request);
        Self { waiting, ticket }
    }
}

impl<B: RequestBody> Drop for WaitingGuard<'_, B> {
    fn drop(&mut self) {
        self.waiting.borrow_mut().remove(&self.ticket);
    }
}
