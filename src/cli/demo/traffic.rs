//! Clients with different addresses of the loopback network.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header, request};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, client::conn::http1};
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

impl ClientScript {
    /// Its API key.
    pub(super) fn key(&self) -> Option<&str> {
        match &self.users {
            ScriptedUsers::OfKey(key) => Some(key),
            _ => None,
        }
    }
}

/// The user IDs that a client uses, or its API key.
pub(super) enum ScriptedUsers {
    None,
    /// These, in turn.
    Of(&'static [&'static str]),
    /// A new ID each time, with this prefix.
    Endless(&'static str),
    /// The customer whose API key this is.
    OfKey(String),
}

/// The last number used in a path.
static NUMBER: AtomicUsize = AtomicUsize::new(0);

impl ScriptedUsers {
    /// Adds the user of a request, by its number.
    fn identify(&self, builder: request::Builder, number: usize) -> request::Builder {
        match self {
            Self::None => builder,
            Self::Of(users) => match users.get(number % users.len().max(1)) {
                Some(user) => builder.header("x-user-id", *user),
                None => builder,
            },
            Self::Endless(prefix) => builder.header("x-user-id", format!("{prefix}{}", next_number())),
            Self::OfKey(key) => builder.header("x-api-key", key),
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

/// The connection of a client to the proxy.
struct Connection<'a> {
    script: &'a ClientScript,
    proxy: SocketAddr,
    sender: http1::SendRequest<Full<Bytes>>,
    /// Number of requests so far.
    sent: usize,
}

impl<'a> Connection<'a> {
    async fn open(script: &'a ClientScript, proxy: SocketAddr) -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::new(IpAddr::V4(script.address), 0))?;
        let stream = socket.connect(proxy).await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        // It ends with its sender; its result does not matter.
        tokio::spawn(connection);
        Ok(Self { script, proxy, sender, sent: 0 })
    }

    async fn send(&mut self, method: &Method, path: &str) -> io::Result<Response<Incoming>> {
        let request =
            Request::builder().method(method).uri(path).header(header::HOST, self.proxy.to_string());
        let request = self.script.users.identify(request, self.sent);
        let body = if *method == Method::POST { self.script.password } else { "" };
        let request = request.body(Full::<Bytes>::from(body)).map_err(io::Error::other)?;
        self.sent += 1;
        self.sender.ready().await.map_err(io::Error::other)?;
        self.sender.send_request(request).await.map_err(io::Error::other)
    }

    fn unexpected(&self, status: StatusCode) -> io::Error {
        io::Error::other(format!("{} got {status}", self.script.name))
    }
}

/// Plays `script` against the proxy, one request after another on one connection.
///
/// # Errors
/// The proxy can't be reached, or closes the connection.
pub(super) async fn play(script: &ClientScript, proxy: SocketAddr) -> io::Result<TrafficSummary> {
    let mut connection = Connection::open(script, proxy).await?;
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
            let response = connection.send(method, &path).await?;
            summary.sent += 1;
            match response.status() {
                // 403: the operator may have tried a ban.
                StatusCode::TOO_MANY_REQUESTS | StatusCode::FORBIDDEN => summary.limited += 1,
                // 401: the password is wrong, or the operator has revoked the key.
                StatusCode::UNAUTHORIZED => summary.answered += 1,
                status if status.is_success() => summary.answered += 1,
                status => return Err(connection.unexpected(status)),
            }
            response.into_body().collect().await.map_err(io::Error::other)?;
        }
    }
    Ok(summary)
}

/// The body of the response to a GET by the client of `script`.
///
/// # Errors
/// The proxy can't be reached, or the status is not a success.
pub(super) async fn body_of(script: &ClientScript, path: &str, proxy: SocketAddr) -> io::Result<Bytes> {
    let mut connection = Connection::open(script, proxy).await?;
    let response = connection.send(&Method::GET, path).await?;
    match response.status() {
        status if status.is_success() => {
            Ok(response.into_body().collect().await.map_err(io::Error::other)?.to_bytes())
        }
        status => Err(connection.unexpected(status)),
    }
}
