//! One worker's connections to one host: idle ones, and ones that requests share.

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
    pub host: Arc<UpstreamHost>,
    upstream: Arc<SharedUpstream>,
    /// Idle connections, the most recently used at the back.
    idle: RefCell<VecDeque<Idle<B>>>,
    /// The number of idle connections to all hosts of the upstream.
    idle_count: Rc<Cell<usize>>,
    /// Connections that requests share.
    pub(super) shared: RefCell<Http2Connections>,
    /// No more requests are sent to the host: connections that are checked in are closed.
    is_retired: Cell<bool>,
}

struct Idle<B: OutgoingBody> {
    connection: Http1Connection<B>,
    since: Instant,
}

/// The fields of the host itself.
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

    /// Takes the most recently used idle connection.
    pub(super) fn take_idle(&self) -> Option<Http1Connection<B>> {
        let mut idle = self.idle.borrow_mut();
        while let Some(Idle { connection, .. }) = idle.pop_back() {
            self.idle_count.set(self.idle_count.get() - 1);
            if self.is_usable(&connection) {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps a connection for a later request, unless there are enough.
    pub(super) fn keep_idle(&self, connection: Http1Connection<B>, now: Instant) {
        if self.idle_count.get() >= self.upstream.config.idle_connections || self.is_retired.get() {
            return; // dropping it closes it
        }
        self.idle_count.set(self.idle_count.get() + 1);
        self.idle.borrow_mut().push_back(Idle { connection, since: now });
    }

    /// Closes an idle connection, if there is one.
    pub(super) fn close_any_idle(&self) -> bool {
        if self.idle.borrow_mut().pop_front().is_some() {
            self.idle_count.set(self.idle_count.get() - 1);
            return true;
        }
        self.shared.borrow_mut().close_any_idle()
    }

    /// Closes connections that were idle since `before`, or that must not be used any more.
    pub(super) fn close_expired(&self, before: Option<Instant>) {
        let mut idle = self.idle.borrow_mut();
        let count = idle.len();
        idle.retain(|idle| {
            before.is_none_or(|before| idle.since > before) && self.is_usable(&idle.connection)
        });
        self.idle_count.set(self.idle_count.get() - (count - idle.len()));
        self.shared.borrow_mut().retain(|connection| {
            before.is_none_or(|before| !connection.is_idle_since(before)) && self.takes_streams(connection)
        });
    }

    /// Closes idle connections now, and the others once their requests have ended.
    pub(super) fn retire(&self) {
        self.is_retired.set(true);
        while self.close_any_idle() {}
        // Open streams keep their connections alive.
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

    /// Whether a connection may get another request: the host has not closed it, and its TLS settings are current.
    fn is_usable(&self, connection: &Http1Connection<B>) -> bool {
        connection.is_usable() && self.is_current_tls(connection.tls_version)
    }

    /// Whether a shared connection may get another request: it is open, takes more streams, and its TLS settings are
    /// current.
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
    /// The connection attempt in progress, if there is one. The channel is closed when the attempt ends, with the error
    /// if it fails.
    pub(super) opening: Option<watch::Receiver<Option<ConnectError>>>,
}

impl Http2Connections {
    pub(super) fn new(is_expected: bool) -> Self {
        Self { open: Vec::new(), is_expected, opening: None }
    }

    pub(super) fn contains(&self, connection: &Rc<UpstreamHttp2Connection>) -> bool {
        self.open.iter().any(|open| Rc::ptr_eq(open, connection))
    }

    /// The number of connections without streams.
    pub(super) fn idle(&self) -> usize {
        self.open.iter().filter(|connection| connection.streams() == 0).count()
    }

    pub(super) fn close_any_idle(&mut self) -> bool {
        let idle = self.open.iter().position(|connection| connection.streams() == 0);
        idle.map(|idle| self.open.swap_remove(idle)).is_some()
    }

    /// Removes the other connections. They are closed once their last streams have ended.
    pub(super) fn retain(&mut self, keep: impl Fn(&Rc<UpstreamHttp2Connection>) -> bool) {
        self.open.retain(keep);
    }
}
