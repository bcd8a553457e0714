//! One worker's connections to one host, while no request has them to itself.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    ops::Deref,
    rc::Rc,
    sync::Arc,
    time::Instant,
};

use super::sharing::SharedConnections;
use crate::{
    config::model::Protocol,
    upstream::{Host, RequestBody, SharedUpstream, connection::PooledConnection, http2::Http2Connection},
};

/// One worker's connections to one host.
pub struct HostPool<B: RequestBody> {
    /// The host.
    pub host: Arc<Host>,
    upstream: Arc<SharedUpstream>,
    /// Idle connections, the freshest at the back.
    idle: RefCell<VecDeque<Idle<B>>>,
    /// Idle connections to all hosts of the upstream.
    idle_count: Rc<Cell<usize>>,
    /// Connections that requests share.
    pub(super) shared: RefCell<SharedConnections>,
    /// No more requests are sent to the host: connections that are checked in are closed.
    is_retired: Cell<bool>,
}

struct Idle<B: RequestBody> {
    pooled: PooledConnection<B>,
    since: Instant,
}

/// What is known of the host itself.
impl<B: RequestBody> Deref for HostPool<B> {
    type Target = Host;

    #[inline]
    fn deref(&self) -> &Host {
        &self.host
    }
}

impl<B: RequestBody> HostPool<B> {
    pub(super) fn new(
        host: Arc<Host>,
        upstream: &Arc<SharedUpstream>,
        idle_count: &Rc<Cell<usize>>,
    ) -> Rc<Self> {
        let is_http2 = upstream.config.protocol == Protocol::H2;
        Rc::new(Self {
            host,
            upstream: Arc::clone(upstream),
            idle: RefCell::default(),
            idle_count: Rc::clone(idle_count),
            shared: RefCell::new(SharedConnections::new(is_http2)),
            is_retired: Cell::new(false),
        })
    }

    /// Takes the freshest of the idle connections.
    pub(super) fn take_idle(&self) -> Option<PooledConnection<B>> {
        let mut idle = self.idle.borrow_mut();
        while let Some(Idle { pooled, .. }) = idle.pop_back() {
            self.idle_count.set(self.idle_count.get() - 1);
            if self.is_usable(&pooled) {
                return Some(pooled);
            }
        }
        None
    }

    /// Keeps a connection until a request wants it, unless there are enough.
    pub(super) fn keep_idle(&self, pooled: PooledConnection<B>, now: Instant) {
        if self.idle_count.get() >= self.upstream.config.idle_connections || self.is_retired.get() {
            return; // dropping it closes it
        }
        self.idle_count.set(self.idle_count.get() + 1);
        self.idle.borrow_mut().push_back(Idle { pooled, since: now });
    }

    /// Closes an idle connection, if there is one.
    pub(super) fn close_any_idle(&self) -> bool {
        if self.idle.borrow_mut().pop_front().is_some() {
            self.idle_count.set(self.idle_count.get() - 1);
            return true;
        }
        self.shared.borrow_mut().close_any_idle()
    }

    /// Closes connections that were idle since `before`, or that may not be used any more.
    pub(super) fn close_expired(&self, before: Option<Instant>) {
        let mut idle = self.idle.borrow_mut();
        let count = idle.len();
        idle.retain(|idle| before.is_none_or(|before| idle.since > before) && self.is_usable(&idle.pooled));
        self.idle_count.set(self.idle_count.get() - (count - idle.len()));
        self.shared.borrow_mut().retain(|connection| {
            before.is_none_or(|before| !connection.is_idle_since(before)) && self.takes_streams(connection)
        });
    }

    /// Closes idle connections now, and the others once their requests have ended.
    pub(super) fn retire(&self) {
        self.is_retired.set(true);
        while self.close_any_idle() {}
        // The streams that are open keep theirs.
        self.shared.borrow_mut().retain(|_| false);
    }

    /// Whether no more requests are sent to the host.
    pub(super) fn is_retired(&self) -> bool {
        self.is_retired.get()
    }

    /// Idle connections that requests share.
    pub(super) fn idle_shared(&self) -> usize {
        self.shared.borrow().idle()
    }

    /// Whether a connection may get another request: the host has not closed it, and the TLS settings that it was opened under
    /// still hold.
    fn is_usable(&self, pooled: &PooledConnection<B>) -> bool {
        pooled.sender.is_ready() && self.is_current_tls(pooled.tls_version)
    }

    /// Likewise of a connection that requests share, which may also have had too much of what wears it.
    pub(super) fn takes_streams(&self, connection: &Http2Connection) -> bool {
        connection.is_open() && !connection.is_worn() && self.is_current_tls(connection.tls_version)
    }

    pub(super) fn is_current_tls(&self, version: u64) -> bool {
        version == 0 || self.upstream.is_current_tls(version)
    }
}
