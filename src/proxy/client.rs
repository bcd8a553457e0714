//! One client's connection: the facts known before its first request.

use std::{
    cell::{OnceCell, RefCell},
    net::IpAddr,
    rc::Rc,
};

use http::HeaderValue;

use super::{
    certificate_fields::CertificateFields,
    connection_state::{ConnectionState, HandOff, MessageMeter, PhaseTimer},
    listener_reply::ListenerReply,
    peer::Peer,
    rules::Rules,
};
use crate::{
    config::model::{DecisionService, ForwardClientCertificate},
    identity::AddressIdentifier,
    tls::{TlsIdentity, TlsSession},
};

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
    decisions: Option<Box<DecisionService>>,
    hsts: Option<HeaderValue>,
}

impl ClientFacts {
    /// The facts of a connection over `transport`, under these `rules`.
    fn new(rules: &Rules, transport: Transport) -> Self {
        let peer = transport.peer;
        let ip = peer.address().ip();
        let address = AddressIdentifier::new(ip, rules.config.client_address.ipv6_prefix);
        let peer_value = match ip.to_canonical() {
            IpAddr::V4(_) => HeaderValue::from_str(address.address()),
            IpAddr::V6(ip) => HeaderValue::try_from(ip.to_string()),
        };
        // An address has only characters that are allowed in a field.
        let peer_value = peer_value.unwrap_or_else(|_| HeaderValue::from_static("unknown"));
        let listener = rules.config.listeners.get(transport.listener);
        let has_certificate = transport.tls.as_ref().is_some_and(|tls| tls.identity.is_some());
        let tls = listener.and_then(|listener| listener.tls.as_ref()).filter(|_| transport.tls.is_some());
        let hsts = tls.and_then(|tls| HeaderValue::try_from(tls.hsts.as_ref()?.to_string()).ok());
        Self {
            listener_reply: listener.and_then(|listener| ListenerReply::new(listener, has_certificate)),
            decisions: listener.and_then(|listener| listener.decisions.clone()).map(Box::new),
            hsts,
            transport,
            is_trusted: rules.is_trusted_proxy(peer),
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

    /// How the listener answers what another proxy asks. `None`: it forwards requests.
    pub(super) fn decisions(&self) -> Option<&DecisionService> {
        self.facts.decisions.as_deref()
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

    /// The same client, for a request that shares the connection with others.
    pub(super) fn of_stream(&self, stream: Rc<ConnectionState>) -> Self {
        Self { facts: Rc::clone(&self.facts), connection: stream }
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
    /// The generation of the rules that the connection was last served under, and the client under them.
    seen: RefCell<(u64, Rc<ClientInfo>)>,
}

impl ClientConnection {
    /// A connection over `transport`, accepted under the `rules` of this `generation`.
    pub(super) fn new(
        rules: &Rules,
        generation: u64,
        transport: Transport,
        connection: Rc<ConnectionState>,
    ) -> Self {
        let info = ClientInfo { facts: Rc::new(ClientFacts::new(rules, transport)), connection };
        Self { seen: RefCell::new((generation, Rc::new(info))) }
    }

    /// The client under the `rules` of this `generation`.
    pub(super) fn info(&self, rules: &Rules, generation: u64) -> Rc<ClientInfo> {
        let (seen, info) = &mut *self.seen.borrow_mut();
        if *seen != generation {
            let facts = Rc::new(ClientFacts::new(rules, info.facts.transport.clone()));
            let connection = Rc::clone(&info.connection);
            (*seen, *info) = (generation, Rc::new(ClientInfo { facts, connection }));
        }
        Rc::clone(info)
    }
}
