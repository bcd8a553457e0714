//! The other end of a connection.

use std::{
    fmt,
    net::{Ipv4Addr, SocketAddr},
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
