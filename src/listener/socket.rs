//! Listening sockets: one per worker on the same address (SO_REUSEPORT), so that the kernel spreads
//! connections and no worker wakes another.

use std::{io, net::SocketAddr, net::TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

/// Connections that the kernel holds for a worker that is busy. Linux caps it at `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// An address that can't be listened on.
#[derive(Debug, thiserror::Error)]
#[error("can't listen on {address}: {error}{}", hint(.error))]
pub struct BindError {
    address: SocketAddr,
    error: io::Error,
}

impl BindError {
    pub(super) fn new(address: SocketAddr, error: io::Error) -> Self {
        Self { address, error }
    }
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => " (another program, or another Tollgate, is using it)",
        io::ErrorKind::PermissionDenied => " (ports below 1024 need CAP_NET_BIND_SERVICE)",
        _ => "",
    }
}

/// The listening sockets of one address.
#[derive(Debug)]
pub struct BoundListener {
    /// The address with the real port, where 0 was asked for.
    pub address: SocketAddr,
    /// At least one. Each has a queue of connections of its own.
    pub sockets: Vec<TcpListener>,
}

impl BoundListener {
    /// The sockets of each worker. Where there are more workers than sockets, some share one: a client wakes each of
    /// them, one accepts it, and the others wait on. Where there are fewer, some accept on several, so that no queue is
    /// left alone.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn deal(self, workers: usize) -> io::Result<Vec<Vec<TcpListener>>> {
        let count = self.sockets.len().max(1);
        let shared = (count..workers).filter_map(|worker| self.sockets.get(worker % count));
        let shared = shared.map(TcpListener::try_clone).collect::<io::Result<Vec<_>>>()?;
        let mut dealt: Vec<Vec<_>> = (0..workers).map(|_| Vec::new()).collect();
        for (index, socket) in self.sockets.into_iter().chain(shared).enumerate() {
            dealt[index % workers].push(socket);
        }
        Ok(dealt)
    }
}

/// Binds `count` sockets to `address`, one for each worker.
///
/// SO_REUSEPORT would let a second instance bind the same port by accident and take half of the
/// connections. So where the address is to be `exclusive`, a first socket tries without it.
///
/// # Errors
/// The address is taken, or not this machine's.
pub(super) fn bind(address: SocketAddr, count: usize, exclusive: bool) -> Result<BoundListener, BindError> {
    let failed = |error| BindError::new(address, error);
    if exclusive {
        drop(open(address, false).map_err(failed)?);
    }
    let first = open(address, true).map_err(failed)?;
    let address = first.local_addr().map_err(failed)?;
    let mut sockets = vec![first];
    for _ in 1..count {
        sockets.push(open(address, true).map_err(failed)?);
    }
    Ok(BoundListener { address, sockets })
}

fn open(address: SocketAddr, shared: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // `[::]` is IPv6 alone, as nginx has it: `0.0.0.0` beside it is then no conflict.
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

    #[test]
    fn a_second_instance_is_refused() {
        let first = bind("127.0.0.1:0".parse().unwrap(), 2, true).unwrap();
        assert_eq!(first.sockets.len(), 2);
        let error = bind(first.address, 2, true).unwrap_err().to_string();
        assert!(error.contains("another Tollgate"), "{error}");
        drop(first);
    }

    #[test]
    fn every_worker_has_a_socket_and_every_socket_a_worker() {
        for (sockets, workers, expected) in
            [(2, 2, &[1, 1][..]), (2, 5, &[1, 1, 1, 1, 1]), (5, 2, &[3, 2]), (1, 3, &[1, 1, 1])]
        {
            let bound = bind("127.0.0.1:0".parse().unwrap(), sockets, true).unwrap();
            let dealt = bound.deal(workers).unwrap();
            let counts: Vec<_> = dealt.iter().map(Vec::len).collect();
            assert_eq!(counts, expected, "{sockets} sockets, {workers} workers");
        }
    }

    #[test]
    fn accepted_sockets_have_nodelay() {
        let bound = bind("127.0.0.1:0".parse().unwrap(), 1, true).unwrap();
        bound.sockets[0].set_nonblocking(false).unwrap();
        let _client = std::net::TcpStream::connect(bound.address).unwrap();
        let (accepted, _) = bound.sockets[0].accept().unwrap();
        assert!(accepted.nodelay().unwrap());
    }
}
