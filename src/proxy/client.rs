//! One client's connection: what is known of it before its first request.

use std::{cell::RefCell, net::SocketAddr, rc::Rc};

use compact_str::CompactString;
use http::HeaderValue;

use super::{phase_timer::PhaseTimer, worker::Worker};
use crate::identity::address_text;

/// What all requests of a connection have in common, under one configuration.
#[derive(Debug)]
pub struct ClientInfo {
    peer: SocketAddr,
    is_trusted: bool,
    /// The peer's address as limits and records name a client: the identifier of most requests.
    address: CompactString,
    peer_value: HeaderValue,
    timer: Rc<PhaseTimer>,
}

impl ClientInfo {
    /// A connection from `peer`, as the configuration of `worker` sees it.
    fn new<S>(worker: &Worker<S>, peer: SocketAddr, timer: Rc<PhaseTimer>) -> Self {
        let address = address_text(peer.ip(), worker.config().client_address.ipv6_prefix);
        let text = peer.ip().to_canonical().to_string();
        // An address has only characters that a field may have.
        let peer_value = HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("unknown"));
        Self { peer, is_trusted: worker.rules.is_trusted_proxy(peer), address, peer_value, timer }
    }

    /// The other end of the connection.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Whether the peer is a trusted proxy, so that its forwarding fields count.
    pub fn is_trusted(&self) -> bool {
        self.is_trusted
    }

    /// The peer's address as limits and records name a client.
    pub fn address(&self) -> &CompactString {
        &self.address
    }

    /// The peer's address as a field value.
    pub fn peer_value(&self) -> &HeaderValue {
        &self.peer_value
    }

    /// What the connection waits for, and until when.
    pub fn timer(&self) -> &Rc<PhaseTimer> {
        &self.timer
    }
}

/// A client's connection over one configuration after another: each may trust the peer or not, and name it in its own
/// way.
pub struct ClientConnection {
    /// The generation of the worker that last served it, and the client as that worker sees it.
    seen: RefCell<(u64, Rc<ClientInfo>)>,
}

impl ClientConnection {
    /// A connection from `peer`, accepted under `worker`.
    pub fn new<S>(worker: &Worker<S>, peer: SocketAddr, timer: Rc<PhaseTimer>) -> Self {
        let info = Rc::new(ClientInfo::new(worker, peer, timer));
        Self { seen: RefCell::new((worker.generation(), info)) }
    }

    /// The client as `worker` sees it.
    pub fn info<S>(&self, worker: &Worker<S>) -> Rc<ClientInfo> {
        let (generation, info) = &mut *self.seen.borrow_mut();
        if *generation != worker.generation() {
            let timer = Rc::clone(&info.timer);
            (*generation, *info) = (worker.generation(), Rc::new(ClientInfo::new(worker, info.peer, timer)));
        }
        Rc::clone(info)
    }
}
