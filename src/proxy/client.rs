//! One client's connection: what is known of it before it has asked for anything.

use std::{net::SocketAddr, rc::Rc};

use compact_str::CompactString;
use http::HeaderValue;

use super::patience::Patience;

/// A connection, and what all its requests have in common.
#[derive(Debug)]
pub struct Client {
    peer: SocketAddr,
    trusted: bool,
    /// The peer's address as it identifies a client: what most requests are limited by.
    address: CompactString,
    peer_value: HeaderValue,
    patience: Rc<Patience>,
}

impl Client {
    /// A connection from `peer`, which is a trusted proxy or not, and is called `address` in limits.
    pub fn new(peer: SocketAddr, trusted: bool, address: CompactString, patience: Rc<Patience>) -> Self {
        let text = peer.ip().to_canonical().to_string();
        // An address has only characters that a field may have.
        let peer_value = HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("unknown"));
        Self { peer, trusted, address, peer_value, patience }
    }

    /// The other end of the connection.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Whether the peer's forwarding fields count.
    pub fn is_trusted(&self) -> bool {
        self.trusted
    }

    /// The peer's address as it identifies a client.
    pub fn address(&self) -> &CompactString {
        &self.address
    }

    /// The peer's address as a field value.
    pub fn peer_value(&self) -> &HeaderValue {
        &self.peer_value
    }

    /// What the connection waits for.
    pub fn patience(&self) -> &Rc<Patience> {
        &self.patience
    }
}
