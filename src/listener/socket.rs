//! Listening sockets: one per worker on the same address (SO_REUSEPORT), so that the kernel spreads connections and no
//! worker wakes another.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    os::{fd::OwnedFd, unix::net::UnixListener},
};

use socket2::{Domain, Protocol, Socket as RawSocket, Type};

use super::{
    stream::Socket,
    unix::{self, BACKLOG},
};
use crate::{config::model::ListenAddress, proxy::Peer};

/// An address that can't be listened on.
#[derive(Debug, thiserror::Error)]
#[error("can't listen on {address}: {error}{}", hint(.address, .error))]
pub struct BindError {
    address: ListenAddress,
    error: io::Error,
}

impl BindError {
    pub(super) fn new(address: ListenAddress, error: io::Error) -> Self {
        Self { address, error }
    }
}

fn hint(address: &ListenAddress, error: &io::Error) -> &'static str {
    match (address, error.kind()) {
        (_, io::ErrorKind::AddrInUse) => " (another program, or another Tollgate, is using it)",
        (ListenAddress::Tcp(_), io::ErrorKind::PermissionDenied) => {
            " (ports below 1024 need CAP_NET_BIND_SERVICE)"
        }
        (ListenAddress::Unix(_), io::ErrorKind::PermissionDenied) => {
            " (Tollgate must be allowed to write to the directory, and only root may set another owner)"
        }
        _ => "",
    }
}

/// A non-blocking listening socket.
#[derive(Debug)]
pub enum ListenSocket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl ListenSocket {
    /// Another descriptor of the same socket.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(socket) => socket.try_clone().map(Self::Tcp),
            Self::Unix(socket) => socket.try_clone().map(Self::Unix),
        }
    }

    /// Accepts the next connection in the queue, without waiting.
    pub(super) fn accept(&self) -> io::Result<(Socket, Peer)> {
        match self {
            Self::Tcp(socket) => {
                let (stream, peer) = socket.accept()?;
                stream.set_nonblocking(true)?;
                Ok((tokio::net::TcpStream::from_std(stream)?.into(), Peer::Address(peer)))
            }
            Self::Unix(socket) => {
                let (stream, _) = socket.accept()?;
                stream.set_nonblocking(true)?;
                Ok((tokio::net::UnixStream::from_std(stream)?.into(), Peer::Unix))
            }
        }
    }
}

impl From<ListenSocket> for OwnedFd {
    fn from(socket: ListenSocket) -> Self {
        match socket {
            ListenSocket::Tcp(socket) => socket.into(),
            ListenSocket::Unix(socket) => socket.into(),
        }
    }
}

/// A listening socket registered with the runtime.
pub(super) enum AsyncListener {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

impl AsyncListener {
    /// Needs a runtime.
    pub(super) fn new(socket: ListenSocket) -> io::Result<Self> {
        match socket {
            ListenSocket::Tcp(socket) => tokio::net::TcpListener::from_std(socket).map(Self::Tcp),
            ListenSocket::Unix(socket) => tokio::net::UnixListener::from_std(socket).map(Self::Unix),
        }
    }

    pub(super) async fn accept(&self) -> io::Result<(Socket, Peer)> {
        match self {
            Self::Tcp(listener) => {
                listener.accept().await.map(|(stream, peer)| (stream.into(), Peer::Address(peer)))
            }
            Self::Unix(listener) => listener.accept().await.map(|(stream, _)| (stream.into(), Peer::Unix)),
        }
    }

    pub(super) fn into_socket(self) -> io::Result<ListenSocket> {
        match self {
            Self::Tcp(listener) => listener.into_std().map(ListenSocket::Tcp),
            // tokio has not changed its options.
            Self::Unix(listener) => listener.into_std().map(ListenSocket::Unix),
        }
    }
}

/// The listening sockets of one address.
#[derive(Debug)]
pub struct BoundListener {
    /// The address, with the real port if 0 was configured.
    pub address: ListenAddress,
    /// At least one. Each has its own queue of connections.
    pub sockets: Vec<ListenSocket>,
}

impl BoundListener {
    /// Distributes the sockets over the workers. With more workers than sockets, some share one: a client wakes all of
    /// them, and one accepts it. With fewer workers, some accept on several sockets, so that no queue is neglected.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn deal(self, workers: usize) -> io::Result<Vec<Vec<ListenSocket>>> {
        let count = self.sockets.len().max(1);
        let shared = (count..workers).filter_map(|worker| self.sockets.get(worker % count));
        let shared = shared.map(ListenSocket::try_clone).collect::<io::Result<Vec<_>>>()?;
        let mut dealt: Vec<Vec<_>> = (0..workers).map(|_| Vec::new()).collect();
        for (index, socket) in self.sockets.into_iter().chain(shared).enumerate() {
            dealt[index % workers].push(socket);
        }
        Ok(dealt)
    }
}

/// Binds `count` sockets to `address`, one for each worker. A Unix socket is shared by all of them.
///
/// SO_REUSEPORT would let a second instance bind the same port by accident and take half of the connections. So if the
/// address has to be `exclusive`, a first socket is bound without it.
///
/// # Errors
/// The address is in use, or not local.
pub(super) fn bind(
    address: &ListenAddress,
    count: usize,
    exclusive: bool,
) -> Result<BoundListener, BindError> {
    let failed = |error| BindError::new(address.clone(), error);
    let address = match address {
        ListenAddress::Tcp(address) => *address,
        ListenAddress::Unix(socket) => {
            let sockets = vec![ListenSocket::Unix(unix::bind(socket).map_err(failed)?)];
            return Ok(BoundListener { address: address.clone(), sockets });
        }
    };
    if exclusive {
        drop(open(address, false).map_err(failed)?);
    }
    let first = open(address, true).map_err(failed)?;
    let address = first.local_addr().map_err(failed)?;
    let mut sockets = vec![ListenSocket::Tcp(first)];
    for _ in 1..count {
        sockets.push(ListenSocket::Tcp(open(address, true).map_err(failed)?));
    }
    Ok(BoundListener { address: ListenAddress::Tcp(address), sockets })
}

fn open(address: SocketAddr, shared: bool) -> io::Result<TcpListener> {
    let socket = RawSocket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // `[::]` means IPv6 only, as in nginx, so that `0.0.0.0` on the same port is not a conflict.
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    socket.set_nonblocking(true)?;
    // Accepted sockets inherit it on Linux, which saves a system call per connection.
    socket.set_tcp_nodelay(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any() -> ListenAddress {
        ListenAddress::Tcp(([127, 0, 0, 1], 0).into())
    }

    fn tcp(socket: &ListenSocket) -> &TcpListener {
        match socket {
            ListenSocket::Tcp(socket) => socket,
            ListenSocket::Unix(_) => panic!("a Unix socket"),
        }
    }

    #[test]
    fn a_second_instance_is_refused() {
        let first = bind(&any(), 2, true).unwrap();
        assert_eq!(first.sockets.len(), 2);
        let error = bind(&first.address, 2, true).unwrap_err().to_string();
        assert!(error.contains("another Tollgate"), "{error}");
        drop(first);
    }

    #[test]
    fn every_worker_has_a_socket_and_every_socket_a_worker() {
        for (sockets, workers, expected) in
            [(2, 2, &[1, 1][..]), (2, 5, &[1, 1, 1, 1, 1]), (5, 2, &[3, 2]), (1, 3, &[1, 1, 1])]
        {
            let bound = bind(&any(), sockets, true).unwrap();
            let dealt = bound.deal(workers).unwrap();
            let counts: Vec<_> = dealt.iter().map(Vec::len).collect();
            assert_eq!(counts, expected, "{sockets} sockets, {workers} workers");
        }
    }

    #[test]
    fn accepted_sockets_have_nodelay() {
        let bound = bind(&any(), 1, true).unwrap();
        let socket = tcp(&bound.sockets[0]);
        socket.set_nonblocking(false).unwrap();
        let _client = std::net::TcpStream::connect(socket.local_addr().unwrap()).unwrap();
        let (accepted, _) = socket.accept().unwrap();
        assert!(accepted.nodelay().unwrap());
    }
}
