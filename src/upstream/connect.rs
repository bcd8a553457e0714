//! Opening a connection to an endpoint.

use std::{io, net::SocketAddr};

use tokio::net::TcpStream;

use crate::config::model::Endpoint;

/// Connects to `endpoint`, one of its addresses after the other.
///
/// A name is resolved at every connect, by the system's resolver and on a thread of its own, so that
/// a change of address is followed as soon as the system knows it.
///
/// # Errors
/// The last address' error, or that the name has none.
pub(super) async fn connect(endpoint: &Endpoint) -> io::Result<TcpStream> {
    let host = endpoint.authority.host();
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(ip) = literal.parse() {
        return open(SocketAddr::new(ip, endpoint.port)).await;
    }
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in tokio::net::lookup_host((host, endpoint.port)).await? {
        match open(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

async fn open(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
