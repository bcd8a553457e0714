//! Listening sockets inherited at start. systemd keeps some open while Tollgate restarts (socket activation), and an
//! old process hands over its own to the new one. No client in their queues is lost.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    os::{
        fd::OwnedFd,
        unix::net::{UnixListener, UnixStream},
    },
};

use listenfd::ListenFd;
use socket2::SockRef;

use super::{
    handed_over::{HandoverDescription, SocketRole},
    socket::{BindError, BoundListener, ListenSocket, bind},
    unix,
};
use crate::config::model::{ListenAddress, UnixSocket};

/// The inherited sockets that were not assigned to a listener yet.
#[derive(Debug, Default)]
pub struct InheritedSockets {
    sockets: Vec<InheritedSocket>,
    /// The connection to the process that handed its sockets over, if any.
    old_process: Option<UnixStream>,
    /// Ports of sockets that were handed over and have no listener any more. The old process may keep them open for a
    /// while.
    released_ports: Vec<u16>,
    /// Reasons why descriptors can't be used; logged once logging works.
    unusable: Vec<String>,
}

#[derive(Debug)]
struct InheritedSocket {
    address: ListenAddress,
    /// The socket's role in the old process, and its address in that process' configuration.
    origin: Option<(SocketRole, String)>,
    /// Whether it belongs to a service manager, which keeps it open.
    is_managed: bool,
    socket: ListenSocket,
}

impl InheritedSocket {
    /// Whether this is the socket of the listener with this configured address. With port 0 the system chose the port,
    /// and only the old process knows for which listener.
    fn serves(&self, role: SocketRole, configured: &ListenAddress) -> bool {
        self.address.is_same_address(configured)
            || self
                .origin
                .as_ref()
                .is_some_and(|(was, address)| *was == role && *address == configured.to_string())
    }
}

impl InheritedSockets {
    pub fn none() -> Self {
        Self::default()
    }

    /// The sockets that `LISTEN_FDS` announces (sd_listen_fds(3)), if `LISTEN_PID` is absent or names this process. If
    /// another Tollgate has handed them over, `TOLLGATE_HANDOVER` describes each.
    ///
    /// To be called before any other file is opened and before a second thread is started: it takes descriptors by
    /// their numbers, and removes the first two variables from the environment.
    pub fn from_environment() -> Self {
        let mut descriptors = ListenFd::from_env();
        let mut inherited = Self::default();
        let handed_over =
            HandoverDescription::from_environment().filter(|list| list.descriptors() == descriptors.len());
        let mut entries = handed_over.iter().flat_map(HandoverDescription::entries);
        let first = usize::from(handed_over.is_some());
        if handed_over.is_some() {
            match descriptors.take_unix_listener(0) {
                // It has the type of any stream socket, although it was never a listening one.
                Ok(channel) => inherited.old_process = channel.map(|channel| OwnedFd::from(channel).into()),
                Err(error) => inherited.unusable.push(error.to_string()),
            }
        }
        for index in first..descriptors.len() {
            let entry = entries.next();
            let origin = entry.map(|entry| (entry.role, entry.address.clone()));
            let is_managed = entry.is_none_or(|entry| entry.is_managed);
            match take(&mut descriptors, index) {
                Ok((address, socket)) => {
                    inherited.sockets.push(InheritedSocket { address, origin, is_managed, socket });
                }
                Err(error) => inherited.unusable.push(error.to_string()),
            }
        }
        inherited
    }

    /// The connection to the old process, which waits for the new one to become ready.
    pub fn take_old_process(&mut self) -> Option<UnixStream> {
        self.old_process.take()
    }

    /// Closes the sockets that none of `listeners` uses. A service manager may keep such a socket open, and clients
    /// would wait there in vain, so this is logged as a warning. An old process serves those clients and then closes
    /// its socket.
    pub fn retain(&mut self, listeners: &[(SocketRole, ListenAddress)]) {
        for reason in self.unusable.drain(..) {
            tracing::warn!("an inherited descriptor is ignored: {reason}");
        }
        self.sockets.retain(|inherited| {
            let address = &inherited.address;
            let kept = listeners.iter().any(|(role, configured)| inherited.serves(*role, configured));
            match (kept, &inherited.origin) {
                (true, _) => {}
                (false, Some(_)) => {
                    tracing::info!(%address, "clients are no longer served at {address}: no listener is configured for it");
                    if let ListenAddress::Tcp(address) = address {
                        self.released_ports.push(address.port());
                    }
                }
                (false, None) => {
                    tracing::warn!(%address, "the inherited socket {address} is closed: no listener is configured for it");
                }
            }
            kept
        });
    }

    /// Whether the socket of this address belongs to a service manager, and with it the file of a Unix socket.
    pub fn is_managed(&self, role: SocketRole, configured: &ListenAddress) -> bool {
        self.sockets.iter().any(|inherited| inherited.is_managed && inherited.serves(role, configured))
    }

    /// All inherited sockets of this address. If there is none, binds the address, with a socket for each worker.
    ///
    /// # Errors
    /// The address can't be bound.
    pub fn or_bind(
        &mut self,
        role: SocketRole,
        configured: &ListenAddress,
        workers: usize,
    ) -> Result<BoundListener, BindError> {
        let Some(first) = self.sockets.iter().find(|inherited| inherited.serves(role, configured)) else {
            // For example `0.0.0.0:80` instead of `127.0.0.1:80`, which the old process still has open.
            let is_released = |address: &SocketAddr| self.released_ports.contains(&address.port());
            let exclusive = !matches!(configured, ListenAddress::Tcp(address) if is_released(address));
            return bind(configured, workers, exclusive);
        };
        let address = first.address.clone();
        if let ListenAddress::Unix(socket) = configured
            && !first.is_managed
            && let Err(error) = unix::set_access(socket)
        {
            // Earlier versions do not mark a service manager's sockets, so this is not an error: a failed start would
            // not help.
            tracing::warn!(%address, "mode, owner and group of {address} can't be set as configured: {error}");
        }
        let of_address = self.sockets.extract_if(.., |inherited| inherited.address == address);
        let sockets: Vec<_> = of_address.map(|inherited| inherited.socket).collect();
        tracing::info!(%address, sockets = sockets.len(), "Tollgate serves on the inherited socket {address}");
        Ok(BoundListener { address, sockets })
    }
}

/// The listening socket at `index`. A socket of any other type is closed.
fn take(descriptors: &mut ListenFd, index: usize) -> io::Result<(ListenAddress, ListenSocket)> {
    let (address, socket) = match descriptors.take_tcp_listener(index) {
        Ok(Some(socket)) => tcp(socket)?,
        Ok(None) => return Err(io::ErrorKind::NotFound.into()),
        Err(error) => match descriptors.take_unix_listener(index) {
            Ok(Some(socket)) => unix(socket)?,
            _ => {
                let _closed = (descriptors.take_udp_socket(index), descriptors.take_unix_datagram(index));
                return Err(error);
            }
        },
    };
    Ok((address, socket))
}

fn tcp(socket: TcpListener) -> io::Result<(ListenAddress, ListenSocket)> {
    check_listening(&SockRef::from(&socket))?;
    socket.set_nonblocking(true)?;
    // Accepted sockets inherit the option.
    SockRef::from(&socket).set_tcp_nodelay(true)?;
    Ok((ListenAddress::Tcp(socket.local_addr()?), ListenSocket::Tcp(socket)))
}

fn unix(socket: UnixListener) -> io::Result<(ListenAddress, ListenSocket)> {
    check_listening(&SockRef::from(&socket))?;
    socket.set_nonblocking(true)?;
    let address = socket.local_addr()?;
    let path = address.as_pathname().ok_or_else(|| io::Error::other("it has no path"))?;
    let address = UnixSocket { path: path.to_owned(), mode: None, owner: None, group: None };
    Ok((ListenAddress::Unix(address), ListenSocket::Unix(socket)))
}

fn check_listening(socket: &SockRef<'_>) -> io::Result<()> {
    match socket.is_listener()? {
        true => Ok(()),
        false => Err(io::Error::other("it is a connection, not a listening socket (set `Accept=no`)")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use SocketRole::{Admin, Clients};

    fn tcp(address: impl Into<SocketAddr>) -> ListenAddress {
        ListenAddress::Tcp(address.into())
    }

    fn any() -> ListenAddress {
        tcp(([127, 0, 0, 1], 0))
    }

    fn accept(socket: &ListenSocket) -> io::Result<()> {
        match socket {
            ListenSocket::Tcp(socket) => socket.accept().map(drop),
            ListenSocket::Unix(socket) => socket.accept().map(drop),
        }
    }

    fn address_of(socket: &InheritedSocket) -> SocketAddr {
        match socket.address {
            ListenAddress::Tcp(address) => address,
            ListenAddress::Unix(_) => panic!("a Unix socket"),
        }
    }

    /// A socket as systemd binds it, without SO_REUSEPORT.
    fn socket(origin: Option<(SocketRole, &str)>) -> InheritedSocket {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let origin = origin.map(|(role, address)| (role, address.to_owned()));
        InheritedSocket {
            address: tcp(socket.local_addr().unwrap()),
            is_managed: origin.is_none(),
            origin,
            socket: ListenSocket::Tcp(socket),
        }
    }

    fn of_systemd() -> (SocketAddr, InheritedSockets) {
        let socket = socket(None);
        (address_of(&socket), InheritedSockets { sockets: vec![socket], ..Default::default() })
    }

    /// The sockets of an old process, bound to `configured`, one for each of its workers.
    fn handed_over(role: SocketRole, configured: &str, workers: usize) -> Vec<InheritedSocket> {
        let BoundListener { address, sockets } =
            bind(&tcp(configured.parse::<SocketAddr>().unwrap()), workers, true).unwrap();
        let origin = Some((role, configured.to_owned()));
        sockets
            .into_iter()
            .map(|socket| InheritedSocket {
                address: address.clone(),
                origin: origin.clone(),
                is_managed: false,
                socket,
            })
            .collect()
    }

    #[test]
    fn one_socket_serves_every_worker() {
        let (address, mut inherited) = of_systemd();
        let bound = inherited.or_bind(Clients, &tcp(address), 3).unwrap();
        assert_eq!((bound.address.clone(), bound.sockets.len()), (tcp(address), 1));
        let sockets: Vec<_> = bound.deal(3).unwrap().into_iter().flatten().collect();
        let _client = std::net::TcpStream::connect(address).unwrap();
        // All three are woken. The first to accept gets the connection.
        assert!(accept(&sockets[2]).is_ok());
        for socket in &sockets {
            assert_eq!(accept(socket).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
    }

    #[test]
    fn all_sockets_of_an_address_are_taken() {
        let sockets = handed_over(Clients, "127.0.0.1:0", 3);
        let address = address_of(&sockets[0]);
        let mut inherited = InheritedSockets { sockets, ..Default::default() };
        let clients: Vec<_> = (0..30).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
        let bound = inherited.or_bind(Clients, &tcp(address), 2).unwrap();
        let dealt = bound.deal(2).unwrap();
        // No client in their queues is lost.
        let accepted = dealt.iter().flatten().flat_map(|socket| std::iter::from_fn(|| accept(socket).ok()));
        assert_eq!(accepted.count(), clients.len());
    }

    #[test]
    fn a_port_of_the_systems_choice_is_found_by_the_configured_address() {
        let any = any();
        let (clients, others) =
            (handed_over(Clients, "127.0.0.1:0", 2), handed_over(Clients, "127.0.0.1:0", 2));
        let admin = handed_over(Admin, "127.0.0.1:0", 1);
        let addresses = [&clients, &others, &admin].map(|sockets| sockets[0].address.clone());
        let sockets = clients.into_iter().chain(others).chain(admin).collect();
        let mut inherited = InheritedSockets { sockets, ..Default::default() };
        inherited.retain(&[(Clients, any.clone()), (Clients, any.clone()), (Admin, any.clone())]);
        let bound = [Admin, Clients, Clients].map(|role| inherited.or_bind(role, &any, 2).unwrap());
        assert_eq!(bound.each_ref().map(|bound| bound.sockets.len()), [1, 2, 2]);
        assert_eq!(
            bound.map(|bound| bound.address),
            [addresses[2].clone(), addresses[0].clone(), addresses[1].clone()]
        );
    }

    #[test]
    fn an_address_may_become_wider_while_the_old_process_has_it_open() {
        let old = bind(&any(), 1, true).unwrap();
        let origin = Some((Clients, old.address.to_string()));
        let socket = old.sockets[0].try_clone().unwrap();
        let sockets =
            vec![InheritedSocket { address: old.address.clone(), origin, is_managed: false, socket }];
        let mut inherited = InheritedSockets { sockets, ..Default::default() };
        let ListenAddress::Tcp(narrow) = old.address else { panic!("a Unix socket") };
        let wide = tcp(([0, 0, 0, 0], narrow.port()));
        inherited.retain(&[(Clients, wide.clone())]);
        assert_eq!(inherited.or_bind(Clients, &wide, 2).unwrap().address, wide);
    }

    #[test]
    fn a_socket_is_given_once() {
        let (address, mut inherited) = of_systemd();
        let _first = inherited.or_bind(Clients, &tcp(address), 1).unwrap();
        assert!(inherited.or_bind(Clients, &tcp(address), 1).is_err());
    }

    #[test]
    fn an_address_that_is_not_inherited_is_bound() {
        let (address, mut inherited) = of_systemd();
        let bound = inherited.or_bind(Clients, &any(), 2).unwrap();
        assert_ne!(bound.address, tcp(address));
        assert_eq!(inherited.sockets.len(), 1);
    }

    #[test]
    fn a_socket_without_a_listener_is_closed() {
        let (address, mut inherited) = of_systemd();
        inherited.retain(&[(Clients, tcp(address))]);
        assert_eq!(inherited.sockets.len(), 1);
        inherited.retain(&[(Clients, tcp(([0, 0, 0, 0], address.port())))]);
        assert!(std::net::TcpStream::connect(address).is_err());
    }
}
