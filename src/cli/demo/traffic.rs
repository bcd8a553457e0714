//! Clients with different addresses of the loopback network.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpSocket;

/// Time between one kind of request and the next.
pub(super) const PAUSE: Duration = Duration::from_millis(1100);

/// A client and its requests.
pub(super) struct ClientScript {
    /// Its name in the demo's output.
    pub(super) name: &'static str,
    /// Its source address.
    pub(super) address: Ipv4Addr,
    pub(super) users: ScriptedUsers,
    /// Its requests: count, method and path. `{}` in a path is replaced by a new number each time.
    pub(super) requests: &'static [(usize, Method, &'static str)],
    /// The password that it sends to log in.
    pub(super) password: &'static str,
}

/// The user IDs that a client uses.
pub(super) enum ScriptedUsers {
    None,
    /// These, in turn.
    Of(&'static [&'static str]),
    /// A new ID each time, with this prefix.
    Endless(&'static str),
}

/// The last number used in a path.
static NUMBER: AtomicUsize = AtomicUsize::new(0);

impl ScriptedUsers {
    /// The user of a request, by its number.
    fn of(&self, request: usize) -> Option<String> {
        match self {
            Self::None => None,
            Self::Of(users) => Some((*users.get(request % users.len().max(1))?).to_owned()),
            Self::Endless(prefix) => Some(format!("{prefix}{}", next_number())),
        }
    }
}

fn next_number() -> usize {
    NUMBER.fetch_add(1, Ordering::Relaxed) + 1
}

/// The outcomes of a client's requests.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct TrafficSummary {
    pub(super) sent: usize,
    pub(super) answered: usize,
    pub(super) limited: usize,
}

/// Plays `script` against the proxy, one request after another on one connection.
///
/// # Errors
/// The proxy can't be reached, or closes the connection.
pub(super) async fn play(script: &ClientScript, proxy: SocketAddr) -> io::Result<TrafficSummary> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(IpAddr::V4(script.address), 0))?;
    let stream = socket.connect(proxy).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let driver = tokio::spawn(connection);
    let mut summary = TrafficSummary::default();
    for (index, (count, method, path)) in script.requests.iter().enumerate() {
        if index > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        for _ in 0..*count {
            let path = if path.contains("{}") {
                path.replace("{}", &next_number().to_string())
            } else {
                (*path).to_owned()
            };
            let mut request =
                Request::builder().method(method).uri(path).header(header::HOST, proxy.to_string());
            if let Some(user) = script.users.of(summary.sent) {
                request = request.header("x-user-id", user);
            }
            let body = if *method == Method::POST { script.password } else { "" };
            let request = request.body(Full::<Bytes>::from(body)).map_err(io::Error::other)?;
            let response = sender.send_request(request).await.map_err(io::Error::other)?;
            summary.sent += 1;
            match response.status() {
                // 403: the operator may have tried a ban.
                StatusCode::TOO_MANY_REQUESTS | StatusCode::FORBIDDEN => summary.limited += 1,
                // 401: the password is wrong.
                StatusCode::UNAUTHORIZED => summary.answered += 1,
                status if status.is_success() => summary.answered += 1,
                status => return Err(io::Error::other(format!("{} got {status}", script.name))),
            }
            response.into_body().collect().await.map_err(io::Error::other)?;
        }
    }
    drop(sender);
    // The connection ends with its sender; its result does not matter.
    let _ = driver.await;
    Ok(summary)
}
