//! Clients with addresses of their own, which the loopback has plenty of.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpSocket;

/// Between one kind of request and the next.
const PAUSE: Duration = Duration::from_millis(1100);

/// Who sends what.
pub(super) struct Script {
    /// What the demo calls it.
    pub(super) name: &'static str,
    /// Where it comes from.
    pub(super) address: Ipv4Addr,
    /// The user IDs that it uses in turn.
    pub(super) users: &'static [&'static str],
    /// Its requests: how many of what.
    pub(super) requests: &'static [(usize, Method, &'static str)],
}

/// What became of it.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Outcome {
    pub(super) sent: usize,
    pub(super) answered: usize,
    pub(super) limited: usize,
}

/// Plays `script` against the proxy, one request after the other on one connection.
///
/// # Errors
/// The proxy can't be reached, or breaks off.
pub(super) async fn play(script: &Script, proxy: SocketAddr) -> io::Result<Outcome> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(IpAddr::V4(script.address), 0))?;
    let stream = socket.connect(proxy).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let driver = tokio::spawn(connection);
    let mut users = script.users.iter().cycle();
    let mut outcome = Outcome::default();
    for (index, (count, method, path)) in script.requests.iter().enumerate() {
        if index > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        for _ in 0..*count {
            let mut request =
                Request::builder().method(method).uri(*path).header(header::HOST, proxy.to_string());
            if let Some(user) = users.next() {
                request = request.header("x-user-id", *user);
            }
            let request = request.body(Empty::<Bytes>::new()).map_err(io::Error::other)?;
            let response = sender.send_request(request).await.map_err(io::Error::other)?;
            outcome.sent += 1;
            match response.status() {
                // 403: somebody has tried a ban.
                StatusCode::TOO_MANY_REQUESTS | StatusCode::FORBIDDEN => outcome.limited += 1,
                status if status.is_success() => outcome.answered += 1,
                status => return Err(io::Error::other(format!("{} got {status}", script.name))),
            }
            response.into_body().collect().await.map_err(io::Error::other)?;
        }
    }
    drop(sender);
    // The connection ends with its sender; how does not matter any more.
    let _ = driver.await;
    Ok(outcome)
}
