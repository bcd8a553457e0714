//! One client's connection: the facts known before its first request.

use std::{
    cell::{OnceCell, RefCell},
    fmt,
    net::{Ipv4Addr, SocketAddr},
    rc::Rc,
};

use http::HeaderValue;

use super::{
    certificate_fields::CertificateFields,
    connection_state::{ConnectionState, HandOff, MessageMeter, PhaseTimer},
    listener_reply::ListenerReply,
    worker::Worker,
};
use crate::{
    config::model::ForwardClientCertificate,
    identity::AddressIdentifier,
    tls::{TlsIdentity, TlsSession},
};

/// The other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    Address(SocketAddr),
    /// A process of this machine, over a Unix socket.
    Unix,
    /// A load balancer whose PROXY header names no client: its own connection, or a client that it can't name.
    Balancer(SocketAddr),
}

impl Peer {
    /// The peer's address, or 127.0.0.1 for a process of this machine.
    pub fn address(self) -> SocketAddr {
        match self {
            Self::Address(address) | Self::Balancer(address) => address,
            Self::Unix => SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) | Self::Balancer(address) => address.fmt(f),
            Self::Unix => f.write_str("unix"),
        }
    }
}

/// The connection that requests arrive over.
#[derive(Debug, Clone)]
pub struct Transport {
    /// The other end of the connection.
    pub peer: Peer,
    /// The listener's index in the configuration.
    pub listener: usize,
    /// `None`: the connection is not encrypted.
    pub tls: Option<Rc<TlsSession>>,
}

/// The client of a request.
#[derive(Debug)]
pub struct ClientInfo {
    facts: Rc<ClientFacts>,
    /// The state of the connection, or of the request's own stream if requests share a connection.
    connection: Rc<ConnectionState>,
}

/// Facts that all requests of a connection share, under one configuration.
#[derive(Debug)]
struct ClientFacts {
    transport: Transport,
    is_trusted: bool,
    /// The peer's address, which is the identifier of most requests.
    address: AddressIdentifier,
    peer_value: HeaderValue,
    certificate_fields: OnceCell<Box<CertificateFields>>,
    listener_reply: Option<ListenerReply>,
    hsts: Option<HeaderValue>,
}

impl ClientFacts {
    /// The facts of a connection over `transport`, under the configuration of `worker`.
    fn new<S>(worker: &Worker<S>, transport: Transport) -> Self {
        let peer = transport.peer;
        let ip = peer.address().ip();
        let address = AddressIdentifier::new(ip, worker.config().client_address.ipv6_prefix);
        let text = ip.to_canonical().to_string();
        // An address has only characters that are allowed in a field.
        let peer_value = HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("unknown"));
        let listener = worker.config().listeners.get(transport.listener);
        let has_certificate = transport.tls.as_ref().is_some_and(|tls| tls.identity.is_some());
        let tls = listener.and_then(|listener| listener.tls.as_ref()).filter(|_| transport.tls.is_some());
        let hsts = tls.and_then(|tls| HeaderValue::try_from(tls.hsts.as_ref()?.to_string()).ok());
        Self {
            listener_reply: listener.and_then(|listener| ListenerReply::new(listener, has_certificate)),
            hsts,
            transport,
            is_trusted: worker.rules.is_trusted_proxy(peer),
            address,
            peer_value,
            certificate_fields: OnceCell::new(),
        }
    }
}

impl ClientInfo {
    /// The other end of the connection.
    pub fn peer(&self) -> Peer {
        self.facts.transport.peer
    }

    /// The TLS session. `None`: the connection is not encrypted.
    pub fn tls(&self) -> Option<&TlsSession> {
        self.facts.transport.tls.as_deref()
    }

    /// The client's verified certificate.
    pub fn certificate(&self) -> Option<&TlsIdentity> {
        self.tls()?.identity.as_ref()
    }

    /// The scheme of the client's requests.
    pub fn scheme(&self) -> &'static str {
        match self.facts.transport.tls {
            Some(_) => "https",
            None => "http",
        }
    }

    /// The fields that show the client's certificate to the upstream in this form, made once per connection.
    pub(super) fn certificate_fields(&self, form: ForwardClientCertificate) -> Option<&CertificateFields> {
        let certificate = self.certificate()?;
        Some(
            self.facts.certificate_fields.get_or_init(|| Box::new(CertificateFields::new(certificate, form))),
        )
    }

    /// The listener's index in the configuration.
    pub(super) fn listener(&self) -> usize {
        self.facts.transport.listener
    }

    /// The listener's own reply, for the requests that it does not serve.
    pub(super) fn listener_reply(&self) -> Option<ListenerReply> {
        self.facts.listener_reply
    }

    /// The value of `Strict-Transport-Security` for each response. Only over TLS (RFC 6797, 7.2).
    pub(super) fn hsts(&self) -> Option<&HeaderValue> {
        self.facts.hsts.as_ref()
    }

    /// Whether the peer is a trusted proxy, whose forwarding fields count.
    pub fn is_trusted(&self) -> bool {
        self.facts.is_trusted
    }

    /// The peer's address.
    pub fn address(&self) -> &AddressIdentifier {
        &self.facts.address
    }

    /// The peer's address as a field value.
    pub fn peer_value(&self) -> &HeaderValue {
        &self.facts.peer_value
    }

    /// The state of the connection, or of the request's own stream.
    pub fn connection(&self) -> &Rc<ConnectionState> {
        &self.connection
    }

    /// The phase of the connection, and its deadline.
    pub fn timer(&self) -> &PhaseTimer {
        self.connection.timer()
    }

    /// The progress of the messages.
    pub(super) fn meter(&self) -> &MessageMeter {
        self.connection.meter()
    }

    /// The things that the request leaves for its connection.
    pub(super) fn hand_off(&self) -> &HandOff {
        self.connection.hand_off()
    }
}

/// A client's connection over successive configurations: each may trust the peer or not, and identify it differently.
pub struct ClientConnection {
    /// The generation of the worker that last served the connection, and the client under its configuration.
    seen: RefCell<(u64, Rc<ClientInfo>)>,
}

impl ClientConnection {
    /// A connection over `transport`, accepted under `worker`.
    pub fn new<S>(worker: &Worker<S>, transport: Transport, connection: Rc<ConnectionState>) -> Self {
        let info = ClientInfo { facts: Rc::new(ClientFacts::new(worker, transport)), connection };
        Self { seen: RefCell::new((worker.generation(), Rc::new(info))) }
    }

    /// The client under the configuration of `worker`.
    pub fn info<S>(&self, worker: &Worker<S>) -> Rc<ClientInfo> {
        let (generation, info) = &mut *self.seen.borrow_mut();
        if *generation != worker.generation() {
            let facts = Rc::new(ClientFacts::new(worker, info.facts.transport.clone()));
            let connection = Rc::clone(&info.connection);
            (*generation, *info) = (worker.generation(), Rc::new(ClientInfo { facts, connection }));
        }
        Rc::clone(info)
    }

    /// The client under the configuration of `worker`, for a request that shares the connection with others.
    pub fn info_of_stream<S>(&self, worker: &Worker<S>, stream: Rc<ConnectionState>) -> Rc<ClientInfo> {
        Rc::new(ClientInfo { facts: Rc::clone(&self.info(worker).facts), connection: stream })
    }
}
