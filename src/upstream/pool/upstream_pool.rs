//! One worker's connection pool for one upstream: the newest idle connection is checked out first, idle
//! ones expire, and the configured maximum holds for the whole process.
//!
//! hyper-util's `client::pool::cache` was looked at first. It has neither a cap over several caches
//! nor an expiry, and hands connections over under a mutex; all that would be used of it is a `Vec`.

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
        http1::Http1Connection,
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
    /// Idle connections that no request shares, to all hosts.
    idle_count: Rc<Cell<usize>>,
    /// The connection that takes no other stream for the sake of other workers, if there is one.
    pub(super) yielding: RefCell<Weak<UpstreamHttp2Connection>>,
    /// The time of the last [`UpstreamPool::close_expired`]: precise enough for how long a connection is idle.
    pub(super) now: Cell<Instant>,
    /// Connections of this worker, idle or not. Atomic, because hyper wants what it hands out after an upgrade to be `Send`.
    pub(super) open: Arc<AtomicUsize>,
    /// By their tickets in the queue: requests of this worker that wait for a connection.
    pub(super) waiting: Waiting<B>,
    /// Set when no more requests come: connections that are checked in are closed.
    retired: Cell<bool>,
    retry_budget: RetryBudget,
}

/// A worker's view of the hosts, which follows that of [`SharedUpstream`].
struct HostPools<B: OutgoingBody> {
    /// Of the hosts that it shows.
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

    /// Notes that the request on a new connection to `host` was not answered. Where the host has ended TLS with an alert, it
    /// is as unreachable as if that had come in the handshake: with TLS 1.3, it is told of our certificate after ours has
    /// ended.
    pub fn request_failed(&self, host: &UpstreamHost, error: &(dyn std::error::Error + 'static)) {
        if matches!(find_tls_error(error), Some(rustls::Error::AlertReceived(_))) {
            self.shared.unreachable(host, self.shared.describe(host, error), Instant::now());
        }
    }

    /// Takes back a connection to `host` that is ready for another request.
    pub(super) fn check_in(&self, pooled: Http1Connection<B>, host: &Rc<HostPool<B>>) {
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
                    let _gone = waiting.sender.send((PooledConnection::Http1(pooled), Rc::clone(host)));
                }
            }
            NextRequest::Elsewhere => pooled.task.abort(),
        }
    }

    /// Who gets a connection to `host`, which `serves` those with these needs. Where requests are tied to hosts, one that waits for
    /// another has no use for it.
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

impl<B: OutgoingBody> UpstreamPool<B> {
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

/// A connection or a stream that is handed over to a request that waits, and its host.
pub(super) type HandedConnection<B> = (PooledConnection<B>, Rc<HostPool<B>>);

/// The requests of a worker that wait, by their tickets.
pub(super) type Waiting<B> = RefCell<HashMap<u64, ConnectionWaiter<B>, RandomState>>;

/// A request that waits for a connection.
pub(super) struct ConnectionWaiter<B: OutgoingBody> {
    /// Hands it one.
    pub(super) sender: oneshot::Sender<HandedConnection<B>>,
    /// Where it was to go.
    pub(super) host: Rc<HostPool<B>>,
    pub(super) needs: StreamNeeds,
}

/// What a request is sent over.
pub(super) enum PooledConnection<B: OutgoingBody> {
    /// A connection of its own.
    Http1(Http1Connection<B>),
    /// A stream of a connection that it shares with others. Boxed: a connection is moved often, and most are the other ones.
    Http2(Box<PooledStream<B>>),
}

/// A stream of a connection to `host`. Dropped, it is given back to the pool.
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
