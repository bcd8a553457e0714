//! One worker's connections to one host, while no request has them to itself.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    ops::Deref,
    rc::Rc,
    sync::Arc,
    time::Instant,
};

use tokio::sync::watch;

use crate::{
    config::model::Protocol,
    upstream::{
        ConnectError, OutgoingBody, SharedUpstream, UpstreamHost, http1::Http1Connection,
        http2::UpstreamHttp2Connection,
    },
};

/// One worker's connections to one host.
pub struct HostPool<B: OutgoingBody> {
    /// The host.
    pub host: Arc<UpstreamHost>,
    upstream: Arc<SharedUpstream>,
    /// Idle connections, the freshest at the back.
    idle: RefCell<VecDeque<Idle<B>>>,
    /// Idle connections to all hosts of the upstream.
    idle_count: Rc<Cell<usize>>,
    /// Connections that requests share.
    pub(super) shared: RefCell<Http2Connections>,
    /// No more requests are sent to the host: connections that are checked in are closed.
    is_retired: Cell<bool>,
}

struct Idle<B: OutgoingBody> {
    pooled: Http1Connection<B>,
    since: Instant,
}

/// What is known of the host itself.
impl<B: OutgoingBody> Deref for HostPool<B> {
    type Target = UpstreamHost;

    #[inline]
    fn deref(&self) -> &UpstreamHost {
        &self.host
    }
}

impl<B: OutgoingBody> HostPool<B> {
    pub(super) fn new(
        host: Arc<UpstreamHost>,
        upstream: &Arc<SharedUpstream>,
        idle_count: &Rc<Cell<usize>>,
    ) -> Rc<Self> {
        let is_http2 = upstream.config.protocol == Protocol::H2;
        Rc::new(Self {
            host,
            upstream: Arc::clone(upstream),
            idle: RefCell::default(),
            idle_count: Rc::clone(idle_count),
            shared: RefCell::new(Http2Connections::new(is_http2)),
            is_retired: Cell::new(false),
        })
    }

    /// Takes the freshest of the idle connections.
    pub(super) fn take_idle(&self) -> Option<Http1Connection<B>> {
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
    pub(super) fn keep_idle(&self, pooled: Http1Connection<B>, now: Instant) {
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
    fn is_usable(&self, pooled: &Http1Connection<B>) -> bool {
        pooled.sender.is_ready() && self.is_current_tls(pooled.tls_version)
    }

    /// Likewise of a connection that requests share, which may also have had too much of what wears it.
    pub(super) fn takes_streams(&self, connection: &UpstreamHttp2Connection) -> bool {
        connection.is_open() && !connection.is_worn() && self.is_current_tls(connection.tls_version)
    }

    pub(super) fn is_current_tls(&self, version: u64) -> bool {
        version == 0 || self.upstream.is_current_tls(version)
    }
}

/// The HTTP/2 connections to one host, which requests share.
pub(super) struct Http2Connections {
    pub(super) open: Vec<Rc<UpstreamHttp2Connection>>,
    /// Whether the host is expected to speak HTTP/2.
    pub(super) is_expected: bool,
    /// The connection that is being opened, if there is one: closed when that has ended, with the reason if it has failed.
    pub(super) opening: Option<watch::Receiver<Option<ConnectError>>>,
}

impl Http2Connections {
    pub(super) fn new(is_expected: bool) -> Self {
        Self { open: Vec::new(), is_expected, opening: None }
    }

    pub(super) fn contains(&self, connection: &Rc<UpstreamHttp2Connection>) -> bool {
        self.open.iter().any(|open| Rc::ptr_eq(open, connection))
    }

    /// Connections without streams.
    pub(super) fn idle(&self) -> usize {
        self.open.iter().filter(|connection| connection.streams() == 0).count()
    }

    pub(super) fn close_any_idle(&mut self) -> bool {
        let idle = self.open.iter().position(|connection| connection.streams() == 0);
        idle.map(|idle| self.open.swap_remove(idle)).is_some()
    }

    /// Closes the other connections once their last streams have ended.
    pub(super) fn retain(&mut self, keep: impl Fn(&Rc<UpstreamHttp2Connection>) -> bool) {
        self.open.retain(keep);
    }
}
