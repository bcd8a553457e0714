//! Connects to a host: to one of its addresses, and with TLS.

use std::{cell::Cell, io, net::SocketAddr, sync::Arc, time::Duration};

use nix::errno::Errno;
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;

use super::{SharedUpstream, UpstreamHost, io::UpstreamIo};
use crate::config::model::Protocol;

/// A new connection to a host, without a request yet.
pub(super) struct Connected {
    pub(super) io: UpstreamIo,
    /// The version of the TLS settings that it was opened under. 0: it has no TLS.
    pub(super) tls_version: u64,
    /// Whether HTTP/2 was chosen.
    pub(super) is_http2: bool,
}

/// Why a request got no connection.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ConnectError {
    /// All connections are in use, and the queue of waiting requests is full.
    #[error("all {0} connections to the upstream are in use")]
    Full(usize),
    /// All hosts were drained while the request waited.
    #[error("all endpoints are drained")]
    NoHost,
    /// This machine has no file descriptors or memory left for a connection. It is no failure of the host.
    #[error("{0}")]
    Exhausted(Arc<io::Error>),
    /// The host could not be reached.
    #[error("{0}")]
    Unreachable(Arc<io::Error>),
    /// The TLS handshake with the host failed.
    #[error("{0}")]
    Handshake(Arc<io::Error>),
    /// The host did not accept a connection in time.
    #[error("it accepted no connection in time")]
    Timeout,
    /// The host accepted a connection, and did not finish the TLS handshake in time.
    #[error("it did not finish the TLS handshake in time")]
    HandshakeTimeout,
}

impl ConnectError {
    /// An error before the TLS handshake.
    pub(super) fn from_io(error: io::Error) -> Self {
        let exhausted = [Errno::EMFILE, Errno::ENFILE, Errno::ENOBUFS, Errno::ENOMEM];
        match error.raw_os_error() {
            Some(code) if exhausted.contains(&Errno::from_raw(code)) => Self::Exhausted(Arc::new(error)),
            _ => Self::Unreachable(Arc::new(error)),
        }
    }

    pub(super) fn handshake(error: io::Error) -> Self {
        Self::Handshake(Arc::new(error))
    }
}

/// Connects to a host. Tries its addresses one after the other, each for its share of `within`: an address that does
/// not respond must not use up the time of the others.
///
/// A host without an address is a name that was not resolved yet, or a name for this machine, which the system
/// resolves.
///
/// # Errors
/// The error of the last address, or that the name has no address.
pub(super) async fn connect(
    upstream: &SharedUpstream,
    host: &UpstreamHost,
    within: Duration,
) -> Result<Connected, ConnectError> {
    let attempt =
        ConnectAttempt { upstream, host, is_resolving: Cell::new(false), in_handshake: Cell::new(false) };
    match timeout(within, attempt.any_address(within)).await {
        Ok(connected) => connected,
        Err(_) => Err(attempt.late()),
    }
}

/// An attempt to connect.
struct ConnectAttempt<'a> {
    upstream: &'a SharedUpstream,
    host: &'a UpstreamHost,
    /// Its name is being resolved.
    is_resolving: Cell<bool>,
    /// An address has accepted the connection, and the TLS handshake is in progress.
    in_handshake: Cell<bool>,
}

impl ConnectAttempt<'_> {
    async fn any_address(&self, within: Duration) -> Result<Connected, ConnectError> {
        if let Some(address) = self.host.address {
            return self.address(address).await;
        }
        let (name, port) = (self.host.endpoint.host(), self.host.endpoint.port);
        self.is_resolving.set(true);
        let addresses: Vec<SocketAddr> = match &self.host.name {
            Some(name) => {
                let found = name.addresses(within).await.map_err(ConnectError::from_io)?;
                found.into_iter().map(|ip| SocketAddr::new(ip, port)).collect()
            }
            None => tokio::net::lookup_host((name, port)).await.map_err(ConnectError::from_io)?.collect(),
        };
        self.is_resolving.set(false);
        let unknown = io::Error::new(io::ErrorKind::NotFound, "the host name resolves to no address");
        let mut failed = ConnectError::from_io(unknown);
        let share = within / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
        for address in addresses {
            match timeout(share, self.address(address)).await {
                Ok(Ok(connected)) => return Ok(connected),
                // Another address would fail the same way.
                Ok(Err(ConnectError::Exhausted(error))) => return Err(ConnectError::Exhausted(error)),
                Ok(Err(error)) => failed = error,
                Err(_) => failed = self.late(),
            }
        }
        Err(failed)
    }

    async fn address(&self, address: SocketAddr) -> Result<Connected, ConnectError> {
        self.in_handshake.set(false);
        let stream = TcpStream::connect(address).await.map_err(ConnectError::from_io)?;
        stream.set_nodelay(true).map_err(ConnectError::from_io)?;
        let protocol = self.upstream.config.protocol;
        let tls = self.upstream.tls.as_ref().filter(|_| self.host.endpoint.is_https());
        let Some(tls) = tls else {
            let is_http2 = protocol == Protocol::H2;
            return Ok(Connected { io: UpstreamIo::plain(stream), tls_version: 0, is_http2 });
        };
        let (name, tls) = tls
            .handshake(&self.host.endpoint)
            .map_err(|error| ConnectError::handshake(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
        self.in_handshake.set(true);
        let shaken = TlsConnector::from(tls.config).connect(name, stream).await;
        let stream = shaken.map_err(ConnectError::handshake)?;
        let chosen = stream.get_ref().1.alpn_protocol();
        // With `protocol: h2`, a server that chooses no protocol may still speak HTTP/2.
        let is_http2 = protocol == Protocol::H2 || protocol == Protocol::Auto && chosen == Some(b"h2");
        Ok(Connected { io: UpstreamIo::tls(stream), tls_version: tls.version, is_http2 })
    }

    /// The error of an attempt that took too long.
    fn late(&self) -> ConnectError {
        if self.is_resolving.get() {
            let late = io::Error::new(io::ErrorKind::TimedOut, "its name was not resolved in time");
            return ConnectError::from_io(late);
        }
        if self.in_handshake.get() { ConnectError::HandshakeTimeout } else { ConnectError::Timeout }
    }
}
