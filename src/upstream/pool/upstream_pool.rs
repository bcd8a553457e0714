//! One worker's connection pool for one upstream: the newest idle connection is checked out first, idle ones expire,
//! and the configured maximum applies to the whole process.
//!
//! hyper-util's `client::pool::cache` was considered. It has neither a limit over several caches nor an expiry, and it
//! hands connections over under a mutex; the rest of it is a `Vec`.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::{Rc, Weak},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Instant,
};

use foldhash::fast::RandomState;
use tokio::sync::oneshot;

use super::host_pool::HostPool;
use crate::{
    tls::find_tls_error,
    upstream::{
        HostChoice, OutgoingBody, SharedUpstream, StreamNeeds, UpstreamHost,
        balance::Balancer,
        hosts::HostsSnapshot,
        http1::{Flusher, Http1Connection},
        http2::{StreamSlot, UpstreamHttp2Connection},
        queue::NextRequest,
        retry_budget::RetryBudget,
    },
};

/// One worker's connections to one upstream.
pub struct UpstreamPool<B: OutgoingBody> {
    pub(super) shared: Arc<SharedUpstream>,
    /// The worker's number.
    pub(super) worker: usize,
    hosts: RefCell<HostPools<B>>,
    /// The number of idle connections to all hosts, without the shared ones.
    idle_count: Rc<Cell<usize>>,
    /// The connection that takes no more streams, so that its permit can move to another worker.
    pub(super) yielding: RefCell<Weak<UpstreamHttp2Connection>>,
    /// The time of the last [`UpstreamPool::close_expired`]: precise enough for the idle time of connections.
    pub(super) now: Cell<Instant>,
    /// Connections of this worker, idle or not.
    pub(super) open: Arc<AtomicUsize>,
    /// Requests of this worker that wait for a connection, by their tickets in the queue.
    pub(super) waiting: Waiting<B>,
    /// Set once no more requests are expected: connections that are checked in are closed.
    retired: Cell<bool>,
    retry_budget: RetryBudget,
    /// Writes the requests of HTTP/1.1 connections.
    pub(super) flusher: Rc<Flusher>,
}

/// A worker's copy of the hosts in [`SharedUpstream`].
struct HostPools<B: OutgoingBody> {
    /// The version of the copied hosts.
    version: u64,
    pools: Vec<Rc<HostPool<B>>>,
    /// Chooses among the hosts, in the order of `pools`.
    balancer: Balancer,
}

impl<B: OutgoingBody> UpstreamPool<B> {
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
            flusher: Rc::new(Flusher::start()),
            shared,
            worker,
        })
    }

    /// Picks the host for the next request. Hosts that it has tried, or that were unreachable recently, are avoided
    /// where there are others. `None`: all are drained.
    pub fn pick(&self, choice: &HostChoice<'_>, now: Instant) -> Option<Rc<HostPool<B>>> {
        self.follow_hosts();
        let hosts = self.hosts.borrow();
        if hosts.pools.is_empty() {
            return None;
        }
        loop {
            let picked = &hosts.pools[hosts.balancer.pick(choice, now)];
            // If another request begins to test just now whether the host is reachable again, the next pick avoids it.
            if picked.host.state.admits(now, choice.within) {
                return Some(Rc::clone(picked));
            }
        }
    }

    /// Updates the copy of the hosts. Hosts that are kept keep their connections; those of removed hosts are closed
    /// once their requests have ended.
    pub(super) fn follow_hosts(&self) {
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
        let pool = |host: &Arc<UpstreamHost>| {
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

    /// Notes that a request on a new connection to `host` got no response. If the host has ended TLS with an alert, it
    /// counts as unreachable, as after a failed handshake: with TLS 1.3, it checks our certificate only after our side
    /// of the handshake is complete.
    pub fn request_failed(&self, host: &UpstreamHost, error: &(dyn std::error::Error + 'static)) {
        if matches!(find_tls_error(error), Some(rustls::Error::AlertReceived(_))) {
            self.shared.unreachable(host, self.shared.describe(host, error), Instant::now());
        }
    }

    /// Takes back a connection to `host` that is ready for another request.
    pub(super) fn check_in(&self, connection: Http1Connection<B>, host: &Rc<HostPool<B>>) {
        // A waiting request must not get a connection to a host that was drained in the meantime.
        self.follow_hosts();
        if !host.is_current_tls(connection.tls_version) || host.is_retired() {
            return; // dropping it closes it
        }
        match self.next_request(host, |_| true) {
            NextRequest::None => host.keep_idle(connection, self.now.get()),
            NextRequest::Here(ticket) => {
                let waiting = self.waiting.borrow_mut().remove(&ticket);
                if let Some(waiting) = waiting {
                    // If the request is gone, the connection is closed, and its permit moves to the next request.
                    let _gone = waiting.sender.send((PooledConnection::Http1(connection), Rc::clone(host)));
                }
            }
            // Its permit moves to the other worker.
            NextRequest::Elsewhere => drop(connection),
        }
    }

    /// Picks the request that gets a connection to `host`. `serves`: whether the connection meets these needs. Where
    /// requests are tied to hosts, a request for another host can't use it.
    pub(super) fn next_request(
        &self,
        host: &Rc<HostPool<B>>,
        serves: impl Fn(StreamNeeds) -> bool,
    ) -> NextRequest {
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
    pub(super) fn close_any_idle(&self) -> bool {
        self.hosts.borrow().pools.iter().any(|pool| pool.close_any_idle())
    }

    /// Closes connections that were idle for longer than configured, that the upstream closed, or whose host was
    /// removed. Called periodically.
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

impl<B: OutgoingBody> UpstreamPool<B> {
    /// Whether there is more than one host.
    pub fn has_other_hosts(&self) -> bool {
        self.hosts.borrow().pools.len() > 1
    }

    /// The state that all workers share.
    pub fn shared(&self) -> &Arc<SharedUpstream> {
        &self.shared
    }

    /// Limits the retries of its requests.
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

/// A connection or stream for a waiting request, and its host.
pub(super) type HandedConnection<B> = (PooledConnection<B>, Rc<HostPool<B>>);

/// The waiting requests of a worker, by their tickets.
pub(super) type Waiting<B> = RefCell<HashMap<u64, ConnectionWaiter<B>, RandomState>>;

/// A request that waits for a connection.
pub(super) struct ConnectionWaiter<B: OutgoingBody> {
    /// Receives the connection.
    pub(super) sender: oneshot::Sender<HandedConnection<B>>,
    /// The host that was picked for it.
    pub(super) host: Rc<HostPool<B>>,
    pub(super) needs: StreamNeeds,
}

/// A connection from the pool, for one request.
pub(super) enum PooledConnection<B: OutgoingBody> {
    /// A connection of its own.
    Http1(Http1Connection<B>),
    /// A stream of a shared connection. Boxed: connections are moved often, and most are HTTP/1.1.
    Http2(Box<PooledStream<B>>),
}

/// A stream of a connection to `host`. Dropping it returns it to the pool.
pub(super) struct PooledStream<B: OutgoingBody> {
    pub(super) slot: Rc<StreamSlot<B>>,
    pub(super) host: Rc<HostPool<B>>,
    pub(super) pool: Rc<UpstreamPool<B>>,
}

impl<B: OutgoingBody> Drop for PooledStream<B> {
    fn drop(&mut self) {
        self.slot.give_up();
        self.pool.stream_ended(&self.slot.connection, &self.host);
    }
}

/// Counts a request in flight on its host until dropped.
pub(super) struct InFlightGuard<B: OutgoingBody> {
    pub(super) upstream: Rc<UpstreamPool<B>>,
    pub(super) host: Rc<HostPool<B>>,
}

impl<B: OutgoingBody> InFlightGuard<B> {
    pub(super) fn new(upstream: &Rc<UpstreamPool<B>>, host: &Rc<HostPool<B>>) -> Self {
        host.state.request_started();
        host.state.count_request();
        Self { upstream: Rc::clone(upstream), host: Rc::clone(host) }
    }
}

impl<B: OutgoingBody> Drop for InFlightGuard<B> {
    fn drop(&mut self) {
        self.host.state.request_ended();
    }
}
