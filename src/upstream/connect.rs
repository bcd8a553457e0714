//! Opening a connection to an endpoint.

use std::{io, net::SocketAddr, time::Duration};

use tokio::{net::TcpStream, time::timeout};

use crate::config::model::Endpoint;

/// Connects to `endpoint`, one of its addresses after the other, each for its share of `within`: an
/// address that does not answer must not use up the time of the others.
///
/// A name is resolved at every connect, by the system's resolver and on a thread of its own, so that
/// a change of address is followed as soon as the system knows it.
///
/// # Errors
/// The last address' error, or that the name has none.
pub(super) async fn connect(endpoint: &Endpoint, within: Duration) -> io::Result<TcpStream> {
    let host = endpoint.authority.host();
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(ip) = literal.parse() {
        return open(SocketAddr::new(ip, endpoint.port)).await;
    }
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host((host, endpoint.port)).await?.collect();
    let share = within / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
    for address in addresses {
        match timeout(share, open(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => failed = error,
            Err(late) => failed = io::Error::new(io::ErrorKind::TimedOut, late),
        }
    }
    Err(failed)
}

async fn open(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
