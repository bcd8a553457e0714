//! Listening sockets that the process was started with (systemd's socket activation): they stay open while
//! Tollgate restarts, and keep the clients that come meanwhile.

use std::{
    io,
    net::{SocketAddr, TcpListener},
};

use listenfd::ListenFd;
use socket2::SockRef;

use super::socket::{BindError, BoundListener, bind};

/// The inherited sockets that no listener has taken yet.
#[derive(Debug, Default)]
pub struct InheritedSockets {
    sockets: Vec<(SocketAddr, TcpListener)>,
    /// Why some descriptors can't be served; logged once logging works.
    unusable: Vec<String>,
}

impl InheritedSockets {
    /// None.
    pub fn none() -> Self {
        Self::default()
    }

    /// Those that `LISTEN_FDS` and `LISTEN_PID` announce (sd_listen_fds(3)).
    ///
    /// To be called before anything else is opened, and before there is another thread: it takes
    /// descriptors by their number, and the two variables out of the environment.
    pub fn from_environment() -> Self {
        let mut descriptors = ListenFd::from_env();
        let mut inherited = Self::default();
        for index in 0..descriptors.len() {
            match take(&mut descriptors, index) {
                Ok(socket) => inherited.sockets.push(socket),
                Err(error) => inherited.unusable.push(error.to_string()),
            }
        }
        inherited
    }

    /// Closes those whose address is not among `addresses`, and warns: their creator may keep them open, so that
    /// clients wait there for nothing.
    pub fn retain(&mut self, addresses: &[SocketAddr]) {
        for reason in self.unusable.drain(..) {
            tracing::warn!("ignoring an inherited descriptor: {reason}");
        }
        self.sockets.retain(|(address, _)| {
            let kept = addresses.contains(address);
            if !kept {
                tracing::warn!(%address, "closing an inherited socket: no listener is configured for its address");
            }
            kept
        });
    }

    /// The inherited socket at exactly this address, cloned for each worker; where there is none, the address is
    /// bound.
    ///
    /// An inherited socket is shared: a client wakes every idle worker, one of them accepts it, and the others
    /// wait on.
    ///
    /// # Errors
    /// The address can't be bound, or no descriptor is left.
    pub fn or_bind(&mut self, address: SocketAddr, workers: usize) -> Result<BoundListener, BindError> {
        let Some(index) = self.sockets.iter().position(|(inherited, _)| *inherited == address) else {
            return bind(address, workers);
        };
        let (address, socket) = self.sockets.swap_remove(index);
        let clones = (1..workers).map(|_| socket.try_clone()).collect::<io::Result<Vec<_>>>();
        let mut sockets = clones.map_err(|error| BindError::new(address, error))?;
        sockets.push(socket);
        tracing::info!(%address, "serving on an inherited socket");
        Ok(BoundListener { address, sockets })
    }
}

/// The listening TCP socket at `index`. Whatever else it is is closed, if it is a socket at all.
fn take(descriptors: &mut ListenFd, index: usize) -> io::Result<(SocketAddr, TcpListener)> {
    let socket = match descriptors.take_tcp_listener(index) {
        Ok(Some(socket)) => socket,
        Ok(None) => return Err(io::ErrorKind::NotFound.into()),
        Err(error) => {
            let _closed = (
                descriptors.take_unix_listener(index),
                descriptors.take_udp_socket(index),
                descriptors.take_unix_datagram(index),
            );
            return Err(error);
        }
    };
    if !SockRef::from(&socket).is_listener()? {
        return Err(io::Error::other("it is a connection, not a listening socket (set `Accept=no`)"));
    }
    socket.set_nonblocking(true)?;
    // Accepted sockets have it from their listener.
    SockRef::from(&socket).set_tcp_nodelay(true)?;
    Ok((socket.local_addr()?, socket))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A socket as systemd binds it: alone, without SO_REUSEPORT.
    fn inherited() -> (SocketAddr, InheritedSockets) {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let address = socket.local_addr().unwrap();
        (address, InheritedSockets { sockets: vec![(address, socket)], unusable: Vec::new() })
    }

    #[test]
    fn one_socket_serves_every_worker() {
        let (address, mut inherited) = inherited();
        let bound = inherited.or_bind(address, 3).unwrap();
        assert_eq!((bound.address, bound.sockets.len()), (address, 3));
        let _client = std::net::TcpStream::connect(address).unwrap();
        // All three are woken; the first to accept gets it, and the others find nothing.
        assert!(bound.sockets[2].accept().is_ok());
        for socket in &bound.sockets {
            assert_eq!(socket.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
    }

    #[test]
    fn a_socket_is_given_once() {
        let (address, mut inherited) = inherited();
        let _first = inherited.or_bind(address, 1).unwrap();
        assert!(inherited.or_bind(address, 1).is_err());
    }

    #[test]
    fn what_is_not_inherited_is_bound() {
        let (address, mut inherited) = inherited();
        let bound = inherited.or_bind("127.0.0.1:0".parse().unwrap(), 2).unwrap();
        assert_ne!(bound.address, address);
        assert_eq!(inherited.sockets.len(), 1);
    }

    #[test]
    fn a_socket_without_a_listener_is_closed() {
        let (address, mut inherited) = inherited();
        inherited.retain(&[address]);
        assert_eq!(inherited.sockets.len(), 1);
        inherited.retain(&[SocketAddr::from(([0, 0, 0, 0], address.port()))]);
        assert!(std::net::TcpStream::connect(address).is_err());
    }
}
