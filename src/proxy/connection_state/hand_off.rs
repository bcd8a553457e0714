//! The things that a request leaves for its connection, or for a later request, to take.

use std::{
    cell::{Cell, RefCell},
    fmt,
    net::IpAddr,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::Waker,
    time::Instant,
};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{super::early_ends::WatchedRequest, queued_hints::QueuedHints};
use crate::{
    telemetry::metrics::{CutOff, CutOffReason},
    upstream::{ClientWait, Eviction, SharedUpstream, UpstreamClient},
};

/// A client's bytes, in both directions.
pub trait ByteStream: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> ByteStream for T {}

/// A boxed future: few connections switch protocols.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// The protocol that a connection carries after the response that switches to it.
pub trait NextProtocol: fmt::Debug {
    /// Relays bytes between the upstream and `client`, of which `received` were read already, until either side ends.
    /// Returns whether the upstream's bytes were cut off.
    fn relay<'a>(self: Box<Self>, client: &'a mut dyn ByteStream, received: Bytes) -> Boxed<'a, bool>;

    /// Relays bytes between the upstream and the client's HTTP/2 stream, until either side ends.
    fn relay_stream(self: Box<Self>) -> Boxed<'static, ()>;
}

/// The things that the request in flight leaves, and the client of the last request.
#[derive(Debug, Default)]
pub struct HandOff {
    /// `None`: all requests of the connection are of one client.
    watched: Option<Rc<WatchedRequest>>,
    /// Why the request in flight is ended early.
    cut_off: Cell<Option<CutOff>>,
    /// Whether the request in flight has waited for its client. Only then its connection may be given to others.
    may_be_evicted: Cell<bool>,
    /// The last request's client, as its upstream identifies it.
    upstream_client: RefCell<Option<Rc<UpstreamClient>>>,
    /// The early hints of the request in flight, if the client gets them.
    early_hints: RefCell<Option<Arc<QueuedHints>>>,
    /// The tunnel that follows the response being written.
    tunnel: RefCell<Option<Box<dyn NextProtocol>>>,
}

impl HandOff {
    pub(super) fn watching(watched: Option<Rc<WatchedRequest>>) -> Self {
        Self { watched, ..Self::default() }
    }

    /// The watched request, if the connection carries the requests of many clients.
    pub fn watched(&self) -> Option<&Rc<WatchedRequest>> {
        self.watched.as_ref()
    }

    /// Notes why the request in flight is ended early.
    pub(in crate::proxy) fn cut_off(&self, cut_off: CutOff) {
        self.cut_off.set(Some(cut_off));
    }

    /// Why the request in flight is ended early, if it is.
    pub(in crate::proxy) fn cut_off_reason(&self) -> Option<CutOffReason> {
        self.cut_off.get().map(|cut_off| cut_off.reason)
    }

    /// Takes the reason, so that it is reported once.
    pub(in crate::proxy) fn take_cut_off(&self) -> Option<CutOff> {
        self.cut_off.take()
    }

    /// The client at the address `ip`, as `upstream` identifies it: usually the same as for the last request.
    pub(in crate::proxy) fn upstream_client(
        &self,
        upstream: &Arc<SharedUpstream>,
        ip: IpAddr,
    ) -> Rc<UpstreamClient> {
        self.may_be_evicted.set(false);
        let mut last = self.upstream_client.borrow_mut();
        match &*last {
            Some(client) if upstream.has_client(client, ip) => Rc::clone(client),
            _ => Rc::clone(last.insert(upstream.client(ip))),
        }
    }

    /// Begins a wait for the client. `waker` wakes the connection.
    pub(super) fn client_wait_begins(&self, wait: ClientWait, now: Instant, waker: &Waker) {
        if let Some(client) = &*self.upstream_client.borrow() {
            client.wait_begins(wait, now, waker);
            self.may_be_evicted.set(true);
        }
    }

    /// Ends a wait for the client.
    pub(super) fn client_wait_ends(&self, wait: ClientWait, now: Instant) {
        if let Some(client) = &*self.upstream_client.borrow() {
            client.wait_ends(wait, now);
        }
    }

    /// Whether the request in flight is to be ended to free its connection for others.
    pub fn is_evicted(&self) -> bool {
        self.may_be_evicted.get() && self.eviction().is_some()
    }

    /// Why the request in flight is to be ended, if it is.
    pub(super) fn eviction(&self) -> Option<Eviction> {
        let client = self.upstream_client.borrow();
        client.as_ref().filter(|_| self.may_be_evicted.get())?.eviction()
    }

    /// Sets the early hints of the request in flight, if the client gets them; `None` once the response begins.
    pub(in crate::proxy) fn set_early_hints(&self, hints: Option<Arc<QueuedHints>>) {
        *self.early_hints.borrow_mut() = hints;
    }

    /// The early hints of the request in flight.
    pub(in crate::proxy) fn early_hints(&self) -> Option<Arc<QueuedHints>> {
        self.early_hints.borrow().clone()
    }

    /// Takes the heads of the hints to be written now.
    pub fn take_early_hints(&self) -> Option<Vec<u8>> {
        self.early_hints.borrow().as_ref().map(|hints| hints.take()).filter(|heads| !heads.is_empty())
    }

    /// Leaves the tunnel that follows the response being written. The connection's owner has to take it even if the
    /// connection ends before, because the tunnel holds the connection's state.
    pub(in crate::proxy) fn set_tunnel(&self, tunnel: Box<dyn NextProtocol>) {
        *self.tunnel.borrow_mut() = Some(tunnel);
    }

    /// Takes the tunnel that follows the last response, if there is one.
    pub fn take_tunnel(&self) -> Option<Box<dyn NextProtocol>> {
        self.tunnel.take()
    }
}
